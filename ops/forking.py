"""Forking: a new request that takes up another one from a step on, and reuses the results of what came before.

Here the producer's part: what is reused is decided from the source's events, read once, and written into the opening as
names alone. The results are taken over by the orchestrator (`orchestrator.reusing`), so a producer can invent none. The
source is not touched. Called by `ops.client`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property

from ops.opening import Accepted, Opening, announce, check_deadline, known, open_request
from schemas import codec, fields
from schemas.blackboard import Blackboard, Event, Stored, fold
from schemas.boundary import NO_BOUNDARY, BoundaryRecord
from schemas.broker import Broker
from schemas.errors import InvalidValue, NotFound
from schemas.ids import new_id
from schemas.plans import Step
from schemas.requests import (
    ConstraintRecord,
    ForkedFrom,
    PlanRecord,
    RequestRecord,
    StatusRecord,
    StepRecord,
    StepState,
    request_id,
)
from schemas.results import AgentResult
from schemas.teams import TeamCard
from workers.team import Team


async def fork(
    board: Blackboard,
    broker: Broker,
    source_id: str,
    at: str,
    *,
    tenant: str = "default",
    team: Team | None = None,
    constraints: Mapping[str, object] | None = None,
    idempotency_key: str | None = None,
    deadline_seconds: float | None = None,
    trace: str | None = None,
) -> Accepted:
    """Open a request with the words, constraints, team card and plan of another one, in which `at` and what is below it run anew.

    Reused is every step that was completed with nothing of it withdrawn since, and is neither `at` nor below it, nor below
    anything that runs anew. A running
    source may be forked: what it commits later is not reused. `constraints` given here replace the source's; they need the
    `team`'s code, and reused steps have seen the old values (`ForkedFrom.changed` keeps these). With an `idempotency_key`
    the same fork asked for again is the same request, also once its source is gone.

    Raises:
        NotFound: the board has no such request, or the request no such step.
        InvalidValue: a constraint is unknown or of another type, or changed without the code of the request's team.
        KeyReused: the key already stands for a request with other content.
        Unavailable: the board is not there. Forking again with the same key is safe.
    """
    check_deadline(deadline_seconds)
    changes = _changes(team, constraints or {})
    key = idempotency_key or new_id()
    codec.refuse_unsafe([source_id, at, key, trace], "fork")
    content = _content(source_id, at, changes)
    forked_id = request_id(tenant, key)
    if idempotency_key is not None and await known(board, forked_id, key, content):
        await announce(board, broker, forked_id, trace)
        return Accepted(forked_id, new=False)
    source = Source(source_id, await board.events(source_id))
    records = source.constraints_with(team, changes)
    record = RequestRecord(
        id=forked_id,
        tenant=tenant,
        team=source.request.team,
        text=source.request.text,
        constraints=tuple(each.name for each in records),
        idempotency_key=key,
        content_sha256=content,
        trace=trace,
        forked_from=source.taken_up_at(at, records),
    )
    deadline_ms = int(deadline_seconds * 1000) if deadline_seconds is not None else source.status.deadline_ms
    labels = {"forked_from": f"{source_id}@{source.position}", "at": at}
    return await open_request(board, broker, Opening(record, source.card.to_json(), records, deadline_ms, labels, source.started_with))


class Source:
    """A request as its events tell it, to be taken up. Pure.

    Raises:
        NotFound: there are no events: the board has no such request.
    """

    def __init__(self, source_id: str, events: Sequence[Event]) -> None:
        self.id = source_id
        self.position = events[-1].position if events else 0
        opening = events[0].put if events else {}
        self.started_with = {name: value for name, (_, value) in opening.items() if name.startswith(fields.SHARED_PREFIX)}
        """Shared fields that its session had carried into it; what reused steps did to them is taken in anew."""
        self._state: Mapping[str, Stored] = fold(events)
        if not {fields.REQUEST, fields.CARD, fields.STATUS} <= self._state.keys():
            raise NotFound(f"the board has no request {source_id!r} to fork: never opened, or past its retention", path="request")
        self.request = RequestRecord.from_json(self._state[fields.REQUEST].value)
        self.card = TeamCard.from_json(self._state[fields.CARD].value)
        self.status = StatusRecord.from_json(self._state[fields.STATUS].value)

    @property
    def steps(self) -> dict[str, Step]:
        """The steps of its plan; of one that is not planned yet, those it will start with."""
        plan = self._state.get(fields.PLAN)
        if plan is None:
            return {step.id: step for step in self.card.steps}
        return {step: Step.from_json(self._state[fields.definition(step)].value) for step in PlanRecord.from_json(plan.value).steps}

    @property
    def constraints(self) -> tuple[ConstraintRecord, ...]:
        """Its constraints in declared order."""
        return tuple(ConstraintRecord.from_json(self._state[fields.constraint(name)].value) for name in self.request.constraints)

    def constraints_with(self, team: Team | None, changes: Mapping[str, ConstraintRecord]) -> tuple[ConstraintRecord, ...]:
        """Return its constraints with some of them replaced or added, in declared order.

        Raises:
            InvalidValue: the team at hand is not the one of the request.
        """
        if team is not None and changes and team.name != self.request.team:
            raise InvalidValue(f"request {self.id} is of team {self.request.team!r}, not of {team.name!r}", path="team")
        records = {**{record.name: record for record in self.constraints}, **changes}
        declared = [card.name for card in self.card.constraints]
        return tuple(sorted(records.values(), key=lambda each: declared.index(each.name) if each.name in declared else len(declared)))

    def taken_up_at(self, at: str, constraints: Sequence[ConstraintRecord]) -> ForkedFrom:
        """Return what a fork at this step with these constraints reuses.

        Raises:
            NotFound: the plan has no such step.
        """
        if at not in self.steps:
            raise NotFound(f"request {self.id} has no step {at!r} to fork at; it has: {', '.join(self.steps)}", path="at")
        before = {record.name: record for record in self.constraints}
        changed = {
            each.name: before[each.name].text if each.name in before else ""
            for each in constraints
            if each.name not in before or before[each.name].value != each.value
        }
        return ForkedFrom(request=self.id, position=self.position, step=at, reused=self.reusable(at), changed=changed)

    def reusable(self, at: str) -> tuple[str, ...]:
        """Return the steps whose results a fork at `at` reuses, in the order of their commits.

        A step is among them if all that it depends on was, and was there before it; if an agent planned it, also the step of
        that agent.
        """
        steps, planned = self.steps, {step.id for step in self.card.steps}
        found: list[str] = []
        for step in sorted(filter(self._completed, steps), key=lambda each: self._state[fields.step(each)].position):
            if step != at and step in planned and set(steps[step].depends_on) <= set(found):
                found.append(step)
                if steps[step].may_plan:
                    planned |= {new.id for new in AgentResult.from_json(self._state[fields.result(step)].value).steps}
        return tuple(found)

    def _completed(self, step_id: str) -> bool:
        """Whether a step is completed, and nothing of its result was withdrawn."""
        stored, result = self._state.get(fields.step(step_id)), self._state.get(fields.result(step_id))
        if stored is None or result is None or StepRecord.from_json(stored.value).state is not StepState.COMPLETED:
            return False
        return (step_id, result.version) not in self._withdrawn

    @cached_property
    def _withdrawn(self) -> frozenset[tuple[str, str]]:
        """Step and version of each result of which something was withdrawn."""
        stored = self._state.get(fields.BOUNDARY)
        record = NO_BOUNDARY if stored is None else BoundaryRecord.from_json(stored.value)
        return frozenset((each.step, each.version) for each in record.retractions)


def _changes(team: Team | None, given: Mapping[str, object]) -> dict[str, ConstraintRecord]:
    if given and team is None:
        raise InvalidValue("the code of the request's team is needed to read a constraint; name the team", path="team")
    return {} if team is None else {record.name: record for record in team.given(given)}


def _content(source_id: str, at: str, changes: Mapping[str, ConstraintRecord]) -> str:
    """What makes two forks the same: source, step, and what was changed; not how far the source had come."""
    values = sorted([each.name, each.value] for each in changes.values())
    return hashlib.sha256(codec.encode(["fork", source_id, at, values])).hexdigest()

"""The client: what a person or a program does with requests: submit, wait, show, cancel, replay, drop, list.

The same calls serve the command line (on servers) and the embedded runtime (in memory).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from ops.producer import Accepted, submit
from ops.reporting import Report, report
from orchestrator.judging import ORCHESTRATOR
from schemas import fields
from schemas.blackboard import Blackboard, DeadEntry, Event, Snapshot
from schemas.broker import COMMANDS, Broker
from schemas.errors import NotFound, OutcomeUnknown, Refused, Unavailable, Undeliverable
from schemas.messages import MessageType, message
from schemas.plans import Step
from schemas.requests import RequestRecord, RequestStatus, StatusRecord, StepRecord, StepState
from workers.team import Team

SENDS = 3
ANSWER_SECONDS = 10.0
"""How long one sending of a command waits for its effect before the command is sent again."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One request in a list."""

    request_id: str
    team: str
    status: RequestStatus
    text: str
    opened_at_ms: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A step that was given up, as the board has it now."""

    request_id: str
    step_id: str
    title: str
    record: StepRecord
    request_status: RequestStatus
    failed_at_ms: int
    now_ms: int

    @property
    def reason(self) -> str:
        """The failure's code."""
        return self.record.failure.code if self.record.failure else ""


class Client:
    """Everything a user does with requests of one tenant."""

    def __init__(self, board: Blackboard, broker: Broker, *, tenant: str = "default", name: str = "client") -> None:
        self._board = board
        self._broker = broker
        self._tenant = tenant
        self._name = name

    async def submit(
        self,
        team: Team,
        text: str,
        *,
        constraints: Mapping[str, object] | None = None,
        idempotency_key: str | None = None,
        deadline_seconds: float | None = None,
        trace: str | None = None,
    ) -> Accepted:
        """Open a request; see `ops.producer.submit`."""
        return await submit(
            self._board,
            self._broker,
            team,
            text,
            tenant=self._tenant,
            constraints=constraints,
            idempotency_key=idempotency_key,
            deadline_seconds=deadline_seconds,
            trace=trace,
        )

    async def status(self, request_id: str) -> RequestStatus:
        """Return a request's status.

        Raises:
            NotFound: the board has no such request.
        """
        return _status(await self._board.read(request_id, (fields.STATUS,)))

    async def wait(self, request_id: str) -> RequestStatus:
        """Return the status once the request is over; nothing is polled. Bound it with `asyncio.timeout`.

        Raises:
            NotFound: the board has no such request.
        """
        snapshot = await self._board.read(request_id, (fields.STATUS,))
        status = _status(snapshot)
        if status.over:
            return status
        async with aclosing(self._board.watch(request_id, snapshot.position)) as events:
            async for event in events:
                if fields.STATUS in event.put:
                    status = StatusRecord.from_json(event.put[fields.STATUS][1]).status
                    if status.over:
                        break
        return status

    async def follow(self, request_id: str, team: Team | None = None) -> AsyncIterator[Report]:
        """Yield a report now and after each event, until the request is over.

        Raises:
            NotFound: the board has no such request.
        """
        events = await self._board.events(request_id)
        current = report(request_id, events, team)
        yield current
        async with aclosing(self._board.watch(request_id, events[-1].position)) as more:
            while not current.status.over:
                events.append(await anext(more))
                current = report(request_id, events, team)
                yield current

    async def show(self, request_id: str, team: Team | None = None) -> Report:
        """Return everything that can be said of a request; with its team's code, briefs too.

        Raises:
            NotFound: the board has no such request.
        """
        return report(request_id, await self._board.events(request_id), team)

    async def events(self, request_id: str) -> list[Event]:
        """Return a request's events, oldest first."""
        return await self._board.events(request_id)

    async def recent(self, *, limit: int = 50, status: RequestStatus | None = None) -> list[Listed]:
        """Return the tenant's newest requests that the board still has, newest first."""
        ids = await self._board.recent(self._tenant, limit)
        names = (fields.REQUEST, fields.STATUS)
        snapshots = await asyncio.gather(*(self._board.read(each, names) for each in ids))
        listed = [_listed(snapshot) for snapshot in snapshots if snapshot.position]
        return [each for each in listed if status is None or each.status is status]

    async def dead(
        self,
        *,
        request_id: str | None = None,
        agent: str | None = None,
        reason: str | None = None,
        limit: int = 1000,
    ) -> list[DeadLetter]:
        """Return the dead letters that fit, newest first; each is checked against the board."""
        entries = await self._board.dead_list(limit)
        letters = await asyncio.gather(*(self._letter(each) for each in entries if request_id in (None, each.request_id)))
        return [
            letter for letter in letters if letter is not None and agent in (None, letter.record.agent) and reason in (None, letter.reason)
        ]

    async def _letter(self, entry: DeadEntry) -> DeadLetter | None:
        name, definition = fields.step(entry.step_id), fields.definition(entry.step_id)
        snapshot = await self._board.read(entry.request_id, (name, definition, fields.STATUS))
        stored = snapshot.fields.get(name)
        if stored is None:
            return None
        record = StepRecord.from_json(stored.value)
        if record.state is not StepState.FAILED or record.epoch != entry.epoch:
            return None
        planned = snapshot.value(definition)
        title = Step.from_json(planned).title if planned is not None else entry.step_id
        return DeadLetter(entry.request_id, entry.step_id, title, record, _status(snapshot), stored.at_ms, snapshot.now_ms)

    async def cancel(self, request_id: str, reason: str = "") -> RequestStatus:
        """End a request now, for good, and return its status, when the board shows it.

        Raises:
            NotFound: the board has no such request.
            Refused: it was over already.
            OutcomeUnknown: nobody has answered; it may still be cancelled.
        """
        status = await self.status(request_id)
        if status is RequestStatus.CANCELLED:
            return status
        if status.over:
            raise Refused(f"the request is over ({status}); only what is running can be cancelled")
        await self._command(MessageType.CANCEL, request_id, content=reason)
        return await self.status(request_id)

    async def replay(self, request_id: str, step_id: str, epoch: int | None = None) -> int:
        """Reopen a failed step and return its new epoch; `epoch` is the one that failed, by default the current one.

        Raises:
            NotFound: the board has no such request or step.
            Refused: the step is not FAILED in that epoch, or the request was cancelled.
            OutcomeUnknown: nobody has answered; it may still be replayed.
        """
        record = await self._step(request_id, step_id)
        wanted = record.epoch if epoch is None else epoch
        if record.state is not StepState.FAILED or record.epoch != wanted:
            raise Refused(f"step {step_id!r} is {record.state} in epoch {record.epoch}; only a failed step is replayed, in its own epoch")
        await self._command(MessageType.REPLAY, request_id, step_id=step_id, epoch=wanted)
        return (await self._step(request_id, step_id)).epoch

    async def drop(self, request_id: str, step_id: str, reason: str) -> None:
        """Take a dead letter out of the list; who and why is kept as an event.

        Raises:
            NotFound: the board has no such request or step.
            Refused: it is no dead letter.
            OutcomeUnknown: nobody has answered.
        """
        record = await self._step(request_id, step_id)
        if record.state is not StepState.FAILED:
            raise Refused(f"step {step_id!r} is {record.state}, so it is no dead letter")
        await self._command(MessageType.DROP, request_id, step_id=step_id, epoch=record.epoch, content=reason)

    async def _step(self, request_id: str, step_id: str) -> StepRecord:
        snapshot = await self._board.read(request_id, (fields.STATUS, fields.step(step_id)))
        _status(snapshot)
        value = snapshot.value(fields.step(step_id))
        if value is None:
            raise NotFound(f"request {request_id} has no step {step_id!r}", path="step")
        return StepRecord.from_json(value)

    async def _command(self, kind: MessageType, request_id: str, *, step_id: str | None = None, epoch: int = 0, content: str = "") -> None:
        """Send a command until the board shows its effect, or its refusal; each sending is a new message.

        Answers are looked for from before the first sending on: that one may have arrived, though nobody could say so.
        """
        position = (await self._board.read(request_id, (fields.STATUS,))).position
        sent: set[str] = set()
        trouble = ""
        for _ in range(SENDS):
            bell = message(kind, request_id, sender=self._name, recipient=ORCHESTRATOR, step_id=step_id, epoch=epoch, content=content)
            sent.add(bell.id)
            try:
                await self._broker.publish(COMMANDS, bell)
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer = await self._answer(request_id, position, sent)
            except TimeoutError:
                continue
            except (Unavailable, Undeliverable) as error:
                trouble = f": {error}"
                continue
            if answer.labels.get("event") == "command_refused":
                raise Refused(answer.labels.get("reason", "refused"))
            return
        raise OutcomeUnknown(f"no orchestrator has answered the {kind} of {request_id}; it may still take effect{trouble}")

    async def _answer(self, request_id: str, position: int, sent: set[str]) -> Event:
        async with aclosing(self._board.watch(request_id, position)) as events:
            async for event in events:
                if event.cause in sent:
                    return event
        raise OutcomeUnknown(f"the events of {request_id} ended")


def _status(snapshot: Snapshot) -> RequestStatus:
    value = snapshot.value(fields.STATUS)
    if value is None:
        raise NotFound(f"the board has no request {snapshot.request_id!r}: never opened, or past its retention", path="request")
    return StatusRecord.from_json(value).status


def _listed(snapshot: Snapshot) -> Listed:
    stored = snapshot.fields[fields.REQUEST]
    record = RequestRecord.from_json(stored.value)
    return Listed(record.id, record.team, _status(snapshot), record.text, stored.at_ms, snapshot.now_ms)

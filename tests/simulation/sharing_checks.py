"""The promises of the boundary, checked event by event: shared fields, the barrier, retraction, recheck, and what briefs may carry.

Fields are worked out anew from results and events, by other code than the orchestrator's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from schemas import fields
from schemas.blackboard import Event
from schemas.boundary import AbsorbedRecord, BoundaryRecord
from schemas.packets import fingerprint
from schemas.requests import AnswerRecord, RequestStatus, StepState
from schemas.results import ReadOf
from schemas.shared import FieldCard, FieldChange, FieldRecord, Operation
from tests.simulation.agents import NONCE
from tests.simulation.ledger import AgentRun

if TYPE_CHECKING:
    from tests.simulation.invariants import RequestCheck

_ABSORBS = ("changes_absorbed", "promoted")
_CHANGES_BOUNDARY = {"retracted", "decided", "rules_changed", *_ABSORBS}


class SharingCheck:
    """The part of one request's check that is about its boundary."""

    def __init__(self, request: RequestCheck) -> None:
        self._request = request
        self._happened = request.world.happened
        self._runs: dict[int, AgentRun] = {run.position: run for run in request.runs.values()}
        self._absorbed: dict[str, tuple[int, Sequence[FieldChange]]] = {}
        """Step -> the epoch that was taken in last, and the changes of its result; none of a failed one."""
        self._rechecks: Counter[str] = Counter()

    def broken(self, invariant: int, what: str) -> None:
        """Write down a broken promise."""
        self._request.broken(invariant, what)

    # Before an event is applied.

    def event(self, event: Event) -> None:
        """Check one event against the state before it."""
        how = event.labels.get("event", "")
        if how in _ABSORBS and fields.ABSORBED in event.put:
            self._barrier(event)
        elif how == "rechecked":
            self._rechecks[event.labels["step"]] += 1
            if self._rechecks[event.labels["step"]] > 1:
                self.broken(13, f"{event.labels['step']} caused a second recheck")
        if fields.BOUNDARY in event.put:
            self._boundary(event, how, BoundaryRecord.from_json(event.put[fields.BOUNDARY][1]))
        for name, (_, value) in event.put.items():
            if name.startswith(fields.SHARED_PREFIX):
                self._field(event, how, name.removeprefix(fields.SHARED_PREFIX), FieldRecord.from_json(value))
        if how == "step_claimed" and not self._request.world.set_back and event.position in self._runs:
            self._brief(self._runs[event.position])
        self._count(event, how)

    def _count(self, event: Event, how: str) -> None:
        if how in (*_CHANGES_BOUNDARY, "stale_found", "rechecked", "step_regated"):
            self._happened[f"boundary_{how}"] += 1
        for label in ("reopened", "given_up", "to_a_person", "flagged") if how == "stale_found" else ("refused", "withdrawn", "promoted"):
            self._happened[f"boundary_{label}"] += label in event.labels and how in ("stale_found", *_ABSORBS)

    def _barrier(self, event: Event) -> None:
        """Invariant 3: what steps of one superstep changed is taken in together, once all of them have ended."""
        state = self._request.state
        group = event.labels["steps"].split(",")
        for step in group:
            record, name = state.steps[step], state.definitions[step].superstep
            members = [each for each, definition in state.definitions.items() if name and definition.superstep == name] or [step]
            if open_steps := [each for each in members if not state.settled(each)]:
                self.broken(3, f"{step} was taken in before {open_steps} of its superstep had ended")
            left = [each for each in members if state.steps[each].state.over and not state.taken_in(each) and each not in group]
            if left:
                self.broken(3, f"{step} was taken in without {left} of its superstep")
            self._happened["superstep_absorbed"] += len(set(members) & set(group)) > 1
            result = state.results.get(step) if record.state is StepState.COMPLETED else None
            self._absorbed[step] = (record.epoch, result.changes if result is not None else ())

    def _boundary(self, event: Event, how: str, after: BoundaryRecord) -> None:
        before = self._request.state.boundary
        if how not in _CHANGES_BOUNDARY:
            self.broken(12, f"the boundary was changed by {how}")
        if after.retractions[: len(before.retractions)] != before.retractions or not before.rulings.keys() <= after.rulings.keys():
            self.broken(13, f"{how} took back what was withdrawn or decided")
        if (after.rules != before.rules and how != "rules_changed") or (after.rulings != before.rulings and how != "decided"):
            self.broken(12, f"rules or rulings were changed by {how}")
        for each in after.retractions[len(before.retractions) :]:
            if each.version != self._request.state.stored[fields.result(each.step)].version:
                self.broken(13, f"{each.name} was withdrawn at {each.version}, which is not what the step says now")
        for step, run in ((s, r) for s, r in self._request.state.steps.items() if r.state is StepState.RUNNING):
            self._happened["changed_while_it_ran"] += bool(step and run)

    def _field(self, event: Event, how: str, name: str, after: FieldRecord) -> None:
        """Invariants 10 and 12: who changed a shared field, and whether it is what it has to be."""
        state = self._request.state
        card, before = state.cards[name], state.shared.get(name, FieldRecord())
        match how:
            case "changes_absorbed" | "promoted" if card.reducer is not None:
                self._merged(card, before, after, event.labels["steps"].split(","))
            case "changes_absorbed" | "promoted":
                self._owned(card, before, after, event)
            case "stale_found":
                if after.model_copy(update={"flagged": before.flagged}) != before:
                    self.broken(12, f"field {name} was changed by what found it stale")
                self._happened["flagged"] += 1
            case "decided":
                claimed = any(each.value == after.value for each in before.claims)
                if not before.contested or after.contested or after.claims != before.claims or not claimed:
                    self.broken(12, f"a decision made {after.value!r} of field {name}, which is none of its claims")
            case _:
                self.broken(12, f"field {name} was changed by {how}")

    def _merged(self, card: FieldCard, before: FieldRecord, after: FieldRecord, group: Sequence[str]) -> None:
        """Invariant 10: a merged field is what present contributions come to, in the one order, whoever came first."""
        claims = self._claims(card)
        if [(each.step, each.epoch, each.index, each.value) for each in after.claims if not each.refused] != claims:
            self.broken(10, f"field {card.name} holds {[each.id for each in after.claims]}, absorbed were {[each[:3] for each in claims]}")
        values = [value for *_, value in claims]
        contested = card.reducer == "agree" and len(set(map(repr, values))) > 1
        self._happened["contested"] += contested and not before.contested
        if after.settled_by:
            by = after.settled_by == before.settled_by or (after.settled_by == card.arbiter and card.arbiter in group)
            if after.contested or after.value not in values or not by:
                self.broken(12, f"field {card.name} was settled as {after.value!r} by {after.settled_by}")
            self._happened["settled_by_arbiter"] += before.contested
            return
        expected = None if contested or not values else _reduced(str(card.reducer), values)
        if (after.value, after.contested) != (expected, contested):
            self.broken(10, f"field {card.name} is {after.value!r}, its contributions come to {expected!r}")

    def _claims(self, card: FieldCard) -> list[tuple[str, int, int, Any]]:
        added: list[tuple[str, int, int, Any]] = [
            (step, epoch, index, change.value)
            for step, (epoch, changes) in sorted(self._absorbed.items())
            for index, change in enumerate(changes)
            if change.field == card.name and change.operation is Operation.ADD and card.name in self._request.state.definitions[step].writes
        ]
        if card.capacity is None:
            return added
        kept: list[tuple[str, int, int, Any]] = []
        total = 0
        for each in added:
            if total + each[3] <= card.capacity:
                total += each[3]
                kept.append(each)
        return kept

    def _owned(self, card: FieldCard, before: FieldRecord, after: FieldRecord, event: Event) -> None:
        if (after.value, after.step, after.epoch) == (before.value, before.step, before.epoch):
            return
        epoch, changes = self._absorbed.get(str(card.owner), (-1, ()))
        wanted = any(change.field == card.name and change.value == after.value for change in changes)
        if after.step != card.owner or card.owner not in event.labels["steps"].split(",") or after.epoch != epoch or not wanted:
            self.broken(12, f"field {card.name} of {card.owner} was set to {after.value!r} by {after.step or 'nobody'}")
        now, then = before.state(card) if before.value is not None else None, after.state(card)
        if not card.transitions or (now == then and now not in card.terminal):
            return
        ways = [each for each in card.transitions if each.source == now and each.target == then and card.owner in each.by]
        if not any(all(self._says(name, wanted, event) for name, wanted in each.when.items()) for each in ways):
            self.broken(12, f"field {card.name} went from {now!r} to {then!r}, and its state machine does not")
        self._happened["state_changed"] += 1

    def _says(self, name: str, wanted: object, event: Event) -> bool:
        """Whether a field that a condition names says so, before or with the write."""
        records = [self._request.state.shared.get(name)]
        if fields.shared(name) in event.put:
            records.append(FieldRecord.from_json(event.put[fields.shared(name)][1]))
        return any(record is not None and record.value == wanted for record in records)

    def _brief(self, run: AgentRun) -> None:
        """Invariants 4 and 10: what a brief carried was so at the claim, not withdrawn, and not contested."""
        state, step = self._request.state, run.step.id
        for name, read in run.reads.items():
            if name.startswith(fields.SHARED_PREFIX):
                self._field_read(step, name, read)
                continue
            source, _, key = name.partition(".")
            now = state.stored[fields.result(source)].version
            if state.steps[source].state is not StepState.COMPLETED:
                self.broken(3, f"the brief of {step} carries {name}, and {source} is {state.steps[source].state}")
            if read.version != now:
                self.broken(10, f"the brief of {step} carries {name} at {read.version}; at the claim it was at {now}")
            if any((each.step, each.key, each.version) == (source, key, read.version) for each in state.boundary.retractions):
                self.broken(4, f"the brief of {step} carries {name}, which had been withdrawn")
        passed_on = {nonce for name in run.reads if name.endswith(".seen") for nonce in NONCE.findall(self._value(name))}
        for each in state.boundary.retractions:
            if each.key == "out" and each.value in set(NONCE.findall(run.text)) - passed_on:
                self.broken(4, f"the text of {step}'s brief holds {each.value}, which had been withdrawn")

    def _value(self, name: str) -> str:
        step, _, key = name.partition(".")
        return next((str(fact.value) for fact in self._request.state.results[step].facts if fact.key == key), "")

    def _field_read(self, step: str, name: str, read: ReadOf) -> None:
        state, field = self._request.state, name.removeprefix(fields.SHARED_PREFIX)
        if read.version != state.stored[name].version:
            self.broken(10, f"the brief of {step} carries {name} at {read.version}; at the claim it was at {state.stored[name].version}")
        if state.shared[field].contested:
            self._happened["contested_for_its_arbiter"] += 1
            if state.cards[field].arbiter != step:
                self.broken(4, f"the brief of {step} carries {name}, which was contested")

    # Afterwards.

    def after(self, event: Event) -> None:
        """Check the state that an event led to."""
        if fields.ABSORBED in event.put and event.labels.get("event") in _ABSORBS:
            state = self._request.state
            record = AbsorbedRecord.from_json(event.put[fields.ABSORBED][1])
            ahead = [(step, epoch) for step, epoch in record.steps if epoch > state.steps[step].epoch]
            if ahead or len({step for step, _ in record.steps}) != len(record.steps):
                self.broken(10, f"taken in are {record.steps}")

    def corrected(self, answer: AnswerRecord) -> str:
        """Check what an answer corrects; return the rest of its text."""
        if not answer.corrections:
            return answer.text
        first, _, rest = answer.text.partition("\n\n")
        for each in answer.corrections:
            if " ".join(each.before.split())[:200] not in first:
                self.broken(8, f"the answer corrects {each.step}.{each.key}, and does not say what had been said")
        self._happened["answer_corrected"] += 1
        return rest

    def ended(self) -> None:
        """Check what is left once all is quiet."""
        state = self._request.state
        how = next((event.labels.get("event", "") for event in reversed(self._request.events) if fields.ANSWER in event.put), "")
        if state.status is None or state.status.status is RequestStatus.CANCELLED or not how.startswith("request_"):
            return  # ended from outside
        for card in state.cards.values():
            if card.reducer is not None:
                self._present(card)
        for step, record in state.steps.items():
            result = state.results.get(step)
            if record.state is StepState.COMPLETED and result is not None and result.made_with is not None:
                self._holds(step, result.made_with.reads)

    def _present(self, card: FieldCard) -> None:
        """Invariant 10: nothing of an older epoch, or of a step that did not end well, stands in a merged field at the end."""
        state, record = self._request.state, self._request.state.shared.get(card.name)
        for each in record.claims if record is not None else ():
            now = state.steps[each.step]
            if (now.state, now.epoch) != (StepState.COMPLETED, each.epoch):
                self.broken(10, f"field {card.name} holds what {each.id} added; the step is {now.state} in epoch {now.epoch}")

    def _holds(self, step: str, reads: dict[str, ReadOf]) -> None:
        """Invariant 13: no result rests on what was withdrawn, or on what its source says otherwise by now."""
        state = self._request.state
        if any(each.step == step and each.flagged for each in state.shared.values()):
            return  # it was said to a user, and stays as it was said
        for name, read in reads.items():
            source, _, key = name.partition(".")
            if name.startswith(fields.SHARED_PREFIX):
                continue
            result = state.results[source]
            values = {fact.key: fact.value for fact in result.facts} | {each.key: each.payload for each in result.packets}
            withdrawn = any((each.step, each.key, each.version) == (source, key, read.version) for each in state.boundary.retractions)
            if withdrawn and self._version_of(fields.result(source)) == read.version:  # said again by a later run, it holds again
                self.broken(13, f"{step} is COMPLETED and rests on {name}, which was withdrawn")
            elif state.steps[source].state is not StepState.COMPLETED or key not in values or fingerprint(values[key]) != read.fingerprint:
                self.broken(13, f"{step} is COMPLETED and rests on what {name} does not say any more")

    def _version_of(self, name: str) -> str:
        """Of what stands in a field now."""
        return next(event.put[name][0] for event in reversed(self._request.events) if name in event.put)


def _reduced(reducer: str, values: list[Any]) -> Any:
    """What contributions come to, worked out once more."""
    match reducer:
        case "sum":
            return math.fsum(values)
        case "append":
            return values
        case "union":
            return sorted(set(values))
        case _:
            return values[0]

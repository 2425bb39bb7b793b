"""Measuring: the metrics of the boundary of one request, computed from its report and events alone. Pure.

What each one is stands in `ops.metrics.FORMULAS`, and in docs/boundary.md. Called by `metrics` and `show`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ops.deciding import Attempt, attempts_of
from ops.metrics import Measure, Metrics, Price
from ops.reporting import Report
from ops.using import use_of
from schemas import fields
from schemas.blackboard import Event, fold
from schemas.boundary import AbsorbedRecord, BoundaryRecord
from schemas.facts import Fact
from schemas.gate import Outcome
from schemas.packets import Payload, fingerprint
from schemas.plans import inputs_of
from schemas.requests import RequestStatus, StatusRecord
from schemas.results import AgentResult, FailureCode, ReadOf
from schemas.shared import FieldRecord
from workers import tokens
from workers.compressing import figures_of
from workers.writing import value_text


def measure(report: Report, price: Price | None = None) -> Metrics:
    """Return the metrics of one request."""
    carried = list(_carried(report))
    completed = [each for each in carried if each.completed]
    used = sum(use is True for each in completed for use in each.uses)
    told = sum(use is not None for each in completed for use in each.uses)
    usage = [result.usage for _, result in _results(report.events)]
    tokens_in, tokens_out = sum(each.input_tokens for each in usage), sum(each.output_tokens for each in usage)
    success = float(report.status is RequestStatus.COMPLETED)
    cost = 0.0 if price is None else (tokens_in * price.per_million_in + tokens_out * price.per_million_out) / 1e6
    crossed = [text for each in carried for text in each.texts]
    return Metrics(
        1,
        {
            "context_precision": Measure(used, told),
            "context_recall": Measure(used, used + _asked_again(report, carried) + _not_supplied(report.events)),
            "provenance_coverage": _provenance(report),
            "figures_covered": _figures(report),
            "staleness_rate": Measure(sum(each.stale for each in carried), sum(len(each.reads) for each in carried)),
            "handoff_success": _handoffs(attempts_of(report.events)),
            "conflict_rate": _conflicts(report.events),
            "tokens_per_success": Measure(tokens_in + tokens_out, success),
            "cost_per_success": Measure(cost, success if price is not None else 0.0),
            "seconds_per_success": Measure(_seconds(report.events) if success else 0.0, success),
            "external_calls_per_success": Measure(sum(each.tool_calls for each in usage), success),
            "tokens_per_crossing": Measure(sum(map(tokens.estimate, crossed)), len(crossed)),
            "seconds_per_crossing": _handing_over(report),
            "recovery": _recovery(report.events, report.status),
        },
    )


@dataclass(frozen=True, slots=True)
class _Carried:
    """What the brief of one committed result carried, and what became of it."""

    step: str
    completed: bool
    reads: Mapping[str, ReadOf]
    claimed_at: int
    uses: tuple[bool | None, ...]
    texts: tuple[str, ...]
    stale: int


def _results(events: Sequence[Event]) -> Iterator[tuple[Event, AgentResult]]:
    """Every result that was made here, whatever became of it later; a reused one was made elsewhere."""
    for event in events:
        if event.labels.get("event") == "step_reused":
            continue
        for name, (_, value) in event.put.items():
            if name.startswith(fields.RESULT_PREFIX):
                yield event, _result(value)


@lru_cache(maxsize=1024)
def _result(value: bytes) -> AgentResult:
    """A result is looked at for every value that somebody read of it."""
    return AgentResult.from_json(value)


class _History:
    """What each field said after any event."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._puts: dict[str, tuple[list[int], list[bytes]]] = {}
        for event in events:
            for name, (_, value) in event.put.items():
                positions, values = self._puts.setdefault(name, ([], []))
                positions.append(event.position)
                values.append(value)

    def at(self, name: str, position: int) -> bytes | None:
        """The value of a field after the event at `position`."""
        positions, values = self._puts.get(name, ([], []))
        index = bisect_right(positions, position)
        return values[index - 1] if index else None


def _carried(report: Report) -> Iterator[_Carried]:
    history = _History(report.events)
    for event, result in _results(report.events):
        if result.made_with is None:
            continue
        then, before = result.made_with.position, event.position - 1
        reads = result.made_with.reads
        values = {name: found for name in reads if (found := _value(name, history, then)) is not None}
        yield _Carried(
            step=result.step_id,
            completed=result.completed,
            reads=reads,
            claimed_at=result.made_with.position,
            uses=tuple(use_of(name, value, result) for name, (value, _) in values.items()),
            texts=tuple(value_text(value) for value, _ in values.values()),
            stale=sum(
                _is_stale(name, read, values.get(name), history, before, event.at_ms) for name, read in result.made_with.reads.items()
            ),
        )


_Known = tuple[Payload, int | None]
"""A value and when it expires (board clock, ms)."""


def _value(name: str, history: _History, position: int) -> _Known | None:
    """What the board said of `step.key` or `field/<name>`."""
    if name.startswith(fields.SHARED_PREFIX):
        stored = history.at(name, position)
        record = None if stored is None else FieldRecord.from_json(stored)
        return None if record is None or record.value is None else (record.value, record.expires_at_ms)
    producer, _, key = name.partition(".")
    stored = history.at(fields.result(producer), position)
    if stored is None:
        return None
    result = _result(stored)
    for fact in result.facts:
        if fact.key == key:
            return fact.value, None if fact.expires_at is None else int(fact.expires_at.timestamp() * 1000)
    for packet in result.packets:
        if packet.key == key:
            expires = packet.control.expires_at
            return packet.payload, None if expires is None else int(expires.timestamp() * 1000)
    return None


def _is_stale(name: str, read: ReadOf, known: _Known | None, history: _History, before: int, at_ms: int) -> bool:
    """Whether a value was no longer good just before the write at `at_ms` that rests on it."""
    if known is not None and known[1] is not None and known[1] <= at_ms:
        return True
    producer, _, key = name.partition(".")
    boundary = history.at(fields.BOUNDARY, before)
    if boundary is not None and BoundaryRecord.from_json(boundary).retracted(producer, key, read.version):
        return True
    value = _value(name, history, before)
    return value is None or (bool(read.fingerprint) and fingerprint(value[0]) != read.fingerprint)


def _asked_again(report: Report, carried: Sequence[_Carried]) -> int:
    """Facts that a step took from a tool though another step had the same one, committed before its claim and not in its brief."""
    count = 0
    made = list(_results(report.events))
    told = [(event.position, each.step_id, f"{each.step_id}.{fact.key}", _same(fact)) for event, each in made for fact in each.facts]
    briefs = {(each.step, each.claimed_at): each for each in carried}
    for _, result in made:
        if result.made_with is None:
            continue
        brief = briefs[(result.step_id, result.made_with.position)]
        own = {_same(fact) for fact in result.facts}
        before = [(name, same) for at, step, name, same in told if at <= brief.claimed_at and step != result.step_id and same in own]
        had = {same for name, same in before if name in brief.reads}
        count += len({same for _, same in before} - had)
    return count


def _same(fact: Fact) -> tuple[str, str, str, str]:
    """By what two facts are one: tool, place in its return, what the tool names as its origin, and value."""
    return fact.provenance.tool, fact.provenance.path, fact.provenance.source_ref or "", fingerprint(fact.value)


def _not_supplied(events: Sequence[Event]) -> int:
    return sum(event.labels.get("code") == FailureCode.MISSING_FACT for event in events)


def _provenance(report: Report) -> Measure:
    facts = [fact for _, fact in report.facts]
    results = [each.result for each in report.steps if each.result is not None and each.state == "COMPLETED"]
    packets = [packet for each in results for packet in each.packets]
    sourced = sum(bool(each.provenance.tool and each.provenance.call_id) for each in facts)
    return Measure(sourced + sum(bool(each.control.evidence) for each in packets), len(facts) + len(packets))


def _figures(report: Report) -> Measure:
    figures = figures_of(report.answer)
    results = [each.result for each in report.steps if each.result is not None]
    known = figures_of(report.request.text)
    for text in (
        *(each.text for each in report.constraints),
        *(f"{value_text(fact.value)} {fact.basis or ''}" for result in results for fact in result.facts),
        *(value_text(packet.payload) for result in results for packet in result.packets),
    ):
        known |= figures_of(text)
    return Measure(len(figures & known), len(figures))


def _handoffs(attempts: Sequence[Attempt]) -> Measure:
    """Of each step and need, the first decision that an event keeps."""
    first: dict[tuple[str, str], bool] = {}
    for attempt in attempts:
        for each in attempt.recorded:
            first.setdefault((attempt.step, each["need"]), each["outcome"] != Outcome.BLOCK)
    return Measure(sum(first.values()), len(first))


def _conflicts(events: Sequence[Event]) -> Measure:
    changes = sum(len(result.changes) for _, result in _results(events))
    contested = 0
    was: dict[str, bool] = {}
    for event in events:
        for name, (_, value) in event.put.items():
            if name.startswith(fields.SHARED_PREFIX):
                now = FieldRecord.from_json(value).contested
                contested += now and not was.get(name, False)
                was[name] = now
    stored = fold(events).get(fields.ABSORBED)
    refused = 0 if stored is None else len(AbsorbedRecord.from_json(stored.value).refused)
    return Measure(min(contested + refused, changes), changes)


def _seconds(events: Sequence[Event]) -> float:
    """From the opening to the first time that it was COMPLETED."""
    ends = (event.at_ms for event, status in _statuses(events) if status is RequestStatus.COMPLETED)
    return (next(ends, events[0].at_ms) - events[0].at_ms) / 1000


def _statuses(events: Sequence[Event]) -> Iterator[tuple[Event, RequestStatus]]:
    for event in events:
        if fields.STATUS in event.put:
            yield event, StatusRecord.from_json(event.put[fields.STATUS][1]).status


def _handing_over(report: Report) -> Measure:
    """The first claim of each step; a later one waited for something else."""
    landed: dict[str, int] = {}
    inputs = {each.step.id: inputs_of(each.step) for each in report.steps}
    seconds, count = 0.0, 0
    claimed: set[str] = set()
    for event in report.events:
        step = event.labels.get("step", "")
        if event.labels.get("event") == "step_claimed" and step not in claimed:
            claimed.add(step)
            times = [landed[each] for each in inputs.get(step, ()) if each in landed]
            if times:
                seconds, count = seconds + (event.at_ms - max(times)) / 1000, count + 1
        landed |= {name.removeprefix(fields.RESULT_PREFIX): event.at_ms for name in event.put if name.startswith(fields.RESULT_PREFIX)}
    return Measure(seconds, count)


def _recovery(events: Sequence[Event], status: RequestStatus) -> Measure:
    failed = [event.position for event, each in _statuses(events) if each in (RequestStatus.DEGRADED, RequestStatus.FAILED)]
    if not failed:
        return Measure()
    again = {event.labels.get("step") for event in events if event.position > failed[0] and event.labels.get("event") == "step_claimed"}
    finished = {
        event.labels.get("step") for event in events if event.position < failed[0] and event.labels.get("event") == "step_completed"
    }
    return Measure(float(status is RequestStatus.COMPLETED and not again & finished), 1.0)

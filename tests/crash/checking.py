"""What must be true of a request after anything may have died, checked against its events. It trusts no code of what it checks.

Used by the crash points and by the chaos run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from schemas import fields
from schemas.blackboard import ABSENT, Blackboard, DeadEntry, Event, fold
from schemas.requests import RequestStatus, StepRecord, StepState
from schemas.results import FailureCode
from tests.crash.teams import said
from tests.simulation.states import State, state_of

DEAD_LIMIT = 1_000_000


@dataclass(frozen=True)
class Expected:
    """What a request has to come to.

    `titles` are the sections of its answer, in order unless `any_order`; None: whatever is finished. `dead` are its dead
    letters; None: whatever has failed.
    """

    request_id: str
    status: frozenset[RequestStatus]
    titles: tuple[str, ...] | None = None
    any_order: bool = False
    dead: frozenset[str] | None = frozenset()
    shared: Mapping[str, object] = field(default_factory=dict)
    """Shared fields that have these values at the end."""


def doubled(events: Iterable[Event]) -> list[str]:
    """Return every (step, epoch) that has more than one committed result, or has ended more than once."""
    results: Counter[tuple[str, int]] = Counter()
    ends: Counter[tuple[str, int]] = Counter()
    for event in events:
        for name, (_, value) in event.put.items():
            if not name.startswith(fields.STEP_PREFIX):
                continue
            step, record = name.removeprefix(fields.STEP_PREFIX), StepRecord.from_json(value)
            results[step, record.epoch] += fields.result(step) in event.put
            # What waited for a person has ended already; their refusal only says so.
            ends[step, record.epoch] += record.state.over and event.labels.get("event") != "decided"
    return [f"{step} has {count} results in epoch {epoch}" for (step, epoch), count in results.items() if count > 1] + [
        f"{step} has ended {count} times in epoch {epoch}" for (step, epoch), count in ends.items() if count > 1
    ]


async def broken_promises(board: Blackboard, expected: Expected, dead: Sequence[DeadEntry]) -> list[str]:
    """Return every promise that a request broke; `dead` is the index of dead letters."""
    events = await board.events(expected.request_id)
    if not events:
        return ["lost: the board has no such request"]
    state = state_of(events)
    found = doubled(events)
    if [event.position for event in events] != list(range(1, len(events) + 1)):
        found.append("the positions of its events have gaps")
    found += _versions(events)
    folded = fold(events)
    if (await board.read(expected.request_id, list(folded))).fields != folded:
        found.append("its events do not add up to its state")
    if state.status is None or not state.status.status.over:
        standing = {step: record.state.value for step, record in state.steps.items()}
        return [*found, f"not finished: {state.status.status if state.status else None} {standing}"]
    values = {name: record.value for name, record in state.shared.items()}
    found += [f"field {name} is {values.get(name)!r}" for name, value in expected.shared.items() if values.get(name) != value]
    return [*found, *_answer(state, expected), *_letters(state, expected, events, dead)]


def _versions(events: Iterable[Event]) -> list[str]:
    counts: dict[str, int] = {}
    wrong: list[str] = []
    for event in events:
        for name, (version, _) in event.put.items():
            count = int(version.partition(".")[0])
            if count != counts.get(name, int(ABSENT)) + 1:
                wrong.append(f"{name} went from version {counts.get(name, 0)} to {count}")
            counts[name] = count
    return wrong


def _answer(state: State, expected: Expected) -> list[str]:
    status, answer = state.status, state.answer
    assert status is not None
    if answer is None:
        return ["ended without an answer"]
    found: list[str] = []
    if status.status not in expected.status:
        found.append(f"ended {status.status}, not {' or '.join(sorted(expected.status))}")
    if answer.status is not status.status:
        found.append(f"the answer says {answer.status}, the status {status.status}")
    if running := [step for step, record in state.steps.items() if record.state is StepState.RUNNING]:
        found.append(f"it is over, and {running} run on")
    refused = any(gap.reason == FailureCode.REFUSED_PLAN for gap in answer.gaps)
    completed = {step for step, record in state.steps.items() if record.state is StepState.COMPLETED}
    if not refused and (set(answer.sections) != completed or len(set(answer.sections)) != len(answer.sections)):
        found.append(f"its answer has the sections {answer.sections}, completed are {sorted(completed)}")
    shown = tuple(state.definitions[step].title for step in answer.sections)
    if expected.titles is not None:
        same = sorted(shown) == sorted(expected.titles) if expected.any_order else shown == expected.titles
        found += [] if same else [f"its answer has {shown}, not {expected.titles}"]
    for title in shown:
        if answer.text.count(f"## {title}\n\n{said(title)}") != 1:
            found.append(f"section {title} is not in its answer as it should be:\n{answer.text}")
    return found


def _letters(state: State, expected: Expected, events: Sequence[Event], dead: Sequence[DeadEntry]) -> list[str]:
    assert state.status is not None
    dropped = {(e.labels["step"], int(e.labels["epoch"])) for e in events if e.labels.get("event") == "dead_letter_dropped"}
    declined = {
        e.labels["item"].removeprefix("step:") for e in events if e.labels.get("event") == "decided" and e.labels["choice"] == "refuse"
    }
    dropped |= {(step, record.epoch) for step, record in state.steps.items() if step in declined}
    failed = {
        (step, record.epoch)
        for step, record in state.steps.items()
        if record.state is StepState.FAILED and not (record.failure and record.failure.code == FailureCode.REFUSED_PLAN)
    }
    found: list[str] = []
    if state.status.status is not RequestStatus.CANCELLED:
        listed = {(entry.step_id, entry.epoch) for entry in dead if entry.request_id == expected.request_id}
        if missing := failed - dropped - listed:
            found.append(f"{sorted(missing)} failed and are not among the dead letters")
        if kept := dropped & listed:
            found.append(f"{sorted(kept)} were dropped and are still among the dead letters")
        if expected.dead not in (None, {step for step, _ in failed}):
            found.append(f"{sorted(failed)} failed, expected were {sorted(expected.dead or ())}")
    return found

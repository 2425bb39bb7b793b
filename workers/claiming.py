"""Claiming: one write that takes a step, or the reason why it is not to be taken. The claim is the compare-and-set.

Attempts are counted here, before anything runs, so that a task that kills its worker is counted too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from schemas import fields
from schemas.blackboard import After, Blackboard, Conflict, DeadEntry, Held, Lease, Outcome, Snapshot, Write, Written
from schemas.ids import new_id
from schemas.requests import Role, StatusRecord, StepRecord, StepState, check_step_transition
from schemas.results import Failure, FailureCode
from schemas.tasks import Task


@dataclass(frozen=True, slots=True)
class Claimed:
    """The step is ours until the lease ends: `version` is the fence, `snapshot` what the brief is built from."""

    record: StepRecord
    version: str
    position: int
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Late:
    """Of an older epoch, or of a request that is over: nothing to do."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The step has ended; its end is to be told again."""

    record: StepRecord
    version: str


@dataclass(frozen=True, slots=True)
class LookLater:
    """Held by somebody, not ready, or before its time: to be looked at in `delay_ms`."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """The board does not have what the task is about: it was set back, and wins."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The board has no such request."""


Claim: TypeAlias = Claimed | Late | Finished | LookLater | Ahead | Unknown


async def claim(board: Blackboard, task: Task, *, writer: str, lease_ms: int, also: tuple[str, ...] = ()) -> Claim:
    """Take the step of `task`, or say why not; one round trip on the usual path. `also` are fields wanted beside those of its brief.

    A claim that would exceed `max_attempts` writes FAILED instead. No mark is set for the hold: until its first renewal the
    unacked TASK is what brings somebody else here (decision 19).

    Raises:
        Unavailable: the board is not there.
    """
    over_limit = task.record.attempt >= task.record.max_attempts
    record, write = _failing(task, writer) if over_limit else _taking(task, writer, lease_ms, also)
    if over_limit:
        await board.dead_add(DeadEntry(task.request_id, task.step_id, task.epoch))
    outcome = await board.write(task.request_id, write)
    return _read(task, record, outcome)


def _taking(task: Task, writer: str, lease_ms: int, also: tuple[str, ...]) -> tuple[StepRecord, Write]:
    name = fields.step(task.step_id)
    check_step_transition(task.record.state, StepState.RUNNING, Role.WORKER)
    taken = task.record.model_copy(
        update={"state": StepState.RUNNING, "attempt": task.record.attempt + 1, "not_before_ms": 0, "worker": writer}
    )
    wait = task.record.not_before_ms if task.record.state is StepState.PENDING else 0
    return taken, Write(
        role=Role.WORKER,
        writer=writer,
        operation_id=new_id(),
        expect=task.seen,
        put={name: taken.to_json()},
        labels={"event": "step_claimed", "step": task.step_id, "attempt": str(taken.attempt)},
        cause=task.message_id,
        lease=Lease(task.step_id, lease_ms),
        unheld=(task.step_id,),
        after=After(name, wait) if wait else None,
        returning=tuple(dict.fromkeys((name, fields.STATUS, *task.fields, *also))),
    )


def _failing(task: Task, writer: str) -> tuple[StepRecord, Write]:
    name = fields.step(task.step_id)
    check_step_transition(task.record.state, StepState.FAILED, Role.WORKER)
    last = task.record.failure
    said = f"; the last error: {last.code}: {last.description}" if last else ""
    failure = Failure(code=FailureCode.ATTEMPTS_EXHAUSTED, description=f"none of {task.record.max_attempts} attempts was finished{said}")
    failed = task.record.model_copy(update={"state": StepState.FAILED, "failure": failure, "not_before_ms": 0})
    return failed, Write(
        role=Role.WORKER,
        writer=writer,
        operation_id=new_id(),
        expect=task.seen,
        put={name: failed.to_json()},
        labels={"event": "step_failed", "step": task.step_id, "code": failure.code},
        cause=task.message_id,
        unheld=(task.step_id,),
        returning=(name, fields.STATUS),
    )


def _read(task: Task, record: StepRecord, outcome: Outcome) -> Claim:
    name = fields.step(task.step_id)
    snapshot = outcome.returned
    match outcome:
        case Written() if record.state.over:
            return Finished(record, outcome.versions[name])
        case Written():
            return Claimed(record, outcome.versions[name], outcome.position, snapshot)
        case Held():
            return LookLater(max(0, outcome.until_ms - snapshot.now_ms))
        case Conflict():
            return _compared(task, snapshot)


def _compared(task: Task, snapshot: Snapshot) -> Claim:
    """What a task means whose versions have passed: the board is compared, and wins."""
    if snapshot.position == 0:
        return Unknown()
    status, stored = snapshot.value(fields.STATUS), snapshot.fields.get(fields.step(task.step_id))
    if status is None or stored is None:
        return Ahead()
    record = StepRecord.from_json(stored.value)
    if StatusRecord.from_json(status).status.over or task.epoch < record.epoch:
        return Late()
    if task.epoch > record.epoch:
        return Ahead()
    if record.state.over:
        return Finished(record, stored.version)
    if record.state is StepState.RUNNING:
        return LookLater(max(0, snapshot.leases.get(task.step_id, 0) - snapshot.now_ms))
    return LookLater(max(0, stored.at_ms + record.not_before_ms - snapshot.now_ms))

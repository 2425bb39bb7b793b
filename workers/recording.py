"""Recording: the one write under the fence that ends an attempt, and the bell that tells of it.

Held until it has landed or is refused: an hour of work is not thrown away because the board is away for a minute.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from schemas import fields
from schemas.blackboard import Blackboard, DeadEntry, Write, Written
from schemas.broker import RESULT_FAILED, RESULT_READY, Broker, to_agent, to_dead
from schemas.codec import encode
from schemas.errors import NotPermitted, Unavailable, Undeliverable
from schemas.gate import Crossing, Outcome, Reason
from schemas.ids import new_id
from schemas.limits import MAX_CROSSINGS_BYTES
from schemas.messages import ORCHESTRATOR, AgentMessage, MessageType, message
from schemas.requests import Role, StepRecord, StepState
from schemas.results import Failure, FailureCode, MadeWith
from schemas.tasks import Task
from workers.reserving import NO_RESERVATIONS, FenceLost, Reservations

RETRY_FIRST_MS = 1_000
RETRY_LAST_MS = 60_000

_T = TypeVar("_T")

log = structlog.get_logger()


@dataclass(slots=True)
class Hold:
    """What a worker has while it works on a step: the claim's record and version. The version is the fence."""

    request_id: str
    step_id: str
    record: StepRecord
    version: str
    cause: str
    writer: str
    marked: bool = False
    """Whether this attempt has set the due mark of its step, which is then to be taken away at its end."""
    made_with: MadeWith | None = None
    """Set once there is a brief."""
    reservations: Reservations = NO_RESERVATIONS
    """What it holds of resources."""
    crossings: str = ""
    """What the gate decided, as it stands in the event that ends the attempt."""
    private: str | None = None
    """Set once the run's transcript is kept: the artifact's id."""


def crossings_label(crossings: Sequence[Crossing]) -> str:
    """Return the gate's decisions as the label of an event: what crossed and what was blocked; without what nobody had asked for.

    Over the limit of a label the blocks stay, then the first of the rest, and their number is told.
    """
    told = [each.brief() for each in crossings if each.reason is not Reason.NOT_NEEDED]
    if not told:
        return ""
    label = encode(told)
    if len(label) > MAX_CROSSINGS_BYTES:
        kept: list[dict[str, Any]] = []
        for each in sorted(told, key=lambda each: each["outcome"] != Outcome.BLOCK):
            if len(encode([*kept, each])) > MAX_CROSSINGS_BYTES - 50:
                break
            kept.append(each)
        label = encode([*kept, {"left_out": len(told) - len(kept)}])
    return label.decode()


async def record(
    board: Blackboard,
    hold: Hold,
    puts: Mapping[str, bytes],
    labels: Mapping[str, str],
    *,
    dead: bool = False,
    returning: tuple[str, ...] = (),
) -> Written | None:
    """Write the end of an attempt under the fence; None if the hold was lost (a late result changes nothing, and is noted).

    `returning` are the fields that what it returns carries as they are after the write.

    A board that does not answer is asked again, with the same operation id, for as long as it takes.
    """
    if dead:
        await _persist(lambda: board.dead_add(DeadEntry(hold.request_id, hold.step_id, hold.record.epoch)))
    write = Write(
        role=Role.WORKER,
        writer=hold.writer,
        operation_id=new_id(),
        expect={fields.step(hold.step_id): hold.version},
        put=puts,
        labels=labels,
        cause=hold.cause,
        returning=returning,
    )
    outcome = await _persist(lambda: board.write(hold.request_id, write))
    if isinstance(outcome, Written):
        return outcome
    log.warning("late_result_refused", request=hold.request_id, step=hold.step_id, worker=hold.writer)
    if outcome.returned.position == 0:  # the board has lost the request, and a note would open it anew
        return None
    note = Write(
        role=Role.WORKER,
        writer=hold.writer,
        operation_id=new_id(),
        labels={"event": "late_result_refused", "step": hold.step_id, "held": hold.version},
        cause=hold.cause,
    )
    await _persist(lambda: board.write(hold.request_id, note))
    return None


async def keep_reserved(hold: Hold) -> Failure | None:
    """Confirm what a step that completes has reserved, before that is written; the failure where its part is gone.

    A board that does not answer is asked again. A hold that was lost is found out by the write.
    """
    try:
        await _persist(hold.reservations.confirm)
    except FenceLost:
        return None
    except NotPermitted as error:
        return Failure(code=FailureCode.FIELD_REFUSED, description=str(error))
    return None


async def give_back(hold: Hold) -> None:
    """Release what a step reserved that does not complete, before that is written."""
    if hold.reservations.resources:
        await _persist(hold.reservations.release)


def retry_of(held: StepRecord, failure: Failure, *, jitter: random.Random) -> StepRecord:
    """Return the record of a step that is to be tried again: PENDING, not before a delay that doubles with each attempt.

    The delay is drawn between half and the whole of `RETRY_FIRST_MS * 2 ** (attempt - 1)`, at most `RETRY_LAST_MS`, so that
    steps that failed together are not tried together.
    """
    longest = min(RETRY_LAST_MS, RETRY_FIRST_MS * 2 ** (held.attempt - 1))
    said = f"{failure.code}: {failure.description}"[:500]
    return held.model_copy(
        update={
            "state": StepState.PENDING,
            "not_before_ms": int(longest * (0.5 + jitter.random() / 2)),
            "failure": failure,
            "first_error": held.first_error or said,
        }
    )


def handed_back(held: StepRecord) -> StepRecord:
    """Return the record of a step whose worker goes away: PENDING at once, and the attempt is returned."""
    return held.model_copy(update={"state": StepState.PENDING, "not_before_ms": 0, "attempt": held.attempt - 1, "worker": None})


async def hand_on(broker: Broker, tasks: Sequence[Task]) -> bool:
    """Ring steps that are ready; False where that cannot be done, and an orchestrator is to be told."""
    calls = [broker.publish(to_agent(task.agent), task.bell()) for task in tasks]
    try:
        if len(calls) == 1:
            await calls[0]
        elif calls:
            await asyncio.gather(*calls)
    except (Undeliverable, Unavailable) as error:
        log.info("not_handed_on", request=tasks[0].request_id, reason=str(error))
        return False
    return True


async def report(
    broker: Broker, request_id: str, step_id: str, record: StepRecord, version: str, trace: str | None = None, *, again: bool = False
) -> None:
    """Tell the orchestrators that a step has ended, and people where it is a dead letter. Confirmed: the ack comes after it.

    `again`: it may have been told before, and whoever told it may have died over what came next.

    A broker that does not answer is asked again, each time with a new message, for as long as it takes.

    Raises:
        Undeliverable: nobody has declared the queue of results.
    """
    address = RESULT_READY if record.state is StepState.COMPLETED else RESULT_FAILED
    await _persist(lambda: broker.publish(address, result_bell(request_id, step_id, record, version, trace, again=again)))
    if record.state is StepState.FAILED:
        await _persist(lambda: _letter(broker, result_bell(request_id, step_id, record, version, trace)))


async def _letter(broker: Broker, bell: AgentMessage) -> None:
    letter = bell.model_copy(update={"recipient": "people"})
    try:
        await broker.publish(to_dead(bell.sender), letter)
    except Undeliverable:
        await broker.declare_agent(bell.sender)
        await broker.publish(to_dead(bell.sender), letter)


def result_bell(request_id: str, step_id: str, record: StepRecord, version: str, trace: str | None, *, again: bool = False) -> AgentMessage:
    """Return the RESULT message of an ended step: where to look, and nothing of the result itself."""
    failure = record.failure
    return message(
        MessageType.RESULT_READY if record.state is StepState.COMPLETED else MessageType.RESULT_FAILED,
        request_id,
        step_id=step_id,
        sender=record.agent,
        recipient=ORCHESTRATOR,
        content=f"{failure.code}: {failure.description}"[:300] if failure and record.state is StepState.FAILED else "",
        epoch=record.epoch,
        seen={fields.step(step_id): version},
        state=record.state,
        again=again,
        trace=trace,
    )


async def _persist(call: Callable[[], Awaitable[_T]]) -> _T:
    """Call until the server answers. The usual case, a first call that is answered, needs no machinery."""
    try:
        return await call()
    except Unavailable:

        async def once_more() -> _T:
            return await call()

        again = AsyncRetrying(retry=retry_if_exception_type(Unavailable), wait=wait_random_exponential(multiplier=0.2, max=5), reraise=True)
        return await again(once_more)

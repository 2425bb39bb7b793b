"""What users do in a lane while a process dies: small stories that together pass every crash point, each to a known end.

Each returns what must be true of its requests once all is over.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from schemas import fields
from schemas.broker import COMMANDS, RESULT_READY, Address, Exchange, dead_queue, to_agent
from schemas.messages import ORCHESTRATOR, AgentMessage, MessageType, TaskData, message
from schemas.requests import RequestStatus, StepRecord, StepState
from tests.crash import teams
from tests.crash.checking import Expected
from tests.crash.lanes import Lane, until
from workers.team import Team

Scenario: TypeAlias = Callable[[Lane], Awaitable[list[Expected]]]

GIVEN_UP_BY_THE_BROKER = Address(Exchange.DEAD, ".broker")
DEADLINE_SECONDS = 1.5
MANY_TRIES = 20

_COMPLETED = frozenset({RequestStatus.COMPLETED})
_DEGRADED = frozenset({RequestStatus.DEGRADED})
_FAILED = frozenset({RequestStatus.FAILED})
_CANCELLED = frozenset({RequestStatus.CANCELLED})


async def chain(lane: Lane) -> list[Expected]:
    """Three steps in a row, the second with an error that passes."""
    request = await lane.submit(teams.chain)
    await lane.over(request)
    return [Expected(request, _COMPLETED, ("First", "Second", "Third"))]


async def abandoned(lane: Lane) -> list[Expected]:
    """Whoever submits never comes back. What was opened by then ends all the same; what was not opened was not accepted."""
    request = await lane.submit(teams.quick, again=False)
    if not (await lane.board.read(request, (fields.STATUS,))).position:
        return []
    await lane.over(request)
    return [Expected(request, _COMPLETED, ("One",))]


async def diamond(lane: Lane) -> list[Expected]:
    """A diamond, one side of which has an error that passes."""
    request = await lane.submit(teams.diamond)
    await lane.over(request)
    return [Expected(request, _COMPLETED, ("Top", "Left", "Right", "Bottom"), any_order=True)]


async def replayed(lane: Lane) -> list[Expected]:
    """A step fails, what is wrong is mended, and the step is replayed."""
    mended = lane.folder / secrets.token_hex(8)
    request = await lane.submit(teams.broken, mended=mended)
    await lane.over(request)
    mended.touch()
    await lane.replay(request, "broken")
    await lane.over(request)
    return [Expected(request, _COMPLETED, ("First", "Second", "Third"))]


async def replayed_later(lane: Lane) -> list[Expected]:
    """A step is replayed when nothing looks after its request any more: what is to be looked at is known by the replay alone."""
    mended = lane.folder / secrets.token_hex(8)
    request = await lane.submit(teams.alone, mended=mended)
    await lane.over(request)
    await _replay_that_does_not_fit(lane, request, "broken")

    async def nobody_looks() -> bool:
        return await lane.mark(request) is None

    assert await until(nobody_looks), "a request that is over is looked at for ever"
    mended.touch()
    await lane.replay(request, "broken")
    await lane.over(request)
    return [Expected(request, _COMPLETED, ("Alone",))]


async def failed(lane: Lane) -> list[Expected]:
    """The only step fails, but not before somebody has deleted the queue of its dead letters."""
    deleted = lane.folder / secrets.token_hex(8)
    request = await lane.submit(teams.awaiting, mended=deleted)
    await lane.event(request, event="step_claimed")
    await lane.delete_queue(dead_queue(teams.AGENT))
    deleted.touch()
    await lane.over(request)
    return [Expected(request, _FAILED, (), dead=frozenset({"awaiting"}))]


async def dropped(lane: Lane) -> list[Expected]:
    """A step fails, and its dead letter is dropped."""
    request = await lane.submit(teams.broken, mended=lane.folder / "never")
    await lane.over(request)
    await lane.drop(request, "broken")
    return [Expected(request, _DEGRADED, ("First",), dead=frozenset({"broken"}))]


async def cancelled(lane: Lane) -> list[Expected]:
    """A request is cancelled while its second step runs."""
    request = await lane.submit(teams.endless)
    await lane.event(request, event="step_claimed", step="endless")
    await lane.cancel(request)
    return [Expected(request, _CANCELLED, ("First",))]


async def late(lane: Lane) -> list[Expected]:
    """A request is cancelled while its step holds the worker's loop: the worker hears of it when it writes the result."""
    request = await lane.submit(teams.deaf)
    await lane.event(request, event="step_claimed")
    await lane.cancel(request)
    return [Expected(request, _CANCELLED, ())]


async def stalled(lane: Lane) -> list[Expected]:
    """A step holds the worker's loop for longer than its lease, and is still accepted, once."""
    request = await lane.submit(teams.stalled)
    await lane.over(request)
    return [Expected(request, _COMPLETED, ("Stalled",))]


async def overdue(lane: Lane) -> list[Expected]:
    """A request is not finished in its time."""
    request = await lane.submit(teams.endless, deadline_seconds=DEADLINE_SECONDS)
    await lane.over(request)
    return [Expected(request, _DEGRADED | _FAILED, dead=None)]


async def long(lane: Lane) -> list[Expected]:
    """A step outlasts the time at which its task is acknowledged."""
    request = await lane.submit(teams.slow)
    await lane.over(request)
    return [Expected(request, _COMPLETED, ("Slow",))]


async def handed_back(lane: Lane) -> list[Expected]:
    """The worker is told to end while its step runs."""
    request = await lane.submit(teams.slow)
    await lane.event(request, event="step_claimed")
    lane.tell_to_end("worker")
    await lane.over(request)
    return [Expected(request, _COMPLETED, ("Slow",))]


async def planned(lane: Lane) -> list[Expected]:
    """A step plans two more."""
    request = await lane.submit(teams.planned)
    await lane.over(request)
    return [Expected(request, _COMPLETED, ("Plan", "More", "Most"), any_order=True)]


async def overplanned(lane: Lane) -> list[Expected]:
    """A step plans one that is refused."""
    request = await lane.submit(teams.overplanned)
    await lane.over(request)
    return [Expected(request, _FAILED, ())]


async def refused(lane: Lane) -> list[Expected]:
    """A command that does not fit comes for a request that is over."""
    request = await lane.submit(teams.quick)
    await lane.over(request)
    await _replay_that_does_not_fit(lane, request, "quick")
    return [Expected(request, _COMPLETED, ("One",))]


async def strayed(lane: Lane) -> list[Expected]:
    """While a step runs, messages come that fit nothing: repeated, from the future, of no request, of a wrong sender."""
    unread = await lane.waiting("dead.unreadable")
    request = await lane.submit(teams.slow)
    await lane.event(request, event="step_claimed")
    again = await _task(lane, request, teams.slow)
    for task in (again, _of_epoch(again, 7), again.model_copy(update={"id": secrets.token_hex(8), "sender": "somebody"})):
        await lane.broker.publish(to_agent(teams.AGENT), task)
    await lane.broker.publish(GIVEN_UP_BY_THE_BROKER, again)
    nowhere = message(
        MessageType.RESULT_READY,
        secrets.token_hex(8),
        sender=teams.AGENT,
        recipient=ORCHESTRATOR,
        step_id="slow",
        state=StepState.COMPLETED,
    )
    for result in (nowhere, nowhere.model_copy(update={"id": secrets.token_hex(8), "request_id": request, "epoch": 7})):
        await lane.broker.publish(RESULT_READY, result)
    await lane.over(request)

    async def both_are_parked() -> bool:
        return await lane.waiting("dead.unreadable") >= unread + 2

    assert await until(both_are_parked), "what nobody could use was not parked"
    return [Expected(request, _COMPLETED, ("Slow",))]


async def given_up(lane: Lane) -> list[Expected]:
    """The broker says that it gave up a task while its step waits to be tried again."""
    request, position = await lane.submit(teams.hopeless), 0
    for _ in range(MANY_TRIES):
        event = await lane.event(request, position)
        while event.labels.get("event") not in ("step_to_be_retried", "step_failed"):
            event = await lane.event(request, event.position)
        position = event.position
        if event.labels["event"] == "step_failed":
            break
        await lane.broker.publish(GIVEN_UP_BY_THE_BROKER, await _task(lane, request, teams.hopeless))
    await lane.over(request)
    return [Expected(request, _FAILED, (), dead=frozenset({"hopeless"}))]


async def merged(lane: Lane) -> list[Expected]:
    """Two steps add to one field and claim different things of another; a person decides which holds."""
    request = await lane.submit(teams.merged)
    await lane.over(request)
    await lane.decide(request, "field:claimed", "adds-right.0.1")
    shared = {"total": 40, "claimed": "Right"}
    return [Expected(request, _COMPLETED, ("Left", "Right", "Last"), any_order=True, shared=shared)]


async def asked(lane: Lane) -> list[Expected]:
    """A step asks a person before it runs, and is approved."""
    request = await lane.submit(teams.asked)
    await lane.over(request)
    await lane.decide(request, "step:quick", "approve")
    await lane.over(request)
    return [Expected(request, _COMPLETED, ("Binding",))]


async def declined(lane: Lane) -> list[Expected]:
    """A step asks a person before it runs, and is refused: it is a gap, and no dead letter any more."""
    request = await lane.submit(teams.asked)
    await lane.over(request)
    await lane.decide(request, "step:quick", "refuse")
    return [Expected(request, _FAILED, (), dead=frozenset({"quick"}))]


async def retracted(lane: Lane) -> list[Expected]:
    """What a step said is withdrawn; it says something else then, and what rests on it runs again."""
    request = await lane.submit(teams.said_again)
    await lane.over(request)
    await lane.retract(request, "says.word")
    await lane.over(request)
    return [Expected(request, _COMPLETED, ("Source", "Below", "Last"), any_order=True)]


async def rechecked(lane: Lane) -> list[Expected]:
    """A step lacks what it needs, so that who has to bring it runs once more."""
    request = await lane.submit(teams.rechecked, mended=lane.folder / secrets.token_hex(8))
    await lane.over(request)
    return [Expected(request, _COMPLETED, ("Source", "Below"))]


async def ruled(lane: Lane) -> list[Expected]:
    """A request gets other rules while its step runs, which begins anew."""
    ruled = lane.folder / secrets.token_hex(8)
    request = await lane.submit(teams.waiting, mended=ruled)
    await lane.event(request, event="step_claimed")
    await lane.set_rules(request)
    ruled.touch()
    await lane.over(request)
    return [Expected(request, _COMPLETED, ("Waiting",))]


async def _replay_that_does_not_fit(lane: Lane, request: str, step: str) -> None:
    """Send a command that is refused; the request is looked at for it, at once."""
    bell = message(MessageType.REPLAY, request, sender="somebody", recipient=ORCHESTRATOR, step_id=step, epoch=5)
    await lane.broker.publish(COMMANDS, bell)
    await lane.event(request, event="command_refused")


async def _task(lane: Lane, request: str, team: Team) -> AgentMessage:
    """A TASK for the only step of a team, with the versions as they are now."""
    (step,) = team.steps
    names = (fields.step(step.id), fields.STATUS)
    snapshot = await lane.board.read(request, names)
    return message(
        MessageType.TASK,
        request,
        sender=ORCHESTRATOR,
        recipient=teams.AGENT,
        step_id=step.id,
        seen={name: snapshot.version(name) for name in names},
        task=TaskData(record=StepRecord.from_json(snapshot.fields[names[0]].value)),
    )


def _of_epoch(task: AgentMessage, epoch: int) -> AgentMessage:
    assert task.task is not None
    record = task.task.record.model_copy(update={"epoch": epoch})
    seen = {**task.seen, fields.step(task.step_id or ""): "999.future"}
    return task.model_copy(update={"id": secrets.token_hex(8), "epoch": epoch, "seen": seen, "task": TaskData(record=record)})


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        *(
            chain,
            abandoned,
            diamond,
            replayed,
            replayed_later,
            failed,
            dropped,
            cancelled,
            late,
            stalled,
            overdue,
            long,
            handed_back,
            planned,
            overplanned,
        ),
        *(refused, strayed, given_up),
        *(merged, asked, declined, retracted, rechecked, ruled),
    )
}

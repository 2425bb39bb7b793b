"""The orchestrator: bells and the sweeper's clock turned into causes, and each settled once nothing is left to do.

It keeps nothing that it needs; any number of them may run side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack

import structlog

from orchestrator.acting import Actor
from orchestrator.causes import (
    CancelAsked,
    Cause,
    DecideAsked,
    DropAsked,
    Noticed,
    ReplayAsked,
    RetractAsked,
    RulesAsked,
    Submitted,
    Swept,
    cause_of_result,
)
from orchestrator.decisions import Decision, Verdict
from orchestrator.desk import field_of_item
from schemas import fields
from schemas.blackboard import Blackboard, Due
from schemas.broker import BROKER_DEAD_QUEUE, COMMANDS_QUEUE, RESULTS_QUEUE, Broker, Delivery
from schemas.errors import Unavailable, Unreadable
from schemas.gate import BoundaryRules
from schemas.ids import new_id
from schemas.messages import ORCHESTRATOR, RECHECK, AgentMessage, MessageType
from schemas.reducers import REDUCERS, Reducer
from schemas.requests import StepState

_SWEEP_LIMIT = 200
_FORWARD_MS = 5_000
_SET_BACK_MS = 60_000
_REOPENING = frozenset({MessageType.REPLAY, MessageType.RETRACT, MessageType.DECIDE, MessageType.RULES})

log = structlog.get_logger()


class Orchestrator:
    """Schedules requests, recovers them, and assembles their answers. It never calls a model."""

    def __init__(
        self,
        board: Blackboard,
        broker: Broker,
        *,
        name: str | None = None,
        prefetch: int = 32,
        sweep_seconds: float = 0.5,
        retention_seconds: int = 7 * 24 * 3600,
        reducers: Mapping[str, Reducer] | None = None,
    ) -> None:
        self.name = name or f"{ORCHESTRATOR}/{new_id()[:8]}"
        self._board = board
        self._broker = broker
        self._prefetch = prefetch
        self._sweep_seconds = sweep_seconds
        merging = {**REDUCERS, **(reducers or {})}
        self._actor = Actor(board, broker, writer=self.name, retention_seconds=retention_seconds, reducers=merging)

    async def run(self, *, ready: asyncio.Event | None = None, stop: asyncio.Event | None = None) -> None:
        """Serve until `stop` is set (or the task is cancelled). `ready` is set once every queue is consumed.

        On `stop`, nothing new is taken and what is in hand is finished; what is not settled goes back to its queue.
        """
        stop = stop or asyncio.Event()
        async with AsyncExitStack() as stack:
            consumers = [
                await stack.enter_async_context(self._broker.consume(queue, self.handle, prefetch=self._prefetch))
                for queue in (RESULTS_QUEUE, COMMANDS_QUEUE)
            ]
            consumers.append(
                await stack.enter_async_context(self._broker.consume(BROKER_DEAD_QUEUE, self.handle_given_up, prefetch=self._prefetch))
            )
            sweeping = asyncio.create_task(self._sweep_until(stop), name="sweeper")
            try:
                log.info("orchestrator_started", name=self.name)
                if ready is not None:
                    ready.set()
                await stop.wait()
                for consumer in consumers:
                    await consumer.stop()
                await sweeping
            finally:
                sweeping.cancel()
                await asyncio.gather(sweeping, return_exceptions=True)
        log.info("orchestrator_stopped", name=self.name)

    async def handle(self, delivery: Delivery) -> None:
        """Handle a RESULT or a command."""
        bell = delivery.message
        try:
            cause = cause_of(bell)
        except Unreadable as error:
            await delivery.park(str(error))
            return
        if cause is None:
            await delivery.park(f"a {bell.type} does not belong to the orchestrator's queues")
            return
        await self._settle(delivery, await self._actor.act(bell.request_id, cause))

    async def handle_given_up(self, delivery: Delivery) -> None:
        """Handle what the broker gave up: a TASK may fail its step; anything else only says where to look."""
        bell = delivery.message
        if bell.type is MessageType.TASK and bell.step_id:
            noticed = Noticed(bell.step_id, bell.epoch, bell.seen.get(fields.step(bell.step_id), ""), bell.id)
            await self._settle(delivery, await self._actor.act(bell.request_id, noticed))
        else:
            await self._board.enter(bell.request_id, 0)
            await delivery.ack()

    async def _settle(self, delivery: Delivery, decision: Decision) -> None:
        bell = delivery.message
        match decision.verdict:
            case Verdict.VIOLATION | Verdict.UNKNOWN:
                log.error("message_parked", request=bell.request_id, step=bell.step_id, type=bell.type, reason=decision.reason)
                await delivery.park(decision.reason)
                return
            case Verdict.AHEAD:
                log.warning("board_behind", request=bell.request_id, step=bell.step_id, type=bell.type, reason=decision.reason)
                await self._board.enter(bell.request_id, 0)
            case Verdict.FITS | Verdict.LATE | Verdict.REFUSED:
                if bell.type in _REOPENING:
                    # It may be our own that comes back: written by a process that died before it rang or marked anything.
                    await self._board.enter(bell.request_id, 0)
                # Who held a step may be gone: the message came back to somebody else.
                for step, delay_ms in decision.look_at.items() if bell.type is MessageType.TASK or bell.again else ():
                    await self._board.enter(f"{bell.request_id}#{step}", delay_ms)
        await delivery.ack()

    async def _sweep_until(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.sweep()
            except Unavailable as error:
                log.warning("sweep_postponed", reason=str(error))
            try:
                async with asyncio.timeout(self._sweep_seconds):
                    await stop.wait()
            except TimeoutError:
                continue

    async def sweep(self) -> int:
        """Look once at every request whose time has come; return how many marks that were.

        Raises:
            Unavailable: the board is not there.
        """
        due = await self._board.due(_SWEEP_LIMIT, _FORWARD_MS)
        by_request: dict[str, list[Due]] = {}
        for mark in due:
            by_request.setdefault(mark.member.partition("#")[0], []).append(mark)
        await asyncio.gather(*(self._sweep_one(request_id, marks) for request_id, marks in by_request.items()))
        return len(due)

    async def _sweep_one(self, request_id: str, marks: list[Due]) -> None:
        try:
            decision = await self._actor.act(request_id, Swept())
        except Unavailable as error:
            log.warning("look_postponed", request=request_id, reason=str(error))
            return
        except Exception as error:
            # A request that breaks its look, by whatever mistake of ours, must not keep the sweeper from the others: it is set back, alone.
            log.exception("request_set_back", request=request_id, reason=f"{type(error).__name__}: {error}")
            for mark in marks:
                await self._board.settle(mark, _SET_BACK_MS)
            return
        for mark in marks:
            await self._board.settle(mark, _next(mark, decision))


def _next(mark: Due, decision: Decision) -> int | None:
    """When a mark is to be looked at again; None takes it away. An unknown request was never opened, or is gone."""
    if decision.over or decision.verdict is Verdict.UNKNOWN:
        return None
    _, _, step = mark.member.partition("#")
    if step:
        return decision.look_at.get(step)
    return decision.next_look_ms


def cause_of(bell: AgentMessage) -> Cause | None:
    """Return what a message asks of the orchestrator, or None if it is not for it."""
    match bell.type:
        case MessageType.RESULT_READY:
            return cause_of_result(bell, StepState.COMPLETED)
        case MessageType.RESULT_FAILED:
            return cause_of_result(bell, StepState.FAILED)
        case MessageType.SUBMIT:
            return Submitted(bell.id)
        case MessageType.CANCEL:
            return CancelAsked(bell.content, bell.id, bell.epoch)
        case MessageType.REPLAY:
            return ReplayAsked(bell.step_id or "", bell.epoch, bell.id, bell.sender)
        case MessageType.DROP:
            return DropAsked(bell.step_id or "", bell.epoch, bell.content, bell.id, bell.sender)
        case MessageType.RETRACT:
            step, recheck = bell.step_id or "", bell.choice == RECHECK
            return RetractAsked(step, bell.about, bell.content, recheck, bell.id, bell.sender, bell.seen.get(fields.result(step), ""))
        case MessageType.DECIDE:
            version = bell.seen.get(field_of_item(bell.about), "")
            return DecideAsked(bell.about, bell.choice, bell.content, bell.id, bell.sender, version)
        case MessageType.RULES:
            return RulesAsked(BoundaryRules.from_json(bell.content.encode()), bell.id, bell.sender, bell.epoch)
        case MessageType.TASK | MessageType.REQUEST:
            return None

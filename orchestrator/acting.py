"""Acting: the thin loop around `advance`. It reads, writes and rings what the function says, and decides nothing itself."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping

import structlog

from orchestrator.advancing import advance
from orchestrator.bells import bell_of
from orchestrator.causes import Cause, Continued, ResultCame, Submitted, Swept
from orchestrator.decisions import Change, Decision, Ring, RingStatus, RingTask, Verdict
from orchestrator.scheduling import full_fields, partial_fields
from orchestrator.views import Outline, View, outlined, view_of
from orchestrator.waiting import Stoppers, applies, is_open, stopper_fields, waits_afresh
from schemas import fields
from schemas.blackboard import Blackboard, Outcome, Write, Written
from schemas.broker import Address, Broker
from schemas.errors import Undeliverable
from schemas.ids import new_id
from schemas.messages import AgentMessage
from schemas.reducers import REDUCERS, Reducer
from schemas.requests import Role

_OUTLINES_KEPT = 10_000
_ENTER_MS = 30_000
_BACKLOG_SECONDS = 1.0
"""How long it is remembered how many TASKs wait for an agent."""

log = structlog.get_logger()


class Actor:
    """Carries out what `advance` decides, for one orchestrator process.

    What it keeps in memory (outlines of plans, names of declared agents) only saves reads; losing it changes nothing.
    """

    def __init__(
        self,
        board: Blackboard,
        broker: Broker,
        *,
        writer: str,
        retention_seconds: int,
        reducers: Mapping[str, Reducer] = REDUCERS,
    ) -> None:
        self._board = board
        self._broker = broker
        self._writer = writer
        self._retention_seconds = retention_seconds
        self._reducers = reducers
        self._outlines: OrderedDict[str, Outline] = OrderedDict()
        self._stoppers = Stoppers()
        self._declared: set[str] = set()
        self._backlogs: dict[str, tuple[float, int]] = {}

    async def act(self, request_id: str, cause: Cause) -> Decision:
        """Do everything that follows from `cause`, and return the last decision, when nothing is left to write.

        Raises:
            Unavailable: a server is not there; doing it all again later is safe.
        """
        asked = cause
        view = await self._look(request_id, cause)
        while True:
            stopper = self._stopper(request_id, cause, view.outline)
            decision = advance(view, cause, retention_seconds=self._retention_seconds, reducers=self._reducers, stopper=stopper)
            if decision.read_more:
                more = await self._board.read(request_id, decision.read_more)
                set_back = more.position < view.position  # what was read before is no longer true
                view = await self._look(request_id, cause) if set_back else outlined(view.joined(more), view.outline)
            elif decision.read_source:
                view = await self._with_source(view, decision.read_source)
            elif decision.change is not None:
                outcome = await self._write(view, decision.change, asked)
                if isinstance(outcome, Written):
                    log.info(decision.change.event, request=request_id, position=outcome.position, **decision.change.details)
                    cause = Continued(asked.message_id)
                    view = await self._after(view, decision.change, outcome)
                else:
                    view = await self._look(request_id, cause)
            else:
                break
        self._keep(view, decision, asked)
        if decision.verdict is Verdict.REFUSED:
            await self._note_refusal(request_id, asked, decision.reason)
        await self.ring(await self._not_queued(decision.rings, view) if isinstance(cause, Swept) else decision.rings, view)
        return decision

    async def _look(self, request_id: str, cause: Cause) -> View:
        outline = self._outlines.get(request_id)
        if outline is None:
            names: tuple[str, ...] = (fields.REQUEST, fields.STATUS, fields.PLAN)
            if isinstance(cause, Submitted):
                names += (fields.CARD, fields.BOUNDARY)
        elif isinstance(cause, ResultCame):
            if stopper := self._stopper(request_id, cause, outline):
                names = stopper_fields(cause.step_id, stopper, outline)
                view = view_of(await self._board.read(request_id, names), outline)
                if is_open(view, stopper):
                    return view
            names = partial_fields(cause.step_id, outline)
        else:
            names = full_fields(outline)
        return view_of(await self._board.read(request_id, names), outline)

    def _stopper(self, request_id: str, cause: Cause, outline: Outline | None) -> str | None:
        if outline is None or not isinstance(cause, ResultCame) or not applies(cause, outline):
            return None
        return self._stoppers.get(request_id, cause.step_id, outline)

    async def _with_source(self, view: View, names: tuple[str, ...]) -> View:
        request = view.request
        assert request is not None and request.forked_from is not None, "only of a fork is a source asked for"
        return view.with_source(await self._board.read(request.forked_from.request, names))

    async def _write(self, view: View, change: Change, asked: Cause) -> Outcome:
        if change.enter_first:
            # Set, not entered: an earlier mark from before the end of the request could come due between here and the write,
            # and a sweeper that still finds the request over would take it away.
            await self._board.mark(view.request_id, _ENTER_MS)
        for entry in change.dead_first:
            await self._board.dead_add(entry)
        return await self._board.write(
            view.request_id,
            Write(
                role=Role.ORCHESTRATOR,
                writer=self._writer,
                operation_id=new_id(),
                expect=change.expect,
                put=change.put,
                labels={"event": change.event, **change.details},
                cause=asked.message_id,
                unheld=change.unheld,
                expire_after_seconds=change.expire_after_seconds,
            ),
        )

    async def _after(self, view: View, change: Change, written: Written) -> View:
        if change.enter_first:
            await self._board.enter(view.request_id, _ENTER_MS)  # should the write have taken longer than the mark
        for entry in change.dead_after:
            await self._board.dead_remove(entry)
        write = Write(role=Role.ORCHESTRATOR, writer=self._writer, operation_id="", put=change.put)
        after = outlined(view.after(write, written), view.outline)
        if fields.PLAN in change.put and after.outline is not None:  # whoever hands a step on finds its agent's queues there
            for agent in {step.agent for step in after.outline.definitions.values()} - self._declared:
                await self._declare(agent)
        await self.ring(change.rings, after)
        return after

    async def _note_refusal(self, request_id: str, asked: Cause, reason: str) -> None:
        """Record that a command was refused, so that who sent it can be told."""
        log.info("command_refused", request=request_id, command=type(asked).__name__, reason=reason)
        await self._board.write(
            request_id,
            Write(
                role=Role.ORCHESTRATOR,
                writer=self._writer,
                operation_id=new_id(),
                labels={"event": "command_refused", "command": type(asked).__name__, "reason": reason},
                cause=asked.message_id,
            ),
        )

    async def ring(self, rings: Iterable[Ring], view: View) -> None:
        """Ring all of these at once: none waits for what another leads to."""
        each = [self._ring(ring, view) for ring in rings]
        if len(each) == 1:
            await each[0]
        else:
            await asyncio.gather(*each)

    async def _not_queued(self, rings: Iterable[Ring], view: View) -> list[Ring]:
        """Leave out what lies in its agent's queue by all appearances: one more message there would only make the queue longer."""
        return [ring for ring in rings if not (isinstance(ring, RingTask) and await self._is_queued(ring.step_id, view))]

    async def _is_queued(self, step_id: str, view: View) -> bool:
        if view.outline is None or not waits_afresh(view, step_id):
            return False
        agent = view.outline.definitions[step_id].agent
        now = asyncio.get_running_loop().time()
        looked, waiting = self._backlogs.get(agent, (-math.inf, 0))
        if now - looked >= _BACKLOG_SECONDS:
            waiting = await self._broker.declare_agent(agent)
            self._backlogs[agent] = now, waiting
        return waiting > 0

    async def _ring(self, ring: Ring, view: View) -> None:
        address, bell = bell_of(ring, view)
        if isinstance(ring, RingStatus):
            await self._broker.publish(address, bell, confirm=False)
            return
        agent = bell.recipient if isinstance(ring, RingTask) else bell.sender
        if agent not in self._declared:
            await self._declare(agent)
        await self._publish(address, bell, agent)

    async def _publish(self, address: Address, bell: AgentMessage, agent: str) -> None:
        try:
            await self._broker.publish(address, bell)
        except Undeliverable:
            log.warning("agent_queue_missing", agent=agent)
            await self._declare(agent)
            await self._broker.publish(address, bell)

    async def _declare(self, agent: str) -> None:
        await self._broker.declare_agent(agent)
        self._declared.add(agent)

    def _keep(self, view: View, decision: Decision, asked: Cause) -> None:
        if decision.over or view.outline is None:
            self._outlines.pop(view.request_id, None)
            self._stoppers.forget(view.request_id)
            return
        if isinstance(asked, ResultCame) and applies(asked, view.outline):
            self._stoppers.put(view, asked.step_id)
        self._outlines[view.request_id] = view.outline
        self._outlines.move_to_end(view.request_id)
        if len(self._outlines) > _OUTLINES_KEPT:
            self._outlines.popitem(last=False)

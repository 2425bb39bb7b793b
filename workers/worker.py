"""The worker: one line that can be read aloud: receive, claim, brief, run, extract, record, hand on or report, ack.

Here are its two ends: tasks that come in, and what is told once a step has ended. Between them is an attempt
(`workers.attempting`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass

import structlog

from schemas import fields
from schemas.artifacts import ArtifactStore
from schemas.blackboard import Blackboard
from schemas.broker import Broker, Delivery, task_queue
from schemas.errors import ProtocolViolation, Undeliverable
from schemas.ids import new_id
from schemas.requests import StepRecord
from schemas.tasks import Task
from workers import claiming, receiving, recording
from workers.attempting import Attempts, Ended
from workers.claiming import Ahead, Claimed, Finished, Late, LookLater, Unknown
from workers.onward import Onward
from workers.places import Place, Places
from workers.recording import Hold
from workers.team import Team

log = structlog.get_logger()


@dataclass
class _Run:
    """One delivery on its way down the line, with all that the worker goes on with by itself before it acks."""

    delivery: Delivery
    queue: Places
    """Those of the agent in whose queue it was."""
    place: Place
    """Where its present step runs."""
    ack_early_at: float
    """Time of the loop at which it is acked though it still runs."""
    lent: bool = False
    acked_early: bool = False
    again: bool = False
    """Whether somebody has begun with this delivery before, and may have gone on from it."""
    next_place: Place | None = None
    """Where the step is to run that the worker goes on with."""

    def move(self) -> None:
        """Leave the present step's place for the next one's."""
        if self.next_place is not None:
            self.place.leave()
            self.place, self.next_place = self.next_place, None

    def leave(self) -> None:
        """Leave every place."""
        self.move()
        self.place.leave()


class Worker:
    """Serves some agents of a team, each with up to `concurrency` steps at a time.

    Without an artifact store every value has to fit into its field, and no transcript is kept. With `onward` it rings the steps
    that wait for one it has completed, where that is all that follows, or goes on with one of them at once, where its agent is
    here, has a place, and has lately taken no longer than `quick_seconds`: so long may a task that the broker hands out meanwhile
    wait for its place.
    """

    def __init__(
        self,
        board: Blackboard,
        broker: Broker,
        team: Team,
        *,
        agents: Collection[str] = (),
        name: str | None = None,
        concurrency: int = 8,
        lease_seconds: float = 5.0,
        ack_after_seconds: float = 600.0,
        grace_seconds: float = 25.0,
        artifacts: ArtifactStore | None = None,
        onward: Onward | None = None,
        quick_seconds: float = 0.1,
    ) -> None:
        self.name = name or f"worker/{new_id()[:8]}"
        self._board = board
        self._broker = broker
        self._agents = {each: team.agent(each) for each in agents or team.agents}
        self._concurrency = concurrency
        self._quick_seconds = quick_seconds
        self._lease_ms = int(lease_seconds * 1000)
        self._ack_after_seconds = ack_after_seconds
        self._grace_seconds = grace_seconds
        self._attempts = Attempts(board, team, name=self.name, lease_ms=self._lease_ms, artifacts=artifacts, onward=onward)
        self._also_claimed = (fields.PLAN,) if onward is not None else ()
        self._places: dict[str, Places] = {}
        self._running = 0
        self._begun: set[str] = set()
        """The messages in hand under which a step was claimed: one that is handled again may have been gone on from."""
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, *, ready: asyncio.Event | None = None, stop: asyncio.Event | None = None) -> None:
        """Serve until `stop` is set, then drain: take nothing new, finish what runs within the grace time, hand back the rest.

        `ready` is set once every queue is consumed.
        """
        stop = stop or asyncio.Event()
        self._draining = False
        self._places = {name: Places(agent, self._concurrency, self._quick_seconds) for name, agent in self._agents.items()}
        async with AsyncExitStack() as stack:
            for name, places in self._places.items():
                consumption = self._broker.consume(task_queue(name), self._handler(places), prefetch=self._concurrency)
                places.consumer = await stack.enter_async_context(consumption)
            log.info("worker_started", name=self.name, agents=list(self._places), concurrency=self._concurrency)
            if ready is not None:
                ready.set()
            await stop.wait()
            await self._drain()
        log.info("worker_stopped", name=self.name)

    def hand_back(self) -> None:
        """Stop the agents that run and hand their steps back now, without waiting for the grace time to end."""
        self._attempts.interrupt.set()

    async def _drain(self) -> None:
        self._draining = True
        log.info("worker_draining", name=self.name, running=self._running, grace_seconds=self._grace_seconds)
        consumers = [places.consumer for places in self._places.values() if places.consumer is not None]
        await asyncio.gather(*(consumer.stop() for consumer in consumers))
        try:
            async with asyncio.timeout(self._grace_seconds):
                await self._idle.wait()
        except TimeoutError:
            self.hand_back()
            await self._idle.wait()

    def _handler(self, places: Places) -> Callable[[Delivery], Awaitable[None]]:
        async def handle(delivery: Delivery) -> None:
            self._running += 1
            self._idle.clear()
            try:
                await self._work(delivery, places)
            finally:
                self._running -= 1
                if not self._running:
                    self._idle.set()

        return handle

    async def _work(self, delivery: Delivery, places: Places) -> None:
        """Take a task down the line, and after it each that the worker goes on with by itself; then ack it."""
        try:
            task: Task | None = receiving.task_of(delivery.message, places.agent.name)
        except ProtocolViolation as error:
            log.error("message_parked", reason=str(error))  # noqa: TRY400 - a message's fault needs no trace of ours
            await delivery.park(str(error))
            return
        begun = delivery.redelivered or delivery.message.id in self._begun
        early_at = asyncio.get_running_loop().time() + self._ack_after_seconds
        run = _Run(delivery, places, await places.come(), early_at, again=begun)
        try:
            while task is not None:
                claim = await claiming.claim(self._board, task, writer=self.name, lease_ms=self._lease_ms, also=self._also_claimed)
                if isinstance(claim, Claimed):
                    self._begun.add(delivery.message.id)
                    task = await self._attempt(run, task, claim)
                    run.move()
                elif isinstance(claim, Unknown) and task.message_id == delivery.message.id:
                    await delivery.park("the board has no such request: gone by retention, or lost by the board")
                    return
                else:
                    await self._not_claimed(run, task, claim)
                    task = None
        finally:
            run.leave()
            if run.lent:
                await places.lend(-1)
        self._begun.discard(delivery.message.id)
        if not run.acked_early:
            await delivery.ack()

    async def _not_claimed(self, run: _Run, task: Task, claim: Finished | LookLater | Late | Ahead | Unknown) -> None:
        """See to it that somebody looks, where that is called for."""
        match claim:
            case Finished():
                await self._report(task, claim.record, claim.version, again=run.again)
            case LookLater():
                await self._board.enter(_member(task), claim.delay_ms)
            case Ahead():
                log.warning("board_behind", request=task.request_id, step=task.step_id)
                await self._board.enter(task.request_id, 0)
            case Late() | Unknown():
                pass

    async def _attempt(self, run: _Run, task: Task, claim: Claimed) -> Task | None:
        """Brief, run, record, tell: one attempt of a step that is ours. Returns the task that the worker goes on with by itself."""
        hold = Hold(task.request_id, task.step_id, claim.record, claim.version, task.message_id, self.name)
        began = asyncio.get_running_loop().time()
        try:
            ended = await self._make_with_early_ack(run, hold, claim)
            run.place.of.took(asyncio.get_running_loop().time() - began)
            return None if ended is None else await self._tell(run, task, hold, ended)
        except Exception as error:
            if not run.acked_early:
                raise
            # Nobody hands the task out again: from its early ack on, lease and sweeper look after the step.
            log.warning("step_left_to_the_sweeper", request=task.request_id, step=task.step_id, reason=str(error))
            return None

    async def _make_with_early_ack(self, run: _Run, hold: Hold, claim: Claimed) -> Ended | None:
        """Run the step; an early ack that has begun by then is finished, since half of one would cost a credit or the ack."""
        early: list[asyncio.Task[None]] = []

        def begin() -> None:
            early.append(asyncio.create_task(self._ack_early(run, hold), name="early ack"))

        timer = asyncio.get_running_loop().call_at(run.ack_early_at, begin)
        try:
            return await self._attempts.make(run.place.of.agent, hold, claim)
        finally:
            timer.cancel()
            if early:
                try:
                    await asyncio.wait(early)
                finally:
                    early[0].cancel()

    async def _tell(self, run: _Run, task: Task, hold: Hold, ended: Ended) -> Task | None:
        """After the commit: the end of a step is handed on or reported, a retry or a hand-back gets its due mark."""
        record = ended.record
        mine: Task | None = None
        if record.state.over:
            tasks = None if ended.following is None else ended.following.tasks(ended.after, record, ended.version)
            mine = next((each for each in tasks or () if self._goes_on(run, each.agent)), None)
            others = None if tasks is None else [each for each in tasks if each is not mine]
            if others is None or not await recording.hand_on(self._broker, others):
                mine = None
                await self._report(task, record, ended.version)
            if hold.marked:
                await self._board.leave(_member(task))
        else:
            await self._board.mark(_member(task), record.not_before_ms)
        return mine

    def _goes_on(self, run: _Run, agent: str) -> bool:
        """Whether the worker begins a step at once, with a place for it, instead of ringing it.

        The delivery that led to it stays its outbox meanwhile.
        """
        places, here = self._places.get(agent), run.place.of
        unhurried = not run.acked_early and asyncio.get_running_loop().time() < run.ack_early_at - self._ack_after_seconds / 2
        if places is None or not unhurried or self._draining:
            return False
        if places is here:
            return here.is_quick
        run.next_place = places.host()
        return run.next_place is not None

    async def _report(self, task: Task, record: StepRecord, version: str, *, again: bool = False) -> None:
        """Ring RESULT. Where nobody listens for results yet, the sweeper looks at the request instead."""
        try:
            await recording.report(self._broker, task.request_id, task.step_id, record, version, task.trace, again=again)
        except Undeliverable:
            log.warning("results_queue_missing", request=task.request_id, step=task.step_id)
            await self._board.enter(task.request_id, 0)

    async def _ack_early(self, run: _Run, hold: Hold) -> None:
        """Ack a task that outlasts the broker's patience; from then on its lease and the sweeper are its outbox.

        First the queue is consumed anew with one credit fewer: else one more task would lie, unclaimed, behind busy places.
        """
        await self._attempts.mark(hold)  # it may not have been renewed yet
        run.lent = True
        await run.queue.lend(1)
        run.acked_early = True
        await run.delivery.ack()
        log.info("task_acked_early", request=hold.request_id, step=hold.step_id)


def _member(task: Task) -> str:
    return f"{task.request_id}#{task.step_id}"

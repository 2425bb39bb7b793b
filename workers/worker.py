"""The worker: one line that can be read aloud: receive, claim, brief, run, extract, record, report, ack.

Each stage has a room of its own beside this one; here they are joined, and every way off the line is settled. Extraction
belongs to the agent (`workers.agents`), since only it sees its tools' returns.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

import structlog

from schemas import fields
from schemas.artifacts import ArtifactStore
from schemas.blackboard import Blackboard
from schemas.broker import Broker, Consumer, Delivery, task_queue
from schemas.codec import Json
from schemas.errors import ProtocolViolation, Refused, Unavailable, Undeliverable, Unreadable
from schemas.ids import new_id
from schemas.requests import StepRecord, StepState
from schemas.results import (
    CROSSINGS_LABEL,
    MADE_WITH_LABEL,
    PRIVATE_LABEL,
    AgentResult,
    Failure,
    FailureCode,
    MadeWith,
    ResultStatus,
    Termination,
)
from workers import accepting, claiming, preparing, receiving, recording, running, transcripts
from workers.agents.agent import TERMINATION_CODES, Agent, AgentBrief
from workers.artifacts import RunArtifacts, unreadable_among
from workers.briefing import NoBrief
from workers.claiming import Ahead, Claimed, Finished, Late, LookLater, Unknown
from workers.receiving import Task
from workers.recording import Hold
from workers.reserving import Reservations
from workers.running import HoldLost, Interrupted, Raised, Returned
from workers.team import Team

log = structlog.get_logger()


@dataclass
class _Queue:
    """One agent's consumption: its credit shrinks by each task that was acked while it still runs."""

    agent: Agent
    consumer: Consumer | None = None
    lent: int = 0
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass
class _Run:
    """One delivery on its way down the line."""

    delivery: Delivery
    task: Task
    queue: _Queue
    lent: bool = False
    acked_early: bool = False


class _StoreAway(Exception):
    """The artifact store does not answer: the attempt may be tried again, and the delivery is not to be given back for it."""


class Worker:
    """Serves some agents of a team, each with up to `concurrency` steps at a time.

    Without an artifact store every value has to fit into its field, and no transcript is kept.
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
    ) -> None:
        self.name = name or f"worker/{new_id()[:8]}"
        self._board = board
        self._broker = broker
        self._team = team
        self._agents = {each: team.agent(each) for each in agents or team.agents}
        self._concurrency = concurrency
        self._lease_ms = int(lease_seconds * 1000)
        self._ack_after_seconds = ack_after_seconds
        self._grace_seconds = grace_seconds
        self._artifacts = artifacts
        self._interrupt = running.Interrupt()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._jitter = random.Random()

    async def run(self, *, ready: asyncio.Event | None = None, stop: asyncio.Event | None = None) -> None:
        """Serve until `stop` is set, then drain: take nothing new, finish what runs within the grace time, hand back the rest.

        `ready` is set once every queue is consumed.
        """
        stop = stop or asyncio.Event()
        queues = {name: _Queue(agent) for name, agent in self._agents.items()}
        async with AsyncExitStack() as stack:
            for name, queue in queues.items():
                consumption = self._broker.consume(task_queue(name), self._handler(queue), prefetch=self._concurrency)
                queue.consumer = await stack.enter_async_context(consumption)
            log.info("worker_started", name=self.name, agents=list(queues), concurrency=self._concurrency)
            if ready is not None:
                ready.set()
            await stop.wait()
            await self._drain(queues)
        log.info("worker_stopped", name=self.name)

    def hand_back(self) -> None:
        """Stop the agents that run and hand their steps back now, without waiting for the grace time to end."""
        self._interrupt.set()

    async def _drain(self, queues: Mapping[str, _Queue]) -> None:
        log.info("worker_draining", name=self.name, running=self._running, grace_seconds=self._grace_seconds)
        await asyncio.gather(*(queue.consumer.stop() for queue in queues.values() if queue.consumer is not None))
        try:
            async with asyncio.timeout(self._grace_seconds):
                await self._idle.wait()
        except TimeoutError:
            self.hand_back()
            await self._idle.wait()

    def _handler(self, queue: _Queue) -> Callable[[Delivery], Awaitable[None]]:
        async def handle(delivery: Delivery) -> None:
            self._running += 1
            self._idle.clear()
            try:
                await self._work(delivery, queue)
            finally:
                self._running -= 1
                if not self._running:
                    self._idle.set()

        return handle

    async def _work(self, delivery: Delivery, queue: _Queue) -> None:
        """Receive and claim; then the rest of the line, or the reason why not."""
        try:
            task = receiving.task_of(delivery.message, queue.agent.name)
        except ProtocolViolation as error:
            log.error("message_parked", reason=str(error))  # noqa: TRY400 - a message's fault needs no trace of ours
            await delivery.park(str(error))
            return
        claim = await claiming.claim(self._board, task, writer=self.name, lease_ms=self._lease_ms)
        match claim:
            case Claimed():
                await self._attempt(_Run(delivery, task, queue), claim)
            case Finished():
                await self._report(task, claim.record, claim.version)
                await delivery.ack()
            case LookLater():
                await self._board.enter(_member(task), claim.delay_ms)
                await delivery.ack()
            case Ahead():
                log.warning("board_behind", request=task.request_id, step=task.step_id)
                await self._board.enter(task.request_id, 0)
                await delivery.ack()
            case Late():
                await delivery.ack()
            case Unknown():
                await delivery.park("the board has no such request: gone by retention, or lost by the board")

    async def _attempt(self, run: _Run, claim: Claimed) -> None:
        """Brief, run, record, report, ack: one attempt of a step that is ours."""
        task = run.task
        hold = Hold(task.request_id, task.step_id, claim.record, claim.version, task.message_id, self.name)
        try:
            ended = await self._do_with_early_ack(run, hold, claim)
            if ended is not None:
                await self._tell(task, hold, *ended)
        except Exception as error:
            if not run.acked_early:
                raise
            # Nobody hands the task out again: from its early ack on, lease and sweeper look after the step.
            log.warning("step_left_to_the_sweeper", request=task.request_id, step=task.step_id, reason=str(error))
        if run.lent:
            await self._lend(run.queue, -1)
        if not run.acked_early:
            await run.delivery.ack()

    async def _do_with_early_ack(self, run: _Run, hold: Hold, claim: Claimed) -> tuple[str, StepRecord] | None:
        """Run the step; an early ack that has begun by then is finished, since half of one would cost a credit or the ack."""
        early: list[asyncio.Task[None]] = []

        def begin() -> None:
            early.append(asyncio.create_task(self._ack_early(run, hold), name="early ack"))

        timer = asyncio.get_running_loop().call_later(self._ack_after_seconds, begin)
        try:
            return await self._do(run.queue.agent, hold, claim)
        finally:
            timer.cancel()
            if early:
                try:
                    await asyncio.wait(early)
                finally:
                    early[0].cancel()

    async def _tell(self, task: Task, hold: Hold, version: str, record: StepRecord) -> None:
        """After the commit: the end of a step is reported, a retry or a hand-back gets its due mark."""
        if record.state.over:
            await self._report(task, record, version)
            if hold.due_mark.is_set:
                await self._board.leave(_member(task))
        else:
            await self._board.mark(_member(task), record.not_before_ms)

    async def _report(self, task: Task, record: StepRecord, version: str) -> None:
        """Ring RESULT. Where nobody listens for results yet, the sweeper looks at the request instead."""
        try:
            await recording.report(self._broker, task.request_id, task.step_id, record, version, task.trace)
        except Undeliverable:
            log.warning("results_queue_missing", request=task.request_id, step=task.step_id)
            await self._board.enter(task.request_id, 0)

    async def _do(self, agent: Agent, hold: Hold, claim: Claimed) -> tuple[str, StepRecord] | None:
        """Run the step to the end of this attempt and write it; None if the hold was lost meanwhile."""
        try:
            material = await preparing.gather(self._board, hold.step_id, claim.snapshot, claim.position)
            unreadable = await self._unreadable(hold, material)
            brief = preparing.brief_of(material, attempt=claim.record.attempt, team=self._team, unreadable=unreadable)
        except (Refused, Unreadable, ProtocolViolation) as error:
            return await self._end(hold, None, Failure(code=FailureCode.BAD_RESULT, description=f"the board cannot be read: {error}"))
        except _StoreAway as error:
            return await self._retry(hold, Failure(code=FailureCode.AGENT_ERROR, description=str(error), retryable=True))
        crossings = recording.crossings_label(brief.crossings)
        if isinstance(brief, NoBrief):
            return await self._end(replace(hold, crossings=crossings), None, brief.failure)
        made_with = self._made_with(agent, brief)
        hold = replace(hold, crossings=crossings, made_with=made_with)
        hold = replace(hold, reservations=self._reservations(hold, brief))
        brief = replace(brief, artifacts=self._run_artifacts(brief), reservations=hold.reservations)
        ran = await running.run_agent(
            agent,
            brief,
            renew=lambda: self._renew(hold),
            renew_seconds=self._lease_ms / 3000,
            interrupt=self._interrupt,
        )
        if not isinstance(ran, HoldLost):
            hold = replace(hold, private=await self._keep_transcript(hold, brief))
        if isinstance(ran, Returned) and await self._is_outdated(hold, claim, brief):
            return await self._write(hold, recording.handed_back(hold.record), None, "step_regated", {})
        match ran:
            case Returned():
                kept, failure = accepting.accept(ran.result, self._terms(hold, brief, made_with))
                refused = accepting.refused_steps(ran.result, brief.step)
                if failure is not None and failure.retryable:
                    return await self._retry(hold, failure)
                return await self._end(hold, kept, failure, refused_steps=refused)
            case Raised() if ran.failure.retryable:
                return await self._retry(hold, ran.failure)
            case Raised():
                return await self._end(hold, _unfinished(brief, ran, made_with), ran.failure)
            case Interrupted():
                return await self._write(hold, recording.handed_back(hold.record), None, "step_handed_back", {})
            case HoldLost():
                log.warning("hold_lost", request=hold.request_id, step=hold.step_id, worker=self.name)
                return None

    async def _is_outdated(self, hold: Hold, claim: Claimed, brief: AgentBrief) -> bool:
        """Whether the boundary rules changed while the agent ran, say `regate`, and the gate would now decide otherwise."""
        if self._team.card.rules.on_rules_change != "regate":
            return False
        now = await preparing.gather(self._board, hold.step_id, claim.snapshot.without(fields.BOUNDARY), claim.position)
        again = preparing.brief_of(now, attempt=claim.record.attempt, team=self._team)
        outcomes = {each.need: each.outcome for each in brief.crossings}
        return isinstance(again, NoBrief) or {each.need: each.outcome for each in again.crossings} != outcomes

    async def _renew(self, hold: Hold) -> bool:
        kept, _ = await asyncio.gather(
            self._board.renew(hold.request_id, hold.step_id, hold.version, self._lease_ms),
            self._mark(hold),
        )
        return kept

    async def _mark(self, hold: Hold) -> None:
        hold.due_mark.is_set = True  # also where nobody knows what came of the call
        await self._board.mark(f"{hold.request_id}#{hold.step_id}", self._lease_ms)

    async def _retry(self, hold: Hold, failure: Failure) -> tuple[str, StepRecord] | None:
        """An error that may pass: first a write, then (by the caller) a due mark, then the ack. The last attempt's error stays."""
        if hold.record.attempt >= hold.record.max_attempts:
            return await self._end(hold, None, failure)
        again = recording.retry_of(hold.record, failure, jitter=self._jitter)
        return await self._write(hold, again, None, "step_to_be_retried", {"code": failure.code, "in_ms": str(again.not_before_ms)})

    async def _end(
        self, hold: Hold, result: AgentResult | None, failure: Failure | None, *, refused_steps: int = 0
    ) -> tuple[str, StepRecord] | None:
        if failure is None and hold.reservations.resources:
            async with running.kept(lambda: self._renew(hold), self._lease_ms / 3000):
                failure = await recording.keep_reserved(hold)
            result = accepting.failing(result, failure) if result is not None and failure is not None else result
        record = accepting.end_of(hold.record, failure)
        details = {"code": failure.code} if failure else {}
        if failure is not None and failure.code not in TERMINATION_CODES.values():  # a mistake of somebody's, which nothing else logs
            log.warning("step_given_up", request=hold.request_id, step=hold.step_id, code=failure.code, reason=failure.description[:500])
        if refused_steps:
            details["refused_steps"] = str(refused_steps)
        return await self._write(hold, record, result, "step_failed" if failure else "step_completed", details)

    async def _write(
        self, hold: Hold, record: StepRecord, result: AgentResult | None, event: str, details: Mapping[str, str]
    ) -> tuple[str, StepRecord] | None:
        labels = {"event": event, "step": hold.step_id, "attempt": str(hold.record.attempt), **details}
        if hold.crossings:
            labels[CROSSINGS_LABEL] = hold.crossings
        if result is None and hold.made_with is not None:
            labels[MADE_WITH_LABEL] = hold.made_with.to_json().decode()
        if hold.private is not None:
            labels[PRIVATE_LABEL] = hold.private
        puts = accepting.puts_of(hold.step_id, record, result)
        async with running.kept(lambda: self._renew(hold), self._lease_ms / 3000):
            if record.state is not StepState.COMPLETED:
                await recording.give_back(hold)
            written = await recording.record(self._board, hold, puts, labels, dead=event == "step_failed")
        if written is None:
            return None
        log.info(event, request=hold.request_id, step=hold.step_id, attempt=hold.record.attempt, **details)
        return next(version for name, version in written.versions.items() if name.startswith("step/")), record

    async def _unreadable(self, hold: Hold, material: preparing.Material) -> frozenset[str]:
        refs = preparing.references_of(material)
        if not refs:
            return frozenset()
        async with running.kept(lambda: self._renew(hold), self._lease_ms / 3000):
            try:
                return await unreadable_among(self._artifacts, refs)
            except Unavailable as error:
                raise _StoreAway(f"the artifact store: {error}") from error

    def _reservations(self, hold: Hold, brief: AgentBrief) -> Reservations:
        """For as long as the attempt may take: a worker that died blocks nobody for longer."""
        lease_ms = int(brief.step.timeout_seconds * 1000) + self._lease_ms
        return Reservations(
            brief.step, self._board, hold.request_id, hold.version, self.name, self._team.card.fields, brief.constraints, lease_ms
        )

    def _terms(self, hold: Hold, brief: AgentBrief, made_with: MadeWith) -> accepting.Terms:
        return accepting.Terms(brief, made_with, hold.request_id, hold.record.epoch, self._team.clock(), self._team.actions)

    def _run_artifacts(self, brief: AgentBrief) -> RunArtifacts:
        given = [fact.artifact for fact in brief.facts.values() if fact.artifact is not None]
        return RunArtifacts(self._artifacts, producer=brief.step_id, given=given, value_tokens=self._team.card.rules.max_tokens)

    async def _keep_transcript(self, hold: Hold, brief: AgentBrief) -> str | None:
        if self._artifacts is None or brief.transcript.empty:
            return None
        about: dict[str, Json] = {
            "request": hold.request_id,
            "step": hold.step_id,
            "agent": brief.step.agent,
            "epoch": hold.record.epoch,
            "attempt": hold.record.attempt,
        }
        async with running.kept(lambda: self._renew(hold), self._lease_ms / 3000):
            return await transcripts.keep(self._artifacts, brief.transcript, about, step=hold.step_id)

    def _made_with(self, agent: Agent, brief: AgentBrief) -> MadeWith:
        made = self._team.made_with(agent.name, brief_sha256=brief.brief.sha256, position=brief.brief.position)
        return made.model_copy(update={"boundary": brief.brief.manifest.boundary, "reads": dict(brief.reads)}) if brief.reads else made

    async def _ack_early(self, run: _Run, hold: Hold) -> None:
        """Ack a task that outlasts the broker's patience; from then on its lease and the sweeper are its outbox.

        First the queue is consumed anew with one credit fewer: else one more task would lie, unclaimed, behind busy places.
        """
        await self._mark(hold)  # it may not have been renewed yet
        run.lent = True
        await self._lend(run.queue, 1)
        run.acked_early = True
        await run.delivery.ack()
        log.info("task_acked_early", request=run.task.request_id, step=run.task.step_id)

    async def _lend(self, queue: _Queue, credits: int) -> None:
        async with queue.changing:
            queue.lent += credits
            if queue.consumer is not None:
                await queue.consumer.resize(self._concurrency - queue.lent)


def _member(task: Task) -> str:
    return f"{task.request_id}#{task.step_id}"


def _unfinished(brief: AgentBrief, ran: Raised, made_with: MadeWith) -> AgentResult | None:
    """A run that timed out returned nothing, yet its termination and brief are worth keeping; an error has neither."""
    if ran.termination is not Termination.TIMEOUT:
        return None
    return AgentResult(
        agent=brief.step.agent,
        step_id=brief.step.id,
        status=ResultStatus.FAILED,
        termination=ran.termination,
        failure=ran.failure,
        made_with=made_with,
    )

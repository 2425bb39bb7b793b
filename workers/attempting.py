"""Attempting: one attempt of a claimed step, from its brief to the write that ends it, and every way off the line.

Each stage has a room of its own beside this one; here they are joined. Extraction belongs to the agent (`workers.agents`),
since only it sees its tools' returns.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

import structlog

from schemas import fields
from schemas.artifacts import ArtifactStore
from schemas.blackboard import Blackboard, Snapshot
from schemas.codec import Json
from schemas.errors import ProtocolViolation, Refused, Unavailable, Unreadable
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
from workers import accepting, preparing, recording, running, transcripts
from workers.agents.agent import TERMINATION_CODES, Agent, AgentBrief
from workers.artifacts import RunArtifacts, unreadable_among
from workers.briefing import NoBrief
from workers.claiming import Claimed
from workers.onward import Following, Onward
from workers.recording import Hold
from workers.reserving import Reservations
from workers.running import HoldLost, Interrupted, Raised, Returned
from workers.team import Team

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt whose end is written: the step as committed, and what the write returned for who waits for it."""

    version: str
    record: StepRecord
    after: Snapshot
    following: Following | None = None


class _StoreAway(Exception):
    """The artifact store does not answer: the attempt may be tried again, and the delivery is not to be given back for it."""


class Attempts:
    """The attempts of one worker."""

    def __init__(
        self,
        board: Blackboard,
        team: Team,
        *,
        name: str,
        lease_ms: int,
        artifacts: ArtifactStore | None,
        onward: Onward | None,
    ) -> None:
        self._board = board
        self._team = team
        self._name = name
        self._lease_ms = lease_ms
        self._artifacts = artifacts
        self._onward = onward
        self._jitter = random.Random()
        self.interrupt = running.Interrupt()

    async def make(self, agent: Agent, hold: Hold, claim: Claimed) -> Ended | None:
        """Run the step to the end of this attempt and write it; None if the hold was lost meanwhile."""
        try:
            material = await preparing.gather(self._board, hold.step_id, claim.snapshot, claim.position)
            unreadable = await self._unreadable(hold, material)
            brief = preparing.brief_of(material, attempt=claim.record.attempt, team=self._team, unreadable=unreadable)
        except (Refused, Unreadable, ProtocolViolation) as error:
            return await self._end(hold, None, Failure(code=FailureCode.BAD_RESULT, description=f"the board cannot be read: {error}"))
        except _StoreAway as error:
            return await self._retry(hold, Failure(code=FailureCode.AGENT_ERROR, description=str(error), retryable=True))
        hold.crossings = recording.crossings_label(brief.crossings)
        if isinstance(brief, NoBrief):
            return await self._end(hold, None, brief.failure)
        made_with = hold.made_with = self._made_with(agent, brief)
        hold.reservations = self._reservations(hold, brief)
        brief = replace(brief, artifacts=self._run_artifacts(brief), reservations=hold.reservations)
        ran = await running.run_agent(
            agent,
            brief,
            renew=lambda: self._renew(hold),
            renew_seconds=self._lease_ms / 3000,
            interrupt=self.interrupt,
        )
        if not isinstance(ran, HoldLost):
            hold.private = await self._keep_transcript(hold, brief)
        if isinstance(ran, Returned) and await self._is_outdated(hold, claim, brief):
            return await self._write(hold, recording.handed_back(hold.record), None, "step_regated", {})
        match ran:
            case Returned():
                kept, failure = accepting.accept(ran.result, self._terms(hold, brief, made_with))
                refused = accepting.refused_steps(ran.result, brief.step)
                if failure is not None and failure.retryable:
                    return await self._retry(hold, failure)
                following = await self._following(hold, claim) if failure is None else None
                return await self._end(hold, kept, failure, refused_steps=refused, following=following)
            case Raised() if ran.failure.retryable:
                return await self._retry(hold, ran.failure)
            case Raised():
                return await self._end(hold, _unfinished(brief, ran, made_with), ran.failure)
            case Interrupted():
                return await self._write(hold, recording.handed_back(hold.record), None, "step_handed_back", {})
            case HoldLost():
                log.warning("hold_lost", request=hold.request_id, step=hold.step_id, worker=self._name)
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
            self.mark(hold),
        )
        return kept

    async def mark(self, hold: Hold) -> None:
        """Set the due mark of a hold: its step is looked at once the lease is over."""
        hold.marked = True  # also where nobody knows what came of the call
        await self._board.mark(f"{hold.request_id}#{hold.step_id}", self._lease_ms)

    async def _following(self, hold: Hold, claim: Claimed) -> Following | None:
        """What waits for the step, where this worker may ring it. A board that is away just now is no reason to wait."""
        if self._onward is None:
            return None
        try:
            return await self._onward.following(hold.step_id, claim.snapshot)
        except (Unavailable, Unreadable) as error:
            log.info("not_handed_on", request=hold.request_id, step=hold.step_id, reason=str(error))
            return None

    async def _retry(self, hold: Hold, failure: Failure) -> Ended | None:
        """An error that may pass: first a write, then (by the caller) a due mark, then the ack. The last attempt's error stays."""
        if hold.record.attempt >= hold.record.max_attempts:
            return await self._end(hold, None, failure)
        again = recording.retry_of(hold.record, failure, jitter=self._jitter)
        return await self._write(hold, again, None, "step_to_be_retried", {"code": failure.code, "in_ms": str(again.not_before_ms)})

    async def _end(
        self,
        hold: Hold,
        result: AgentResult | None,
        failure: Failure | None,
        *,
        refused_steps: int = 0,
        following: Following | None = None,
    ) -> Ended | None:
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
        if failure is not None:
            return await self._write(hold, record, result, "step_failed", details)
        return await self._write(hold, record, result, "step_completed", details, following)

    async def _write(
        self,
        hold: Hold,
        record: StepRecord,
        result: AgentResult | None,
        event: str,
        details: Mapping[str, str],
        following: Following | None = None,
    ) -> Ended | None:
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
            returning = () if following is None else following.fields
            written = await recording.record(self._board, hold, puts, labels, dead=event == "step_failed", returning=returning)
        if written is None:
            return None
        log.info(event, request=hold.request_id, step=hold.step_id, attempt=hold.record.attempt, **details)
        return Ended(written.versions[fields.step(hold.step_id)], record, written.returned, following)

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
            brief.step, self._board, hold.request_id, hold.version, self._name, self._team.card.fields, brief.constraints, lease_ms
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

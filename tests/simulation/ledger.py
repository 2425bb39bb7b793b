"""What an all-seeing witness writes down while a run goes on: messages sent, handed out, acked; agents run; who was told what.

Acks are audited at the moment they happen (invariant 14): what was acked must be stored, rung, or guarded by a mark.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from schemas import fields
from schemas.blackboard import Outcome, Write, Written
from schemas.broker import Address, Exchange
from schemas.messages import AgentMessage, MessageType
from schemas.plans import Step, inputs_of
from schemas.requests import RequestStatus, StepState
from schemas.results import FailureCode, ReadOf
from tests.simulation.states import State

if TYPE_CHECKING:
    from tests.simulation.processes import Life
    from tests.simulation.worlds import World


Seen: TypeAlias = tuple[str, str]
"""A step and its version."""
COMMANDS = frozenset({MessageType.REPLAY, MessageType.DROP, MessageType.CANCEL, MessageType.RETRACT, MessageType.DECIDE, MessageType.RULES})


@dataclass(frozen=True)
class AgentRun:
    """One run of an agent: for which task, what it did, what of others it saw, and what it signed its output with."""

    request_id: str
    step: Step
    epoch: int
    attempt: int
    behaviour: str
    nonce: str
    saw: dict[str, str]
    """Step -> the nonce of its result that stood in the brief."""
    text: str
    life: str
    kind: str
    reads: Mapping[str, ReadOf] = field(default_factory=dict)
    """What its brief carried, by the versions that stood in it."""
    position: int = 0
    """Of the claim that the brief is of."""


@dataclass
class Told:
    """What a user was told: the outcome of a submission or a command."""

    what: str
    request_id: str
    outcome: str
    detail: str = ""
    bells: tuple[str, ...] = ()


@dataclass
class Ledger:
    """The witness's notes on one run."""

    world: World
    runs: list[AgentRun] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    tasks_rung: dict[tuple[str, Seen], int] = field(default_factory=dict)
    """(request, step as it was seen) -> board time at which the first TASK for it was on its way."""
    leases: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    """(request, step) -> version of the last claim, and until when its holder has a right to be left alone."""
    results_confirmed: set[tuple[str, str, str]] = field(default_factory=set)
    """(life, request, version of the step)."""
    ready_at_end: dict[tuple[str, str], frozenset[Seen]] = field(default_factory=dict)
    """(request, version of a step that completed) -> the steps below it that could run once it had."""
    last_at_end: set[tuple[str, str]] = field(default_factory=set)
    """(request, version of a step that completed) where no other step was left that could still run."""
    handlings: Iterator[int] = field(default_factory=itertools.count)
    holds: dict[int, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """Handling -> each step whose claim was answered, and what had led to the claim; where the answer was lost, lease and sweeper
    alone guard the step."""
    belated_letters: set[tuple[str, str, int]] = field(default_factory=set)
    """Dead letters that were indexed by a call for which nobody waited any more: one of these may come after it was dropped."""
    acked_handlings: set[int] = field(default_factory=set)
    commands_sent: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    parked_messages: list[tuple[str, str]] = field(default_factory=list)

    def broken(self, invariant: int, what: str) -> None:
        """Write down a broken promise."""
        self.violations.append(f"invariant {invariant}: {what}")

    def sent(self, life: Life, address: Address, bell: AgentMessage) -> None:
        """A message is on its way."""
        if bell.type is MessageType.TASK and bell.step_id:
            seen = (bell.step_id, bell.seen[fields.step(bell.step_id)])
            self.tasks_rung.setdefault((bell.request_id, seen), self.world.now_ms)
        if address.exchange is Exchange.COMMANDS:
            self.commands_sent[life.name].append(bell.id)

    def written(self, request_id: str, write: Write, outcome: Outcome) -> None:
        """A write has reached the board."""
        step, code = write.labels.get("step", ""), write.labels.get("code")
        if not isinstance(outcome, Written) or outcome.replayed or fields.step(step) not in write.put:
            return
        claimed = write.labels.get("event") == "step_claimed"
        version, until_ms = self.leases.get((request_id, step), ("", 0))
        taken = claimed or code in (FailureCode.WORKER_DIED, FailureCode.ATTEMPTS_EXHAUSTED)
        before = next((e.put[fields.step(step)][0] for e in reversed(self.world.events(request_id)[:-1]) if fields.step(step) in e.put), "")
        if taken and before == version and self.world.now_ms < until_ms and not self.world.set_back:
            self.broken(10, f"{step} was taken from a holder whose lease lived ({write.labels.get('event')} by {write.writer})")
        if write.labels.get("event") == "step_completed":
            version, state = outcome.versions[fields.step(step)], self.world.state(request_id)
            self.ready_at_end[request_id, version] = self._ready_below(request_id, step)
            if all(map(state.settled, state.definitions)):
                self.last_at_end.add((request_id, version))
        if claimed:
            self.leased(request_id, step, outcome.versions[fields.step(step)], int(self.world.lease_seconds * 1000))

    def claimed(self, handling: int, write: Write) -> None:
        """A claim was answered. The message that led to it is what brings somebody else if its worker dies."""
        step = write.labels["step"]
        self.holds[handling][step] = write.cause
        if handling in self.acked_handlings:
            self.broken(14, f"{step} was claimed by {write.writer} after the ack of the TASK that it goes on from")

    def leased(self, request_id: str, step: str, version: str, milliseconds: int) -> None:
        """Somebody has taken a step, or has just renewed a lease on it."""
        self.leases[request_id, step] = (version, self.world.now_ms + milliseconds)

    def confirmed(self, life: Life, address: Address, bell: AgentMessage) -> None:
        """The broker has confirmed a message."""
        if address.exchange is Exchange.EVENTS and bell.step_id:
            self.results_confirmed.add((life.name, bell.request_id, bell.seen[fields.step(bell.step_id)]))

    def delivered(self, life: Life, bell: AgentMessage) -> tuple[float, frozenset[Seen]]:
        """A message was handed out: note when, and what was ready to run below it at that moment."""
        ready: frozenset[Seen] = frozenset()
        if bell.type in (MessageType.RESULT_READY, MessageType.RESULT_FAILED):
            told = self.world.state(bell.request_id).steps.get(bell.step_id or "")
            if told is not None and told.epoch == bell.epoch:  # else late, or ahead of the board: nobody has to act on it
                ready = self._ready_below(bell.request_id, bell.step_id or "")
        return life.now, ready

    def _ready_below(self, request_id: str, step_id: str) -> frozenset[Seen]:
        """The steps that wait for a step and can run now."""
        state = self.world.state(request_id)
        if state.status is None or state.status.status.over:
            return frozenset()
        now_ms = self.world.now_ms
        return frozenset(
            (step, stored.version)
            for step, definition in state.definitions.items()
            if step_id in inputs_of(definition)
            and state.ready(step)
            and (stored := state.stored[fields.step(step)]).at_ms + state.steps[step].not_before_ms <= now_ms
        )

    def acked(self, life: Life, bell: AgentMessage, seen: tuple[float, frozenset[Seen]], handling: int) -> None:
        """A message is being acked: is its effect stored, rung, or guarded?"""
        self.acked_handlings.add(handling)
        state = self.world.state(bell.request_id)
        if state.status is None or self.world.set_back:
            return
        if not state.status.status.over and self.world.board._requests[bell.request_id].expires_at_ms is not None:
            self.broken(1, f"{bell.request_id} goes on, and expires meanwhile")
        match bell.type:
            case MessageType.TASK if life.kind == "worker":
                if not self.world.marked(bell.request_id, bell.step_id or "") and not state.status.status.over:
                    self.broken(14, f"TASK of {bell.step_id} was acked by {life.name}, and nothing will look at the request again")
                early = life.now - seen[0] >= self.world.ack_after_seconds
                for step, cause in self.holds.get(handling, {}).items():
                    self._step_left(life, bell, state, step, cause, early=early)
            case MessageType.RESULT_READY | MessageType.RESULT_FAILED:
                self._result_acked(bell, state, seen[1])
            case MessageType.SUBMIT:
                if state.plan is None and not state.status.status.over:
                    self.broken(14, f"SUBMIT of {bell.request_id} was acked by {life.name} before the plan was written")
            case kind if kind in COMMANDS:
                answered = any(event.cause == bell.id for event in self.world.events(bell.request_id))
                if not answered and not (bell.type is MessageType.CANCEL and state.status.status is RequestStatus.CANCELLED):
                    self.broken(14, f"{bell.type} {bell.id} was acked by {life.name} before it was done or refused")

    def notice_acked(self, life: Life, bell: AgentMessage) -> None:
        """What the broker gave up is being acked: the request has to be looked at, or over."""
        state = self.world.state(bell.request_id)
        if state.status is None or state.status.status.over or self.world.set_back:
            return
        if not self.world.marked(bell.request_id, bell.step_id or ""):
            self.broken(14, f"{bell.type} was given up by the broker and acked by {life.name}, and nothing will look at the request")

    def _step_left(self, life: Life, bell: AgentMessage, state: State, step: str, cause: str, *, early: bool) -> None:
        """A TASK is being acked under which a step was claimed: its own, or one that the worker went on with by itself."""
        record, stored = state.steps.get(step), state.stored.get(fields.step(step))
        if record is None or stored is None or state.status is None or state.status.status.over:
            return
        last = state.last_event[fields.step(step)]
        if last.cause != cause or last.writer != life.name:
            return  # another handling has the step
        if record.state is StepState.RUNNING and not (early and self.world.marked(bell.request_id, step, itself=True)):
            self.broken(14, f"TASK of {bell.step_id} was acked by {life.name} before the end of the attempt at {step} was written")
        if early or not record.state.over or (life.name, bell.request_id, stored.version) in self.results_confirmed:
            return
        grows = state.definitions[step].may_plan or not state.taken_in(step)
        if record.state is StepState.FAILED or grows or (bell.request_id, stored.version) in self.last_at_end:
            self.broken(14, f"TASK of {bell.step_id} was acked by {life.name} before RESULT of {step} was confirmed")
        else:
            self._all_rung(bell, state, self.ready_at_end[bell.request_id, stored.version])

    def _result_acked(self, bell: AgentMessage, state: State, ready: frozenset[Seen]) -> None:
        assert state.status is not None
        if not state.status.status.over:
            self._all_rung(bell, state, ready)

    def _all_rung(self, bell: AgentMessage, state: State, ready: frozenset[Seen]) -> None:
        """Who has to act on a step's end has rung what was ready then, and still is."""
        for step, version in ready:
            unchanged = state.stored[fields.step(step)].version == version and state.ready(step)
            if unchanged and (bell.request_id, (step, version)) not in self.tasks_rung:
                self.broken(14, f"{bell.type} of {bell.step_id} was acked before {step}, ready below it, was rung")

    def parked(self, life: Life, bell: AgentMessage, reason: str) -> None:
        """A message that could be read was parked: only for a request that the board does not have (in a run without foreign bells)."""
        self.parked_messages.append((bell.id, reason))
        if self.world.state(bell.request_id).status is not None and not self.world.set_back:
            self.broken(9, f"{bell.type} of {bell.request_id}/{bell.step_id} was parked by {life.name}: {reason}")

    def ran(self, run: AgentRun) -> None:
        """An agent has begun."""
        self.runs.append(run)

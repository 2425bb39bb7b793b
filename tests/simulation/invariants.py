"""The promises, checked after a run against what was written, event by event, and against what the witness saw."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from schemas import fields
from schemas.blackboard import ABSENT, Event, fold
from schemas.errors import BrieflineError
from schemas.plans import inputs_of, needs_of
from schemas.requests import (
    RequestStatus,
    Role,
    StatusRecord,
    StepRecord,
    StepState,
    check_request_transition,
    check_step_transition,
    request_id,
)
from schemas.results import AgentResult, FailureCode
from tests.simulation.agents import GOOD, NONCE
from tests.simulation.ledger import AgentRun, Told
from tests.simulation.sharing_checks import SharingCheck
from tests.simulation.states import State

if TYPE_CHECKING:
    from tests.simulation.worlds import World

_GOES_ON = {"step_replayed", "retracted", "decided"}
"""What lets a request go on that was over."""
_REOPENS: dict[str, frozenset[StepState]] = {
    "step_replayed": frozenset({StepState.FAILED}),
    "retracted": frozenset({StepState.COMPLETED}),
    "stale_found": frozenset({StepState.COMPLETED, StepState.RUNNING}),
    "rechecked": frozenset({StepState.COMPLETED, StepState.FAILED}),
    "decided": frozenset({StepState.FAILED}),
    "rules_changed": frozenset({StepState.RUNNING}),
}
"""Event -> the states from which it may let a step run again, in a new epoch."""
_STANDS = {"retracted", "decided", "rules_changed"}
"""What a person's word at the desk becomes."""
_ENDED_FROM_OUTSIDE = {"request_cancelled", "deadline_passed", "further_steps_refused"}


def check(world: World) -> list[str]:
    """Return every broken promise of a run; an empty list is what is wanted."""
    for request in list(world.board._requests):
        RequestCheck(world, request).check()
    if not world.set_back:
        _told_the_truth(world)
    _nothing_left(world)
    return list(dict.fromkeys(world.ledger.violations))


class RequestCheck:
    """The check of one request: its events are walked through once, with the state before each."""

    def __init__(self, world: World, request: str) -> None:
        self.world = world
        self.request = request
        self.events = world.events(request)
        self.state = State()
        self.results: Counter[tuple[str, int]] = Counter()
        self.claims: dict[str, Event] = {}
        self.retries: list[tuple[str, str, int]] = []
        """Step, version and due time (board, ms) of every retry."""
        self.runs: dict[str, AgentRun] = {run.nonce: run for run in world.ledger.runs if run.request_id == request}
        self.dropped: set[tuple[str, int]] = set()
        self.claimed_on: dict[str, dict[str, AgentResult]] = {}
        """Step -> the results that were on the board at its last claim."""
        self.origins: list[tuple[str, int]] = []
        """Request and position of every reused result, as they were taken over."""
        self.sharing = SharingCheck(self)

    def broken(self, invariant: int, what: str) -> None:
        """Write down a broken promise."""
        self.world.ledger.broken(invariant, f"{self.request[:8]}: {what}")

    def check(self) -> None:
        """Check everything that can be said of one request."""
        for event in self.events:
            self._event(event)
            self.sharing.event(event)
            self.state.take(event)
            self.sharing.after(event)
        self._folded()
        self._ended()
        self._briefs()
        self.sharing.ended()
        if self.world.wanted.calm:
            self._in_time()

    # Each event, before it is applied.

    def _event(self, event: Event) -> None:
        for name, (version, value) in event.put.items():
            before = self.state.stored.get(name)
            count = int((before.version if before else ABSENT).partition(".")[0])
            if int(version.partition(".")[0]) != count + 1:
                self.broken(10, f"{name} went from version {before.version if before else ABSENT} to {version}")
            if name == fields.STATUS:
                self._status(event, StatusRecord.from_json(value))
            elif name.startswith(fields.STEP_PREFIX):
                self._step(event, name.removeprefix(fields.STEP_PREFIX), StepRecord.from_json(value))
            elif name.startswith(fields.RESULT_PREFIX) and f"step/{name.removeprefix(fields.RESULT_PREFIX)}" not in event.put:
                self.broken(12, f"{name} was written without its step")
        if event.labels.get("event") == "dead_letter_dropped":
            self.dropped.add((event.labels["step"], int(event.labels["epoch"])))
        elif event.labels.get("event") == "decided" and event.labels["choice"] == "refuse":
            step = event.labels["item"].partition(":")[2]
            self.dropped |= {(step, self.state.steps[step].epoch)} if step in self.state.steps else set()

    def _status(self, event: Event, after: StatusRecord) -> None:
        before = self.state.status
        try:
            check_request_transition(before.status if before else None, after.status, Role(event.role))
        except BrieflineError as error:
            self.broken(12, str(error))
        if after.status.over:
            self._answered(event, after)
        elif before is not None and before.status.over and event.labels.get("event") not in _GOES_ON:
            self.broken(1, f"a request that was over went on by {event.labels.get('event')}")

    def _answered(self, event: Event, status: StatusRecord) -> None:
        """The write that ends a request: on what state, and what its answer says."""
        after = State()
        for earlier in (*self.events[: event.position - 1], event):
            after.take(earlier)
        how = event.labels.get("event", "")
        if fields.ANSWER not in event.put or after.answer is None:
            self.broken(1, f"the request ended by {how} without an answer")
            return
        if after.answer.status is not status.status:
            self.broken(8, f"the answer says {after.answer.status}, the status {status.status}")
        running = [step for step, record in after.steps.items() if record.state is StepState.RUNNING]
        if running:
            self.broken(10, f"{how}, while {running} ran on")
        if how not in _ENDED_FROM_OUTSIDE and status.failure is None:
            open_steps = [step for step in after.steps if not after.settled(step)]
            if open_steps:
                self.broken(8, f"{how}, while {open_steps} were not settled")
            if not after.growth_taken_in():
                self.broken(8, f"{how}, before all further steps were taken in")
            if left := [step for step, record in after.steps.items() if record.state.over and not after.taken_in(step)]:
                self.broken(3, f"{how}, before {left} were taken in")
        if how == "deadline_passed" and not self.world.wanted.set_back and self.request in self._patient():
            self.broken(1, "the request was ended by a deadline that should never have come")
        self._text(after, how)

    def _patient(self) -> set[str]:
        return {request_id("default", key) for key in self.world.long_deadlines}

    def _text(self, after: State, how: str) -> None:
        answer = after.answer
        assert answer is not None
        if how == "further_steps_refused":
            return
        completed = [step for step, record in after.steps.items() if record.state is StepState.COMPLETED]
        in_order = sorted(completed, key=lambda step: after.stored[fields.step(step)].position)
        if list(answer.sections) != in_order:
            self.broken(8, f"sections {answer.sections} in place of {in_order}")
        text = self.sharing.corrected(answer)
        for step in completed:
            for nonce in NONCE.findall(after.results[step].summary):
                if NONCE.findall(text).count(nonce) != 1:
                    self.broken(8, f"the section of {step} stands {NONCE.findall(text).count(nonce)} times in the answer")
        own = {nonce for step in completed for nonce in NONCE.findall(after.results[step].summary)}
        if strangers := set(NONCE.findall(text)) - own:
            self.broken(8, f"the answer holds {strangers}, which no completed step says")
        named = {gap.step for gap in answer.gaps}
        gone = {step for step, record in after.steps.items() if record.state is StepState.FAILED}
        if not gone <= named:
            self.broken(8, f"the answer does not name the gaps {gone - named}")
        missing = {step for step in after.steps if step not in completed}
        named |= {stopped for gap in answer.gaps for stopped in gap.stopped}
        if how != "request_cancelled" and missing - named:
            self.broken(8, f"the answer says nothing of {missing - named}")
        for gap in answer.gaps:
            if gap.step and after.definitions[gap.step].title not in text:
                self.broken(8, f"the gap {gap.step} stands under no title in the answer")
        if "stage-" in text or any(agent in text for agent in ("archivist", "botanist", "chemist", "worker")):
            self.broken(8, "an internal name stands in the answer")

    def _step(self, event: Event, step: str, after: StepRecord) -> None:
        before = self.state.steps.get(step)
        try:
            check_step_transition(before.state if before else None, after.state, Role(event.role))
        except BrieflineError as error:
            self.broken(12, f"{step}: {error}")
        if self.state.status is not None and self.state.status.status.over and event.labels.get("event") not in _GOES_ON:
            self.broken(10, f"{step} went to {after.state} after the end of the request")
        if before is None:
            return
        if after.state is StepState.PENDING and (allowed := _REOPENS.get(event.labels.get("event", ""))):
            if before.state not in allowed or after.epoch != before.epoch + 1 or after.attempt:
                self.broken(13, f"{step} was reopened from {before.state} epoch {before.epoch} to epoch {after.epoch}")
        elif after.epoch != before.epoch:
            self.broken(13, f"{step} came to epoch {after.epoch} by {event.labels.get('event')}")
        if event.role == Role.WORKER:
            self._by_worker(event, step, before, after)
        elif after.state is StepState.COMPLETED:
            self._reused(event, step, after)

    def _reused(self, event: Event, step: str, after: StepRecord) -> None:
        """A step that nobody ran here: its result is the source's to the byte, and rests on others of the source alone."""
        self.results[step, after.epoch] += 1
        self.world.happened["step_reused"] += 1
        if self.results[step, after.epoch] > 1 or after.attempt:
            self.broken(2, f"{step} has results of its own, and a reused one")
        if self.state.status is None or self.state.status.status is not RequestStatus.ACCEPTED:
            self.broken(3, f"{step} was reused after the fork had begun")
        fresh = [each for each in self.state.definitions[step].depends_on if not self.state.steps[each].reused]
        if fresh:
            self.broken(3, f"{step} was reused on top of {fresh}, which run anew")
        made = after.reused
        result = event.put.get(fields.result(step))
        if made is None or result is None:
            self.broken(12, f"{step} was completed by {event.writer} without a result, or without its origin")
            return
        theirs = {each.position: each for each in self.world.events(made.request)}.get(made.position)
        if any(made.request == request and made.position < position for request, position in self.origins):
            self.broken(8, f"{step} was reused after what was committed later in {made.request}")
        self.origins.append((made.request, made.position))
        if not self.world.set_back and (theirs is None or theirs.put.get(fields.result(step), ("", b""))[1] != result[1]):
            self.broken(5, f"{step} was reused from {made}, and is not what was committed there")

    def _by_worker(self, event: Event, step: str, before: StepRecord, after: StepRecord) -> None:
        if after.state is StepState.RUNNING:
            passed = self.state.ended_well if self.world.set_back else self.state.passed  # what was taken in may be lost, and is again
            unsettled = [each for each in inputs_of(self.state.definitions[step]) if not passed(each)]
            if unsettled:
                self.broken(7 if self.state.stopped(step) else 3, f"{step} was claimed before {unsettled} were settled")
            if after.attempt != before.attempt + 1 or after.attempt > after.max_attempts:
                self.broken(10, f"{step} was claimed for attempt {after.attempt} after {before.attempt} of {after.max_attempts}")
            if before.state is StepState.PENDING and event.at_ms < self.state.stored[fields.step(step)].at_ms + before.not_before_ms:
                self.broken(10, f"{step} was claimed before its time")
            self.claims[step] = event
            self.claimed_on[step] = dict(self.state.results)
            return
        if after.state is StepState.PENDING and after.not_before_ms:
            self.retries.append((step, event.put[fields.step(step)][0], event.at_ms + after.not_before_ms))
        claim = self.claims.get(step)
        if before.state is StepState.RUNNING and event.labels.get("code") != FailureCode.ATTEMPTS_EXHAUSTED:
            if claim is None or claim.writer != event.writer or claim.cause != event.cause:
                self.broken(12, f"{step}: {event.labels.get('event')} by {event.writer}, who did not hold it")
            elif fields.result(step) in event.put:
                self._result(event, step, after, claim)
        if after.state is StepState.COMPLETED and fields.result(step) not in event.put:
            self.broken(6, f"{step} is COMPLETED without a result")

    def _result(self, event: Event, step: str, after: StepRecord, claim: Event) -> None:
        self.results[step, after.epoch] += 1
        if self.results[step, after.epoch] > 1:
            self.broken(2, f"{step} has {self.results[step, after.epoch]} results in epoch {after.epoch}")
        told = State()
        told._decode(fields.result(step), event.put[fields.result(step)][1])
        result = told.results[step]
        if result.made_with is not None and result.made_with.position != claim.position:
            self.broken(10, f"{step}: the result was made at position {result.made_with.position}, the claim is at {claim.position}")
        for fact in result.facts if after.state is StepState.COMPLETED else ():
            if fact.provenance.step != step or not fact.provenance.tool:
                self.broken(5, f"{step}: fact {fact.key} does not say where it was copied from")
        nonce = next(iter(NONCE.findall(result.summary)), None)
        run = self.runs.get(nonce or "")
        if after.state is StepState.COMPLETED:
            self._earned(step, after, run, claim)

    def _earned(self, step: str, after: StepRecord, run: AgentRun | None, claim: Event) -> None:
        """A completed step: its agent answered, in this very attempt, from what was on the board at its claim."""
        if run is None:
            self.broken(6, f"{step} is COMPLETED, and no agent said so")
            return
        if run.behaviour not in (*GOOD, "empty", "stubborn") or ("out" in run.step.expects and run.behaviour in ("empty", "stubborn")):
            self.broken(6, f"{step} is COMPLETED by an agent that was {run.behaviour}")
        made, kept = (run.epoch, run.attempt, run.life), (after.epoch, after.attempt, claim.writer)
        if made != kept:
            self.broken(10, f"{step}: the result of {made} (epoch, attempt, worker) was kept for {kept}")
        for each, seen in run.saw.items():
            stored = self.claimed_on[step].get(each)
            value = next((str(fact.value) for fact in stored.facts if fact.key == "out"), None) if stored else None
            if seen != value:
                self.broken(3, f"{step} was made from {each}={seen}, the board says {value}")

    # At the end.

    def _folded(self) -> None:
        held = self.world.board._requests[self.request]
        if fold(self.events) != held.fields:
            self.broken(11, "the events do not add up to the state")
        if [event.position for event in self.events] != list(range(1, len(self.events) + 1)):
            self.broken(11, "the positions of the events have gaps")

    def _ended(self) -> None:
        state = self.state
        if state.status is None or not state.status.status.over:
            where = {step: record.state.value for step, record in state.steps.items()}
            self.broken(1, f"the request was never finished: {state.status.status if state.status else None} {where}")
            return
        if self.world.board._requests[self.request].expires_at_ms is None:
            self.broken(1, "a request that is over never expires")
        if state.status.status is RequestStatus.CANCELLED or self.world.set_back:
            return
        listed = {(entry.step_id, entry.epoch) for entry in self.world.board._dead.newest(10_000) if entry.request_id == self.request}
        belated = {(step, epoch) for request, step, epoch in self.world.ledger.belated_letters if request == self.request}
        if back := listed & self.dropped & {(step, record.epoch) for step, record in state.steps.items()} - belated:
            self.broken(9, f"{sorted(back)} was dropped, and is a dead letter again")
        for step, record in state.steps.items():
            code = record.failure.code if record.failure else ""
            key = (step, record.epoch)
            if record.state is StepState.FAILED and key not in listed | self.dropped and code != FailureCode.REFUSED_PLAN:
                self.broken(1, f"{step} is FAILED ({code}) and no dead letter")

    def _in_time(self) -> None:
        """Where nothing goes wrong, a retry comes when it is due."""
        for step, version, due_ms in self.retries:
            rung_ms = self.world.ledger.tasks_rung.get((self.request, (step, version)))
            if rung_ms is not None and rung_ms > due_ms + 5_000:
                self.broken(1, f"{step} was to be tried again {(rung_ms - due_ms) / 1000:.0f} s before it was")

    def _briefs(self) -> None:
        """Invariant 4: in no brief stands what its step did not ask for."""
        # A fork's reused result is of another request's run; it may have been replaced since by one of its own.
        written = (value for event in self.events for name, (_, value) in event.put.items() if name.startswith(fields.RESULT_PREFIX))
        told = {nonce for value in written for nonce in NONCE.findall(AgentResult.from_json(value).summary)}
        self.runs |= {run.nonce: run for run in self.world.ledger.runs if run.nonce in told}
        by_nonce = {nonce: run.step.id for nonce, run in self.runs.items()}
        for run in self.runs.values():
            if run.kind != "worker":
                self.broken(1, f"the agent of {run.step.id} was run by {run.life}")
            asked = {need.step for need in needs_of(run.step)}
            asked |= set(run.step.depends_on) if run.step.share_summary else set()
            for nonce in NONCE.findall(run.text):
                origin = by_nonce.get(nonce)
                if origin not in asked and not self._passed_on(nonce, run):
                    self.broken(4, f"the brief of {run.step.id} holds {nonce} of {origin}, which it does not need")

    def _passed_on(self, nonce: str, run: AgentRun) -> bool:
        """Whether a step that was asked for passed the nonce on as a fact of its own (`seen`)."""
        told = (other for other in self.runs.values() if other.nonce in run.text or f"{other.step.id}.seen" in run.reads)
        return any(nonce in other.saw.values() for other in told)


def _told_the_truth(world: World) -> None:
    """What users were told is what the board says."""
    for told in world.ledger.told:
        state = world.state(told.request_id)
        what, *details = told.what.split(" ")
        if told.outcome in ("new", "known", "done") and state.status is None:
            world.ledger.broken(1, f"{told.what} was confirmed, and the board has no such request")
        elif what == "cancel" and told.outcome == "done" and state.status and state.status.status is not RequestStatus.CANCELLED:
            world.ledger.broken(1, f"a cancel was confirmed, and the request is {state.status.status}")
        elif what == "replay" and told.outcome == "done" and state.steps[details[0]].epoch <= int(details[1]):
            world.ledger.broken(13, f"{told.what} was confirmed, and the step is in epoch {state.steps[details[0]].epoch}")
        elif what in ("cancel", "replay") and told.outcome == "refused" and _took_effect(world, told):
            world.ledger.broken(13, f"{told.what} was done, and its user was told that it is refused: {told.detail}")
        elif what in ("retract", "decide", "rules") and told.outcome in ("done", "refused"):
            _stands(world, told, state)
    openings = Counter(told.request_id for told in world.ledger.told if told.outcome == "new")
    for request, count in openings.items():
        if count > 1:
            world.ledger.broken(9, f"{request} was told to be new {count} times")


def _stands(world: World, told: Told, state: State) -> None:
    """What a person was told of the desk stands on the board, and what was refused does not."""
    what, name, *choice = told.what.split(" ")
    effect = [event for event in world.events(told.request_id) if event.cause in told.bells and event.labels.get("event") in _STANDS]
    if told.outcome == "refused":
        if effect:
            world.ledger.broken(13, f"{told.what} was done, and its user was told that it is refused: {told.detail}")
        return
    later = [event for event in world.events(told.request_id) if effect and event.position > effect[-1].position]
    if what == "retract":
        kept = any(each.name == name for each in state.boundary.retractions)
    elif what == "decide":
        again = any(event.labels.get("event") == "decided" and event.labels["item"] == name for event in later)
        kept = name in state.boundary.rulings and (again or state.boundary.rulings[name].choice == choice[0])
    else:
        again = any(event.labels.get("event") == "rules_changed" for event in later)
        kept = state.boundary.rules is not None and (again or state.boundary.rules.version == name)
    if not effect or not kept:
        world.ledger.broken(13, f"{told.what} was confirmed, and does not stand on the board")


def _took_effect(world: World, told: Told) -> bool:
    return any(event.cause in told.bells and fields.STATUS in event.put for event in world.events(told.request_id))


def _nothing_left(world: World) -> None:
    """Long after the end nothing is due, and no message waits but those for people."""
    over = {f"{request}" for request in world.board._requests}
    marks = [member for member in world.board._due._marks if member.partition("#")[0] in over]
    if marks:
        world.ledger.broken(1, f"long after the end there are marks for {marks}")
    for name, queue in world.broker._queues.items():
        if not name.startswith("dead.") and queue.ready:
            world.ledger.broken(15, f"{len(queue.ready)} messages still lie in {name}")

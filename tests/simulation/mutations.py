"""Deliberate mistakes, each of which the simulation has to find: the proof that it bites.

    python -m tests.simulation.mutations          # a table, then one line of JSON

Each one takes a rule of the protocol away from the real code while its seeds run. `seeds` bounds how long one may hide.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import orjson

import ops.blackboard.memory
import ops.opening
from ops.blackboard.memory import MemoryBlackboard
from ops.blackboard.memory_indexes import DueIndex
from ops.forking import Source
from orchestrator import advancing, assembling, commanding, ending, judging, reusing, scheduling
from orchestrator.acting import Actor
from orchestrator.bells import task_of
from orchestrator.causes import Cause, ResultCame
from orchestrator.decisions import Change, Decision, Verdict
from orchestrator.handing_on import HandedOn
from orchestrator.orchestrator import Orchestrator
from orchestrator.scheduling import Standing
from orchestrator.views import Outline, StepView, View, view_of
from schemas import fields
from schemas.blackboard import Blackboard, Due, Outcome, Write, Written
from schemas.broker import Address, Delivery
from schemas.messages import AgentMessage, MessageType
from schemas.requests import RequestStatus, StepRecord, StepState
from schemas.tasks import Task
from tests.simulation.boundary_mutations import AT_THE_BOUNDARY, commands_that_mean_whatever_is_there_by_now
from tests.simulation.ports import SimulatedBoard, SimulatedBroker
from tests.simulation.processes import TASK, Life
from tests.simulation.runs import simulate
from tests.simulation.worlds import Wanted
from workers import accepting, claiming, recording
from workers.recording import Hold
from workers.worker import Worker

ORDINARY = Wanted()
REPLAYS = Wanted(replays=True)
FORKS = Wanted(forks=True)
BOUNDARY = Wanted(boundary=True)


@dataclass(frozen=True)
class Mutation:
    """One rule taken away."""

    name: str
    apply: Callable[[], Any]
    """Returns a context in which the rule is gone."""
    seeds: int = 200
    wanted: Wanted = ORDINARY


@dataclass(frozen=True)
class Caught:
    """What became of a mutation: the seed and promise that gave it away, or None."""

    name: str
    seed: int | None
    tried: int
    violation: str = ""


def hunt(mutation: Mutation) -> Caught:
    """Run seeds with the rule taken away until one is broken."""
    with mutation.apply():
        for seed in range(mutation.seeds):
            run = simulate(seed, mutation.wanted)
            if run.violations:
                return Caught(mutation.name, seed, seed + 1, run.violations[0])
    return Caught(mutation.name, None, mutation.seeds)


# The worker's line.


def ack_before_write() -> Any:
    original = Worker._attempt

    async def mutated(self: Worker, run: Any, *rest: Any) -> Any:
        run.acked_early = True
        await run.delivery.ack()
        return await original(self, run, *rest)

    return patch.object(Worker, "_attempt", mutated)


def result_rung_before_commit() -> Any:
    original = Worker._make_with_early_ack

    async def mutated(self: Worker, run: Any, hold: Hold, claim: Any) -> Any:
        record = hold.record.model_copy(update={"state": StepState.COMPLETED})
        await recording.report(self._broker, hold.request_id, hold.step_id, record, hold.version)
        return await original(self, run, hold, claim)

    return patch.object(Worker, "_make_with_early_ack", mutated)


def handed_on_and_never_rung() -> Any:
    async def mutated(broker: Any, tasks: Any) -> bool:
        return True

    return patch.object(recording, "hand_on", mutated)


def handed_on_before_all_inputs_have_ended() -> Any:
    def mutated(self: HandedOn, after: Any, record: Any, version: str) -> list[Task]:
        view = view_of(after, self.outline)
        waiting = self.outline.graph.waiters.get(self.step_id, ())
        return [task_of(step, view) for step in waiting if view.step(step) is not None]

    return patch.object(HandedOn, "tasks", mutated)


def silent_where_nothing_is_open() -> Any:
    original = HandedOn.tasks

    def mutated(self: HandedOn, after: Any, record: Any, version: str) -> list[Task]:
        return original(self, after, record, version) or []

    return patch.object(HandedOn, "tasks", mutated)


def gone_on_with_after_the_ack() -> Any:
    original = Worker._tell

    async def mutated(self: Worker, run: Any, *rest: Any) -> Any:
        task = await original(self, run, *rest)
        if task is not None and not run.acked_early:
            run.acked_early = True
            await run.delivery.ack()
        return task

    return patch.object(Worker, "_tell", mutated)


def result_never_confirmed() -> Any:
    original = SimulatedBroker.publish

    async def mutated(self: SimulatedBroker, address: Address, bell: AgentMessage, *, confirm: bool = True) -> None:
        await original(self, address, bell, confirm=confirm and bell.sender == "orchestrator")

    return patch.object(SimulatedBroker, "publish", mutated)


def no_fence() -> Any:
    original = recording.record

    async def mutated(board: Blackboard, hold: Hold, puts: Any, labels: Any, **options: Any) -> Written | None:
        name = fields.step(hold.step_id)
        now = (await board.read(hold.request_id, (name,))).version(name)
        return await original(board, dataclasses.replace(hold, version=now), puts, labels, **options)

    return patch.object(recording, "record", mutated)


def _claim_changed(change: Callable[[Write], Write]) -> Any:
    original = claiming._taking

    def mutated(task: Task, writer: str, lease_ms: int, also: tuple[str, ...]) -> tuple[StepRecord, Write]:
        record, write = original(task, writer, lease_ms, also)
        return record, change(write)

    return patch.object(claiming, "_taking", mutated)


def claim_without_lease() -> Any:
    return _claim_changed(lambda write: dataclasses.replace(write, lease=None))


def claim_of_a_held_step() -> Any:
    return _claim_changed(lambda write: dataclasses.replace(write, unheld=()))


def claim_without_status() -> Any:
    return _claim_changed(lambda write: dataclasses.replace(write, expect={k: v for k, v in write.expect.items() if k != fields.STATUS}))


def claim_without_inputs() -> Any:
    """A board that was set back does not have the result that the ring was decided on. (A replay changes the status as well.)"""

    def change(write: Write) -> Write:
        return dataclasses.replace(write, expect={k: v for k, v in write.expect.items() if k == fields.STATUS or k in write.put})

    return _claim_changed(change)


def claim_before_its_time() -> Any:
    untimely = _claim_changed(lambda write: dataclasses.replace(write, after=None))
    return _all(untimely, patch.object(advancing, "_wait_ms", lambda view, step: 0))


def attempt_not_counted() -> Any:
    def change(write: Write) -> Write:
        put = {name: value.replace(b'"attempt":1', b'"attempt":0') for name, value in write.put.items()}
        return dataclasses.replace(write, put=put)

    return _claim_changed(change)


def retry_without_a_mark() -> Any:
    original = Worker._tell

    async def mutated(self: Worker, run: Any, task: Task, hold: Hold, ended: Any) -> Any:
        if ended.record.state.over:
            return await original(self, run, task, hold, ended)
        await self._board.leave(f"{task.request_id}#{task.step_id}")
        return None

    return patch.object(Worker, "_tell", mutated)


def unsigned_results_are_kept() -> Any:
    def mutated(result: Any, terms: accepting.Terms) -> Any:
        return result.model_copy(update={"made_with": terms.made_with, "agent": terms.brief.step.agent}), None

    return patch.object(accepting, "accept", mutated)


# The board and its clients.


class _Redrawing:
    """A board that is given a new operation id each time a write comes to it."""

    def __init__(self, board: MemoryBlackboard) -> None:
        self._board = board

    def __getattr__(self, call: str) -> Any:
        return getattr(self._board, call)

    async def write(self, request_id: str, write: Write) -> Outcome:
        return await self._board.write(request_id, dataclasses.replace(write, operation_id=uuid.uuid4().hex))


def new_operation_id_on_each_resend() -> Any:
    original = SimulatedBoard.__init__

    def mutated(self: SimulatedBoard, life: Life) -> None:
        original(self, life)
        self._board = _Redrawing(self._board)  # type: ignore[assignment]  # it passes everything on

    return patch.object(SimulatedBoard, "__init__", mutated)


def count_only_versions() -> Any:
    return patch.object(ops.blackboard.memory, "next_version", lambda current, _: f"{int(current.partition('.')[0]) + 1}.same00")


def look_that_settles_what_it_did_not_see() -> Any:
    def mutated(self: DueIndex, due: Due, at_ms: int | None) -> None:
        if at_ms is None:
            self._marks.pop(due.member, None)
        else:
            self._marks[due.member] = at_ms

    return patch.object(DueIndex, "settle", mutated)


# The producer.


def opened_before_it_is_in_the_index() -> Any:
    original = SimulatedBoard.enter

    async def mutated(self: SimulatedBoard, member: str, delay_ms: int) -> None:
        if self._life.kind != "producer" or delay_ms != ops.opening.FIRST_LOOK_MS:
            await original(self, member, delay_ms)

    return patch.object(SimulatedBoard, "enter", mutated)


# The orchestrator.


def sweeper_off() -> Any:
    async def mutated(self: Orchestrator) -> int:
        return 0

    return patch.object(Orchestrator, "sweep", mutated)


def orchestrator_acks_first() -> Any:
    original = Orchestrator.handle

    async def mutated(self: Orchestrator, delivery: Delivery) -> None:
        await delivery.ack()
        await original(self, _Settled(delivery))

    return patch.object(Orchestrator, "handle", mutated)


async def _nothing(*_: object) -> None:
    return None


class _Settled:
    """A delivery that was acked already."""

    redelivered = False

    def __init__(self, delivery: Delivery) -> None:
        self.message = delivery.message

    async def ack(self) -> None:
        """Done before."""

    async def nack(self, delay_seconds: float = 0.0) -> None:
        """Done before."""

    async def park(self, reason: str) -> None:
        """Done before."""


def conflict_taken_for_an_end() -> Any:
    original = Actor._write

    async def mutated(self: Actor, view: View, change: Change, asked: Cause) -> Outcome:
        outcome = await original(self, view, change, asked)
        if not isinstance(outcome, Written):
            raise _GivenUp
        return outcome

    act = Actor.act

    async def giving_up(self: Actor, request_id: str, cause: Cause) -> Decision:
        try:
            return await act(self, request_id, cause)
        except _GivenUp:
            return Decision()

    return _all(patch.object(Actor, "_write", mutated), patch.object(Actor, "act", giving_up))


class _GivenUp(Exception):
    """A conflict was taken for an end."""


@contextmanager
def _all(*contexts: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def end_expects_nothing_it_does_not_write() -> Any:
    original = ending._end

    def mutated(*args: Any, **named: Any) -> Change:
        change = original(*args, **named)
        return dataclasses.replace(change, expect={k: v for k, v in change.expect.items() if k in change.put and k != fields.STATUS})

    return patch.object(ending, "_end", mutated)


def end_expects_status_alone() -> Any:
    original = ending._end

    def mutated(*args: Any, **named: Any) -> Change:
        change = original(*args, **named)
        return dataclasses.replace(change, expect={fields.STATUS: change.expect[fields.STATUS]})

    return patch.object(ending, "_end", mutated)


def end_that_fences_nobody() -> Any:
    return patch.object(ending, "_failed", lambda view, standing, failure, *, ready_too: {})


def answer_before_growth() -> Any:
    return patch.object(advancing, "_take_in", lambda *_: None)


def answer_in_plan_order() -> Any:
    original = assembling.sections_in_commit_order

    def mutated(view: View, standing: Mapping[str, Standing]) -> Any:
        return sorted(original(view, standing))

    return patch.object(ending, "sections_in_commit_order", mutated)


def answer_without_gaps() -> Any:
    return patch.object(ending, "gaps_of", lambda *_, **__: ())


def failed_steps_count_as_passed() -> Any:
    original = scheduling._standing

    def mutated(*known: Any) -> Standing:
        standing: Standing = original(*known)
        return Standing.READY if standing is Standing.SKIPPED else standing

    return patch.object(scheduling, "_standing", mutated)


def waiting_steps_count_as_ready() -> Any:
    original = scheduling._standing

    def mutated(*known: Any) -> Standing:
        standing: Standing = original(*known)
        return Standing.READY if standing is Standing.WAITING else standing

    return patch.object(scheduling, "_standing", mutated)


def taken_over_while_an_input_is_open() -> Any:
    original = advancing._rings

    def mutated(view: View, outline: Any, standing: Mapping[str, Standing], cause: Cause) -> Any:
        return original(view, outline, _Passable(standing), cause)

    return patch.object(advancing, "_rings", mutated)


class _Passable(dict[str, Standing]):
    """Standings in which, looked up one by one, no input is open."""

    def __getitem__(self, step: str) -> Standing:
        found = super().__getitem__(step)
        return Standing.COMPLETED if found in (Standing.READY, Standing.WAITING) else found


def late_taken_for_a_violation() -> Any:
    original = judging.judge

    def mutated(view: View, cause: ResultCame) -> Decision | None:
        decision = original(view, cause)
        if decision is not None and decision.verdict is Verdict.LATE and not decision.over:
            return dataclasses.replace(decision, verdict=Verdict.VIOLATION)
        return decision

    return patch.object(advancing, "judge", mutated)


def notice_fails_a_healthy_step() -> Any:
    original = commanding.notice

    def mutated(view: View, cause: Any) -> Decision:
        with patch.object(StepView, "held", lambda self, now_ms: False):
            decision = original(view, cause)
        if decision.change is None:
            return decision
        return dataclasses.replace(decision, change=dataclasses.replace(decision.change, unheld=()))

    return patch.object(commanding, "notice", mutated)


def _replay_changed(change: Callable[[Change], Change]) -> Any:
    original = commanding.replay

    def mutated(view: View, cause: Any) -> Decision:
        decision = original(view, cause)
        return decision if decision.change is None else dataclasses.replace(decision, change=change(decision.change))

    return patch.object(commanding, "replay", mutated)


def replay_without_a_mark() -> Any:
    """Neither before the write nor after it."""
    original = SimulatedBoard.enter

    async def mutated(self: SimulatedBoard, member: str, delay_ms: int) -> None:
        bell = TASK.get(None)
        if bell is None or bell.type is not MessageType.REPLAY:
            await original(self, member, delay_ms)

    return _all(
        _replay_changed(lambda change: dataclasses.replace(change, enter_first=False)), patch.object(SimulatedBoard, "enter", mutated)
    )


def replay_that_leaves_the_expiry() -> Any:
    return _replay_changed(lambda change: dataclasses.replace(change, expire_after_seconds=None))


def replay_in_the_same_epoch() -> Any:
    def change(change: Change) -> Change:
        put = {}
        for name, value in change.put.items():
            if name.startswith(fields.STEP_PREFIX):
                record = StepRecord.from_json(value)
                value = record.model_copy(update={"epoch": record.epoch - 1}).to_json()
            put[name] = value
        return dataclasses.replace(change, put=put)

    return _replay_changed(change)


def replay_of_more_than_was_asked() -> Any:
    original = commanding.replay

    def mutated(view: View, cause: Any) -> Decision:
        decision = original(view, cause)
        if decision.change is None or view.outline is None:
            return decision
        put = dict(decision.change.put)
        for step in view.outline.definitions:
            seen = view.step(step)
            if seen is not None and seen.record.state is StepState.COMPLETED:
                put[fields.step(step)] = seen.record.model_copy(
                    update={"state": StepState.PENDING, "epoch": seen.record.epoch + 1}
                ).to_json()
        return dataclasses.replace(decision, change=dataclasses.replace(decision.change, put=put))

    return patch.object(commanding, "replay", mutated)


def dead_letter_not_indexed() -> Any:
    return patch.object(SimulatedBoard, "dead_add", _nothing)


def reused_whatever_it_rests_on() -> Any:
    def everything_completed(self: Source, at: str) -> tuple[str, ...]:
        return tuple(step for step in self.steps if step != at and self._completed(step))

    stack = ExitStack()
    stack.enter_context(patch.object(Source, "reusable", everything_completed))
    stack.enter_context(patch.object(reusing, "_rests_on_reused", lambda *_: True))
    return stack


def reused_in_another_order() -> Any:
    original = Source.reusable
    return patch.object(Source, "reusable", lambda self, at: original(self, at)[::-1])


def reused_after_the_fork_has_begun() -> Any:
    original = reusing.take_over

    def mutated(view: View, outline: Outline) -> Decision | None:
        if view.status.status is RequestStatus.ACCEPTED:
            return Decision(change=reusing._begin(view, outline, None))
        running = view.status.model_copy(update={"status": RequestStatus.ACCEPTED})
        stored = view.stored[fields.STATUS]._replace(value=running.to_json())
        decision = original(dataclasses.replace(view, stored={**view.stored, fields.STATUS: stored}), outline)
        return None if decision is not None and decision.change is not None and decision.change.event == "fork_begun" else decision

    return patch.object(reusing, "take_over", mutated)


MUTATIONS = (
    Mutation("ack_before_write", ack_before_write),
    Mutation("result_rung_before_commit", result_rung_before_commit),
    Mutation("handed_on_and_never_rung", handed_on_and_never_rung),
    Mutation("handed_on_before_all_inputs_have_ended", handed_on_before_all_inputs_have_ended),
    Mutation("silent_where_nothing_is_open", silent_where_nothing_is_open),
    Mutation("gone_on_with_after_the_ack", gone_on_with_after_the_ack),
    Mutation("result_never_confirmed", result_never_confirmed),
    Mutation("no_fence", no_fence),
    Mutation("claim_without_lease", claim_without_lease),
    Mutation("claim_of_a_held_step", claim_of_a_held_step),
    Mutation("claim_without_status", claim_without_status, seeds=1000),
    Mutation("claim_without_inputs", claim_without_inputs, seeds=1500, wanted=Wanted(set_back=True)),
    Mutation("claim_before_its_time", claim_before_its_time),
    Mutation("attempt_not_counted", attempt_not_counted),
    Mutation("retry_without_a_mark", retry_without_a_mark, wanted=Wanted(calm=True)),
    Mutation("unsigned_results_are_kept", unsigned_results_are_kept),
    Mutation("new_operation_id_on_each_resend", new_operation_id_on_each_resend),
    Mutation("count_only_versions", count_only_versions, seeds=1500, wanted=Wanted(set_back=True)),
    Mutation("look_that_settles_what_it_did_not_see", look_that_settles_what_it_did_not_see, seeds=1500, wanted=REPLAYS),
    Mutation(
        "opened_before_it_is_in_the_index",
        opened_before_it_is_in_the_index,
        wanted=Wanted(crash_at="producer.write.request_opened:after"),
    ),
    Mutation("sweeper_off", sweeper_off),
    Mutation("orchestrator_acks_first", orchestrator_acks_first),
    Mutation("conflict_taken_for_an_end", conflict_taken_for_an_end),
    Mutation("end_expects_nothing_it_does_not_write", end_expects_nothing_it_does_not_write),
    Mutation("end_expects_status_alone", end_expects_status_alone, seeds=1000),
    Mutation("end_that_fences_nobody", end_that_fences_nobody),
    Mutation("answer_before_growth", answer_before_growth),
    Mutation("answer_in_plan_order", answer_in_plan_order),
    Mutation("answer_without_gaps", answer_without_gaps),
    Mutation("failed_steps_count_as_passed", failed_steps_count_as_passed),
    Mutation("waiting_steps_count_as_ready", waiting_steps_count_as_ready),
    Mutation("taken_over_while_an_input_is_open", taken_over_while_an_input_is_open, wanted=REPLAYS, seeds=2000),
    Mutation("late_taken_for_a_violation", late_taken_for_a_violation, seeds=1000),
    Mutation("notice_fails_a_healthy_step", notice_fails_a_healthy_step, seeds=1000),
    Mutation("replay_without_a_mark", replay_without_a_mark, wanted=REPLAYS),
    Mutation("replay_that_leaves_the_expiry", replay_that_leaves_the_expiry),
    Mutation("replay_in_the_same_epoch", replay_in_the_same_epoch),
    Mutation("replay_of_more_than_was_asked", replay_of_more_than_was_asked),
    Mutation("dead_letter_not_indexed", dead_letter_not_indexed),
    Mutation("reused_whatever_it_rests_on", reused_whatever_it_rests_on, wanted=FORKS),
    Mutation("reused_in_another_order", reused_in_another_order, wanted=FORKS),
    Mutation("reused_after_the_fork_has_begun", reused_after_the_fork_has_begun, wanted=FORKS),
    *(Mutation(apply.__name__, apply, wanted=BOUNDARY, seeds=500) for apply in AT_THE_BOUNDARY),
    Mutation(
        "commands_that_mean_whatever_is_there_by_now",
        commands_that_mean_whatever_is_there_by_now,
        seeds=1000,
        wanted=Wanted(boundary=True, crash_at="orchestrator.write.command_refused:after"),
    ),
)


def main() -> int:
    """Hunt every mutation; 1 if one got away."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations", description="rules taken away, and what found it")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*", help="only these")
    asked = parser.parse_args()
    chosen = [mutation for mutation in MUTATIONS if mutation.name in (asked.names or [mutation.name])]
    caught: list[Caught] = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for found in pool.map(_hunt_named, [mutation.name for mutation in chosen]):
            caught.append(found)
            by = f"seed {found.seed}: {found.violation[:100]}" if found.seed is not None else f"NOT CAUGHT in {found.tried} seeds"
            print(f"{found.name:40} {by}", file=sys.stderr, flush=True)
    missed = [found.name for found in caught if found.seed is None]
    print(orjson.dumps({"mutants": len(caught), "caught": len(caught) - len(missed), "missed": missed}).decode())
    return 1 if missed else 0


def _hunt_named(name: str) -> Caught:
    return hunt(next(mutation for mutation in MUTATIONS if mutation.name == name))


if __name__ == "__main__":
    sys.exit(main())

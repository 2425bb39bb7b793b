"""The invariants, each by its number, on both pairs of board and broker.

Numbers 2 and 11 are checked after every other test of this folder too (see `conftest.hold_still`).
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import orjson
import pytest

from ops.reporting import Report
from schemas import fields
from schemas.blackboard import Conflict, Write, fold
from schemas.briefs import LineOrigin
from schemas.broker import COMMANDS, RESULT_READY, UNREADABLE_QUEUE, Address, task_queue, to_agent
from schemas.errors import AgentFailed, NotPermitted
from schemas.messages import AgentMessage, MessageType, message, to_wire
from schemas.plans import Step, inputs_of
from schemas.requests import Role, StepRecord, StepState
from schemas.results import AgentResult, Failure, ResultStatus, Termination
from tests.system.cast import Cast, Gate, fact, fails, step, told
from tests.system.conftest import System, happened, hold_still
from tests.system.reports import named, states
from tests.system.watched import CutLine
from workers.agents.models import ModelInput
from workers.agents.specialist import Specialist
from workers.facts import value_at
from workers.quoting import quote, scalar_text
from workers.team import Team
from workers.teams.bitmall.demo import REQUEST
from workers.teams.bitmall.team import make_team
from workers.worker import Worker

pytestmark = pytest.mark.timeout(40)


# 1


class LosesEveryBellOnce:
    """A fault: what is told for the first time is lost; only the sweeper's repetition gets through."""

    def __init__(self) -> None:
        self.lost: set[tuple[Any, ...]] = set()

    def __call__(self, address: Address, bell: AgentMessage) -> int:
        about = bell.type, bell.step_id, bell.epoch
        if about in self.lost:
            return 1
        self.lost.add(about)
        return 0


async def test_invariant_1_a_request_whose_every_bell_is_lost_still_reaches_its_end(system: System) -> None:
    system.broker.fault = LosesEveryBellOnce()
    cast = Cast()
    async with system.serve(cast.team(step("a"), step("b", "a"))) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        waiting = asyncio.create_task(runtime.wait(accepted.request_id))
        while not waiting.done():
            await system.look_now(accepted.request_id, 60)
            await asyncio.wait({waiting}, timeout=0.25)
        report = await runtime.show(accepted.request_id)

    assert report.status == "COMPLETED" and cast.runs == {"a": 1, "b": 1}
    assert system.broker.fault.lost >= {("SUBMIT", None, 0), ("TASK", "a", 0), ("RESULT_READY", "b", 0)}


async def test_invariant_1_a_request_that_was_opened_while_nobody_served_is_found_after_its_command_was_purged(system: System) -> None:
    cast = Cast()
    team = cast.team(step("a"))
    async with system.serve(team, orchestrators=0, workers=0) as runtime:
        async with system.broker.consume("commands", _take, prefetch=1):  # declares the queue, as an orchestrator had before
            pass
        accepted = await runtime.submit(team, "Please.")
        await system.look.has("commands", 1)
        await system.look.delete("commands")
    async with system.serve(team) as runtime:
        await system.look_now(accepted.request_id, 10)
        report = await runtime.result(accepted)

    assert report.status == "COMPLETED"
    assert [bell.type for _, bell in system.broker.published].count(MessageType.SUBMIT) == 1


async def _take(delivery: Any) -> None:
    await delivery.ack()


# 2 and 10: a hold that somebody else has taken over.


async def test_invariant_2_two_workers_with_the_same_task_bring_one_result(system: System) -> None:
    system.broker.fault = lambda address, bell: 3 if bell.type is MessageType.TASK else 1
    gate = Gate()
    cast = Cast({"a": gate})
    async with system.serve(cast.team(step("a")), workers=2) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        await gate.entered.wait()
        bell = await system.broker.was_published(lambda bell: bell.type is MessageType.TASK)
        await system.broker.was_handled(bell, 2)  # the other two copies are settled while the agent runs
        gate.opened.set()
        report = await runtime.result(accepted)

    assert cast.runs == {"a": 1}
    assert sum(fields.result("a") in event.put for event in report.events) == 1
    assert len(named(report.events, "step_claimed")) == 1


async def test_invariant_2_a_task_that_knows_the_hold_takes_nothing_over_while_the_hold_lives(system: System) -> None:
    gate = Gate()
    cast = Cast({"a": gate})
    async with system.serve(cast.team(step("a")), workers=2, lease_seconds=30) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        await gate.entered.wait()
        first = await system.broker.was_published(lambda bell: bell.type is MessageType.TASK)
        snapshot = await system.board.read(accepted.request_id, (fields.step("a"), fields.STATUS))
        assert first.task is not None
        held = StepRecord.from_json(snapshot.value(fields.step("a")) or b"")
        seen = {name: snapshot.version(name) for name in snapshot.fields}
        again = first.model_copy(update={"id": "again", "seen": seen, "task": first.task.model_copy(update={"record": held})})
        await system.broker.publish(to_agent("hand"), again)
        await system.broker.was_handled(again)
        assert held.state is StepState.RUNNING and cast.runs == {"a": 1}
        gate.opened.set()
        report = await runtime.result(accepted)

    assert cast.runs == {"a": 1} and report.step("a").record.attempt == 1


async def test_invariant_2_and_10_a_worker_that_lost_its_step_writes_nothing_and_the_late_result_is_noted(system: System) -> None:
    cut, whole = Gate(lambda brief: answer(brief, "from the one that was cut off")), Gate(lambda brief: answer(brief, "from the other"))
    first, second = Cast({"a": cut}), Cast({"a": whole})
    team = first.team(step("a"))
    async with system.serve(team, workers=0) as runtime, asyncio.TaskGroup() as group:
        stop = asyncio.Event()
        board = CutLine(system.board)
        group.create_task(Worker(board, system.broker, team, name="worker/cut", concurrency=1, lease_seconds=0.5).run(stop=stop))
        accepted = await runtime.submit(team, "Please.")
        await cut.entered.wait()
        await board.marked.wait()
        board.cut = True
        takes_over = Worker(system.board, system.broker, second.team(step("a")), name="worker/whole", lease_seconds=5)
        group.create_task(takes_over.run(stop=stop))
        await whole.entered.wait()
        cut.opened.set()
        await happened(system.board, accepted.request_id, "late_result_refused")
        whole.opened.set()
        report = await runtime.result(accepted)
        stop.set()

    assert "from the other" in report.answer and "cut off" not in report.answer
    assert [event.writer for event in report.events if fields.result("a") in event.put] == ["worker/whole"]
    assert [event.labels["attempt"] for event in named(report.events, "step_claimed")] == ["1", "2"]


async def answer(brief: Any, text: str) -> AgentResult:
    return told(brief, text)


# 3 and 7


async def test_invariant_3_a_step_is_claimed_only_when_all_that_it_depends_on_is_settled(system: System) -> None:
    system.broker.fault = lambda address, bell: 2
    cast = Cast({"b": fails(), "c": fails(times=1, retryable=True)})
    team = cast.team(step("a"), step("b", "a", critical=False), step("c", "a"), step("d", "b", "c"))
    async with system.serve(team, workers=2, orchestrators=2) as runtime:
        report = await runtime.ask("Please.")

    assert states(report) == {"a": "COMPLETED", "b": "FAILED", "c": "COMPLETED", "d": "COMPLETED"}
    definitions = {each.id: each for each in team.steps}
    claims = named(report.events, "step_claimed")
    assert Counter(event.labels["step"] for event in claims) == {"a": 1, "b": 1, "c": 2, "d": 1}
    for claim in claims:
        before = fold(event for event in report.events if event.position < claim.position)
        for needed in inputs_of(definitions[claim.labels["step"]]):
            state = StepRecord.from_json(before[fields.step(needed)].value).state
            assert state is StepState.COMPLETED or (state is StepState.FAILED and not definitions[needed].critical)


async def test_invariant_7_what_depends_on_a_failed_critical_step_never_runs_and_other_branches_do(system: System) -> None:
    cast = Cast({"a": fails("NO_STOCK")})
    team = cast.team(step("a"), step("b", "a"), step("c", "b"), step("x"), step("y", "x"), step("z", "y", "c", needs=()))
    async with system.serve(team) as runtime:
        report = await runtime.ask("Please.")

    assert states(report) == {"a": "FAILED", "b": "SKIPPED", "c": "SKIPPED", "x": "COMPLETED", "y": "COMPLETED", "z": "SKIPPED"}
    assert cast.runs == {"a": 1, "x": 1, "y": 1}
    assert report.status == "DEGRADED"
    assert [(gap.step, gap.reason, gap.stopped) for gap in report.gaps] == [("a", "NO_STOCK", ("b", "c", "z"))]


# 4 and 5


async def test_invariant_4_every_line_that_a_model_got_has_an_origin_and_stands_where_that_says(system: System) -> None:
    inputs: list[ModelInput] = []
    team = make_team(recorder=inputs.append)
    async with system.serve(team) as runtime:
        report = await runtime.ask(REQUEST)

    assert report.status == "COMPLETED"
    assert {each.step_id for each in inputs} == {"aftersales", "product", "iot"}
    state = fold(report.events)
    for given in inputs:
        text = given.messages[0]["text"]
        kept = next(each for each in report.briefs if each.brief.step_id == given.step_id)
        assert kept.as_given and text == kept.brief.text and given.messages[0]["role"] == "user"
        assert [each["role"] for each in given.messages[1:]].count("user") == 0
        specialist = team.agent(given.agent)
        assert isinstance(specialist, Specialist)
        assert given.instructions == "\n\n".join((specialist.persona, "\n".join(team.phrases.common_rules)))
        assert {tool["name"] for tool in given.tools} == {*specialist.by_name, "report_contradiction"}
        lines = text.split("\n")
        assert [line.line for line in kept.brief.manifest.lines] == list(range(1, len(lines) + 1))
        for line, origin in zip(lines, kept.brief.manifest.lines, strict=True):
            assert _stands(line, origin.origin, origin.step, origin.key, report, state, team, given.step_id), (line, origin)


def _stands(
    line: str, origin: LineOrigin, source: str | None, key: str | None, report: Report, state: Any, team: Team, step_id: str
) -> bool:
    """Whether a line of a brief is what its origin says, by the board and the team's phrases."""
    definition = Step.from_json(state[fields.definition(step_id)].value)
    match origin:
        case LineOrigin.REQUEST:
            return line in quote(report.request.text)
        case LineOrigin.CONSTRAINT:
            assert key is not None
            record = orjson.loads(state[fields.constraint(key)].value)
            return line == f"- {record['label']}{team.phrases.separator}{record['text']}"
        case LineOrigin.FACT:
            assert source is not None and key is not None
            allowed = {need.rstrip("?") for need in definition.needs or ()}
            result = AgentResult.from_json(state[fields.result(source)].value)
            value = next(each.value for each in result.facts if each.key == key)
            return bool(allowed & {f"{source}.{key}", f"{source}.*"}) and line == f"- {key}{team.phrases.separator}{scalar_text(value)}"
        case LineOrigin.TASK:
            return line in (definition.task, team.phrases.out_of_scope.format(text=definition.out_of_scope))
        case LineOrigin.RULE:
            return line in (*team.phrases.scope_rule, *team.phrases.style_rule)
        case LineOrigin.HEADING:
            titles = [each.title for each in team.steps]
            headings = (team.phrases.request, team.phrases.constraints, team.phrases.facts, team.phrases.task, "")
            return line in headings or any(line.startswith(team.phrases.from_step.partition("{")[0] + title) for title in titles)
        case LineOrigin.GAP | LineOrigin.SUMMARY | LineOrigin.JUDGEMENT | LineOrigin.SHARED:
            return False  # nothing is missing here, no step asks for a summary, and the team has neither judgements nor shared fields


async def test_invariant_5_every_fact_was_copied_by_a_rule_from_a_return_that_the_model_got(system: System) -> None:
    inputs: list[ModelInput] = []
    team = make_team(recorder=inputs.append)
    async with system.serve(team) as runtime:
        report = await runtime.ask(REQUEST)

    assert len(report.facts) == 21
    for step_id, known in report.facts:
        specialist = team.agent(step_id)
        assert isinstance(specialist, Specialist)
        source = known.provenance
        assert (source.tool, source.path, known.key) in {(rule.tool, rule.path, rule.key) for rule in specialist.rules}
        assert source.step == step_id and source.rules_version == specialist.rules.version and source.call_id
        last = next(each for each in reversed(inputs) if each.step_id == step_id)
        returns = [orjson.loads(each["text"]) for each in last.messages if each["role"] == "tool" and each["tool"] == source.tool]
        assert known.value in [value_at(returned, source.path) for returned in returns]


# 6


class Untold(Exception):
    """An error that cannot even be told of."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def fail(error: Exception) -> None:
    """Raise, as an expression."""
    raise error


LENGTHY = {"status": ResultStatus.FAILED, "failure": Failure(code="LONG" * 20_000, description="x" * 180_000)}

WAYS: dict[str, tuple[Any, str]] = {
    "raises": (lambda brief: 1 / 0, "AGENT_ERROR"),
    "exits": (lambda brief: exit(3), "AGENT_ERROR"),
    "other-name": (lambda brief: told(brief).model_copy(update={"agent": "somebody"}), "WRONG_SIGNATURE"),
    "other-step": (lambda brief: told(brief).model_copy(update={"step_id": "a"}), "WRONG_SIGNATURE"),
    "max-steps": (lambda brief: told(brief).model_copy(update={"termination": Termination.MAX_STEPS}), "MAX_STEPS"),
    "no-progress": (lambda brief: told(brief).model_copy(update={"termination": Termination.NO_PROGRESS}), "NO_PROGRESS"),
    "budget": (lambda brief: told(brief).model_copy(update={"termination": Termination.BUDGET_EXHAUSTED}), "BUDGET_EXHAUSTED"),
    "says-failed": (lambda brief: told(brief).model_copy(update={"status": ResultStatus.FAILED}), "AGENT_ERROR"),
    "says-why-at-length": (lambda brief: told(brief).model_copy(update=LENGTHY), "LONG" * 16),
    "nothing": (lambda brief: None, "BAD_RESULT"),
    "a-number": (lambda brief: 42, "BAD_RESULT"),
    "undeclared-fact": (lambda brief: told(brief, secret="x"), "BAD_RESULT"),
    "fact-of-another": (lambda brief: told(brief).model_copy(update={"facts": (fact("a", "finding", 1),)}), "BAD_RESULT"),
    "raises-half-a-character": (lambda brief: fail(RuntimeError("half of a \ud83d")), "AGENT_ERROR"),
    "raises-what-cannot-be-told": (lambda brief: fail(Untold()), "AGENT_ERROR"),
    "fails-at-length": (lambda brief: fail(AgentFailed("LONG" * 100_000, "x" * 400_000)), "LONG" * 16),
    "fails-with-half-a-character": (lambda brief: fail(AgentFailed("NO_\ud83d", "half of a \ud83d")), "NO_?"),
    "half-a-character": (lambda brief: told(brief).model_copy(update={"summary": "half of a \ud83d"}), "BAD_RESULT"),
    "too-long-a-text": (lambda brief: "x" * 60_001, "BAD_RESULT"),
    # One value would be kept as an artifact: it takes many that are each within the limit.
    "too-large-a-result": (lambda brief: told(brief).model_copy(update={"facts": told(brief, size="x" * 8000).facts * 40}), "BAD_RESULT"),
    "lacks-expected": (lambda brief: told(brief, colour="blue"), "MISSING_OUTPUT"),
}
"""Step id -> what its agent does, and the code that this must come to."""


async def test_invariant_6_a_run_that_did_not_end_in_a_signed_answer_with_its_expected_facts_is_failed(system: System) -> None:
    async def act(brief: Any) -> Any:
        return WAYS[brief.step_id][0](brief)

    cast = Cast(dict.fromkeys(WAYS, act))
    ways = [step(way, expects=("finding",) if way == "lacks-expected" else ()) for way in WAYS]
    async with system.serve(cast.team(step("a"), *ways)) as runtime:
        report = await runtime.ask("Please.")

    codes = {each.step.id: each.failure.code for each in report.steps if each.failure}
    assert codes == {way: code for way, (_, code) in WAYS.items()}
    assert cast.runs == dict.fromkeys(("a", *WAYS), 1)
    assert states(report)["a"] == "COMPLETED" and report.status == "DEGRADED"
    assert {step_id for step_id, _ in report.facts} == {"a"}
    assert report.answer.count("## ") == 1 and "Traceback" not in report.answer


# 8


async def test_invariant_8_the_answer_holds_each_section_once_in_commit_order_and_names_every_gap(system: System) -> None:
    late, early = Gate(), Gate()
    cast = Cast({"a": late, "b": early, "c": fails("NO_STOCK"), "d": fails("NO_PRICE")})
    async with system.serve(cast.team(step("a"), step("b"), step("c"), step("d", critical=False), step("e", "c"))) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        await asyncio.gather(late.entered.wait(), early.entered.wait())
        early.opened.set()
        await happened(system.board, accepted.request_id, "step_completed")
        late.opened.set()
        report = await runtime.result(accepted)

    assert re.findall(r"^## (.*)$", report.answer, re.MULTILINE) == ["Part B", "Part A"]
    assert report.answer.count("What was found for") == 2
    assert {(gap.step, gap.reason, gap.stopped) for gap in report.gaps} == {("c", "NO_STOCK", ("e",)), ("d", "NO_PRICE", ())}
    for said in ("Part C", "NO_STOCK", "Part D", "NO_PRICE", "Part E"):
        assert said in report.answer


# 9


async def test_invariant_9_every_message_again_in_reverse_order_changes_nothing(system: System) -> None:
    cast = Cast({"b": fails("NO_STOCK"), "c": fails(times=1, retryable=True)})
    async with system.serve(cast.team(step("a"), step("b", "a", critical=False), step("c", "a"), step("d", "b", "c"))) as runtime:
        report = await runtime.ask("Please.")
        before = await system.board.read(report.request_id, tuple(fold(report.events)))
        told_before = [(address, bell) for address, bell in system.broker.published if bell.recipient not in ("*", "people")]
        for _, bell in told_before:
            await system.broker.was_handled(bell)
        for address, bell in reversed(told_before):
            await system.broker.inner.publish(address, bell)
        for _, bell in told_before:
            await system.broker.was_handled(bell, 2)
        after = await runtime.show(report.request_id)

    assert after.events == report.events and cast.runs == {"a": 1, "b": 1, "c": 2, "d": 1}
    assert (await system.board.read(report.request_id, tuple(before.fields))).fields == before.fields
    assert await system.look.depth(UNREADABLE_QUEUE) == 0


async def test_invariant_9_bells_that_overtake_each_other_while_a_request_runs_change_nothing(system: System) -> None:
    gate = Gate()
    cast = Cast({"b": gate})
    async with system.serve(cast.team(step("a"), step("b", "a"), step("c", "b")), workers=2, orchestrators=2) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        await gate.entered.wait()
        early = [(address, bell) for address, bell in system.broker.published if bell.recipient != "*"]
        for address, bell in [*reversed(early), *early]:
            await system.broker.inner.publish(address, bell)
        for _, bell in early:
            await system.broker.was_handled(bell, 2)
        gate.opened.set()
        report = await runtime.result(accepted)

    assert report.status == "COMPLETED" and cast.runs == {"a": 1, "b": 1, "c": 1}


# 10


async def test_invariant_10_an_old_version_overwrites_nothing_and_versions_only_grow(system: System) -> None:
    cast = Cast({"a": fails(times=1, retryable=True)})
    async with system.serve(cast.team(step("a"))) as runtime:
        report = await runtime.ask("Please.")
    versions: dict[str, list[int]] = {}
    for event in report.events:
        for name, (version, _) in event.put.items():
            versions.setdefault(name, []).append(int(version.partition(".")[0]))
            write = Write(Role.ORCHESTRATOR, "orchestrator/old", f"old-{event.position}-{name}"[:60], {name: version}, {})
            outcome = await system.board.write(report.request_id, write)
            current = (await system.board.read(report.request_id, (name,))).version(name)
            assert isinstance(outcome, Conflict) == (version != current), (name, version)
    assert all(seen == list(range(1, len(seen) + 1)) for seen in versions.values())
    assert versions[fields.step("a")] == [1, 2, 3, 4, 5]


# 11


async def test_invariant_11_events_add_up_to_the_state_after_every_kind_of_run(system: System) -> None:
    gate = Gate()
    cast = Cast({"stuck": gate, "flaky": fails(times=1, retryable=True), "broken": fails(times=1), "odd": fails()})
    team = cast.team(step("fine"), step("flaky"), step("broken"), step("below", "broken"), step("odd", critical=False))
    async with system.serve(team) as runtime:
        report = await runtime.ask("Please.")
        assert report.status == "DEGRADED"
        await hold_still(system.board, report.request_id)
        await runtime.replay(report.request_id, "broken")
        again = await runtime.result(report.request_id)
        await hold_still(system.board, report.request_id)
    async with system.serve(cast.team(step("stuck"), step("next", "stuck"))) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        await gate.entered.wait()
        await hold_still(system.board, accepted.request_id)
        await runtime.cancel(accepted.request_id)
        await hold_still(system.board, accepted.request_id)

    assert states(again)["below"] == "COMPLETED" and len(again.events) > len(report.events)
    past = fold(event for event in again.events if event.position <= len(report.events))
    assert past == fold(report.events)


# 12

NAMESPACES = {
    fields.REQUEST: set(),
    fields.CARD: set(),
    fields.constraint("c"): set(),
    fields.STATUS: {Role.ORCHESTRATOR},
    fields.PLAN: {Role.ORCHESTRATOR},
    fields.definition("a"): {Role.ORCHESTRATOR},
    fields.ANSWER: {Role.ORCHESTRATOR},
    fields.step("a"): {Role.ORCHESTRATOR},
    fields.result("a"): set(),
    "elsewhere": set(),
}
"""Field -> who may write it in an open request without expecting its step."""


async def test_invariant_12_nobody_writes_a_field_that_is_not_theirs(system: System) -> None:
    async with system.serve(Cast().team(step("a"))) as runtime:
        report = await runtime.ask("Please.")
    before = fold(report.events)
    for name, owners in NAMESPACES.items():
        for role in set(Role) - owners:
            if role is Role.PRODUCER and name == fields.constraint("c"):
                continue  # absent here: in the opening write it would be the producer's
            with pytest.raises(NotPermitted, match=re.escape(name)):
                await system.board.write(report.request_id, Write(role, "somebody", f"op-{role}-{name}", put={name: b"{}"}))
    assert fold(await runtime.events(report.request_id)) == before
    owners_of = {"request": "producer", "card": "producer", "plan": "orchestrator", "answer": "orchestrator", "result": "worker"}
    for event in report.events:
        for name in event.put:
            assert owners_of.get(name.partition("/")[0], event.role) == event.role


# 13


async def test_invariant_13_a_replay_runs_the_reopened_step_and_what_it_had_stopped_and_nothing_else(system: System) -> None:
    cast = Cast({"b": fails(times=1), "y": fails()})
    team = cast.team(step("a"), step("b", "a"), step("c", "b"), step("d", "c", "a"), step("x"), step("y", critical=False))
    async with system.serve(team) as runtime:
        report = await runtime.ask("Please.")
        assert cast.runs == {"a": 1, "b": 1, "x": 1, "y": 1}
        epoch = await runtime.replay(report.request_id, "b")
        again = await runtime.result(report.request_id)

    assert epoch == 1 and cast.runs == {"a": 1, "b": 2, "c": 1, "d": 1, "x": 1, "y": 1}
    replayed = named(again.events, "step_replayed")
    assert len(replayed) == 1
    touched = {name for event in again.events if event.position > replayed[0].position for name in event.put}
    assert not touched & {f"{kind}/{each}" for kind in ("step", "result", "plan") for each in ("a", "x", "y")}
    assert (again.status, [gap.step for gap in again.gaps]) == ("DEGRADED", ["y"])


# 14


async def test_invariant_14_nothing_is_acked_before_its_effect_is_stored(system: System) -> None:
    seen: list[tuple[MessageType, str | None]] = []

    async def on_ack(bell: AgentMessage) -> None:
        names = (fields.STATUS, fields.PLAN, *(fields.step(each) for each in ("a", "b")))
        snapshot = await system.board.read(bell.request_id, names)
        records = {each: StepRecord.from_json(snapshot.fields[fields.step(each)].value) for each in ("a", "b")}
        if bell.type is MessageType.TASK:
            assert bell.step_id is not None
            record = records[bell.step_id]
            retried = record.state is StepState.PENDING and record.failure is not None and record.attempt == 1
            assert record.state.over or retried, record
            told = [(each.type, each.step_id) for _, each in system.broker.published]
            if record.state.over:  # of `a` follows `b`, which its worker has rung, or has gone on with
                rung = bell.step_id == "a" and ((MessageType.TASK, "b") in told or records["b"].state is not StepState.PENDING)
                assert rung or (MessageType.RESULT_READY, bell.step_id) in told
        elif bell.type is MessageType.RESULT_READY:
            assert b"COMPLETED" in snapshot.fields[fields.STATUS].value
        seen.append((bell.type, bell.step_id))

    system.broker.on_ack = on_ack
    cast = Cast({"a": fails(times=1, retryable=True)})
    async with system.serve(cast.team(step("a"), step("b", "a"))) as runtime:
        await runtime.ask("Please.")
        last = await system.broker.was_published(lambda bell: bell.type is MessageType.RESULT_READY and bell.step_id == "b")
        await system.broker.was_handled(last)

    assert set(seen) >= {(MessageType.SUBMIT, None), (MessageType.TASK, "a"), (MessageType.RESULT_READY, "b")}
    assert await system.look.depth(UNREADABLE_QUEUE) == 0  # a failed check above would have parked its message


# 15


def _task(**changes: Any) -> bytes:
    bell = message(MessageType.TASK, "nobody-knows", sender="orchestrator", recipient="hand", step_id="a")
    event = orjson.loads(to_wire(bell))
    event["data"] |= changes.pop("data", {})
    return orjson.dumps({**event, **changes})


UNREADABLE: dict[str, tuple[bytes, str]] = {
    "no json": (b"\x00\x01 not json", "not JSON"),
    "invalid utf-8": (b'{"specversion": "\xff\xfe"}', "not JSON"),
    "a list": (b"[1, 2]", "not a CloudEvents"),
    "nothing": (b"", "not JSON"),
    "too deep": (b"[" * 2000 + b"]" * 2000, "JSON"),
    "not a number": (b'{"specversion": NaN}', "not JSON"),
    "lone surrogate": (_task().replace(b'"orchestrator"', b'"\\ud83d"'), "JSON"),
    "unknown type": (_task(type="briefline.coffee.v1"), "no message of type"),
    "later major version": (_task(data={"schema_version": "2.0"}), "major version"),
    "field of another type": (_task(data={"epoch": "soon"}), "epoch"),
    "too large": (_task(data={"content": "x" * 300_000}), "over the limit"),
    "no task": (_task(), "without a task"),
    "result among tasks": (
        to_wire(message(MessageType.RESULT_READY, "r", sender="hand", recipient="orchestrator", step_id="a")),
        "RESULT_READY",
    ),
}
"""What lies in an agent's queue, and what the reason says."""


async def test_invariant_15_what_cannot_be_understood_is_parked_with_a_reason_and_the_consumer_goes_on(system: System) -> None:
    cast = Cast()
    async with system.serve(cast.team(step("a"))) as runtime:
        await system.broker.declare_agent("hand")
        for body, _ in UNREADABLE.values():
            await system.look.put(task_queue("hand"), body)
        await system.look.has(UNREADABLE_QUEUE, len(UNREADABLE))
        bodies, reasons = await system.look.bodies(UNREADABLE_QUEUE), await system.look.reasons(UNREADABLE_QUEUE)
        report = await runtime.ask("Please.")

    assert report.status == "COMPLETED"
    assert sorted(bodies) == sorted(body for body, _ in UNREADABLE.values())
    for said, count in Counter(reason for _, reason in UNREADABLE.values()).items():
        assert sum(said in reason for reason in reasons) >= count, (said, reasons)


async def test_invariant_15_bells_of_a_request_that_nobody_knows_are_parked_and_open_nothing(system: System) -> None:
    cast = Cast()
    async with system.serve(cast.team(step("a"))) as runtime:
        report = await runtime.ask("Please.")
        task = await system.broker.was_published(lambda bell: bell.type is MessageType.TASK)
        result = await system.broker.was_published(lambda bell: bell.type is MessageType.RESULT_READY)
        stranger = {"request_id": "00000000-0000-0000-0000-000000000000", "id": "stranger"}
        lost = [
            (to_agent("hand"), task),
            (RESULT_READY, result),
        ]
        lost.append((COMMANDS, message(MessageType.SUBMIT, "r", sender="producer", recipient="orchestrator")))
        lost.append((COMMANDS, task))  # and one that belongs to another queue
        for address, bell in lost:
            await system.broker.publish(address, bell.model_copy(update=stranger))
        await system.look.has(UNREADABLE_QUEUE, len(lost))
        reasons = await system.look.reasons(UNREADABLE_QUEUE)
        again = await runtime.ask("Please, again.")

    assert sum("no such request" in reason for reason in reasons) == 3 and sum("does not belong" in reason for reason in reasons) == 1
    assert again.status == "COMPLETED" and not await system.board.events(stranger["request_id"])
    assert cast.runs == {"a": 2} and report.request_id != again.request_id

"""The shipped team through the whole system: its three acceptance checks over the exact bytes, and the traps of its data sheet.

The evidence arrived; nothing else arrived; no two sections contradict each other or a fact. The traps that concern one
room alone are pinned beside that room (`tests/workers`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ops.reporting import Report
from schemas import fields
from schemas.blackboard import ABSENT, Conflict, Write
from schemas.broker import RESULT_READY, UNREADABLE_QUEUE
from schemas.messages import MessageType
from schemas.requests import Role, StepState
from schemas.results import AgentResult
from tests.system.cast import Cast, Gate, fails, step, told
from tests.system.conftest import System, happened
from tests.system.reports import named, states
from workers.agents.agent import AgentBrief
from workers.agents.models import Call, ModelInput, Reply, Say, ScriptedModel, Turn
from workers.agents.specialist import Specialist
from workers.team import Team
from workers.teams.bitmall.audit import audit
from workers.teams.bitmall.demo import REQUEST
from workers.teams.bitmall.scripts import SCRIPTS, STUCK_APOLOGY
from workers.teams.bitmall.team import make_team

pytestmark = pytest.mark.timeout(40)

CANARY = "金丝雀七三一"
CANARY_NAMES = {"aftersales": "qx7aft", "product": "zk9prd", "iot": "vj4lnk"}
INNER = re.compile(r"qx7aft|zk9prd|vj4lnk|aftersales|Specialist|专家|Agent|orchestrator|worker|briefline", re.IGNORECASE)

AFTERSALES = {
    "orderId": "88231",
    "productName": "比特 S10 Pro 扫地机",
    "originalPrice": "1999",
    "signDate": "2026-06-22",
    "orderStatus": "已签收",
    "warrantyStatus": "IN_WARRANTY",
    "warrantyEndDate": "2027-06-21",
    "noReasonReturnStatus": "EXPIRED",
}
PRODUCT = {
    "candidateA": "比特 S11 Pro 扫地机",
    "candidateAPrice": "1899",
    "candidateAAppControlStatus": "SUPPORTED",
    "candidateB": "比特 S10 Lite 扫地机",
    "candidateBPrice": "1299",
    "candidateBAppControlStatus": "UNKNOWN",
    "catalogScope": "在售扫地机",
    "candidateSetComplete": "true",
    "candidateCount": "2",
}
SECTIONS = ("保修与掉线处理", "换新候选", "音箱联动")


@dataclass
class Done:
    """A request to the team that is over, with every input that a model got."""

    report: Report
    inputs: list[ModelInput] = field(default_factory=list)

    def of(self, step_id: str) -> list[ModelInput]:
        """What the model of one step got."""
        return [each for each in self.inputs if each.step_id == step_id]

    def crossed(self, step_id: str) -> list[tuple[str, str]]:
        """The confirmed facts in one step's brief, by its bytes: name and value, in their order."""
        text = self.of(step_id)[0].messages[0]["text"]
        section = text.partition("【已确认事实】")[2].partition("\n\n")[0]
        return [(name, value) for name, value in re.findall(r"^- ([^：]+)：(.*)$", section, re.MULTILINE)]

    @property
    def sections(self) -> dict[str, str]:
        """Title -> text of each completed step."""
        return {each.step.title: each.result.summary for each in self.report.steps if each.result and each.result.completed}


async def done(system: System, *, scenario: str = "happy", names: dict[str, str] | None = None, **scripts: Callable[[Turn], Reply]) -> Done:
    """Ask the team once; `scripts` take the place of the scenario's."""
    inputs: list[ModelInput] = []
    team = make_team(scenario=scenario, recorder=inputs.append, names=names)
    async with system.serve(_rewritten(team, inputs, scripts) if scripts else team) as runtime:
        return Done(await runtime.ask(REQUEST), inputs)


def _rewritten(team: Team, inputs: list[ModelInput], scripts: dict[str, Callable[[Turn], Reply]]) -> Team:
    agents = []
    for name, agent in team.agents.items():
        assert isinstance(agent, Specialist)
        model = ScriptedModel(scripts[name], recorder=inputs.append) if name in scripts else agent.model
        agents.append(replace(agent, model=model))
    return Team(team.name, agents, team.steps, team.constraints, phrases=team.phrases, clock=team.clock)


def headings(answer: str) -> list[str]:
    """The second-level headings of an answer."""
    return re.findall(r"^## (.*)$", answer, re.MULTILINE)


# Acceptance.


async def test_acceptance_of_the_happy_scenario(system: System) -> None:
    happy = await done(system)
    report = happy.report

    assert report.status == "COMPLETED" and not report.gaps and headings(report.answer) == list(SECTIONS)
    # The evidence arrived, in every call of the model and not only in its first.
    assert happy.crossed("product") == list(AFTERSALES.items())
    assert happy.crossed("iot") == [("productName", AFTERSALES["productName"]), *PRODUCT.items()]
    for given in happy.inputs:
        assert given.messages[0]["text"] == happy.of(given.step_id)[0].messages[0]["text"]
        for said in ("- 订单号：88231", "- 预算：换新预算 2000 元以内", "- 已有设备：比特 SoundBox Mini 智能音箱", f"> {REQUEST}"):
            assert said in given.messages[0]["text"].splitlines()
    # Nothing else arrived: no word of what another one wrote, and no name of a fact that was not declared.
    for given in happy.inputs:
        for title, text in happy.sections.items():
            if title != SECTIONS[("aftersales", "product", "iot").index(given.step_id)]:
                assert not [line for line in text.splitlines() if len(line) > 12 and line in given.text]
    assert not happy.crossed("aftersales")
    # No two sections contradict each other, or a fact.
    assert audit(happy.sections, [known for _, known in report.facts]) == ()
    prices = [int(known.value) for _, known in report.facts if known.key.startswith("candidate") and known.key.endswith("Price")]
    assert prices and max(prices) <= 2000


async def test_acceptance_of_the_stuck_scenario_and_its_replay_once_the_cause_is_gone(system: System) -> None:
    inputs: list[ModelInput] = []
    team = make_team(scenario="product-stuck", recorder=inputs.append)
    async with system.serve(team) as runtime:
        stuck = Done(await runtime.ask(REQUEST), list(inputs))
    report = stuck.report

    assert report.status == "DEGRADED" and states(report) == {"aftersales": "COMPLETED", "product": "FAILED", "iot": "SKIPPED"}
    assert stuck.crossed("product") == list(AFTERSALES.items()) and not stuck.of("iot")
    assert audit(stuck.sections, [known for _, known in report.facts]) == ()
    assert headings(report.answer) == [SECTIONS[0]] and "2027-06-21" in report.answer and "2026-06-22" in report.answer
    notice = report.answer.rpartition("\n\n")[2]
    for said in ("以上是已经完成的部分", SECTIONS[1], "NO_PROGRESS", SECTIONS[2], "人工", "完整答复"):
        assert said in notice
    assert not INNER.search(report.answer) and "Traceback" not in report.answer
    assert [(gap.step, gap.reason, gap.stopped) for gap in report.gaps] == [("product", "NO_PROGRESS", ("iot",))]

    inputs.clear()
    async with system.serve(make_team(recorder=inputs.append)) as runtime:
        (letter,) = await runtime.dead()
        assert (letter.step_id, letter.title, letter.reason) == ("product", SECTIONS[1], "NO_PROGRESS")
        await runtime.replay(report.request_id, "product")
        again = Done(await runtime.result(report.request_id), inputs)
    assert again.report.status == "COMPLETED" and headings(again.report.answer) == list(SECTIONS)
    assert not again.of("aftersales") and again.crossed("iot") and again.report.step("aftersales").record.attempt == 1


@pytest.mark.parametrize("scenario", ["happy", "product-stuck"])
async def test_trap_T14_no_step_id_and_no_agent_name_is_in_any_model_input_or_in_the_answer(system: System, scenario: str) -> None:
    inside = await done(system, scenario=scenario, names=CANARY_NAMES)

    assert {each.step_id for each in inside.inputs} >= {"qx7aft", "zk9prd"}
    for given in inside.inputs:
        assert not INNER.search(given.text), (given.step_id, INNER.search(given.text))
    assert not INNER.search(inside.report.answer)
    assert {"qx7aft", "zk9prd", "vj4lnk"} == set(states(inside.report))


# Traps.


async def test_trap_T09_what_aftersales_writes_and_thinks_reaches_no_later_model_input(system: System) -> None:
    def script(turn: Turn) -> Reply:
        reply = SCRIPTS["happy"]["aftersales"](turn)
        return Say(f"{reply.text}\n\n{CANARY}") if isinstance(reply, Say) else Call(*reply.calls, text=CANARY)

    leaky = await done(system, aftersales=script)

    assert leaky.report.status == "COMPLETED" and CANARY in leaky.report.answer
    assert any(CANARY in given.text for given in leaky.of("aftersales"))  # its own conversation holds it
    assert leaky.of("product") and leaky.of("iot")
    assert not [given for given in leaky.inputs if given.step_id != "aftersales" and CANARY.encode() in given.data]


async def test_trap_T10_T13_T16_T29_what_the_linkage_gets_and_how_the_answer_reads(system: System) -> None:
    happy = await done(system)
    linkage = b"\n".join(given.data for given in happy.of("iot"))

    for leaked in ("warranty", "2027-06-21", "已签收", "2026-06-22", "originalPrice"):  # T10
        assert leaked.encode() not in linkage
    for given in happy.inputs:  # T13
        text = given.messages[0]["text"]
        assert 0 < text.index("【本次任务】") < text.index("【范围】") < text.index("【行文】")
    assert not re.search(r"兼容|联动|音箱|SoundBox", happy.sections[SECTIONS[1]])
    assert headings(happy.report.answer) == list(SECTIONS) and "您" not in happy.report.answer  # T16
    assert not re.search(r"^# ", happy.report.answer, re.MULTILINE)
    others = [name for name, _ in happy.crossed("iot") if name in AFTERSALES]  # T29
    assert others == ["productName"]


async def test_trap_T17_a_second_result_for_the_same_step_and_epoch_is_refused(system: System) -> None:
    async with system.serve(Cast().team(step("a"))) as runtime:
        report = await runtime.ask("Please.")
        (claim,) = named(report.events, "step_claimed")
        fence, record = claim.put[fields.step("a")]
        other = Write(
            role=Role.WORKER,
            writer="worker/second",
            operation_id="second-result",
            expect={fields.step("a"): fence},
            put={fields.step("a"): record, fields.result("a"): b'{"summary": "another"}'},
        )
        outcome = await system.board.write(report.request_id, other)
        now = (await system.board.read(report.request_id, (fields.step("a"),))).version(fields.step("a"))
        first = replace(other, operation_id="third-result", expect={fields.step("a"): now, fields.result("a"): ABSENT})
        assert isinstance(await system.board.write(report.request_id, first), Conflict)
        after = await runtime.show(report.request_id)

    assert isinstance(outcome, Conflict) and outcome.field == fields.step("a")
    assert after.events == report.events and after.answer == report.answer


async def test_trap_T18_all_ready_tasks_lie_on_their_queue_before_the_first_is_taken(system: System) -> None:
    cast = Cast()
    team = cast.team(step("a"), step("b"), step("c"), step("d", "a"))
    async with system.serve(team, workers=0) as runtime:
        accepted = await runtime.submit(team, "Please.")
        await system.tasks_lie("hand", "a", "b", "c")
        assert not cast.runs
        async with system.serve(team, orchestrators=0):
            report = await runtime.result(accepted)

    assert report.status == "COMPLETED" and cast.runs == {"a": 1, "b": 1, "c": 1, "d": 1}


async def test_trap_T19_an_agent_that_raises_is_a_gap_in_the_answer_and_no_trace(system: System) -> None:
    def script(turn: Turn) -> Reply:
        raise RuntimeError(f"Traceback (most recent call last): {CANARY}")

    broken = await done(system, product=script)

    failure = broken.report.step("product").failure
    assert broken.report.status == "DEGRADED" and failure is not None and failure.code == "AGENT_ERROR"
    assert headings(broken.report.answer) == [SECTIONS[0]]
    for hidden in ("Traceback", CANARY, "RuntimeError", ".py"):
        assert hidden not in broken.report.answer


async def test_trap_T20_a_result_with_another_signature_is_failed(system: System) -> None:
    cast = Cast({"product": lambda brief: _signed(brief, "iot")})
    async with system.serve(cast.team(step("product"), step("iot"))) as runtime:
        report = await runtime.ask("Please.")

    failure = report.step("product").failure
    assert failure is not None and failure.code == "WRONG_SIGNATURE" and report.status == "DEGRADED"
    assert CANARY not in report.answer and report.step("product").result is None


async def _signed(brief: AgentBrief, name: str) -> AgentResult:
    return told(brief, CANARY).model_copy(update={"agent": name, "step_id": name})


async def test_trap_T21_a_protocol_violation_is_parked_with_its_reason_and_is_nobodys_failure(system: System) -> None:
    gate = Gate()
    cast = Cast({"a": fails("NO_STOCK"), "b": gate})
    async with system.serve(cast.team(step("a"), step("b"))) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        said = await system.broker.was_published(lambda bell: bell.type is MessageType.RESULT_FAILED and bell.recipient == "orchestrator")
        await gate.entered.wait()
        lies: list[dict[str, Any]] = [
            {"type": MessageType.RESULT_READY, "state": StepState.COMPLETED},  # the same version, another end
            {"sender": "somebody"},
            {"recipient": "people"},
        ]
        for index, lie in enumerate(lies):
            await system.broker.publish(RESULT_READY, said.model_copy(update={**lie, "id": f"lie-{index}"}))
        await system.look.has(UNREADABLE_QUEUE, len(lies))
        reasons = await system.look.reasons(UNREADABLE_QUEUE)
        gate.opened.set()
        report = await runtime.result(accepted)

    assert sum("at the same version" in reason for reason in reasons) == 1 and sum("signed" in reason for reason in reasons) == 2
    assert states(report) == {"a": "FAILED", "b": "COMPLETED"} and [gap.reason for gap in report.gaps] == ["NO_STOCK"]


async def test_trap_T22_sections_stand_one_blank_line_apart_and_their_markdown_is_left_alone(system: System) -> None:
    body = "第一行\n\n- 甲\n- 乙\n  - 丙\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n```\n# kept\n```"
    second = Gate()

    async def first(brief: AgentBrief) -> AgentResult:
        return told(brief, body)

    cast = Cast({"a": first, "b": second})
    async with system.serve(cast.team(step("a"), step("b"))) as runtime:
        accepted = await runtime.submit(runtime.team, "Please.")
        await happened(system.board, accepted.request_id, "step_completed")
        second.opened.set()
        report = await runtime.result(accepted)

    assert report.answer == f"## Part A\n\n{body}\n\n## Part B\n\nWhat was found for Part B."


async def test_trap_T23_the_text_of_a_failed_step_is_kept_for_people_and_never_in_the_answer(system: System) -> None:
    stuck = await done(system, scenario="product-stuck")

    kept = stuck.report.step("product").result
    assert kept is not None and STUCK_APOLOGY in kept.summary and not kept.facts
    assert STUCK_APOLOGY not in stuck.report.answer and "抱歉" not in stuck.report.answer
    assert {step_id for step_id, _ in stuck.report.facts} == {"aftersales"}


async def test_trap_T31_an_unknown_that_a_model_rewrites_is_found_in_the_answer_by_the_audit(system: System) -> None:
    def script(turn: Turn) -> Reply:
        reply = SCRIPTS["happy"]["iot"](turn)
        return Say("- 比特 S10 Lite 扫地机不支持与你的音箱联动。") if isinstance(reply, Say) else reply

    wrong = await done(system, iot=script)

    findings = audit(wrong.sections, [known for _, known in wrong.report.facts])
    assert wrong.report.status == "COMPLETED" and [finding.kind for finding in findings] == ["unknown_rewritten"]


async def test_several_requests_to_the_team_at_once_do_not_mix(system: System) -> None:
    team = make_team()
    async with system.serve(team, workers=2, orchestrators=2) as runtime:
        asked = [REQUEST if index % 2 else REQUEST.replace("88231", "88107") for index in range(8)]
        reports = await asyncio.gather(*(runtime.ask(text) for text in asked))

    for text, report in zip(asked, reports, strict=True):
        mine, other = ("88231", "88107") if "88231" in text else ("88107", "88231")
        assert report.status == "COMPLETED" and headings(report.answer) == list(SECTIONS)
        assert mine in report.answer and other not in report.answer

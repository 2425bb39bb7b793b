"""Two hundred mixed requests at once over two orchestrators and four workers: every answer right, every step run to one result."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from ops.blackboard.redis import RedisBlackboard
from ops.broker.rabbitmq import RabbitMQBroker
from ops.client import Client
from ops.reporting import Report
from schemas.requests import RequestStatus
from tests.end_to_end import teams
from tests.end_to_end.processes import System
from tests.end_to_end.test_demo import AFTERSALES_FACTS
from workers.team import Team
from workers.teams.bitmall.demo import REQUEST
from workers.teams.bitmall.team import team as bitmall

REQUESTS = 200
BUDGETS = {1000: [], 1500: [1299], 2000: [1899, 1299]}
"""Budget -> the prices of the candidates that the catalogue has within it."""
UNKNOWN_ORDER = "订单 99999 的扫地机老掉线，帮我查保修。"
LEASE_SECONDS = 30
"""Two cores that run eight processes starve some of them for longer than the usual lease."""
PATIENCE_SECONDS = 100


def _asked(number: int) -> tuple[Team, str, dict[str, object]]:
    """The request of that number: two of five are BitMall's, and of those every tenth asks for an order that is none."""
    if number % 5 not in (1, 2):
        return teams.diamond, f"request {number}", {"number": number}
    if number % 50 == 1:
        return bitmall, UNKNOWN_ORDER, {}
    return bitmall, REQUEST, {"budget": list(BUDGETS)[number % 3]}


def test_two_hundred_mixed_requests_at_once_each_get_their_own_whole_answer(system: System) -> None:
    settings = {"lease_seconds": LEASE_SECONDS}
    serving = [system.orchestrator(**settings) for _ in range(2)]
    serving += [system.worker(**settings) for _ in range(2)]
    serving += [system.worker("--team", "tests.end_to_end.teams:diamond", **settings) for _ in range(2)]
    for process in serving:
        process.wait_until_started()
    reports = asyncio.run(_answered(system))

    assert len({report.request_id for report in reports}) == REQUESTS
    for number, report in enumerate(reports):
        _one_result_for_each_step_and_epoch(report)
        team, text, constraints = _asked(number)
        assert report.request.text == text
        if team is teams.diamond:
            _diamond_is_right(number, report)
        elif text == UNKNOWN_ORDER:
            assert report.status is RequestStatus.FAILED
            assert [(gap.step, gap.reason, gap.stopped) for gap in report.gaps] == [("aftersales", "MISSING_OUTPUT", ("product", "iot"))]
        else:
            _bitmall_is_right(int(str(constraints["budget"])), report)
    assert all(process.code is None for process in serving), "no process died"
    shares = Counter(event.writer for report in reports for event in report.events if event.labels["event"] == "step_completed")
    assert len(shares) == 4, "every worker had its share"
    for queue in (
        "results",
        "commands",
        "dead.broker",
        "dead.unreadable",
        *(f"tasks.{agent}" for agent in (*bitmall.agents, *teams.diamond.agents)),
    ):
        assert system.waiting_messages(queue) == 0, queue
    assert system.waiting_messages("dead.picky") == sum(number % 5 == 0 for number in range(REQUESTS) if _asked(number)[0] is teams.diamond)


async def _answered(system: System) -> Sequence[Report]:
    """Submit all at once, wait for all, and return what came of each."""
    async with (
        RedisBlackboard(system.redis_url, prefix=system.key_prefix, lease_seconds=LEASE_SECONDS) as board,
        RabbitMQBroker(system.rabbitmq_url, prefix=system.topology_prefix) as broker,
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        client = Client(board, broker)

        async def answered(number: int) -> Report:
            team, text, constraints = _asked(number)
            accepted = await client.submit(team, text, constraints=constraints, idempotency_key=f"load-{number}")
            assert accepted.new
            await client.wait(accepted.request_id)
            return await client.show(accepted.request_id, team)

        return await asyncio.gather(*(answered(number) for number in range(REQUESTS)))


def _one_result_for_each_step_and_epoch(report: Report) -> None:
    ended = Counter(event.labels["step"] for event in report.events if event.labels["event"] in ("step_completed", "step_failed"))
    written = Counter(name for event in report.events for name in event.put if name.startswith("result/"))
    assert set(ended.values()) <= {1}, report
    assert set(written.values()) <= {1}, report
    assert {f"result/{step.step.id}" for step in report.steps if step.state == "COMPLETED"} <= set(written)
    assert [event.position for event in report.events] == list(range(1, len(report.events) + 1))
    assert all(brief.as_given in (True, None) for brief in report.briefs)


def _diamond_is_right(number: int, report: Report) -> None:
    def section(title: str) -> str:
        return f"## {title}\n\nanswered {number} as {title}"

    parts = report.answer.split("\n\n## ")
    sections = {parts[0], *(f"## {part}" for part in parts[1:])}
    right = report.step("right")
    assert (right.state, right.record.attempt) == ("COMPLETED", 2)
    if number % 5:
        assert report.status is RequestStatus.COMPLETED
        assert sections == {section(title) for title in ("Top", "Left", "Right", "Bottom")}
        assert report.answer.startswith(section("Top"))
        assert report.answer.endswith(section("Bottom"))
    else:
        assert report.status is RequestStatus.DEGRADED
        assert [(gap.step, gap.reason, gap.stopped) for gap in report.gaps] == [("left", "REFUSES_FIVE", ("bottom",))]
        assert report.answer.startswith(f"{section('Top')}\n\n{section('Right')}\n\n")


def _bitmall_is_right(budget: int, report: Report) -> None:
    assert report.status is RequestStatus.COMPLETED
    facts = {(step, fact.key): fact.value for step, fact in report.facts}
    assert {key: value for (step, key), value in facts.items() if step == "aftersales"} == AFTERSALES_FACTS
    prices = [facts[("product", key)] for key in ("candidateAPrice", "candidateBPrice") if ("product", key) in facts]
    assert prices == BUDGETS[budget]
    assert report.answer.count("## ") == 3

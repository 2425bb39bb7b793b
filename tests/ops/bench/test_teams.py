"""The teams of the bench do what its page says of them."""

from __future__ import annotations

import pytest

from ops.bench.teams import CASES, FACTS, GIVEN, chain, diamond, everyone, facts
from ops.embedded import embedded
from schemas.requests import RequestStatus


@pytest.mark.parametrize(("name", "steps"), [("chain", "abc"), ("diamond", "abcd")])
async def test_no_op_steps_come_to_an_answer_in_order(name: str, steps: str) -> None:
    async with embedded(CASES[name]) as runtime:
        report = await runtime.ask("Request 1")
    assert report.status is RequestStatus.COMPLETED
    assert "".join(each.step.id for each in report.steps) == steps


async def test_the_case_as_users_run_it_has_facts_needs_a_manifest_and_constraints() -> None:
    async with embedded(facts) as runtime:
        report = await runtime.ask("Request 1", constraints=GIVEN)
    assert report.status is RequestStatus.COMPLETED
    assert len(report.facts) == 3 * FACTS
    second = next(each.brief for each in report.briefs if each.brief.step_id == "second")
    needed = [line.key for line in second.manifest.lines if line.step == "first"]
    assert set(needed) >= {f"first{number}" for number in range(FACTS // 2)}
    assert [each.key for each in second.manifest.left_out if each.reason == "not_needed"] == [
        f"first{number}" for number in range(FACTS // 2, FACTS)
    ]
    assert all(label in second.text for label in ("Budget", "City", "With delivery"))


def test_the_workers_serve_every_agent_of_every_case() -> None:
    for team in (chain, diamond, facts):
        assert team.agents.keys() <= everyone.agents.keys()

"""A tool that fails ends no run, and yet its fault is not lost: it stands in the log, in the result, and in what fails for want of it."""

from __future__ import annotations

import pytest
import structlog.testing

from ops.embedded import embedded
from workers.agents.blackbox import BlackBox
from workers.agents.models import Call, Reply, Say, ScriptedModel, Turn
from workers.agents.specialist import Specialist
from workers.agents.tools import Tool
from workers.facts import FactRules
from workers.team import Team


def stock(article: str) -> dict[str, object]:
    """How many pieces of an article are there."""
    raise RuntimeError(f"no line to the warehouse of {article}")


def script(turn: Turn) -> Reply:
    return Say("There are twelve.") if turn.returns else Call(("stock", {"article": "lamp"}))


@pytest.mark.parametrize(("expects", "code", "step"), [(["pieces"], "MISSING_OUTPUT", "count"), ([], "MISSING_FACT", "letter")])
async def test_the_fault_of_a_tool_is_logged_kept_and_named_by_what_fails_for_want_of_it(expects: list[str], code: str, step: str) -> None:
    counter = Specialist("counter", "You count.", [Tool("stock", stock)], FactRules.of(("stock", "pieces", "pieces")))
    count = {"id": "count", "agent": "counter", "title": "Stock", "task": "Count.", "expects": expects}
    letter = {"id": "letter", "agent": "writer", "title": "Letter", "task": "Write.", "depends_on": ["count"], "needs": ["count.pieces"]}
    team = Team("shop", [counter, BlackBox("writer", lambda brief: "Dear customer")], [count, letter], model=ScriptedModel(script))

    with structlog.testing.capture_logs() as logs:
        async with embedded(team) as runtime:
            report = await runtime.ask("How many lamps?")

    fault = "stock: RuntimeError: no line to the warehouse of lamp"
    result = report.step("count").result
    assert result is not None and result.tool_faults == (fault,)
    assert [log["reason"] for log in logs if log["event"] == "tool_failed"] == [fault]
    failure = report.step(step).failure
    assert failure is not None and failure.code == code and fault in failure.description
    assert fault not in report.answer

"""Teams of the bench: no-op agents in a chain and in a diamond, one case as users run it, one step that outlives its worker.

`everyone` is what the worker processes serve: all agents of all these teams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.agents.models import Call, Reply, Say, ScriptedModel, Turn
from workers.agents.specialist import Specialist
from workers.agents.tools import Tool
from workers.facts import FactRules
from workers.team import Constraint, Team

FACTS = 8
"""How many facts each step of `facts` brings; the next step needs half of them, and its manifest names the others."""
HELD_SECONDS = 60.0
"""How long the first attempt of the held step runs: until its worker is killed."""


async def _nothing(brief: AgentBrief) -> str:
    return "done"


async def _hold_once(brief: AgentBrief) -> str:
    if brief.attempt == 1:
        await asyncio.sleep(HELD_SECONDS)
    return "done"


def _step(name: str, after: Sequence[str] = (), agent: str = "") -> dict[str, object]:
    return {
        "id": name,
        "agent": agent or name,
        "title": f"Step {name}",
        "task": "Do nothing.",
        "depends_on": list(after),
        "needs": [],
    }


NO_OPS = tuple(BlackBox(name, _nothing) for name in "abcd")
HOLDER = BlackBox("holder", _hold_once)

chain = Team("chain", NO_OPS, [_step("a"), _step("b", ["a"]), _step("c", ["b"])])
diamond = Team("diamond", NO_OPS, [_step("a"), _step("b", ["a"]), _step("c", ["a"]), _step("d", ["b", "c"])])
held = Team("held", [HOLDER], [_step("held", agent="holder")])


def plan_of(shape: str, length: int) -> list[dict[str, object]]:
    """So many steps that do nothing: a `chain`, a `fan` of steps side by side, or those and one that has to `join` them."""
    names = [f"s{number}" for number in range(length)]
    if shape == "chain":
        return [_step(name, names[max(0, index - 1) : index], "a") for index, name in enumerate(names)]
    if shape == "fan":
        return [_step(name, agent="a") for name in names]
    return [*(_step(name, agent="a") for name in names[:-1]), _step(names[-1], names[:-1], "b")]


def _look_up(subject: str) -> dict[str, object]:
    """All that is known of a subject."""
    return {f"value{number}": f"{subject} {number}" for number in range(FACTS)}


def _script(turn: Turn) -> Reply:
    return Say("All of it is looked up.") if turn.returns else Call(("lookUp", {"subject": "lamp"}))


def _specialist(name: str) -> Specialist:
    rules = FactRules.of(*(("lookUp", f"value{number}", f"{name}{number}") for number in range(FACTS)))
    return Specialist(name, "You look things up.", [Tool("lookUp", _look_up)], rules, model=ScriptedModel(_script))


def _looking(name: str, before: str = "") -> dict[str, object]:
    needs = [f"{before}.{before}{number}" for number in range(FACTS // 2)] if before else []
    depends_on = [before] if before else []
    expects = [f"{name}{number}" for number in range(FACTS)]
    return {
        "id": name,
        "agent": name,
        "title": f"Step {name}",
        "task": "Look everything up.",
        "depends_on": depends_on,
        "needs": needs,
        "expects": expects,
    }


SPECIALISTS = tuple(_specialist(name) for name in ("first", "second", "third"))
CONSTRAINTS = (
    Constraint("budget", "Budget", "integer", unit="CNY"),
    Constraint("city", "City"),
    Constraint("delivery", "With delivery", "boolean"),
)
GIVEN: dict[str, object] = {"budget": 2000, "city": "Hangzhou", "delivery": True}
"""The constraints of each request to `facts`."""

facts = Team("facts", SPECIALISTS, [_looking("first"), _looking("second", "first"), _looking("third", "second")], CONSTRAINTS)

everyone = Team("everyone", [*NO_OPS, HOLDER, *SPECIALISTS], [_step("a")], CONSTRAINTS)

CASES = {"chain": chain, "diamond": diamond, "facts": facts}

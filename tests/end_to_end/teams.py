"""Teams for these tests: BitMall with a slow product model, steps that wait at a gate or kill, and a mix of small plans."""

from __future__ import annotations

import asyncio
import os
import signal

from schemas.errors import AgentFailed
from schemas.facts import Fact, Provenance
from schemas.results import AgentResult, ResultStatus
from schemas.shared import FieldCard, FieldChange, Operation
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.phrases import EN
from workers.team import Constraint, Team
from workers.teams.bitmall.team import make_team
from workers.teams.trip.team import make_team as make_trip

slow = make_team(scenario="slow-product", delay_seconds=1.2)
"""BitMall whose product model takes 1.2 s a turn, so that there is time to kill its worker."""

slow_trip = make_trip(scenario="slow-hotels", delay_seconds={"hotels": 1.2})
"""The trip whose hotels model takes 1.2 s a turn."""

bitmall_in_english = Team("bitmall", slow.agents.values(), slow.steps, slow.constraints, phrases=EN, clock=slow.clock)
"""The same team after somebody has changed its wording."""


async def _ask_at_the_gate(brief: AgentBrief) -> str:
    """Knock at the gate that the request names (a socket of the test's), wait for its word, and answer with that."""
    reader, writer = await asyncio.open_unix_connection(str(brief.constraints["gate"]))
    try:
        writer.write(f"{brief.step_id} {brief.attempt}\n".encode())
        return (await reader.readline()).decode().strip()
    finally:
        writer.close()


def _die(brief: AgentBrief) -> str:
    """Take the whole worker along, as a crash in native code or the kernel's out-of-memory killer would."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never said"


def _answer_at_once(brief: AgentBrief) -> str:
    return f"answered {brief.constraints['number']} as {brief.step.title}"


def _fail_for_multiples_of_five(brief: AgentBrief) -> str:
    number = int(brief.constraints["number"] or 0)
    if number % 5 == 0:
        raise AgentFailed("REFUSES_FIVE", "no multiples of five here")
    return _answer_at_once(brief)


async def _succeed_on_the_second_attempt(brief: AgentBrief) -> str:
    if brief.attempt == 1:
        raise ConnectionError("the first line is always cut")
    return _answer_at_once(brief)


gated = Team(
    "gated",
    [BlackBox("keeper", _ask_at_the_gate)],
    [
        {"id": "first", "agent": "keeper", "title": "First gate", "task": "Wait."},
        {"id": "second", "agent": "keeper", "title": "Second gate", "task": "Wait again.", "depends_on": ["first"], "needs": []},
    ],
    [Constraint("gate", "Gate", required=True)],
)
"""Two steps, one after the other, that end when the test says so."""

poison = Team(
    "poison",
    [BlackBox("killer", _die)],
    [{"id": "killer", "agent": "killer", "title": "Poison", "task": "Kill.", "max_attempts": 2}],
)
"""A step that kills each worker that runs it."""

diamond = Team(
    "diamond",
    [
        BlackBox("quick", _answer_at_once),
        BlackBox("picky", _fail_for_multiples_of_five),
        BlackBox("shaky", _succeed_on_the_second_attempt),
    ],
    [
        {"id": "top", "agent": "quick", "title": "Top", "task": "Begin."},
        {"id": "left", "agent": "picky", "title": "Left", "task": "Go left.", "depends_on": ["top"], "needs": []},
        {"id": "right", "agent": "shaky", "title": "Right", "task": "Go right.", "depends_on": ["top"], "needs": []},
        {"id": "bottom", "agent": "quick", "title": "Bottom", "task": "End.", "depends_on": ["left", "right"], "needs": []},
    ],
    [Constraint("number", "Number", type="integer", required=True)],
)
"""A diamond: one branch fails for multiples of five, the other passes on its second attempt."""


def _claim(brief: AgentBrief) -> AgentResult:
    """Claim what the request says of this step, and bring it as a fact too."""
    value = str(brief.constraints[brief.step_id])
    source = Provenance(step=brief.step_id, tool="look", call_id="1", path="seen")
    return AgentResult(
        agent=brief.step.agent,
        step_id=brief.step_id,
        status=ResultStatus.COMPLETED,
        summary=f"{brief.step.title} saw {value}.",
        facts=(Fact(key="seen", value=value, provenance=source),),
        changes=(FieldChange(field="colour", operation=Operation.ADD, value=value, source=f"the {brief.step_id} of it"),),
    )


def _pay(brief: AgentBrief) -> str:
    return f"paid for a {brief.shared['colour']} one"


claims = Team(
    "claims",
    [BlackBox("looker", _claim, facts=("seen",)), BlackBox("payer", _pay)],
    [
        *(
            {"id": each, "agent": "looker", "title": title, "task": "Look.", "superstep": "look", "writes": ["colour"]}
            for each, title in (("front", "The front"), ("back", "The back"))
        ),
        {
            "id": "pay",
            "agent": "payer",
            "title": "Paying",
            "task": "Pay.",
            "depends_on": ["front", "back"],
            "needs": ["front.seen"],
            "reads": ["colour"],
            "may": "commit",
            "irreversible": True,
        },
    ],
    [Constraint("front", "Front"), Constraint("back", "Back")],
    fields=[FieldCard(name="colour", label="Colour", type="text", reducer="agree")],
)
"""Two steps that claim a colour, and one that commits on it: a person settles what differs, and approves what cannot be taken back."""

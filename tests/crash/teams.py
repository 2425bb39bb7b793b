"""Teams for crash points and chaos: one agent that does what its step's name says, whatever happens to its worker.

Steps may be tried a hundred times: here a worker dies far more often than any step fails by itself.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from schemas.errors import AgentFailed
from schemas.facts import Fact, Provenance
from schemas.gate import May
from schemas.packets import OnFailure
from schemas.plans import Step
from schemas.results import AgentResult, ResultStatus
from schemas.shared import FieldCard, FieldChange, Operation
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.team import Constraint, Team

AGENT = "doer"
ATTEMPTS = 100
SLOW_SECONDS = 1.2
DEAF_SECONDS = 0.7
"""Shorter than a lease of these tests."""
RENEWED_SECONDS = 0.5
"""Longer than a third of one."""
STALLED_SECONDS = 1.6
"""Longer than one."""


def said(title: str) -> str:
    """What a step of this title answers."""
    return f"{title} is done."


async def _quick(brief: AgentBrief) -> str:
    return said(brief.step.title)


async def _slow(brief: AgentBrief) -> str:
    await asyncio.sleep(SLOW_SECONDS)
    return said(brief.step.title)


async def _shaky(brief: AgentBrief) -> str:
    """Fail once."""
    if brief.attempt == 1:
        raise ConnectionError("the first line is always cut")
    return said(brief.step.title)


async def _hopeless(brief: AgentBrief) -> str:
    """Fail each time, in a way that may pass."""
    raise ConnectionError("every line is cut")


async def _broken(brief: AgentBrief) -> str:
    """Fail for good, until the file is there that the request names."""
    if not _is_mended(brief):
        raise AgentFailed("BROKEN", "it is not mended")
    return said(brief.step.title)


async def _waits(brief: AgentBrief) -> str:
    """Answer as soon as the file is there that the request names."""
    while not _is_mended(brief):  # noqa: ASYNC110 - another process makes the file
        await asyncio.sleep(0.01)
    return said(brief.step.title)


async def _awaiting(brief: AgentBrief) -> str:
    """Fail for good, as soon as the file is there that the request names."""
    await _waits(brief)
    raise AgentFailed("BROKEN", "what it waited for has come")


def _is_mended(brief: AgentBrief) -> bool:
    return Path(str(brief.constraints["mended"])).exists()


async def _endless(brief: AgentBrief) -> str:
    await asyncio.sleep(3600)
    return said(brief.step.title)


async def _deaf(brief: AgentBrief) -> str:
    """Hold the loop, so that this worker hears of nothing meanwhile."""
    time.sleep(DEAF_SECONDS)  # noqa: ASYNC251 - that it blocks is the point
    return said(brief.step.title)


async def _stalled(brief: AgentBrief) -> str:
    """Hold the loop for longer than the lease of the step, after its first renewal: from then on its mark is looked at."""
    await asyncio.sleep(RENEWED_SECONDS)
    time.sleep(STALLED_SECONDS)  # noqa: ASYNC251 - that it blocks is the point
    return said(brief.step.title)


async def _planner(brief: AgentBrief) -> AgentResult:
    """Plan two more steps; with a task that says so, one of an agent that is not there."""
    further = [_step(f"quick-{title.lower()}", title, after=(brief.step_id,)) for title in ("More", "Most")]
    if "nobody" in brief.step.task:
        further[1] = further[1].model_copy(update={"agent": "nobody"})
    return AgentResult(
        agent=AGENT, step_id=brief.step_id, status=ResultStatus.COMPLETED, summary=said(brief.step.title), steps=tuple(further)
    )


async def _says(brief: AgentBrief) -> AgentResult:
    """Say a word that is another one each time."""
    return _told(brief, word=secrets.token_hex(4))


async def _lacks(brief: AgentBrief) -> AgentResult:
    """Say no word the first time; the file that the request names remembers it."""
    if _is_mended(brief):
        return _told(brief, word="said")
    Path(str(brief.constraints["mended"])).touch()  # noqa: ASYNC240 - an empty file, and nothing else runs here
    return _told(brief)


async def _adds(brief: AgentBrief) -> AgentResult:
    """Add to the total, and claim that it is what the step's title says."""
    add = partial(FieldChange, operation=Operation.ADD, source=brief.step_id)
    return _told(brief).model_copy(update={"changes": (add(field="total", value=20), add(field="claimed", value=brief.step.title))})


def _told(brief: AgentBrief, **facts: str) -> AgentResult:
    return AgentResult(
        agent=AGENT,
        step_id=brief.step_id,
        status=ResultStatus.COMPLETED,
        summary=said(brief.step.title),
        facts=tuple(
            Fact(key=key, value=value, provenance=Provenance(step=brief.step_id, tool="lookup", call_id="1", path=key))
            for key, value in facts.items()
        ),
    )


_ACTS: dict[str, Callable[[AgentBrief], Coroutine[Any, Any, str | AgentResult]]] = {
    "quick": _quick,
    "slow": _slow,
    "shaky": _shaky,
    "hopeless": _hopeless,
    "broken": _broken,
    "awaiting": _awaiting,
    "waits": _waits,
    "endless": _endless,
    "deaf": _deaf,
    "stalled": _stalled,
    "planner": _planner,
    "says": _says,
    "lacks": _lacks,
    "adds": _adds,
}


async def _act(brief: AgentBrief) -> str | AgentResult:
    return await _ACTS[brief.step_id.partition("-")[0]](brief)


def _step(id: str, title: str, *, after: Sequence[str] = (), task: str = "Do it.", needs: Sequence[str] = (), **options: Any) -> Step:
    return Step(id=id, title=title, agent=AGENT, task=task, depends_on=tuple(after), needs=tuple(needs), max_attempts=ATTEMPTS, **options)


_FIELDS = (FieldCard(name="total", type="integer", reducer="sum"), FieldCard(name="claimed", type="text", reducer="agree"))
"""Of every team: one worker serves them all, and holds changes against the fields that its own team declares."""


def _team(name: str, *steps: Step, deadline_seconds: float = 3600.0) -> Team:
    mended = Constraint("mended", "Mended")
    return Team(name, [BlackBox(AGENT, _act, facts=("word",))], steps, [mended], deadline_seconds=deadline_seconds, fields=_FIELDS)


quick = _team("quick", _step("quick", "One"))
chain = _team("chain", _step("quick", "First"), _step("shaky", "Second", after=["quick"]), _step("quick-last", "Third", after=["shaky"]))
diamond = _team(
    "diamond",
    _step("quick-top", "Top"),
    _step("quick-left", "Left", after=["quick-top"]),
    _step("shaky-right", "Right", after=["quick-top"]),
    _step("quick-bottom", "Bottom", after=["quick-left", "shaky-right"]),
)
broken = _team(
    "broken", _step("quick", "First"), _step("broken", "Second", after=["quick"]), _step("quick-last", "Third", after=["broken"])
)
alone = _team("alone", _step("broken", "Alone"))
awaiting = _team("awaiting", _step("awaiting", "Awaiting"))
waiting = _team("waiting", _step("waits", "Waiting"))
endless = _team("endless", _step("quick", "First"), _step("endless", "Endless", after=["quick"]))
slow = _team("slow", _step("slow", "Slow"))
deaf = _team("deaf", _step("deaf", "Deaf"))
stalled = _team("stalled", _step("stalled", "Stalled"))
hopeless = _team("hopeless", _step("hopeless", "Hopeless"))
planned = _team("planned", _step("planner", "Plan", may_plan=True))
overplanned = _team("overplanned", _step("planner", "Plan", task="Name an agent that is nobody.", may_plan=True))
said_again = _team(
    "said_again",
    _step("says", "Source"),
    _step("says-below", "Below", after=["says"], needs=["says.word"]),
    _step("quick-last", "Last", after=["says-below"]),
)
rechecked = _team(
    "rechecked", _step("lacks", "Source"), _step("quick", "Below", after=["lacks"], needs=["lacks.word"], on_failure=OnFailure.RECHECK)
)
asked = _team("asked", _step("quick", "Binding", may=May.COMMIT, irreversible=True))
_TOGETHER: dict[str, Any] = {"superstep": "search", "writes": ("total", "claimed")}
merged = _team(
    "merged",
    _step("adds-left", "Left", **_TOGETHER),
    _step("adds-right", "Right", **_TOGETHER),
    _step("quick-last", "Last", after=["adds-left", "adds-right"]),
)

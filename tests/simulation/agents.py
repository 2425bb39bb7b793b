"""What the agents of a run do: work, be slow, fail, fail and get over it, loop, hang, sign wrongly, plan, or kill their process.

What one does is drawn from the seed, the request, the step, and how often that step has run. Its output carries a nonce
of this very run, and the nonces that its brief showed it, so that the checker can tell what came from where.
"""

from __future__ import annotations

import asyncio
import re
from random import Random
from typing import TYPE_CHECKING

from schemas.errors import AgentFailed
from schemas.facts import Fact, Provenance
from schemas.plans import Step
from schemas.results import AgentResult, Failure, ResultStatus, Termination
from tests.simulation.ledger import AgentRun
from tests.simulation.plans import further_steps
from tests.simulation.processes import LIFE, TASK, Died
from tests.simulation.sharing import sharing
from workers.agents.agent import AgentBrief, failed

if TYPE_CHECKING:
    from tests.simulation.worlds import World

GOOD = ("ok", "slow", "very_slow", "plans")
"""Behaviours whose run ends in an answer."""
PASSING = ("passing", "line_error", "dying")
"""Behaviours that another attempt may get over."""
BAD = ("failing", "raising", "looping", "lying", "unsigned", "empty", "hanging", "stubborn", "exits", "failed_result")
NONCE = re.compile(r"nonce-[0-9]+")


class Agents:
    """The one function behind every agent of a run."""

    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._good = random.choice((0.5, 0.7, 0.9))
        self._counts: dict[tuple[str, str], int] = {}
        self._made = 0

    async def run(self, brief: AgentBrief) -> AgentResult | str:
        """Do one attempt."""
        life, task = LIFE.get(), TASK.get()
        key = (task.request_id, brief.step_id)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        random = Random(f"{self._world.seed}/{key}/{count}")
        behaviour = self._behaviour(random, brief)
        self._made += 1
        nonce = f"nonce-{self._made}"
        saw = {name.partition(".")[0]: str(fact.value) for name, fact in brief.facts.items() if name.endswith(".out")}
        run = AgentRun(
            *(task.request_id, brief.step, task.epoch, brief.attempt, behaviour, nonce, saw, brief.text, life.name, life.kind),
            reads=brief.reads,
            position=brief.brief.position,
        )
        self._world.ledger.ran(run)
        self._world.happened[f"agent_{behaviour}"] += 1
        self._world.trace(life, f"agent {behaviour}", task.request_id, f"{brief.step_id} attempt {brief.attempt} {nonce}")
        await asyncio.sleep(random.uniform(0.001, 1.0))
        result = await self._act(run, brief, random)
        return sharing(result, brief, random) if self._world.shares and isinstance(result, AgentResult) else result

    def _behaviour(self, random: Random, brief: AgentBrief) -> str:
        if random.random() < self._good:
            return random.choice(("plans",) if brief.step.may_plan and random.random() < 0.8 else ("ok", "ok", "ok", "slow", "very_slow"))
        return random.choice((*PASSING, *PASSING, *BAD))

    async def _act(self, run: AgentRun, brief: AgentBrief, random: Random) -> AgentResult | str:
        match run.behaviour:
            case "ok":  # now and then with further steps that it has no right to make
                return _answer(run, further_steps(random, brief.step) if not brief.step.may_plan and random.random() < 0.1 else ())
            case "plans":
                return _answer(run, further_steps(random, brief.step))
            case "slow":
                await asyncio.sleep(random.uniform(4, 8))
                return _answer(run)
            case "very_slow":
                await asyncio.sleep(brief.step.timeout_seconds * 0.9)
                return _answer(run)
            case "empty":
                return f"{run.nonce} without any fact"
            case "looping":
                termination = random.choice((Termination.NO_PROGRESS, Termination.MAX_STEPS, Termination.BUDGET_EXHAUSTED))
                return _answer(run).model_copy(update={"termination": termination, "status": ResultStatus.COMPLETED})
            case "unsigned":
                return _answer(run).model_copy(update={"agent": "somebody-else"})
            case "lying":
                fact = Fact(key="out", value="x", provenance=Provenance(step="elsewhere", tool="t", call_id="c", path="p"))
                return _answer(run).model_copy(update={"facts": (fact,)})
            case "failed_result":
                return failed(brief.step.agent, brief.step_id, _failure(retryable=random.random() < 0.5), summary=run.nonce)
            case _:
                return await _break_off(run, random)


async def _break_off(run: AgentRun, random: Random) -> str:
    """End otherwise than by a result."""
    match run.behaviour:
        case "failing":
            raise AgentFailed("NOT_TODAY", f"will not do it ({run.nonce})")
        case "passing":
            raise AgentFailed("BUSY", "come back later", retryable=True)
        case "line_error":
            raise ConnectionError("the tool's server hung up")
        case "raising":
            raise KeyError("a mistake of the agent's own")
        case "exits":
            raise SystemExit(3)
        case "dying":
            life = LIFE.get()
            life.world.crash(life, "worker.agent")
            raise Died
        case "stubborn":
            try:
                await asyncio.sleep(10_000)
            except asyncio.CancelledError:
                await asyncio.sleep(random.uniform(0.5, 6))
            return f"{run.nonce} at last"
        case _:
            await asyncio.sleep(10_000)
            return f"{run.nonce} at last"


def _failure(*, retryable: bool) -> Failure:
    return Failure(code="HALF_DONE", description="stopped half way", retryable=retryable)


def _answer(run: AgentRun, steps: tuple[Step, ...] = ()) -> AgentResult:
    values = {"out": run.nonce, "seen": ",".join(f"{step}={nonce}" for step, nonce in sorted(run.saw.items()))}
    facts = tuple(
        Fact(key=key, value=value, provenance=Provenance(step=run.step.id, tool="notes", call_id=run.nonce, path=key))
        for key, value in values.items()
    )
    return AgentResult(
        agent=run.step.agent,
        step_id=run.step.id,
        status=ResultStatus.COMPLETED,
        summary=f"# Found\n\nsection {run.nonce}. 已完成。",
        facts=facts,
        steps=steps,
    )

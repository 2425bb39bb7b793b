"""Random teams and plans: diamonds, optional steps, needs across several levels, steps that plan, and plans that are refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

from schemas.gate import BoundaryRules
from schemas.plans import Budget, Step
from schemas.results import AgentResult
from schemas.shared import FieldCard
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.team import Team

AGENTS = ("archivist", "botanist", "chemist")
FACTS = ("out", "seen")
ROUTES = "ABCDEFGHIJKL"


def team_of(
    function: Callable[[AgentBrief], Awaitable[AgentResult | str]],
    steps: tuple[Step, ...],
    *,
    fields: tuple[FieldCard, ...] = (),
    rules: BoundaryRules | None = None,
) -> Team:
    """A team of black boxes that all do what `function` does; with shared fields, they say one more thing."""
    agents = [BlackBox(name, function, facts=(*FACTS, *(("tone",) if fields else ()))) for name in AGENTS]
    return Team("random", agents, steps, deadline_seconds=3000.0, fields=fields, rules=rules)


def steps_of(random: Random) -> tuple[Step, ...]:
    """Draw a plan of 1 to 12 steps."""
    count = random.choice((1, 2, 3, 3, 4, 4, 5, 6, 8, 12))
    planned: list[Step] = []
    for number in range(count):
        above = [step.id for step in planned]
        depends_on = tuple(sorted(random.sample(above, min(len(above), random.choice((0, 1, 1, 2, 3))))))
        planned.append(_step(random, f"stage-{ROUTES[number].lower()}", depends_on, planned))
    return tuple(planned)


def _step(random: Random, step_id: str, depends_on: tuple[str, ...], above: list[Step]) -> Step:
    return Step(
        id=step_id,
        title=f"Part {step_id[6:].upper()} of it",
        agent=random.choice(AGENTS),
        task=f"Do what belongs to part {step_id[6:].upper()}.",
        depends_on=depends_on,
        needs=_needs(random, depends_on, {step.id: step for step in above}),
        expects=("out",) if random.random() < 0.3 else (),
        critical=random.random() < 0.7,
        may_plan=random.random() < 0.2,
        share_summary=random.random() < 0.1,
        timeout_seconds=random.choice((12.0, 60.0)),
        budget=Budget(model_calls=5) if random.random() < 0.2 else Budget(),
        max_attempts=random.choice((1, 2, 3, 3, 4)),
    )


def _needs(random: Random, depends_on: tuple[str, ...], above: dict[str, Step]) -> tuple[str, ...] | None:
    if random.random() < 0.5:
        return None
    every = set(depends_on)
    pending = list(depends_on)
    while pending:
        for parent in above[pending.pop()].depends_on:
            if parent not in every:
                every.add(parent)
                pending.append(parent)
    named = [step for step in sorted(every) if random.random() < 0.6]
    return tuple(f"{step}.{random.choice(('out', '*'))}{'?' if random.random() < 0.6 else ''}" for step in named)


def further_steps(random: Random, parent: Step) -> tuple[Step, ...]:
    """Draw what a step that may plan adds; now and then something that has to be refused."""
    made: list[Step] = []
    for number in range(random.choice((0, 1, 1, 2, 3))):
        depends_on = (parent.id, *(step.id for step in made if random.random() < 0.5))
        step = Step(
            id=f"{parent.id}-{number}",
            title=f"Part {parent.id[6:].upper()}.{number} of it",
            agent=random.choice(AGENTS),
            task="Do what was found to be left.",
            depends_on=depends_on,
            critical=random.random() < 0.7,
            may_plan=random.random() < 0.1 and parent.id.count("-") < 2,
            timeout_seconds=12.0,
            budget=parent.budget,
            max_attempts=2,
        )
        made.append(step)
    if made and random.random() < 0.1:
        wrong = random.choice(("agent", "depends_on", "needs", "budget"))
        changed: dict[str, object] = {
            "agent": "nobody",
            "depends_on": ("nowhere",),
            "needs": ("nowhere.out",),
            "budget": Budget(model_calls=500),
        }
        if wrong != "budget" or parent.budget.model_calls is not None:
            made[-1] = made[-1].model_copy(update={wrong: changed[wrong]})
    return tuple(made)

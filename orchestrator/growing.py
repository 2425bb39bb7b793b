"""Growing: further steps that an agent planned at run time, checked before they are taken in. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.views import Outline
from schemas import plans
from schemas.agents import AgentCard
from schemas.errors import InvalidPlan
from schemas.plans import Step, needs_of


def check_further(parent: Step, further: Sequence[Step], outline: Outline, agents: Mapping[str, AgentCard]) -> None:
    """Refuse further steps that do not fit the plan, or that go beyond what the step that made them may do itself.

    Raises:
        InvalidPlan: with the path of the step and field.
        LimitExceeded: more steps than a plan may have.
    """
    plans.validate(further, agents, known=outline.definitions, path=f"{parent.id}.steps")
    new = {step.id for step in further} | {parent.id}
    for index, step in enumerate(further):
        _refuse_wider(parent, step, new, f"{parent.id}.steps.{index}")


def _refuse_wider(parent: Step, step: Step, new: set[str], path: str) -> None:
    if parent.tools is not None and (step.tools is None or not set(step.tools) <= set(parent.tools)):
        raise InvalidPlan(f"may use no tool that {parent.id!r} may not", path=f"{path}.tools")
    for name in ("tokens", "model_calls", "tool_calls"):
        allowed, asked = getattr(parent.budget, name), getattr(step.budget, name)
        if allowed is not None and (asked is None or asked > allowed):
            raise InvalidPlan(f"goes beyond the {allowed} {name} of {parent.id!r}", path=f"{path}.budget.{name}")
    for said, asked, allowed in (("reads", step.reads, parent.reads), ("writes", step.writes, parent.writes)):
        for position, name in enumerate(asked):
            if name not in allowed:
                raise InvalidPlan(f"{parent.id!r} has no field {name!r} to pass on", path=f"{path}.{said}.{position}")
    granted = {(need.step, need.key) for need in needs_of(parent)}
    for position, need in enumerate(needs_of(step)):
        if need.step not in new and not granted & {(need.step, need.key), (need.step, "*")}:
            raise InvalidPlan(f"{need} is no need of {parent.id!r}, so it may not be one here", path=f"{path}.needs.{position}")

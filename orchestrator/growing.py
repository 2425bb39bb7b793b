"""Growing: further steps that an agent planned at run time, checked before they are taken in. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.views import Outline
from schemas import plans
from schemas.errors import InvalidPlan
from schemas.gate import May
from schemas.plans import Step, needs_of
from schemas.teams import TeamCard

_MAY = tuple(May)
"""From harmless to binding."""


def still_asleep(further: Sequence[Step], outline: Outline, card: TeamCard) -> tuple[Step, ...]:
    """Leave out what a planner that runs again wakes a second time: on call it is one step, however often it is called."""
    on_call = {step.id for step in card.on_call}
    return tuple(step for step in further if not (step.id in on_call and outline.definitions.get(step.id) == step))


def check_further(parent: Step, further: Sequence[Step], outline: Outline, card: TeamCard) -> None:
    """Refuse further steps that do not fit the plan, or that go beyond what the step that made them may do itself.

    A team that keeps steps on call has them woken as they are, with the rights that the team gave them, and no others.

    Raises:
        InvalidPlan: with the path of the step and field.
        LimitExceeded: more steps than a plan may have.
    """
    plans.validate(further, card.agents, known=outline.definitions, shared=card.fields, path=f"{parent.id}.steps")
    if card.on_call:
        _refuse_unknown(parent, further, {step.id: step for step in card.on_call})
        return
    new = {step.id for step in further} | {parent.id}
    for index, step in enumerate(further):
        _refuse_wider(parent, step, new, f"{parent.id}.steps.{index}")


def _refuse_unknown(parent: Step, further: Sequence[Step], on_call: Mapping[str, Step]) -> None:
    for index, step in enumerate(further):
        if step != on_call.get(step.id):
            known = ", ".join(on_call)
            raise InvalidPlan(f"is no step that the team keeps on call; there are: {known}", path=f"{parent.id}.steps.{index}")


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
    if _MAY.index(step.may) > _MAY.index(parent.may):
        raise InvalidPlan(f"may {step.may}, which is more than {parent.id!r} may ({parent.may})", path=f"{path}.may")
    granted = {(need.step, need.key) for need in needs_of(parent)}
    for position, need in enumerate(needs_of(step)):
        if need.step not in new and not granted & {(need.step, need.key), (need.step, "*")}:
            raise InvalidPlan(f"{need} is no need of {parent.id!r}, so it may not be one here", path=f"{path}.needs.{position}")

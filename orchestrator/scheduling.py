"""Scheduling: what follows from plan and steps. Pure. Ready, waiting and stopped are derived here and stored nowhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import lru_cache

from orchestrator.views import Graph, Outline, StepView, View
from schemas import fields
from schemas.plans import Step
from schemas.requests import StepState

FIRST_LOOK_MS = 30_000
LAST_LOOK_MS = 600_000


class Standing(StrEnum):
    """How a step stands, as people are shown it."""

    READY = "READY"
    WAITING = "WAITING"
    SKIPPED = "SKIPPED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    """Not in this view."""

    @property
    def settled(self) -> bool:
        """Whether nothing more happens to the step unless a person replays."""
        return self in (Standing.SKIPPED, Standing.COMPLETED, Standing.FAILED)


def standings(view: View, outline: Outline) -> dict[str, Standing]:
    """Return how every step of the plan that is in the view stands, each step after its inputs."""
    known: dict[str, Standing] = {}
    absorbed = _absorbed(view, outline)
    steps = outline.graph.order if is_full(view, outline) else [step for step in outline.graph.order if fields.step(step) in view.stored]
    for step in steps:
        known[step] = _standing(outline.definitions[step], view.step(step), outline, known, absorbed)
    return known


def _absorbed(view: View, outline: Outline) -> set[str]:
    """The steps whose present epoch was taken in."""
    taken_in = view.absorbed.steps if outline.graph.absorbing else ()
    return {step for step, epoch in taken_in if (seen := view.step(step)) is not None and seen.record.epoch == epoch}


def inputs_settled(step_id: str, view: View, outline: Outline, standing: Mapping[str, Standing]) -> bool:
    """Whether nothing more happens to what a step depends on, and all of it was taken in."""
    absorbed = _absorbed(view, outline)
    return all(_as_input(each, standing[each], outline, absorbed).settled for each in outline.graph.inputs[step_id])


def _as_input(step: str, state: Standing, outline: Outline, absorbed: Collection[str]) -> Standing:
    """How an input stands for what depends on it: one whose end is still to be taken in goes on."""
    if step in outline.graph.absorbing and step not in absorbed and state in (Standing.COMPLETED, Standing.FAILED):
        return Standing.RUNNING
    return state


def _standing(
    definition: Step, seen: StepView | None, outline: Outline, known: Mapping[str, Standing], absorbed: Collection[str]
) -> Standing:
    if seen is None:
        return Standing.UNKNOWN
    if seen.record.state is not StepState.PENDING:
        return Standing(seen.record.state)
    inputs = {step: _as_input(step, known.get(step, Standing.UNKNOWN), outline, absorbed) for step in outline.graph.inputs[definition.id]}
    if any(
        state is Standing.SKIPPED or (state is Standing.FAILED and outline.definitions[step].critical) for step, state in inputs.items()
    ):
        return Standing.SKIPPED
    if all(state.settled for state in inputs.values()):
        return Standing.READY
    return Standing.UNKNOWN if Standing.UNKNOWN in inputs.values() else Standing.WAITING


def stopped_by(step_id: str, outline: Outline, standing: Mapping[str, Standing]) -> tuple[str, ...]:
    """Return the steps that a failed one has stopped, in plan order: what waits for it and is skipped, and so on down.

    A failure that is not critical stops nothing, also where a step below it was stopped by another one.
    """
    found: set[str] = set()
    pending = [step_id] if outline.definitions[step_id].critical else []
    while pending:
        stopped = [
            step for step in outline.graph.waiters.get(pending.pop(), ()) if standing[step] is Standing.SKIPPED and step not in found
        ]
        found.update(stopped)
        pending += stopped
    return tuple(step for step in outline.definitions if step in found)


def ready_since_ms(step_id: str, view: View, outline: Outline) -> int:
    """Return since when a ready step could have been claimed: the latest write among itself (plus its delay) and its inputs."""
    own = view.step(step_id)
    times = [own.at_ms + own.record.not_before_ms] if own else []
    times += [seen.at_ms for step in outline.graph.inputs[step_id] if (seen := view.step(step))]
    return max(times, default=view.now_ms)


def next_look_ms(since_ms: int, now_ms: int) -> int:
    """Return in how long to look again at what has waited since `since_ms`: as long as it has waited, between 30 s and 10 min.

    Looking in growing intervals keeps a long queue from being rung over and over (each ring is one more message in it).
    """
    return min(max(now_ms - since_ms, FIRST_LOOK_MS), LAST_LOOK_MS)


def partial_fields(step_id: str, outline: Outline) -> tuple[str, ...]:
    """Return what to read when `step_id` has ended: itself, what waits for it, what those wait for, and what these wait for.

    The last level tells whether an input that is pending can still run. When `step_id` is the plan's only end, its end
    is the request's: then everything is read at once, results included.
    """
    return _partial_fields(step_id, outline.graph)


@lru_cache(maxsize=4096)
def _partial_fields(step_id: str, graph: Graph) -> tuple[str, ...]:
    below = graph.waiters.get(step_id, ())
    if not below:
        ends = [step for step, waiting in graph.waiters.items() if not waiting]
        return (*_full_fields(graph), *(map(fields.result, graph.definitions) if ends == [step_id] else ()))
    level = dict.fromkeys((step_id, *below))
    for _ in range(2):
        level |= dict.fromkeys(seen for step in tuple(level) for seen in graph.inputs[step])
    return (fields.STATUS, fields.PLAN, *map(fields.step, level), *_boundary_fields(graph, below))


def _boundary_fields(graph: Graph, steps: tuple[str, ...]) -> tuple[str, ...]:
    """What a ring of these steps reads besides steps: their claims expect the boundary, and the shared fields that they read."""
    shared = dict.fromkeys(name for step in steps for name in graph.definitions[step].reads)
    return (fields.BOUNDARY, *((fields.ABSORBED,) if graph.absorbing else ()), *map(fields.shared, shared))


def full_fields(outline: Outline) -> tuple[str, ...]:
    """Return the fields of a full view: request, status, plan, and every step."""
    return _full_fields(outline.graph)


@lru_cache(maxsize=256)
def _full_fields(graph: Graph) -> tuple[str, ...]:
    return (
        *(fields.REQUEST, fields.STATUS, fields.PLAN),
        *map(fields.step, graph.definitions),
        *_boundary_fields(graph, tuple(graph.definitions)),
    )


def is_full(view: View, outline: Outline) -> bool:
    """Whether the view holds every step of the plan, so that commands, deadlines and the answer can be decided on it."""
    return view.knows(full_fields(outline))

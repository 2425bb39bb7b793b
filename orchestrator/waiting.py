"""Waiting: one step that is seen open spares the look at all others, and a long queue is not rung over and over. Pure, but for
what `Stoppers` remembers.

In a plan of hundreds of steps side by side, the end of each would be a look at all of them: is the request over, may the step
that joins them run? As long as one of them is open, neither can be. So where one was open at the last look, it is read first, and
the others only once it is not. Whichever of them ends last finds none open, and looks at all. What is remembered only saves reads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import lru_cache

from orchestrator.causes import Cause, ResultCame
from orchestrator.scheduling import LAST_LOOK_MS, Standing, ready_since_ms, standings
from orchestrator.views import Graph, Outline, View
from schemas import fields
from schemas.plans import ancestors
from schemas.requests import StepState

LEAST_STEPS = 16
"""In a smaller plan a look at all costs no more than the second read where the one step is open no longer."""
MOST_INPUTS = 8
_KEPT = 10_000
_OPEN = (Standing.READY, Standing.RUNNING, Standing.WAITING)


def applies(cause: Cause, outline: Outline) -> bool:
    """Whether a look may be spared: after a success, in a large plan. A failure also stops what is far below it."""
    return isinstance(cause, ResultCame) and cause.state is StepState.COMPLETED and len(outline.definitions) >= LEAST_STEPS


def stopper_fields(step_id: str, stopper: str, outline: Outline) -> tuple[str, ...]:
    """Return what to read after the end of `step_id` while `stopper` is expected to be open."""
    graph = outline.graph
    steps = dict.fromkeys((step_id, stopper, *graph.inputs[stopper]))
    absorbed = (fields.ABSORBED,) if graph.absorbing else ()
    return (fields.STATUS, fields.PLAN, fields.BOUNDARY, *absorbed, *map(fields.step, steps))


def is_open(view: View, stopper: str) -> bool:
    """Whether the step is seen open: then nothing that waits for it can run, and the request is not over."""
    return view.outline is not None and standings(view, view.outline).get(stopper) in _OPEN


def stopper_of(view: View, step_id: str) -> str | None:
    """Return a step that is seen open and that all wait for that wait for `step_id`: the last in plan order, which ends last, mostly."""
    outline = view.outline
    if outline is None:
        return None
    standing = standings(view, outline)
    return next((step for step in _stoppers(step_id, outline.graph) if standing.get(step) in _OPEN), None)


@lru_cache(maxsize=4096)
def likely_stopper(step_id: str, graph: Graph) -> str | None:
    """Return, by the plan alone, which of the steps that all wait for that wait for `step_id` is open longest, mostly."""
    ended = ancestors(step_id, graph.definitions)
    return next((step for step in _stoppers(step_id, graph) if step not in ended), None)


def _stoppers(step_id: str, graph: Graph) -> Iterator[str]:
    """The steps that all wait for that wait for `step_id`, the last in plan order first."""
    below = graph.waiters.get(step_id, ())
    for step in reversed(graph.inputs[below[0]] if below else tuple(graph.definitions)):
        if step != step_id and len(graph.inputs[step]) <= MOST_INPUTS and all(step in graph.inputs[each] for each in below):
            yield step


def waits_afresh(view: View, step_id: str) -> bool:
    """Whether a step was rung once at most, by whoever made it ready, and could still lie in its agent's queue: nobody has touched it.

    What was claimed, retried, handed back or reopened counts as touched: a sweep may be the first to ring it again. And after
    the longest pause between two looks a lost message is more likely than a queue that long.
    """
    outline, seen = view.outline, view.step(step_id)
    untouched = seen is not None and seen.record.state is StepState.PENDING and seen.version.startswith("1.")
    return untouched and outline is not None and view.now_ms - ready_since_ms(step_id, view, outline) < LAST_LOOK_MS


class Stoppers:
    """Which step stood in the way at the last look, for the requests of one orchestrator process."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, dict[tuple[str, ...], str]] = OrderedDict()

    def get(self, request_id: str, step_id: str, outline: Outline) -> str | None:
        """Return the step to read first, or None where none is known."""
        known: Mapping[tuple[str, ...], str] = self._of.get(request_id, {})
        stopper = known.get(outline.graph.waiters.get(step_id, ()))
        return stopper if stopper != step_id and stopper in outline.definitions else None

    def put(self, view: View, step_id: str) -> None:
        """Remember what stands in the way as it was seen after the end of `step_id`."""
        if view.outline is None:
            return
        below, stopper = view.outline.graph.waiters.get(step_id, ()), stopper_of(view, step_id)
        known = self._of.setdefault(view.request_id, {})
        self._of.move_to_end(view.request_id)
        if stopper is None:
            known.pop(below, None)
        else:
            known[below] = stopper
        if len(self._of) > _KEPT:
            self._of.popitem(last=False)

    def forget(self, request_id: str) -> None:
        """Forget a request: it is over."""
        self._of.pop(request_id, None)

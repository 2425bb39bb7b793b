"""Handing on: the orchestrator's own rule, run by the worker that has just completed a step, where nothing but a ring follows.

In the middle of a plan the end of a step leads to TASKs and to no write. The write that ended the step has returned all that
`advance` looks at, so the worker asks `advance` there and then, and rings what it says in the orchestrator's name, or begins it
by itself. Whatever is more than that (the last step, a failure, further steps, shared fields, a reopened step, values withdrawn)
is told by RESULT, as ever; so is what cannot be rung. A worker that dies over it leaves its TASK unacked, and who gets that rings
RESULT.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from orchestrator.advancing import advance
from orchestrator.bells import task_of
from orchestrator.causes import ResultCame
from orchestrator.decisions import RingTask, Verdict
from orchestrator.scheduling import partial_fields
from orchestrator.views import Graph, Outline, decoded, graph_of, view_of
from orchestrator.waiting import likely_stopper, stopper_fields
from schemas import fields
from schemas.blackboard import Blackboard, Snapshot
from schemas.broker import Broker
from schemas.messages import ORCHESTRATOR
from schemas.requests import PlanRecord, RequestRecord, StepRecord
from schemas.tasks import Task

MOST_FIELDS = 24
"""Where more decides who is ready, each end would read it all again: an orchestrator remembers what stands in the way."""
_GRAPHS_KEPT = 256


class HandingOn:
    """The rule for one worker process (`workers.onward.Onward`). What it keeps, the graphs of plans, only saves reads."""

    def __init__(self, board: Blackboard, broker: Broker) -> None:
        self._board = board
        self._broker = broker
        self._graphs: OrderedDict[str, Graph] = OrderedDict()

    async def following(self, step_id: str, claimed: Snapshot) -> HandedOn | None:
        """Return what waits for a step, by what its claim returned; None: leave it to an orchestrator.

        Raises:
            Unavailable: the board is not there.
        """
        plan, request = claimed.value(fields.PLAN), claimed.value(fields.REQUEST)
        if plan is None or request is None or not self._broker.may_ring_tasks:
            return None
        record = decoded(PlanRecord, plan)
        graph = await self._graph(claimed.request_id, record) if record.definitions and len(record.steps) > 1 else None
        if graph is None or graph.absorbing or step_id not in graph.definitions:
            return None
        opened = decoded(RequestRecord, request)
        outline = Outline(claimed.version(fields.PLAN), record, graph, opened.constraints, None, opened.trace)
        return _handed_on(step_id, outline)

    async def _graph(self, request_id: str, record: PlanRecord) -> Graph | None:
        known = self._graphs.get(record.definitions)
        if known is not None:
            return known
        names = tuple(map(fields.definition, record.steps))
        stored = (await self._board.read(request_id, names)).fields
        if len(stored) < len(names):
            return None
        graph = self._graphs[record.definitions] = graph_of(tuple(stored[name].value for name in names))
        if len(self._graphs) > _GRAPHS_KEPT:
            self._graphs.popitem(last=False)
        return graph


def _handed_on(step_id: str, outline: Outline) -> HandedOn | None:
    """Say what to look at: all that decides who is ready; or, where that is much, or nobody waits, what nothing follows without."""
    if outline.graph.waiters.get(step_id):
        names = partial_fields(step_id, outline)
        if len(names) <= MOST_FIELDS:
            return HandedOn(step_id, outline, names)
    stopper = likely_stopper(step_id, outline.graph)
    return None if stopper is None else HandedOn(step_id, outline, stopper_fields(step_id, stopper, outline), stopper)


@dataclass(frozen=True, slots=True)
class HandedOn:
    """What waits for one step of one request (`workers.onward.Following`)."""

    step_id: str
    outline: Outline
    fields: tuple[str, ...]
    stopper: str | None = None
    """A step that nothing follows without: while it is open, this step's end leads to nothing."""

    def tasks(self, after: Snapshot, record: StepRecord, version: str) -> list[Task] | None:
        """Return who is ready; None where an orchestrator has to look (`workers.onward.Following.tasks`)."""
        cause = ResultCame(self.step_id, record.epoch, record.state, version, record.agent, ORCHESTRATOR)
        view = view_of(after, self.outline)
        # Were the request to end by this, an orchestrator would write it: how long it is kept then is not asked here.
        decision = advance(view, cause, retention_seconds=0, stopper=self.stopper)
        undecided = decision.read_more or decision.read_source or decision.change is not None or decision.over
        if undecided or decision.verdict is not Verdict.FITS:
            return None
        return [task_of(ring.step_id, view) for ring in decision.rings if isinstance(ring, RingTask)]

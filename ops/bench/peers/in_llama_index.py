"""llama-index-workflows in one process: a workflow of typed events."""

from __future__ import annotations

import asyncio
from typing import Any

from workflows import Context, Workflow, step
from workflows.events import Event, StartEvent, StopEvent

from ops.bench.figures import Figures
from ops.bench.loads import Load
from ops.bench.peers.peer import Payload, Peer, joined, stamped

PATIENCE_SECONDS = 60


class ForB(Event):
    """Asks step b."""

    given: dict[str, Any]


class ForC(Event):
    """Asks step c."""

    given: dict[str, Any]


class Branch(Event):
    """One branch of the diamond is done."""

    given: dict[str, Any]


class Chain(Workflow):
    """a, b, c."""

    @step
    async def a(self, ev: StartEvent) -> ForB:
        return ForB(given=stamped(ev.given))

    @step
    async def b(self, ev: ForB) -> ForC:
        return ForC(given=stamped(ev.given))

    @step
    async def c(self, ev: ForC) -> StopEvent:
        return StopEvent(result=stamped(ev.given))


class Diamond(Workflow):
    """a, then b and c, then d."""

    @step
    async def a(self, ctx: Context, ev: StartEvent) -> ForB | ForC | None:
        given = stamped(ev.given)
        ctx.send_event(ForB(given=given))
        ctx.send_event(ForC(given=given))
        return None

    @step
    async def b(self, ev: ForB) -> Branch:
        return Branch(given=stamped(ev.given))

    @step
    async def c(self, ev: ForC) -> Branch:
        return Branch(given=stamped(ev.given))

    @step
    async def d(self, ctx: Context, ev: Branch) -> StopEvent | None:
        branches = ctx.collect_events(ev, [Branch, Branch])
        return StopEvent(result=joined([each.given for each in branches])) if branches else None


async def _drive(case: str, load: Load) -> Figures:
    workflow = (Chain if case == "chain" else Diamond)(timeout=PATIENCE_SECONDS)

    async def ask(given: Payload) -> Payload:
        answer: Payload = await workflow.run(given=given)
        return answer

    return await load.lanes(ask)


def drive(case: str, load: Load) -> Figures:
    """Put the load on one case."""
    return asyncio.run(_drive(case, load))


PEER = Peer(drive)

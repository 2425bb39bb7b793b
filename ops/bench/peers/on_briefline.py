"""Ourselves as users run us on servers: an orchestrator and two workers from the command line, and a program that asks.

The client submits, waits, and takes the answer (of `facts` the whole report). All four processes count.
"""

from __future__ import annotations

import uvloop

from ops.bench.figures import Figures
from ops.bench.loads import Load
from ops.bench.peers.asking import ask
from ops.bench.peers.peer import Peer
from ops.bench.teams import CASES
from ops.broker.topology import DEFAULT_PREFIX
from ops.embedded import Runtime
from ops.settings import load_settings
from ops.wiring import connected

WORKER = ("briefline", "worker", "--team", "ops.bench.teams:everyone")


async def _drive(case: str, load: Load) -> Figures:
    async with connected(load_settings(env_file=None)) as (board, broker):
        runtime = Runtime(board, broker, CASES[case])
        return await load.lanes(lambda given: ask(runtime, given))


def drive(case: str, load: Load) -> Figures:
    """Put the load on one case."""
    return uvloop.run(_drive(case, load))


AGENTS = ("a", "b", "c", "d", "first", "second", "third")
PEER = Peer(
    drive,
    workers=(WORKER, WORKER),
    orchestrators=(("briefline", "orchestrator"),),
    consumers={f"{DEFAULT_PREFIX}.commands": 1, f"{DEFAULT_PREFIX}.results": 1, **{f"{DEFAULT_PREFIX}.tasks.{name}": 2 for name in AGENTS}},
)

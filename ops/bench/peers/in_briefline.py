"""Ourselves in one process, without a server."""

from __future__ import annotations

import asyncio

from ops.bench.figures import Figures
from ops.bench.loads import Load
from ops.bench.peers.asking import ask
from ops.bench.peers.peer import Peer
from ops.bench.teams import CASES
from ops.embedded import embedded


async def _drive(case: str, load: Load) -> Figures:
    async with embedded(CASES[case]) as runtime:
        return await load.lanes(lambda given: ask(runtime, given))


def drive(case: str, load: Load) -> Figures:
    """Put the load on one case."""
    return asyncio.run(_drive(case, load))


PEER = Peer(drive)

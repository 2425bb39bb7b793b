"""One round of one contender, in a process of its own, which is the contender's client. Called by `ops.bench.running`.

    python -m ops.bench.contending RESULT NAME CASE,... SINGLES REQUESTS WINDOW BROKER_PID REDIS_PID

Starts the contender's processes, waits until they serve, loads each case, ends them, and writes case -> figures as JSON into
the file RESULT. The servers are named by BRIEFLINE_RABBITMQ_URL and BRIEFLINE_REDIS_URL.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import orjson

from ops.bench.children import running
from ops.bench.contenders import CONTENDERS
from ops.bench.loads import Load
from ops.bench.metering import Meter
from ops.bench.peers.peer import RABBITMQ_URL, Peer


def main(arguments: Sequence[str]) -> int:
    """Run the round and write what it came to; told to end, it ends its processes first."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    result, name, cases, *numbers = arguments
    singles, requests, window, broker, redis = map(int, numbers)
    peer: Peer = importlib.import_module(f"ops.bench.peers.{CONTENDERS[name].room}").PEER
    with ExitStack() as ours:
        orchestrators = [ours.enter_context(running(command)).pid for command in peer.orchestrators]
        workers = [ours.enter_context(running(command)).pid for command in peer.workers]
        if peer.consumers:
            from ops.bench.peers.queues import served

            asyncio.run(served(RABBITMQ_URL, peer.consumers))
        shares = {"orchestrator": orchestrators, "workers": workers, "broker": [broker], "redis": [redis]} if peer.workers else {}
        found = {case: peer.drive(case, Load(singles, requests, window, Meter(shares))) for case in cases.split(",")}
    Path(result).write_bytes(orjson.dumps({case: figures.as_json() for case, figures in found.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

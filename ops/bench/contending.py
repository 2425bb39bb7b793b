"""One round of one contender, in a process of its own, which is the contender's client. Called by `ops.bench.running`.

    python -m ops.bench.contending NAME CASE,... SINGLES REQUESTS WINDOW BROKER_PID REDIS_PID

Starts the contender's processes, waits until they serve, loads each case, ends them, and prints case -> figures as JSON in
the last line of standard output. The servers are named by BRIEFLINE_RABBITMQ_URL and BRIEFLINE_REDIS_URL.
"""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import orjson

from ops.bench.contenders import CONTENDERS
from ops.bench.loads import Load
from ops.bench.metering import Meter
from ops.bench.peers.peer import RABBITMQ_URL, Peer
from ops.bench.processes import tree

END_SECONDS = 15.0
PROGRAMS = Path(sys.executable).parent


def main(arguments: Sequence[str]) -> int:
    """Run the round and print what it came to."""
    name, cases, *numbers = arguments
    singles, requests, window, broker, redis = map(int, numbers)
    peer: Peer = importlib.import_module(f"ops.bench.peers.{CONTENDERS[name].room}").PEER
    with ExitStack() as ours:
        orchestrators = [ours.enter_context(_running(command)) for command in peer.orchestrators]
        workers = [ours.enter_context(_running(command)) for command in peer.workers]
        if peer.consumers:
            from ops.bench.peers.queues import served

            asyncio.run(served(RABBITMQ_URL, peer.consumers))
        shares = {"orchestrator": orchestrators, "workers": workers, "broker": [broker], "redis": [redis]} if peer.workers else {}
        found = {case: peer.drive(case, Load(singles, requests, window, Meter(shares))) for case in cases.split(",")}
    print(orjson.dumps({case: figures.as_json() for case, figures in found.items()}).decode())
    return 0


@contextmanager
def _running(command: Sequence[str]) -> Iterator[int]:
    """A process of the contender, by its id; it is told to end, and what has not gone in time is killed with its children."""
    process = subprocess.Popen([str(PROGRAMS / command[0]), *command[1:]], stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        yield process.pid
    finally:
        family = tree([process.pid])
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            for pid in family:
                subprocess.run(["kill", "-KILL", str(pid)], check=False, stderr=subprocess.DEVNULL)
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Serving: `briefline orchestrator` and `briefline worker`, until a signal says stop."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ops.artifacts.sweeping import swept
from ops.settings import Settings
from ops.watchdog import watched_loop
from ops.wiring import artifacts_of, connected, team_of
from orchestrator.handing_on import HandingOn
from orchestrator.orchestrator import Orchestrator
from workers.team import load_team
from workers.worker import Worker

NEW_OBJECTS = 20_000
"""So many more objects made than dropped begin a look for circles."""


async def serve_orchestrator(settings: Settings, reducers_of: Sequence[str] = ()) -> None:
    """Run an orchestrator until SIGTERM or SIGINT; of the teams named in `reducers_of` it has their own reducers."""
    reducers = {name: reducer for team in reducers_of for name, reducer in load_team(team).reducers.items()}
    async with connected(settings, "orchestrator") as (board, broker):
        orchestrator = Orchestrator(
            board, broker, sweep_seconds=settings.sweep_seconds, retention_seconds=settings.retention_seconds, reducers=reducers
        )
        stop = asyncio.Event()
        with watched_loop(), collected_seldom(), _on_signals(stop, hurry=lambda: None):
            await orchestrator.run(stop=stop)


async def serve_worker(settings: Settings) -> None:
    """Run a worker until SIGTERM or SIGINT: it takes nothing new, finishes what runs within the grace time, hands back the rest.

    A second signal hands back at once.
    """
    team, artifacts = team_of(settings), artifacts_of(settings)
    async with connected(settings, "worker") as (board, broker), swept(artifacts):
        worker = Worker(
            board,
            broker,
            team,
            agents=settings.agents,
            concurrency=settings.concurrency,
            lease_seconds=settings.lease_seconds,
            ack_after_seconds=settings.ack_after_seconds,
            grace_seconds=settings.grace_seconds,
            artifacts=artifacts,
            onward=HandingOn(board, broker),
        )
        stop = asyncio.Event()
        with watched_loop(), collected_seldom(), _on_signals(stop, hurry=worker.hand_back):
            await worker.run(stop=stop)


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Let the garbage collector leave alone what was loaded at start, and look at what is new in larger portions.

    A message makes some hundred objects that end with it; looking for circles after every 700 costs a twentieth of all work.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def _on_signals(stop: asyncio.Event, *, hurry: Callable[[], None]) -> Iterator[None]:
    """The first SIGTERM or SIGINT sets `stop`, each further one calls `hurry`."""
    loop = asyncio.get_running_loop()

    def signalled() -> None:
        if stop.is_set():
            hurry()
        stop.set()

    signals = (signal.SIGTERM, signal.SIGINT)
    for each in signals:
        loop.add_signal_handler(each, signalled)
    try:
        yield
    finally:
        for each in signals:
            loop.remove_signal_handler(each)

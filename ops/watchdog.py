"""The watchdog of an event loop: it says, while the loop stands still, whose agent holds it up and where.

A blocked loop sends no heartbeats and renews no lease: after a while the broker hands its tasks out again, and others take
its steps over. Nothing is lost by that, yet work is done twice, and nobody would know why. This room changes nothing; it
only tells. Called by `briefline worker` and `briefline orchestrator`.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import structlog

from workers.running import AGENT_TASK

LIMIT_SECONDS = 1.0
"""A fifth of the usual lease: there is time to be told of before anything follows from it."""

log = structlog.get_logger()


@contextmanager
def watched_loop(limit_seconds: float = LIMIT_SECONDS) -> Iterator[None]:
    """Watch the running loop from a thread until the block is left.

    A loop that does nothing for `limit_seconds` is told of as `loop_blocked`, once for each time that it stands still, with
    the task that holds it up, the line it is at, and the agents that run; `loop_went_on` says how long it was.
    """
    over = threading.Event()
    watchdog = _Watchdog(asyncio.get_running_loop(), threading.get_ident(), limit_seconds)
    thread = threading.Thread(target=watchdog.watch, args=(over,), name="loop-watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


class _Watchdog:
    """What the thread knows of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: int, limit_seconds: float) -> None:
        self._loop = loop
        self._thread = thread
        self._limit_seconds = limit_seconds
        self._answered = threading.Event()

    def watch(self, over: threading.Event) -> None:
        """Ask the loop for a sign of life again and again, until `over` or the loop is closed."""
        while not over.wait(self._limit_seconds / 2):
            self._answered.clear()
            asked = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:  # the loop is closed
                return
            # The second, short wait: a process that was stopped as a whole finds its time up before its loop could answer.
            if not self._answered.wait(self._limit_seconds) and not self._answered.wait(self._limit_seconds / 10):
                self._tell()
                while not over.is_set() and not self._answered.wait(self._limit_seconds):
                    pass
                log.warning("loop_went_on", after_seconds=round(time.monotonic() - asked, 1))

    def _tell(self) -> None:
        # The loop stands still, so its tasks stay as they are while they are looked at.
        task = asyncio.current_task(self._loop)
        running = sorted(each.get_name().removeprefix(AGENT_TASK) for each in asyncio.all_tasks(self._loop) if _is_agent(each))
        log.error(
            "loop_blocked",
            task=task.get_name() if task else "",
            at=_place(sys._current_frames().get(self._thread)),
            agents=running,
            advice="run what blocks in a plain function (it gets a thread of its own), or await it",
        )


def _is_agent(task: asyncio.Task[object]) -> bool:
    return task.get_name().startswith(AGENT_TASK)


def _place(frame: FrameType | None) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" if frame else ""

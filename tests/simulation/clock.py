"""A loop whose time is virtual: it jumps to the next timer when nothing is ready, so that an hour passes in no time.

It has no sockets and no threads; whoever waits for one of these would wait for ever, and is told so.
"""

from __future__ import annotations

import asyncio
import asyncio.base_events
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")

EPOCH_SECONDS = 1_800_000_000.0
"""Board time when the loop's time is 0."""


class Stuck(Exception):
    """Nothing is ready and no timer runs: what is awaited can never come."""


class _Jump:
    """In place of a selector: instead of waiting for I/O, time moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, timeout: float | None) -> list[object]:
        if timeout is None:
            raise Stuck("nothing is ready and no timer runs")
        self.now += timeout
        return []

    def close(self) -> None:
        """Nothing is open."""


class VirtualLoop(asyncio.base_events.BaseEventLoop):
    """An event loop in virtual time. `loop.time()` starts at 0; `board_clock` is the same time as a date."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Jump()

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._selector.now

    def board_clock(self) -> float:
        """Return the virtual time in seconds since the epoch."""
        return EPOCH_SECONDS + self._selector.now

    def jump(self, seconds: float) -> None:
        """Let time pass at once; every timer that falls into it is late."""
        self._selector.now += seconds

    def _process_events(self, event_list: list[object]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """There is no other thread to be woken by."""

    def close(self) -> None:
        """End it."""
        if not self.is_closed():
            super().close()


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, _T]]) -> _T:
    """Run `main(loop)` to its end on a loop of its own, then cancel whatever it left."""
    loop = VirtualLoop()
    try:
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(main(loop))
        finally:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()

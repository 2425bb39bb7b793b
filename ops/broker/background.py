"""Tasks that live as long as a block: they are cancelled when it is left, and its own error comes out unwrapped.

An `asyncio.TaskGroup` waits for its tasks and wraps what the block raises in a group. Consumers and connections are
servants of their block: they end with it. An error of such a task itself still cancels the block and comes out as a
group, because it is a mistake of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


class Background:
    """The tasks of one block."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside the block."""
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Cancel every task that still runs."""
        for task in list(self._tasks):
            task.cancel()


@asynccontextmanager
async def background() -> AsyncIterator[Background]:
    """Open a block whose tasks end with it."""
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        tasks = Background(group)
        try:
            yield tasks
        except Exception as error:  # kept out of the group, which would wrap it
            failure = error
        finally:
            tasks.cancel()
    if failure is not None:
        raise failure

"""Waiting for a hint, but never for ever: a hint can be lost, and a board that was replaced gives none.

Called by both blackboards' watches.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

SAFETY_SECONDS = 10.0
"""How long a watcher trusts silence before it looks by itself."""


async def woken(wake: asyncio.Event, seconds: float = SAFETY_SECONDS) -> None:
    """Wait for a hint, or until it is time to look without one."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wake.wait()

"""Sweeping: artifacts past their time are taken away by whoever puts them there, the workers, now and then.

Each round is bounded, and several workers may sweep at once: what is gone is gone. Called by `briefline worker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from schemas.artifacts import ArtifactStore
from schemas.errors import Unavailable

SWEEP_SECONDS = 3600.0
ROUND_LIMIT = 1_000
"""Of each kind, so that a store with a long past is not emptied in one breath."""

log = structlog.get_logger()


@asynccontextmanager
async def swept(store: ArtifactStore, *, every_seconds: float = SWEEP_SECONDS) -> AsyncIterator[None]:
    """Sweep at the start of the block and then every so often, until it is left. A store that is away is tried again then."""
    sweeping = asyncio.create_task(_sweep_for_ever(store, every_seconds), name="artifact sweep")
    try:
        yield
    finally:
        sweeping.cancel()
        await asyncio.wait({sweeping})


async def _sweep_for_ever(store: ArtifactStore, every_seconds: float) -> None:
    while True:
        try:
            if taken := await store.sweep(ROUND_LIMIT):
                log.info("artifacts_swept", taken=taken)
        except Unavailable as error:
            log.warning("artifacts_not_swept", reason=str(error))
        await asyncio.sleep(every_seconds)

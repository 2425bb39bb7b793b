"""A Redis that a test may stop, starve and empty."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.support.servers import OwnRedis


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OwnRedis]:
    """A Redis of the test's own."""
    async with OwnRedis(tmp_path / "redis") as redis:
        yield redis
        redis.resume()

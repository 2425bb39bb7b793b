"""Systems of processes: one that several tests share, and a way to make one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.end_to_end.processes import System


@pytest.fixture
def system(redis_url: str, rabbitmq_url: str) -> Iterator[System]:
    """A system without processes: the test starts what it needs, all end with the test."""
    with System(redis_url, rabbitmq_url) as made:
        yield made


@pytest.fixture(scope="module")
def bitmall(redis_url: str, rabbitmq_url: str) -> Iterator[System]:
    """The BitMall team on one orchestrator and one worker, shared by the tests of a module."""
    with System(redis_url, rabbitmq_url) as made:
        orchestrator, worker = made.orchestrator(), made.worker()
        assert orchestrator.name and worker.name
        yield made

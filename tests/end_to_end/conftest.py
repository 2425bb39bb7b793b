"""Systems of processes: one that several tests share, and a way to make one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.gates import Gate
from tests.end_to_end.processes import Commands, System


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Runs commands to their end."""
    with Commands(tmp_path_factory.mktemp("commands")) as made:
        yield made


@pytest.fixture
def system(commands: Commands, redis_url: str, rabbitmq_url: str) -> Iterator[System]:
    """A system without processes: the test starts what it needs, all end with the test."""
    with System(commands, redis_url, rabbitmq_url) as made:
        yield made


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Where the steps of team `gated` wait."""
    with Gate(tmp_path / "gate") as made:
        yield made


@pytest.fixture(scope="module")
def bitmall(commands: Commands, redis_url: str, rabbitmq_url: str) -> Iterator[System]:
    """The BitMall team on one orchestrator and one worker, shared by the tests of a module."""
    with System(commands, redis_url, rabbitmq_url) as made:
        for process in (made.orchestrator(), made.worker()):
            process.wait_until_started()
        yield made

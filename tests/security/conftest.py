"""The guarded servers, started once for this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.guarded import Guarded, guarded


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """RabbitMQ and Redis with a user for each role and for the workers of the agents `ann` and `bob`."""
    with guarded(tmp_path_factory.mktemp("guarded"), "ann", "bob") as running:
        yield running

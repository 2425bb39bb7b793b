"""Fixtures for every test room: servers, names of a test's own, and two guards that nobody has to ask for.

A test that takes `redis_url` or `rabbitmq_url` (or what builds on them) is marked `servers`. Without the server it is
skipped, with the reason; under CI=true it fails, because there a skipped test would look like a passed one.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from urllib.parse import unquote, urlsplit

import pytest
import pytest_asyncio
import redis
from hypothesis import settings

from ops import servers
from ops.settings import Settings, variable

settings.register_profile("untimed", deadline=None)  # a busy machine is no counterexample
settings.load_profile("untimed")

SERVER_FIXTURES = {"redis_url", "rabbitmq_url", "key_prefix", "topology_prefix"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what talks to a server, so that `-m "not servers"` leaves the rest."""
    for item in items:
        if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("servers")


def _url_of(kind: servers.Kind) -> str:
    url = servers.find(kind)
    if url is not None and kind.answers_at(url):
        return url
    where = f"at {kind.variable}" if url else f"on port {kind.default_port}"
    reason = f"no {kind.name} answers {where} (`make servers` starts one)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def redis_url() -> str:
    """A Redis that every test process shares; use `key_prefix` for every key."""
    return _url_of(servers.REDIS)


@pytest.fixture(scope="session")
def rabbitmq_url(worker_id: str) -> Iterator[str]:
    """A RabbitMQ with a virtual host of this test process's own, deleted with all its queues at the end.

    Where rabbitmqctl of this machine does not reach the server, it is the named URL as it is: use `topology_prefix`
    for every exchange and queue, and what a test declares there is its own to delete.
    """
    url = _url_of(servers.RABBITMQ)
    control = servers.controller(url)
    if control is None:
        yield url
        return
    parts = urlsplit(url)
    vhost = f"briefline-test-{worker_id}-{secrets.token_hex(4)}"
    control("--quiet", "add_vhost", vhost)
    try:
        control("--quiet", "set_permissions", "-p", vhost, unquote(parts.username or "guest"), ".*", ".*", ".*")
        yield parts._replace(path=f"/{vhost}").geturl()
    finally:
        control("--quiet", "delete_vhost", vhost)


@pytest.fixture
def topology_prefix(rabbitmq_url: str, worker_id: str) -> str:
    """What the test's exchanges and queues begin with: of this test process, and new for every test."""
    return f"briefline.{worker_id}.{secrets.token_hex(4)}"


@pytest.fixture
def key_prefix(redis_url: str) -> Iterator[str]:
    """What the test's keys in Redis begin with; they are deleted after it."""
    prefix = f"briefline-test-{secrets.token_hex(6)}"
    yield prefix
    with redis.Redis.from_url(redis_url, socket_timeout=10) as client:
        for key in client.scan_iter(match=f"{prefix}*", count=1000):
            client.delete(key)


@pytest.fixture(scope="session", autouse=True)
def _environment_of_the_tests_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No setting of the developer's reaches a test, only the two URLs; and no key of a model either. Artifacts go to a folder of it."""
    kept = {servers.REDIS.variable, servers.RABBITMQ.variable}
    with pytest.MonkeyPatch.context() as patch:
        for name in Settings.model_fields:
            if variable(name) not in kept:
                patch.setenv(variable(name), "")  # empty means the default, also where .env says otherwise
        patch.setenv(variable("artifacts_url"), str(tmp_path_factory.mktemp("artifacts")))
        for name in os.environ:
            if re.search(r"_API_KEY$|_BASE_URL$", name) and not name.startswith("BRIEFLINE_"):
                patch.delenv(name)
        yield


@pytest.fixture(autouse=True)
def _no_real_model_call(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses model requests in the model library itself, once something has imported it (importing it takes seconds)."""
    models = sys.modules.get("pydantic_ai.models")
    if models is not None and request.node.get_closest_marker("real_llm") is None:
        monkeypatch.setattr(models, "ALLOW_MODEL_REQUESTS", False)


@pytest.fixture(autouse=True)
def _no_leaked_task(request: pytest.FixtureRequest) -> None:
    """Fails a coroutine test that leaves a task behind."""
    if request.node.get_closest_marker("asyncio") is not None:
        request.getfixturevalue("_tasks_are_over_at_the_end")


@pytest_asyncio.fixture
async def _tasks_are_over_at_the_end() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    # A task that was cancelled on the test's last line ends within the next turns of the loop; a leaked one does not.
    for _ in range(5):
        await asyncio.sleep(0)
    leaked = [task for task in left if not task.done()]
    if leaked:
        pytest.fail("the test left tasks behind: " + ", ".join(f"{task.get_name()} {task.get_coro()}" for task in leaked))

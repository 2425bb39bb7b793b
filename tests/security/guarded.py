"""Two real servers on which every role has a user of its own, and what a user can be used for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

import aiormq
import redis
from aiormq.abc import AbstractChannel
from redis.asyncio import Redis

from ops.access import Secrets, keep_secrets
from ops.blackboard.functions import load_library
from ops.blackboard.redis import RedisBlackboard
from ops.broker.rabbitmq import RabbitMQBroker
from ops.broker.topology import Topology
from ops.rabbitmq.permissions import definitions
from ops.redis.rules import acl_file
from ops.users import ADMIN, User, users_of
from tests.support.servers import OwnRabbitMQ, OwnRedis

KEYS, TOPOLOGY = "guarded[1]", "guarded.v1"
"""Prefixes; the brackets are a pattern to Redis unless somebody takes care."""
LEASE_SECONDS = 1.0


@dataclass(frozen=True)
class Guarded:
    """The servers, and who may log in."""

    redis_at: str
    rabbitmq_at: str
    users: tuple[User, ...]
    secrets: Secrets
    topology: Topology = field(default_factory=lambda: Topology(TOPOLOGY))

    def redis_url(self, user: str) -> str:
        """Where this user reaches Redis."""
        return self.redis_at.replace("://", f"://{user}:{quote(self.secrets.passwords[user])}@")

    def rabbitmq_url(self, user: str) -> str:
        """Where this user reaches RabbitMQ."""
        return f"amqp://{user}:{quote(self.secrets.passwords[user])}@127.0.0.1:{urlsplit(self.rabbitmq_at).port}/"

    def board(self, user: str) -> RedisBlackboard:
        """A blackboard as this user."""
        return RedisBlackboard(self.redis_url(user), prefix=KEYS, lease_seconds=LEASE_SECONDS)

    def broker(self, user: str) -> RabbitMQBroker:
        """A broker as this user."""
        return RabbitMQBroker(self.rabbitmq_url(user), prefix=TOPOLOGY, instance=user)

    @asynccontextmanager
    async def raw_redis(self, user: str) -> AsyncIterator[Redis]:
        """A connection on which this user sends what it likes."""
        async with Redis.from_url(self.redis_url(user), protocol=2) as client:
            yield client

    @asynccontextmanager
    async def raw_channel(self, user: str) -> AsyncIterator[AbstractChannel]:
        """A channel on which this user sends what it likes."""
        async with AsyncExitStack() as stack:
            connection = await aiormq.connect(self.rabbitmq_url(user))
            stack.push_async_callback(connection.close)
            yield await connection.channel(on_return_raises=True)


@contextmanager
def guarded(folder: Path, *agents: str) -> Iterator[Guarded]:
    """Start both servers for a team of these agents, as `docs/security.md` says."""
    users = users_of(agents)
    kept = keep_secrets(folder / "secrets.json", [*(user.name for user in users), ADMIN])
    access = folder / "users.acl"
    access.write_text(acl_file(users, kept.passwords, prefix=KEYS), encoding="utf-8")
    imported = folder / "access.json"
    imported.write_text(json.dumps(definitions(users, kept.passwords, prefix=TOPOLOGY)), encoding="utf-8")
    with OwnRedis(folder / "redis", options={"aclfile": str(access)}) as board, OwnRabbitMQ(folder / "rabbitmq") as broker:
        broker.control("import_definitions", str(imported))
        found = Guarded(board.url, broker.url, users, kept)
        load(found)
        yield found


def load(servers: Guarded) -> None:
    """Load the sealed functions, as the administrator."""
    with redis.Redis.from_url(servers.redis_url(ADMIN)) as admin:
        admin.function_load(load_library(servers.secrets.seal).source, replace=True)

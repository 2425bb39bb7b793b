"""Wiring: settings turned into connected parts. The one place where a process learns which servers and model it talks to."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ops.artifacts.folder import FolderShelf
from ops.artifacts.keeping import KeptArtifacts, Shelf
from ops.artifacts.memory import MemoryShelf
from ops.blackboard.cluster import ClusterBlackboard
from ops.blackboard.redis import RedisBlackboard
from ops.broker.rabbitmq import RabbitMQBroker
from ops.crash_points import CrashingBlackboard, CrashingBroker, crash_points
from ops.settings import Settings
from schemas.blackboard import Blackboard
from schemas.broker import Broker
from schemas.errors import InvalidSettings
from workers.agents.models import OpenAICompatible
from workers.team import Team, load_team


def board_of(settings: Settings, *, stays_in_touch: bool = False) -> RedisBlackboard | ClusterBlackboard:
    """Return the blackboard of the settings, to be entered with `async with`. `stays_in_touch`: for who takes steps over."""
    kind = ClusterBlackboard if "+cluster" in urlsplit(settings.redis_url).scheme else RedisBlackboard
    return kind(
        settings.redis_url,
        prefix=settings.key_prefix,
        call_timeout_seconds=settings.call_timeout_seconds,
        deadline_seconds=settings.call_deadline_seconds,
        pool_size=settings.pool_size,
        lease_seconds=settings.lease_seconds,
        stays_in_touch=stays_in_touch,
    )


def broker_of(settings: Settings, instance: str = "client") -> RabbitMQBroker:
    """Return the broker of the settings, to be entered with `async with`; `instance` names the process in RabbitMQ's lists."""
    return RabbitMQBroker(
        settings.rabbitmq_url,
        prefix=settings.topology_prefix,
        instance=instance,
        call_timeout_seconds=settings.call_timeout_seconds,
    )


def artifacts_of(settings: Settings) -> KeptArtifacts:
    """Return the artifact store of the settings. It connects when it is first used.

    Raises:
        InvalidSettings: a bucket is named, and the client for it is not installed, or the URL has an option that is none.
    """
    return KeptArtifacts(_shelf(settings.artifacts_url), private_seconds=settings.private_seconds, shared_seconds=settings.artifact_seconds)


def _shelf(url: str) -> Shelf:
    if url == "memory:":
        return MemoryShelf()
    if not url.startswith("s3:"):
        path = unquote(urlsplit(url).path) if url.startswith("file:") else url
        return FolderShelf(Path(path).expanduser())
    if importlib.util.find_spec("obstore") is None:
        raise InvalidSettings("a bucket needs the client of that protocol: pip install 'briefline[s3]'", path="artifacts_url")
    from ops.artifacts.s3 import S3Shelf

    return S3Shelf(url)


@asynccontextmanager
async def connected(settings: Settings, role: str = "client") -> AsyncIterator[tuple[Blackboard, Broker]]:
    """Connect blackboard and broker as the settings say. `role` names the process: client, orchestrator or worker.

    Raises:
        Unavailable: Redis is not there.
        UnsafeServer: Redis could drop state.
        InvalidSettings: the environment asks for a crash at a point that is none.
    """
    points = crash_points(role, os.environ)
    async with board_of(settings, stays_in_touch=role != "client") as board, broker_of(settings, role) as broker:
        if points is None:
            yield board, broker
        else:
            yield CrashingBlackboard(board, points), CrashingBroker(broker, points)


def team_of(settings: Settings, name: str | None = None) -> Team:
    """Load a team with the model and scenario of the settings; without them, as the team itself chooses.

    Raises:
        NotFound: no such team, or it takes no such options.
        InvalidTeam: what is there does not fit together.
        InvalidSettings: a model is set, and the client for it is not installed.
    """
    options: dict[str, object] = {}
    if settings.scenario:
        options["scenario"] = settings.scenario
    if settings.model_base_url:
        if importlib.util.find_spec("openai") is None:
            raise InvalidSettings("a real model needs the client of that protocol: pip install 'briefline[openai]'", path="model_base_url")
        options["model"] = OpenAICompatible(
            base_url=settings.model_base_url,
            name=settings.model_name,
            api_key=settings.model_api_key.get_secret_value() or "none",
            timeout_seconds=settings.model_timeout_seconds,
        )
    return load_team(name or settings.team, **options)

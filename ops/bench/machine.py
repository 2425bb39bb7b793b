"""The machine and the versions of a run, as far as they say what its figures may be compared with."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

from ops.bench.running import Servers
from ops.own_servers import redis_program

PACKAGES = (
    "autogen-core",
    "celery",
    "dramatiq",
    "faststream",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "llama-index-workflows",
    "taskiq",
    "taskiq-aio-pika",
    "taskiq-pipelines",
    "aio-pika",
    "aiormq",
    "redis",
    "uvloop",
)


def machine() -> str:
    """Cores, memory, system and Python in one line."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({model[1] if model else platform.machine()}), {gib:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def versions(servers: Servers) -> dict[str, str]:
    """Name -> version of the servers and of the libraries that are measured."""
    redis = re.search(r"v=([\d.]+)", subprocess.run([redis_program(), "--version"], capture_output=True, text=True, check=True).stdout)
    return {
        "RabbitMQ": servers.rabbitmq.control("--quiet", "version").strip(),
        "Redis": redis[1] if redis else "?",
        **{name: version(name) for name in PACKAGES},
    }

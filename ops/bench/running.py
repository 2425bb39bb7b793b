"""Running: servers of the run's own, and round after round all contenders one after the other, so that whatever else the
machine does meets all of them alike.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from ops.bench.children import running
from ops.bench.contenders import CASES, CONTENDERS
from ops.bench.figures import Figures, figures_of
from ops.own_servers import RabbitMQProcess, RedisProcess

LEAST_PAIRS = 3
ROUND_SECONDS = 300.0
"""How long one round of one contender may take; a quiet one takes ten seconds."""

Rounds = dict[str, dict[str, list[Figures]]]
"""Case -> contender -> its figures, round by round."""


class Failed(Exception):
    """A contender that did not get through its round, with the end of what it wrote."""


@dataclass(frozen=True)
class Servers:
    """Both servers of the run."""

    rabbitmq: RabbitMQProcess
    redis: RedisProcess

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that uses them, and nothing of this machine's settings for Briefline."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BRIEFLINE_")}
        return {
            **kept,
            "BRIEFLINE_RABBITMQ_URL": self.rabbitmq.url,
            "BRIEFLINE_REDIS_URL": self.redis.url,
            "BRIEFLINE_LOG_LEVEL": "WARNING",
        }


@contextmanager
def own_servers() -> Iterator[Servers]:
    """A RabbitMQ and a Redis on the shipped configuration (AOF every second), on free ports, until the block is left."""
    with tempfile.TemporaryDirectory(prefix="briefline-bench-") as folder:
        servers = Servers(RabbitMQProcess(Path(folder) / "rabbitmq"), RedisProcess(Path(folder) / "redis"))
        try:
            servers.redis.start()
            servers.rabbitmq.start()
            yield servers
        finally:
            servers.rabbitmq.stop()
            servers.redis.stop()


@dataclass(frozen=True)
class Plan:
    """What is run: `pairs` rounds of each contender over the cases that it can do."""

    names: Sequence[str]
    cases: Sequence[str]
    pairs: int
    requests: int
    singles: int
    window: int

    @property
    def is_whole(self) -> bool:
        """Whether every contender runs every case, often enough for a median that means something."""
        return tuple(self.names) == tuple(CONTENDERS) and tuple(self.cases) == CASES and self.pairs >= LEAST_PAIRS

    def cases_of(self, name: str) -> list[tuple[str, ...]]:
        """The cases of one contender, grouped by the processes that they share: a model library, once loaded, stays in memory."""
        mine = [case for case in self.cases if case in CONTENDERS[name].cases]
        groups = (tuple(case for case in mine if case != "facts"), tuple(case for case in mine if case == "facts"))
        return [group for group in groups if group]


def run(plan: Plan, servers: Servers, tell: Callable[[str], None]) -> Rounds:
    """Run all rounds and return what they came to; `tell` hears of each as it ends. A round that fails is tried once more.

    Raises:
        Failed: a contender failed twice in a row.
    """
    found: Rounds = {case: {name: [] for name in plan.names if case in CONTENDERS[name].cases} for case in plan.cases}
    for pair in range(plan.pairs):
        for name in plan.names:
            for cases in plan.cases_of(name):
                try:
                    done = _round(name, cases, plan, servers)
                except Failed as failed:
                    tell(f"{failed}\nonce more:")
                    done = _round(name, cases, plan, servers)
                for case, figures in done.items():
                    found[case][name].append(figures)
                    tell(f"{pair + 1}/{plan.pairs} {name:18} {case:8} {_said(figures)}")
    return found


def _said(figures: Figures) -> str:
    return (
        f"{figures.cpu_ms_per_request:6.2f} CPU ms/request, {figures.requests_per_second:6.1f} requests/s, one alone "
        f"{figures.single_p50_ms:5.1f} ms, foreign cores {figures.foreign_cores:.2f}"
    )


def _round(name: str, cases: Sequence[str], plan: Plan, servers: Servers) -> dict[str, Figures]:
    numbers = (plan.singles, plan.requests, plan.window, servers.rabbitmq.pid or 0, servers.redis.pid or 0)
    folder = servers.redis.folder.parent
    result, log = folder / "result.json", folder / "round.log"
    command = ("python", "-m", "ops.bench.contending", str(result), name, ",".join(cases), *map(str, numbers))
    environment = {**servers.environment, "BENCH_KIND": CONTENDERS[name].kind}
    with log.open("w") as output, running(command, environment, output) as process:
        try:
            code = process.wait(ROUND_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{name} took longer than {ROUND_SECONDS:g} s") from error
    if code:
        raise Failed(f"{name} ended with {code}:\n{log.read_text(errors='replace')[-3000:]}")
    return {case: figures_of(each) for case, each in orjson.loads(result.read_bytes()).items()}

"""RabbitMQ and Redis for development and tests: `python -m ops.servers start | stop | run -- COMMAND... | cluster -- COMMAND...`

A server is taken where it is found, in this order: named by URL (BRIEFLINE_RABBITMQ_URL, BRIEFLINE_REDIS_URL), started
here before, listening on its default port. What is missing is started as an ordinary process under `.servers/`, and
installed first where apt and root are at hand. `run` gives a command both URLs and stops afterwards what it started
itself; `cluster` does so with a Redis in cluster mode and three RabbitMQ nodes, which are always its own. This room never
stops or reconfigures a server that it did not start. Called by make and by the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ops.own_clusters import RabbitMQCluster, RedisCluster
from ops.own_servers import (
    LOOPBACK,
    OwnServer,
    RabbitMQProcess,
    RedisProcess,
    free_port,
    is_free,
    rabbitmq_answers,
    rabbitmq_program,
    redis_answers,
    redis_program,
    run_rabbitmqctl,
)
from schemas.errors import BrieflineError, Unavailable

FOLDER = Path(__file__).parent.parent / ".servers"


@dataclass(frozen=True)
class Kind:
    """What this room knows about one of the two servers."""

    name: str
    variable: str
    default_url: str
    default_port: int
    package: str
    program: Callable[[], Path]
    answers: Callable[[str, int], bool]
    process: Callable[[Path, int | None], OwnServer]

    def at(self, folder: Path, port: int | None = None) -> OwnServer:
        """Our own server of this kind whose data are under `folder`, running or not."""
        return self.process(folder / self.package, port)

    def answers_at(self, url: str) -> bool:
        """Whether such a server answers where the URL points (a Redis on a Unix socket is taken at its word)."""
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return Path(parts.path).is_socket()
        if parts.scheme in ("amqps", "rediss", "rediss+cluster"):
            return True  # its greeting is inside TLS: the client will tell
        return self.answers(parts.hostname or LOOPBACK, parts.port or self.default_port)


REDIS = Kind(
    name="Redis",
    variable="BRIEFLINE_REDIS_URL",
    default_url=f"redis://{LOOPBACK}:6379/0",
    default_port=6379,
    package="redis-server",
    program=redis_program,
    answers=redis_answers,
    process=RedisProcess,
)
RABBITMQ = Kind(
    name="RabbitMQ",
    variable="BRIEFLINE_RABBITMQ_URL",
    default_url=f"amqp://guest:guest@{LOOPBACK}:5672/",
    default_port=5672,
    package="rabbitmq-server",
    program=rabbitmq_program,
    answers=rabbitmq_answers,
    process=RabbitMQProcess,
)
KINDS = (REDIS, RABBITMQ)


def find(kind: Kind, environ: Mapping[str, str] = os.environ, folder: Path = FOLDER) -> str | None:
    """The URL of the server to use, or None when there is none; one named by its variable is not looked at."""
    if named := environ.get(kind.variable):
        return named
    own = kind.at(folder)
    if own.pid is not None and own.answers():
        return own.url
    return kind.default_url if kind.answers_at(kind.default_url) else None


def start(folder: Path = FOLDER) -> dict[str, str]:
    """Starts what `find` does not find, to stay until `stop`, on its default port where that is free; returns variable -> URL."""
    urls = {}
    for kind in KINDS:
        url = find(kind, folder=folder)
        if url is None:
            install(kind)
            own = kind.at(folder, kind.default_port if is_free(kind.default_port) else free_port())
            own.start()
            url = own.url
        urls[kind.variable] = url
    return urls


def stop(folder: Path = FOLDER) -> list[str]:
    """Stops what `start` started (the data stay in the folder); returns the names of the servers that were running."""
    running = [(kind, own) for kind in KINDS if (own := kind.at(folder)).pid is not None]
    for _, own in running:
        own.stop()
    return [kind.name for kind, _ in running]


@contextmanager
def borrowed(environ: Mapping[str, str] = os.environ, folder: Path = FOLDER) -> Iterator[dict[str, str]]:
    """Both servers for as long as the block lasts, as variable -> URL.

    What is not found is started on a free port with a folder of its own, so that two runs never stop each other's.
    """
    with ExitStack() as ours:
        urls = {}
        for kind in KINDS:
            url = find(kind, environ, folder)
            if url is None:
                install(kind)
                folder.mkdir(parents=True, exist_ok=True)
                own = kind.at(Path(ours.enter_context(tempfile.TemporaryDirectory(prefix="run-", dir=folder))))
                ours.callback(own.stop)
                own.start()
                url = own.url
            urls[kind.variable] = url
        yield urls


@contextmanager
def clustered(folder: Path = FOLDER) -> Iterator[dict[str, str]]:
    """A Redis in cluster mode, one node with all slots, and three joined RabbitMQ nodes, until the block is left; variable -> URL."""
    for kind in KINDS:
        install(kind)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="cluster-", dir=folder) as place,
        RedisCluster(Path(place) / REDIS.package) as redis,
        RabbitMQCluster(Path(place)) as rabbitmq,
    ):
        yield {REDIS.variable: redis.url, RABBITMQ.variable: rabbitmq.url}


def run(command: Sequence[str], servers: Callable[[], AbstractContextManager[dict[str, str]]] = borrowed) -> int:
    """Runs a command with both URLs in its environment and returns its exit code (128 + n when signal n ended it)."""
    with servers() as urls:
        code = subprocess.run(command, env={**os.environ, **urls}, check=False).returncode
    return code if code >= 0 else 128 - code


def install(kind: Kind) -> None:
    """Installs the server's package when its program is missing; raises `Unavailable` where only a person can do that."""
    try:
        kind.program()
    except Unavailable as missing:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise Unavailable(
                f"{missing}, and no {kind.name} answers on port {kind.default_port}. Install it (Debian, Ubuntu: "
                f"sudo apt-get install {kind.package}; macOS: brew install {kind.package.removesuffix('-server')}), "
                f"or name one that runs: {kind.variable}={kind.default_url}"
            ) from missing
        # In run level 1 the package's scripts start no service: ours runs in a folder of its own.
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for step in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", kind.package]):
            print(f"apt-get {' '.join(step)}", file=sys.stderr, flush=True)
            subprocess.run(["apt-get", *step], env=env, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)


def controller(url: str, folder: Path = FOLDER) -> Callable[..., str] | None:
    """rabbitmqctl for the RabbitMQ at this URL, or None when it is not one that this machine's rabbitmqctl can reach.

    The callable takes rabbitmqctl's arguments, returns what it printed and raises `Unavailable` with its complaint.
    """
    parts = urlsplit(url)
    if parts.hostname not in (LOOPBACK, "localhost", "::1"):
        return None
    port = parts.port or RABBITMQ.default_port
    for record in folder.glob(f"**/{RABBITMQ.package}/server.json"):
        own = RabbitMQProcess(record.parent)
        if own.port == port and own.pid is not None:
            return own.control

    def control(*arguments: str) -> str:
        return run_rabbitmqctl(["rabbitmqctl", *arguments])

    try:
        listeners = json.loads(control("--quiet", "--formatter", "json", "status"))["listeners"]
    except (Unavailable, ValueError, KeyError):
        return None
    return control if any(listener.get("port") == port for listener in listeners) else None


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit code: the command's own for `run`, 1 when a server is not to be had, 2 for a wrong call."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that our servers end with us
    try:
        match list(arguments):
            case ["start"]:
                for variable, url in start().items():
                    print(f"export {variable}={url}")
            case ["stop"]:
                print("\n".join(f"{name} stopped" for name in stop()) or "nothing of ours was running")
            case ["run", "--", *command] if command:
                return run(command)
            case ["cluster", "--", *command] if command:
                return run(command, clustered)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except (BrieflineError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

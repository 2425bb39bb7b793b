"""One RabbitMQ or Redis of our own: an ordinary process on loopback, with its own port and folder.

The folder outlives the process: a server that is started again finds its data, and a later process finds the pid
that an earlier one wrote. This room never installs anything and never touches a server that it did not start.
Called by `ops.servers` and by the tests that stop, kill or pause a server.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from schemas.errors import Unavailable

OPS = Path(__file__).parent
REDIS_CONF = OPS / "redis" / "redis.conf"
RABBITMQ_CONF = OPS / "rabbitmq" / "rabbitmq.conf"
LOOPBACK = "127.0.0.1"
POLL_SECONDS = 0.05


_RANDOM = random.SystemRandom()
"""Not the shared generator: a test library seeds that one alike in every process, and all would draw the same ports."""


def free_port() -> int:
    """A TCP port of loopback that nothing listens on.

    It lies below the range from which systems draw the ports of outgoing connections: a client that calls a stopped
    server on a port of that range can, sooner or later, be connected to itself.
    """
    for port in _RANDOM.sample(range(20_000, 32_000), 200):
        if is_free(port):
            return port
    raise Unavailable("no free port between 20000 and 32000")


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of loopback now."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((LOOPBACK, port))
        return True
    return False


def redis_answers(host: str, port: int) -> bool:
    """Whether a Redis that is done loading (or one that asks for a password) answers there within a second."""
    return reply_of(host, port, b"PING\r\n").startswith((b"+PONG", b"-NOAUTH"))


def rabbitmq_answers(host: str, port: int) -> bool:
    """Whether an AMQP 0-9-1 broker sends its Connection.Start there within a second."""
    return reply_of(host, port, b"AMQP\x00\x00\x09\x01")[:3] == b"\x01\x00\x00"


def reply_of(host: str, port: int, greeting: bytes, size: int = 16) -> bytes:
    """The first bytes, `size` at most, that a server says to this greeting; none where it says nothing within a second."""
    try:
        with socket.create_connection((host, port), timeout=1) as line:
            line.sendall(greeting)
            return line.recv(size)
    except OSError:
        return b""


class OwnServer(ABC):
    """A server process with a folder and a port that both outlive it.

    `port` is kept in the folder: the next start, also by another process, uses the same one.
    """

    name: ClassVar[str]
    start_seconds: ClassVar[float] = 60.0
    stop_seconds: ClassVar[float] = 20.0

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder.absolute()
        self._children: list[subprocess.Popen[bytes]] = []
        self._record: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError):
            self._record = json.loads(self._record_file.read_bytes())
        self.port = port or self._record.get("port") or free_port()

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients reach it."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it can be used now."""

    @abstractmethod
    def _launch(self) -> dict[str, int]:
        """Starts its processes by `_spawn` and returns what to record: `pid`, perhaps a `companion` that ends with it, ports."""

    @property
    def pid(self) -> int | None:
        """The server's process id, or None when that process is gone (a pid used again by another program is not it)."""
        pid = self._record.get("pid")
        return pid if pid and _born(pid) == self._record.get("born") else None

    def start(self) -> None:
        """Starts it and returns once it answers; raises `Unavailable` with the end of its log when it does not."""
        if self.pid is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._record = {"port": self.port, **self._launch()}
        self._record |= {"born": _born(self._record["pid"]), "companion_born": _born(self._record.get("companion", 0))}
        self._record_file.write_text(json.dumps(self._record))
        give_up = time.monotonic() + self.start_seconds
        while not self.answers():
            if self.pid is None or time.monotonic() > give_up:
                self.stop()
                raise Unavailable(f"{self.name} did not start on port {self.port}. Its log ends with:\n{self._log_end()}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Ends it as an administrator would (SIGTERM), and by SIGKILL when it has not gone after `stop_seconds`."""
        self._end(signal.SIGTERM)

    def _end(self, sign: signal.Signals) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, sign)
            if not self._gone(pid, self.stop_seconds):
                os.killpg(pid, signal.SIGKILL)
                self._gone(pid, self.stop_seconds)
        companion = self._record.get("companion")
        if companion and _born(companion) == self._record.get("companion_born"):
            os.kill(companion, signal.SIGKILL)
            self._gone(companion, self.stop_seconds)
        for child in self._children:
            child.wait()
        self._children.clear()

    def _gone(self, pid: int, seconds: float) -> bool:
        born, give_up = _born(pid), time.monotonic() + seconds
        while _born(pid) == born and born:
            if time.monotonic() > give_up:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _spawn(self, command: Iterable[str | Path], env: Mapping[str, str] | None = None) -> int:
        # A session of its own: Ctrl-C at the terminal, or the end of the shell, does not reach it.
        with (self.folder / "server.log").open("ab") as log:
            child = subprocess.Popen(
                [str(part) for part in command],
                env=None if env is None else dict(env),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children.append(child)
        return child.pid

    @property
    def _record_file(self) -> Path:
        return self.folder / "server.json"

    def _log_end(self) -> str:
        return "\n".join((self.folder / "server.log").read_text(errors="replace").splitlines()[-15:])


class RedisProcess(OwnServer):
    """A Redis on the shipped configuration, whose data directory is the server's folder.

    `options` are further lines of redis.conf as pairs, such as `{"appendonly": "no"}`; they win over the file.
    """

    name = "Redis"

    def __init__(self, folder: Path, port: int | None = None, options: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, port)
        self.options = dict(options or {})

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    def answers(self) -> bool:
        return redis_answers(LOOPBACK, self.port)

    def _launch(self) -> dict[str, int]:
        lines = {"bind": LOOPBACK, "port": str(self.port), "dir": str(self.folder), **self.options}
        extra = [part for key, value in lines.items() for part in (f"--{key}", value)]
        return {"pid": self._spawn([redis_program(), REDIS_CONF, *extra])}


class RabbitMQProcess(OwnServer):
    """A RabbitMQ on the shipped configuration, with its own node name, cookie and port mapper.

    `options` are further lines of rabbitmq.conf as pairs, such as `{"consumer_timeout": "60000"}`; they win over the file.
    One that is `beside` another, which runs, joins its cluster as it starts for the first time, and uses its cookie and mapper.
    """

    name = "RabbitMQ"
    stop_seconds = 40.0

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        options: Mapping[str, str] | None = None,
        beside: RabbitMQProcess | None = None,
    ) -> None:
        super().__init__(folder, port)
        self.options = dict(options or {})
        self._beside = beside

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{LOOPBACK}:{self.port}/"

    def answers(self) -> bool:
        return rabbitmq_answers(LOOPBACK, self.port)

    def control(self, *arguments: str) -> str:
        """Runs rabbitmqctl on this node (about a second) and returns what it printed; raises `Unavailable` with its error."""
        return run_rabbitmqctl([str(rabbitmq_program().parent / "rabbitmqctl"), *arguments], self._environment())

    def _launch(self) -> dict[str, int]:
        self._record = {**self._record, "port_mapper": free_port(), "distribution": free_port()}
        if self._beside is not None:
            return self._launch_beside(self._beside)
        self._write_configuration()
        # A port mapper of our own leaves nothing behind, and no rabbitmqctl for another node can meet this one.
        # The Erlang machine would start one as a daemon that nobody ends.
        companion = self._spawn(["epmd", "-address", LOOPBACK, "-port", str(self._record["port_mapper"])])
        return {**self._record, "companion": companion, "pid": self._spawn([rabbitmq_program()], self._environment())}

    def _launch_beside(self, first: RabbitMQProcess) -> dict[str, int]:
        self._record["port_mapper"] = first._record["port_mapper"]
        nodes = {f"cluster_formation.classic_config.nodes.{n}": node.node_name for n, node in enumerate((first, self), 1)}
        self.options |= {"cluster_formation.peer_discovery_backend": "classic_config", **nodes}
        self._write_configuration()
        cookie = self.folder / ".erlang.cookie"
        cookie.unlink(missing_ok=True)
        cookie.write_bytes((first.folder / ".erlang.cookie").read_bytes())
        cookie.chmod(0o400)
        return {**self._record, "pid": self._spawn([rabbitmq_program()], self._environment())}

    @property
    def node_name(self) -> str:
        """Its name among Erlang's nodes."""
        return f"briefline-{self.port}@localhost"

    def _write_configuration(self) -> None:
        lines = dict(_settings_of(RABBITMQ_CONF))
        lines |= {"listeners.tcp.default": f"{LOOPBACK}:{self.port}", **self.options}
        (self.folder / "rabbitmq.conf").write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
        (self.folder / "enabled_plugins").write_text("[].\n")

    def _environment(self) -> dict[str, str]:
        folder = str(self.folder)
        return {
            "PATH": os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/sbin",
            "LANG": "C.UTF-8",
            "HOME": folder,  # Erlang makes its cookie there
            "ERL_EPMD_PORT": str(self._record["port_mapper"]),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "RABBITMQ_NODENAME": self.node_name,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_DIST_PORT": str(self._record["distribution"]),
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_PID_FILE": f"{folder}/rabbitmq.pid",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{folder}/advanced.config",
            "RABBITMQ_CONF_ENV_FILE": f"{folder}/rabbitmq-env.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            # With input allowed the start script becomes the Erlang machine instead of waiting beside it, so that
            # the pid we know is the server's; -noinput takes the shell away again. Idle schedulers must not spin.
            "RABBITMQ_ALLOW_INPUT": "1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput +sbwt none +sbwtdcpu none +sbwtdio none "
            "-kernel inet_dist_use_interface {127,0,0,1}",
        }


def redis_program() -> Path:
    """Where redis-server is; raises `Unavailable` when it is not installed."""
    return _program("redis-server", "/usr/bin/redis-server")


def rabbitmq_program() -> Path:
    """Where RabbitMQ's own start script is (Debian's in /usr/sbin changes the user first)."""
    return _program("rabbitmq-server", "/usr/lib/rabbitmq/bin/rabbitmq-server")


def run_rabbitmqctl(command: list[str], env: Mapping[str, str] | None = None) -> str:
    """Runs one rabbitmqctl command and returns its output; raises `Unavailable` with what it complained about."""
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"rabbitmqctl could not be run: {error}") from error
    if done.returncode:
        raise Unavailable(f"rabbitmqctl failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _program(name: str, usual: str) -> Path:
    found = usual if Path(usual).exists() else shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} is not installed")
    return Path(found)


def _settings_of(conf: Path) -> Iterable[tuple[str, str]]:
    for line in conf.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not key.lstrip().startswith("#"):
            yield key.strip(), value.strip()


def _born(pid: int) -> int:
    """When the process started, in the kernel's ticks (Linux; elsewhere 1 while it lives); 0 when it is gone or a zombie."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            return 1
        return 0
    return 0 if after_name[0] == "Z" else int(after_name[19])

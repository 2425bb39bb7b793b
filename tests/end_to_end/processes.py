"""Briefline's commands as processes of their own: started, waited for by what they log, killed by pid, and ended.

No test sleeps here: a reader thread hands every log line on as it comes. Used by the fixtures of this folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

import aio_pika
import orjson
import redis

from ops.blackboard.redis import RedisBlackboard
from ops.broker.memory import MemoryBroker
from ops.client import Client
from schemas.blackboard import Event

T = TypeVar("T")
ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 40.0
"""How long anything here may take before it counts as hung; two loaded cores start a worker in six seconds."""


class Process:
    """One `briefline` command that runs until it is ended. Its standard error is kept, and can be waited for."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str]) -> None:
        self.arguments = tuple(arguments)
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "ops", *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._popen.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._popen.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[bytes]) -> None:
        for line in stream:
            with self._changed:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def code(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self._popen.poll()

    @property
    def has_started(self) -> bool:
        """Whether it has begun to serve: before that, a signal ends it as it ends any program."""
        return bool(self.logged(f"{self.arguments[0]}_started"))

    @property
    def output(self) -> str:
        """All that it wrote, on both streams."""
        return "\n".join(self.lines)

    def wait_until_started(self) -> str:
        """Wait until it serves, and return the name under which it writes on the board."""
        return str(self.wait_for(f"{self.arguments[0]}_started")["name"])

    @property
    def name(self) -> str:
        """The name under which it writes on the board, once it serves."""
        return self.wait_until_started()

    def logged(self, event: str, **values: object) -> list[dict[str, Any]]:
        """Its log lines of this event so far that have these values."""
        found = (orjson.loads(line) for line in list(self.lines) if line.startswith("{"))
        return [line for line in found if line.get("event") == event and values.items() <= line.items()]

    def wait_for_line(self, text: str) -> None:
        """Wait until it has written this line."""
        self._wait(lambda: text in self.lines, text)

    def wait_for(self, event: str, **values: object) -> dict[str, Any]:
        """Return its first log line of this event with these values, as soon as there is one."""
        return self._wait(lambda: self.logged(event, **values), event)[0]

    def _wait(self, seen: Callable[[], T], what: str) -> T:
        give_up = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while not (found := seen()):
                left, ended = give_up - time.monotonic(), not self._reader.is_alive()
                assert left > 0 and not ended, f"{self.arguments}: no {what} ({'ended' if ended else 'hung'}); it wrote:\n{self.output}"
                self._changed.wait(min(left, 0.5))
        return found

    def send(self, sign: signal.Signals) -> None:
        """Send it a signal."""
        self._popen.send_signal(sign)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._popen.kill()
        self.wait()

    def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        code = self._popen.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        return code

    def end(self) -> int:
        """Tell it to end by SIGTERM, wait, and return its exit code."""
        self._popen.terminate()
        return self.wait()


@dataclass(frozen=True)
class Done:
    """What a command came to."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON value that it must be."""
        return orjson.loads(self.stdout)


class Commands:
    """Runs `briefline` commands to their end: each a process of its own, forked from one that has imported everything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def run(self, *arguments: str, environment: Mapping[str, str], input: bytes = b"", cwd: Path = ROOT) -> Done:
        """Run `briefline` with these arguments to its end."""
        self._number += 1
        stdin, stdout, stderr = (self._folder / f"{self._number}.{stream}" for stream in ("in", "out", "err"))
        stdin.write_bytes(input)
        asked = {"arguments": arguments, "environment": environment, "cwd": str(cwd)}
        asked |= {"stdin": str(stdin), "stdout": str(stdout), "stderr": str(stderr)}
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.write(json.dumps(asked).encode() + b"\n")
        self._popen.stdin.flush()
        code = int(self._popen.stdout.readline())
        return Done(code, stdout.read_text(), stderr.read_text())

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.end_to_end.preloaded"]
        self._popen = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._popen.communicate(timeout=PATIENCE_SECONDS)


@dataclass
class System:
    """Processes over one pair of servers, under names of a test's own. Leaving it ends them all.

    It fails when a process that nobody killed ended by itself, or ended otherwise than a process that is told to end should.
    """

    commands: Commands
    redis_url: str
    rabbitmq_url: str
    settings: dict[str, str] = field(default_factory=dict)
    key_prefix: str = field(default_factory=lambda: f"briefline-e2e-{secrets.token_hex(6)}")
    topology_prefix: str = field(default_factory=lambda: f"briefline.e2e.{secrets.token_hex(4)}")
    processes: list[Process] = field(default_factory=list)

    def environment(self, **settings: object) -> dict[str, str]:
        """The environment of a process: this system's names, its settings, and these."""
        given = {
            "redis_url": self.redis_url,
            "rabbitmq_url": self.rabbitmq_url,
            "key_prefix": self.key_prefix,
            "topology_prefix": self.topology_prefix,
            "artifacts_url": os.environ.get("BRIEFLINE_ARTIFACTS_URL") or "memory:",  # never a folder of the person's who runs tests
            "log_format": "json",
            **self.settings,
            **settings,
        }
        return {
            **os.environ,
            "NO_COLOR": "1",
            "COLUMNS": "200",
            **{f"BRIEFLINE_{name.upper()}": str(value) for name, value in given.items()},
        }

    def start(self, *arguments: str, **settings: object) -> Process:
        """Start a command, and do not wait."""
        process = Process(arguments, self.environment(**settings))
        self.processes.append(process)
        return process

    def worker(self, *arguments: str, **settings: object) -> Process:
        """Start a worker; `name` waits until it serves."""
        return self.start("worker", *arguments, **settings)

    def orchestrator(self, **settings: object) -> Process:
        """Start an orchestrator; `name` waits until it serves."""
        return self.start("orchestrator", **settings)

    def run(self, *arguments: str, input: bytes = b"", cwd: Path = ROOT, **settings: object) -> Done:
        """Run a command to its end."""
        return self.commands.run(*arguments, environment=self.environment(**settings), input=input, cwd=cwd)

    def json(self, *arguments: str, code: int = 0, **settings: object) -> Any:
        """Run a command with --json, to the exit code that is expected, and return what it printed."""
        done = self.commands.run(*arguments, "--json", environment=self.environment(**settings))
        assert done.code == code, done
        return done.json

    def wait(self, request_id: str) -> str:
        """Wait until a request is over, and return its status."""

        async def waited(board: RedisBlackboard) -> str:
            return await Client(board, MemoryBroker()).wait(request_id)

        return self._on_board(waited)

    def wait_for_event(self, request_id: str, **labels: str) -> Event:
        """Return the first event of a request with these labels, as soon as there is one."""

        async def seen(board: RedisBlackboard) -> Event:
            async with aclosing(board.watch(request_id, 0)) as events:
                async for event in events:
                    if labels.items() <= event.labels.items():
                        return event
            raise AssertionError("the events ended")

        return self._on_board(seen)

    def events(self, request_id: str, **labels: str) -> list[Event]:
        """A request's events so far with these labels, oldest first."""

        async def read(board: RedisBlackboard) -> list[Event]:
            return await board.events(request_id)

        return [event for event in self._on_board(read) if labels.items() <= event.labels.items()]

    def _on_board(self, ask: Callable[[RedisBlackboard], Coroutine[Any, Any, T]]) -> T:
        async def asked() -> T:
            async with RedisBlackboard(self.redis_url, prefix=self.key_prefix) as board, asyncio.timeout(PATIENCE_SECONDS):
                return await ask(board)

        return asyncio.run(asked())

    def waiting_messages(self, queue: str) -> int:
        """How many messages lie ready in a queue."""

        async def counted() -> int:
            async with await aio_pika.connect(self.rabbitmq_url) as connection:
                declared = await (await connection.channel()).declare_queue(f"{self.topology_prefix}.{queue}", passive=True)
                return declared.declaration_result.message_count or 0

        return asyncio.run(counted())

    def now_ms(self) -> int:
        """The board's time."""
        with redis.Redis.from_url(self.redis_url, socket_timeout=10) as client:
            seconds, micros = client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        running = [process for process in self.processes if process.code is None]
        for process in running:
            process.send(signal.SIGTERM)
        try:
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait()
        finally:
            hung = [process for process in self.processes if process.code is None]
            for process in hung:
                process.kill()
            self._forget()
        if error is None:
            assert not hung, f"did not end: {[process.arguments for process in hung]}"
            wrong = [process for process in running if process.code != 0 and process.has_started]
            assert not wrong, f"{wrong[0].arguments} ended with {wrong[0].code}:\n{wrong[0].output}"
            for process in self.processes:
                assert "Traceback" not in process.output, process.output

    def _forget(self) -> None:
        """Delete what the test left in Redis; its queues go with the virtual host."""
        with redis.Redis.from_url(self.redis_url, socket_timeout=10) as client:
            for key in client.scan_iter(match=f"{self.key_prefix}*", count=1000):
                client.delete(key)


def claims(shown: Any, step: str) -> list[dict[str, Any]]:
    """The claims of a step in what `show --json` printed, oldest first."""
    return [event for event in shown["timeline"] if event.get("event") == "step_claimed" and event["step"] == step]


def results(shown: Any) -> Iterator[str]:
    """The result fields that were written, once for each write."""
    for event in shown["timeline"]:
        yield from (name for name in event["fields"] if name.startswith("result/"))

"""Children by the dozen: `briefline` commands as processes of their own, forked in milliseconds, known by pid.

Used by the crash points and by the chaos run.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Child:
    """One process: its pid, what it writes, and its exit code (negative: the signal that ended it) once it has ended."""

    pid: int
    output: Path
    errors: Path
    ended: asyncio.Future[int]

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return not self.ended.done()

    def send(self, sign: signal.Signals) -> None:
        """Send it a signal; one that has ended by now hears nothing."""
        if self.runs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sign)

    async def kill(self) -> None:
        """End it by SIGKILL, also one that is stopped."""
        self.send(signal.SIGKILL)
        await asyncio.shield(self.ended)


class Nursery:
    """Forks children. Leaving its context ends them all."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[tuple[int, asyncio.Future[int]]]] = {}
        self._running: dict[int, asyncio.Future[int]] = {}

    async def start(self, *arguments: str, environment: Mapping[str, str]) -> Child:
        """Start a command, and return once it has a pid."""
        number = next(self._numbers)
        output, errors = self._folder / f"{number}.out", self._folder / f"{number}.err"
        asked = {"number": number, "arguments": arguments, "environment": dict(environment), "output": str(output), "errors": str(errors)}
        assert self._process.stdin is not None
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(orjson.dumps(asked) + b"\n")
        await self._process.stdin.drain()
        pid, ended = await answer
        return Child(pid, output, errors, ended)

    async def listen(self) -> None:
        """Take in what the forking process says, until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = orjson.loads(line)
            if "number" in said:
                ended = self._running[said["pid"]] = asyncio.get_running_loop().create_future()
                self._asked.pop(said["number"]).set_result((said["pid"], ended))
            else:
                self._running.pop(said["pid"]).set_result(said["code"])


@asynccontextmanager
async def nursery(folder: Path) -> AsyncIterator[Nursery]:
    """A nursery whose children write into `folder`."""
    _make(folder)
    command = (sys.executable, "-m", "tests.crash.forking")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe)
    made = Nursery(process, folder)
    listening = asyncio.create_task(made.listen(), name="nursery")
    try:
        yield made
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await listening


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)

"""Children: processes of the bench, known by their id; each is told to end when its block is left, and killed if it does not."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ops.bench.processes import tree

END_SECONDS = 15.0
PROGRAMS = Path(sys.executable).parent


def program(command: Sequence[str]) -> list[str]:
    """The command with its program from the environment that the bench runs in."""
    return [str(PROGRAMS / command[0]), *command[1:]]


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None, output: IO[str] = sys.stderr
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that writes to `output`, until the block is left; one that has ended by then is fine."""
    process = subprocess.Popen(program(command), env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield process
    finally:
        family = tree([process.pid])
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()

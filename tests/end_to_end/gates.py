"""A gate: where a running step waits, in a process of its own, until the test lets it go on. Nothing is polled."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.end_to_end.processes import PATIENCE_SECONDS


@dataclass
class Visitor:
    """A step that waits, in its attempt."""

    step: str
    attempt: int
    line: socket.socket

    def let_in(self, word: str) -> None:
        """Let the step end with this answer."""
        with self.line:
            self.line.sendall(f"{word}\n".encode())

    def is_gone(self) -> bool:
        """Wait until the step lets go, and say whether it did without being let in."""
        with self.line:
            return self.line.recv(1) == b""


class Gate:
    """A Unix socket; each step that runs connects and waits for a word."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listening = socket.socket(socket.AF_UNIX)

    def visitor(self) -> Visitor:
        """Wait for the next step, in the order of their coming."""
        line, _ = self._listening.accept()
        line.settimeout(PATIENCE_SECONDS)
        said = b""
        while not said.endswith(b"\n"):
            said += line.recv(100)
        step, attempt = said.decode().split()
        return Visitor(step, int(attempt), line)

    @property
    def constraint(self) -> tuple[str, str]:
        """How a request names this gate on the command line."""
        return ("--constraint", f"gate={self.path}")

    def __enter__(self) -> Self:
        self._listening.bind(str(self.path))
        self._listening.listen()
        self._listening.settimeout(PATIENCE_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listening.close()

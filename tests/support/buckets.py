"""An S3 server of the test's own: moto's, which keeps buckets in memory and speaks the protocol over HTTP on loopback.

It checks no signature, so rights are not tested here; what is tested is the protocol, the answers and the errors.
"""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import threading
from types import TracebackType
from typing import IO, Self


class OwnBuckets:
    """A server as a process; it says where it listens, is stopped for good by `kill`, and forgets everything."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; it listens when this returns."""
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        said: list[str] = []
        for line in self._process.stderr:
            said.append(line)
            if found := re.search(r"Running on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise AssertionError(f"no S3 server: {''.join(said)}")
        self._reader = threading.Thread(target=_drain, args=(self._process.stderr,), daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            self._process = None

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request past our client; `path` begins with the bucket."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()


def _drain(stream: IO[str]) -> None:
    """A pipe that nobody reads stops who writes to it."""
    with stream:
        for _ in stream:
            pass

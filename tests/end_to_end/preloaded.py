"""A process that has imported the command line once, and forks for each command: the same `main`, without 0.7 s of imports.

Every command is still a process of its own, with its own environment, folder, standard streams and exit code. It is asked by
one line of JSON on standard input at a time, and answers with the exit code. Started by `tests.end_to_end.processes`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any

from ops import cli

_NEEDED = ("checking", "dead", "demo", "exits", "requests", "serving")


def _command(asked: dict[str, Any]) -> int:
    """Become the command: streams, environment, folder; then run it as its entry point does."""
    for stream, (path, flags) in enumerate(
        ((asked["stdin"], os.O_RDONLY), (asked["stdout"], os.O_WRONLY | os.O_CREAT), (asked["stderr"], os.O_WRONLY | os.O_CREAT))
    ):
        os.dup2(os.open(path, flags), stream)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["cwd"])
    sys.argv = ["briefline", *asked["arguments"]]
    try:
        cli.main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> None:
    """Import what the commands import when they are called; then fork for each line, until there are no more."""
    for name in _NEEDED:
        importlib.import_module(f"ops.commands.{name}")
    importlib.import_module("workers.teams.bitmall.team")
    for line in iter(sys.stdin.buffer.readline, b""):
        pid = os.fork()
        if pid == 0:
            os._exit(_command(json.loads(line)))
        _, status = os.waitpid(pid, 0)
        sys.stdout.buffer.write(b"%d\n" % os.waitstatus_to_exitcode(status))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

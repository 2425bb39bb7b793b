"""A process that has imported the command line once, and forks one child for each command that it is asked for.

Asked by lines of JSON on standard input; answers with lines of JSON: the pid of each child, and the end of each. When
standard input ends, so do its children. Started by `tests.crash.nursery`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
import traceback
from typing import Any

import ops.broker.rabbitmq
import ops.commands.dead
import ops.commands.requests
import ops.commands.serving  # noqa: F401 - like the rooms around it, imported for the children
import tests.crash.teams  # noqa: F401 - the same
from ops import cli


def _become(asked: dict[str, Any]) -> int:
    """Become the command: streams and environment; then run it as its entry point does."""
    for stream, (path, flags) in enumerate(((os.devnull, os.O_RDONLY), (asked["output"], os.O_WRONLY), (asked["errors"], os.O_WRONLY))):
        os.dup2(os.open(path, flags | os.O_CREAT | os.O_APPEND), stream)
    os.environ.clear()
    os.environ.update(asked["environment"])
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


def _say(**what: int) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def _reap(children: set[int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            children.discard(pid)
            _say(pid=pid, code=os.waitstatus_to_exitcode(status))


def main() -> None:
    """Fork for each line, and say when a child has ended, until there are no more lines."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking)
    children: set[int] = set()
    rest = b""
    gc.freeze()
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 1000)
            _reap(children)
        if 0 in ready:
            said = os.read(0, 1 << 16)
            if not said:
                break
            *lines, rest = (rest + said).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os.close(woken)
                    os.close(waking)
                    os._exit(_become(asked))
                children.add(pid)
                _say(pid=pid, number=asked["number"])
    for pid in children:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()

"""Processes as the kernel tells of them (Linux): CPU time and memory by process id, and how busy the machine was."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def tree(pids: Iterable[int]) -> list[int]:
    """These processes and all that descend from them, as far as they live."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in (PROC / str(pid) / "task").iterdir():
                found += tree(map(int, (thread / "children").read_text().split()))
            found.append(pid)
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of these processes, with that of their children that have ended; one that is gone counts nothing."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / TICKS


def peak_rss_mib(pid: int) -> float:
    """The most memory that the process has held at a time, in MiB; 0 when it is gone."""
    return _status_mib(pid, "VmHWM")


def rss_mib(pid: int) -> float:
    """The memory that the process holds now, in MiB; 0 when it is gone."""
    return _status_mib(pid, "VmRSS")


def _status_mib(pid: int, line: str) -> float:
    with contextlib.suppress(OSError):
        found = re.search(rf"^{line}:\s+(\d+) kB", (PROC / str(pid) / "status").read_text(), re.MULTILINE)
        return int(found[1]) / 1024 if found else 0.0
    return 0.0


def machine_cpu_seconds() -> float:
    """CPU time that everything on this machine has taken since it started."""
    user, nice, system, _idle, _wait, interrupts, soft_interrupts = _machine()[:7]
    return (user + nice + system + interrupts + soft_interrupts) / TICKS


def _machine() -> Sequence[int]:
    return [int(word) for word in (PROC / "stat").read_text().splitlines()[0].split()[1:]]

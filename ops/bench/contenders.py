"""Contenders by name: where each is found, what it can do, and under which settings it runs."""

from __future__ import annotations

from dataclasses import dataclass

CASES = ("chain", "diamond", "facts")


@dataclass(frozen=True)
class Contender:
    """One contender: its room under `ops.bench.peers`, what it is called, and how it is set."""

    room: str
    title: str
    settings: str
    cases: tuple[str, ...] = ("chain", "diamond")
    kind: str = ""
    """Which of several the room holds; it hears of it by the environment variable BENCH_KIND."""


CONTENDERS = {
    "briefline": Contender("on_briefline", "Briefline", "orchestrator and workers as processes of their own", CASES),
    "celery": Contender("on_celery", "Celery", "late acks, quorum queue, confirms, results in Redis"),
    "embedded": Contender("in_briefline", "Briefline, embedded", "one process, no server", CASES),
}

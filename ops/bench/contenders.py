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
    in_process: bool = False
    """Whether it runs in the client's process, without a server."""
    kind: str = ""
    """Which of several the room holds; it hears of it by the environment variable BENCH_KIND."""


CONTENDERS = {
    "briefline": Contender(
        "on_briefline", "Briefline", "orchestrator and two workers as processes, by the command line; nothing set", CASES
    ),
    "celery": Contender("on_celery", "Celery", "late acks, rejection on a lost worker, quorum queue, confirms; two child processes"),
    "taskiq": Contender("on_taskiq", "taskiq", "quorum queue, confirms (its defaults), taskiq-pipelines; two processes"),
    "dramatiq": Contender("on_dramatiq", "dramatiq", "classic queue (it knows no other), confirms; two processes of eight threads"),
    "faststream": Contender(
        "on_faststream", "FastStream, chained by hand", "quorum queues, confirms; only the last result is kept; two processes"
    ),
    "aio-pika": Contender(
        "on_aio_pika", "aio-pika, chained by hand", "quorum queues, confirms; only the last result is kept; two processes"
    ),
    "embedded": Contender("in_briefline", "Briefline, embedded", "one process, no server, nothing survives it", CASES, in_process=True),
    "langgraph": Contender(
        "in_langgraph", "LangGraph, in memory", "one process, a checkpoint after each step", in_process=True, kind="memory"
    ),
    "langgraph-sqlite": Contender(
        "in_langgraph", "LangGraph, SQLite", "one process, a checkpoint on disk after each step", in_process=True, kind="sqlite"
    ),
    "autogen": Contender("in_autogen", "autogen-core", "one process, nothing is kept", in_process=True),
    "llama-index": Contender("in_llama_index", "llama-index-workflows", "one process, nothing is kept", in_process=True),
}

OURS = {False: "briefline", True: "embedded"}
"""Which of ours is held beside a contender: on servers, or in one process."""

"""Rounds of figures as a run brings them, with numbers that are easy to follow."""

from __future__ import annotations

from ops.bench.contenders import CASES, CONTENDERS
from ops.bench.figures import Figures
from ops.bench.rendering import Conditions
from ops.bench.running import Plan


def figures(cpu_ms: float = 10.0, rate: float = 100.0, alone_ms: float = 20.0, rss_mib: float = 50.0) -> Figures:
    """Figures of 100 requests with these values."""
    return Figures(
        requests=100,
        seconds=100 / rate,
        single_p50_ms=alone_ms,
        single_p99_ms=2 * alone_ms,
        loaded_p50_ms=10 * alone_ms,
        loaded_p99_ms=20 * alone_ms,
        cpu_seconds={"client": 0.25 * cpu_ms / 10, "workers": 0.75 * cpu_ms / 10},
        worker_rss_mib=rss_mib,
        all_rss_mib=3 * rss_mib,
        foreign_cores=0.1,
    )


def whole() -> dict[str, dict[str, list[Figures]]]:
    """Three rounds of every contender in every case; ours takes half of what each of the others takes, twice as fast."""
    ours, theirs = figures(cpu_ms=5.0, rate=200.0, alone_ms=10.0), figures()
    return {
        case: {name: 3 * [ours if "briefline" in each.room else theirs] for name, each in CONTENDERS.items() if case in each.cases}
        for case in CASES
    }


CONDITIONS = Conditions(
    plan=Plan(tuple(CONTENDERS), CASES, pairs=3, requests=100, singles=20, window=32),
    machine="2 cores",
    versions={"RabbitMQ": "3.10.8", "celery": "5.7.0"},
    foreign_cores=0.1,
    seconds=300.0,
)

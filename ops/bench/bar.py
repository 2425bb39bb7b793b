"""The bar: what is asked of the runtime beside what others cost, row by row, and whether a run meets it. Pure.

Every row has a key in build/bench.json. A ratio is the median of the ratios within each round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ops.bench.figures import Figures, ratios

_FIGURES: dict[str, tuple[str, Callable[[Figures], float]]] = {
    "cpu": ("CPU a request", lambda each: each.cpu_ms_per_request),
    "rate": ("requests/s", lambda each: each.requests_per_second),
    "alone": ("one request alone, p50", lambda each: each.single_p50_ms),
}


@dataclass(frozen=True)
class Row:
    """One row: a value that has to be at most, or at least, the bar. Without values this run did not measure it."""

    key: str
    title: str
    bar: float
    at_most: bool
    values: tuple[float, ...] = ()
    unit: str = ""
    worst: bool = False
    """The largest of the values counts, where a promise holds each time; else their median."""

    @property
    def value(self) -> float | None:
        """What the run came to."""
        if not self.values:
            return None
        return max(self.values) if self.worst else statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether that is enough."""
        if self.value is None:
            return None
        return self.value <= self.bar if self.at_most else self.value >= self.bar

    def as_json(self) -> dict[str, Any]:
        """The row as a JSON object; `value` and `met` are null where it was not measured."""
        return {
            "title": self.title,
            "value": self.value,
            "bar": self.bar,
            "at_most": self.at_most,
            "met": self.met,
            "values": list(self.values),
        }


_RATIOS = (  # figure, case, ours, theirs, bar, whether at most
    ("cpu", "chain", "briefline", "celery", 0.45, True),
    ("cpu", "diamond", "briefline", "celery", 0.32, True),
    ("cpu", "chain", "briefline", "faststream", 0.95, True),
    ("cpu", "diamond", "briefline", "faststream", 0.75, True),
    ("cpu", "chain", "briefline", "dramatiq", 1.0, True),
    ("cpu", "diamond", "briefline", "dramatiq", 0.8, True),
    ("rate", "chain", "briefline", "celery", 2.2, False),
    ("rate", "diamond", "briefline", "celery", 3.0, False),
    ("alone", "chain", "briefline", "celery", 1.0, True),
    ("alone", "diamond", "briefline", "celery", 0.65, True),
    ("rate", "chain", "embedded", "langgraph", 2.0, False),
    ("rate", "diamond", "embedded", "langgraph", 2.0, False),
    ("rate", "chain", "embedded", "autogen", 1.0, False),
    ("rate", "diamond", "embedded", "autogen", 1.0, False),
)
MEASURES = {
    "killed_worker_seconds": Row(
        "killed_worker_seconds", "kill -9 of a worker to the restart of its step", 6.0, True, unit="s", worst=True
    ),
    "broker_back_seconds": Row("broker_back_seconds", "broker back to the first new result", 3.0, True, unit="s", worst=True),
    "worker_rss_mib": Row("worker_rss_mib", "largest worker process, no-op agents", 80.0, True, unit="MiB"),
    "help_wall": Row("help_wall", "wall of briefline --help / python -c 'import pydantic_ai'", 0.5, True),
}
"""The rows that are no ratio of two contenders: how they are called and what is asked, without values."""


def measured(rounds: Mapping[str, Mapping[str, Sequence[Figures]]], measures: Mapping[str, Sequence[float]] | None = None) -> list[Row]:
    """All rows of the bar. `rounds` is case -> contender -> its figures; `measures` has the values of the rows that are no ratio."""
    rows = [_ratio(rounds, *each) for each in _RATIOS]
    given = {"worker_rss_mib": [each.worker_rss_mib for each in rounds.get("chain", {}).get("briefline", ())], **(measures or {})}
    return rows + [replace(row, values=tuple(given.get(key, ()))) for key, row in MEASURES.items()]


def _ratio(
    rounds: Mapping[str, Mapping[str, Sequence[Figures]]], figure: str, case: str, ours: str, theirs: str, bar: float, at_most: bool
) -> Row:
    words, what = _FIGURES[figure]
    found = rounds.get(case, {})
    values = ratios(found[ours], found[theirs], what) if ours in found and theirs in found else []
    return Row(f"{figure}_{case}_{ours}_{theirs}", f"{words}, {case}: {ours} / {theirs}", bar, at_most, tuple(values))

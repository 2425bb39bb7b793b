"""Rendering: figures and ratios as Markdown tables and as JSON. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ops.bench.bar import Row
from ops.bench.contenders import CONTENDERS, OURS
from ops.bench.figures import SHARES, Figures, median_of, ratios
from ops.bench.running import Plan

QUIET_CORES = 0.2

Rounds = Mapping[str, Mapping[str, Sequence[Figures]]]


@dataclass(frozen=True)
class Column:
    """One figure: its heading, where it is found, how many digits it has, and whether a ratio of it says anything."""

    head: str
    what: Callable[[Figures], float]
    digits: int
    compared: bool = True


COLUMNS = (
    Column("CPU ms a request", lambda each: each.cpu_ms_per_request, 1),
    Column("requests/s", lambda each: each.requests_per_second, 0),
    Column("alone p50 ms", lambda each: each.single_p50_ms, 1),
    Column("alone p99 ms", lambda each: each.single_p99_ms, 1),
    Column("loaded p50 ms", lambda each: each.loaded_p50_ms, 0),
    Column("loaded p99 ms", lambda each: each.loaded_p99_ms, 0),
    Column("RSS MiB, all", lambda each: each.all_rss_mib, 0),
    Column("RSS MiB, largest worker", lambda each: each.worker_rss_mib, 0, compared=False),
    Column("foreign cores", lambda each: each.foreign_cores, 2, compared=False),
)


@dataclass(frozen=True)
class Conditions:
    """Under which a run's figures stand."""

    plan: Plan
    machine: str
    versions: Mapping[str, str]
    foreign_cores: float
    seconds: float

    @property
    def is_quiet(self) -> bool:
        """Whether little else ran: otherwise absolute figures say little, and ratios of rates less than those of CPU."""
        return self.foreign_cores <= QUIET_CORES


def foreign_cores(rounds: Rounds) -> float:
    """The median of what other processes of the machine took, over all rounds."""
    return statistics.median(each.foreign_cores for found in rounds.values() for several in found.values() for each in several)


def cases_table(rounds: Rounds) -> str:
    """A table for each case: medians over the rounds, a row for each contender."""
    return "\n\n".join(f"### {case}\n\n{_figures(found)}" for case, found in rounds.items() if found)


def _figures(found: Mapping[str, Sequence[Figures]]) -> str:
    heads = ["", COLUMNS[0].head, " + ".join(SHARES), *(column.head for column in COLUMNS[1:])]
    rows = []
    for name, each in found.items():
        cpu, *rest = (f"{median_of(each, column.what):.{column.digits}f}" for column in COLUMNS)
        rows.append([CONTENDERS[name].title, cpu, _shares(name, each), *rest])
    return table(heads, rows)


def _shares(name: str, rounds: Sequence[Figures]) -> str:
    if CONTENDERS[name].in_process:
        return "one process"

    def of(share: str) -> float:
        return median_of(rounds, lambda each: each.share_ms(share))

    return " + ".join(f"{of(share):.1f}" for share in SHARES)


def ratios_table(rounds: Rounds) -> str:
    """Ours over theirs, median of the rounds: on servers over those on servers, embedded over those in one process."""
    compared = [column for column in COLUMNS if column.compared]
    rows = []
    for case, found in rounds.items():
        for name, theirs in found.items():
            ours = OURS[CONTENDERS[name].in_process]
            if name != ours and ours in found:
                values = (statistics.median(ratios(found[ours], theirs, column.what)) for column in compared)
                rows.append([f"{case}: {ours} / {name}", *(f"{value:.2f}" for value in values)])
    return table(["", *(column.head.partition(" ms")[0] for column in compared)], rows)


def bar_table(rows: Iterable[Row]) -> str:
    """What is asked for and what this run came to; what it did not measure is left out."""
    return table(("", "measured", "least to most", "asked for", "met"), [_line(row) for row in rows if row.value is not None])


def _line(row: Row) -> tuple[str, ...]:
    sign = "≤" if row.at_most else "≥"
    spread = f"{min(row.values):.2f} to {max(row.values):.2f}" if len(row.values) > 1 else ""
    unit = f" {row.unit}" if row.unit else ""
    return (row.title, f"{row.value:.2f}{unit}", spread, f"{sign} {row.bar:g}{unit}", "yes" if row.met else "no")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, a line for each row."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *rows))


def as_json(rows: Iterable[Row], rounds: Rounds, conditions: Conditions) -> dict[str, Any]:
    """The run as a JSON object: `ratios` has a key for each row of the bar, `cases` an entry for each contender and case."""
    cases = [
        {
            "case": case,
            "contender": name,
            "title": CONTENDERS[name].title,
            "medians": {column.head: median_of(each, column.what) for column in COLUMNS},
            "rounds": [figures.as_json() for figures in each],
        }
        for case, found in rounds.items()
        for name, each in found.items()
    ]
    plan = conditions.plan
    run = {
        "pairs": plan.pairs,
        "requests": plan.requests,
        "singles": plan.singles,
        "window": plan.window,
        "machine": conditions.machine,
        "versions": dict(conditions.versions),
        "foreign_cores": conditions.foreign_cores,
        "seconds": conditions.seconds,
    }
    return {"ratios": {row.key: row.as_json() for row in rows}, "cases": cases, "run": run}

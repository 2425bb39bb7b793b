"""Rendering: figures as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ops.bench.bar import Row
from ops.bench.contenders import CONTENDERS
from ops.bench.figures import SHARES, Figures, median_of

_COLUMNS: tuple[tuple[str, Callable[[Figures], float], str], ...] = (
    ("CPU ms/request", lambda each: each.cpu_ms_per_request, ".1f"),
    ("requests/s", lambda each: each.requests_per_second, ".0f"),
    ("alone p50 ms", lambda each: each.single_p50_ms, ".1f"),
    ("alone p99 ms", lambda each: each.single_p99_ms, ".1f"),
    ("loaded p50 ms", lambda each: each.loaded_p50_ms, ".0f"),
    ("loaded p99 ms", lambda each: each.loaded_p99_ms, ".0f"),
    ("worker RSS MiB", lambda each: each.worker_rss_mib, ".0f"),
    ("all RSS MiB", lambda each: each.all_rss_mib, ".0f"),
    ("foreign cores", lambda each: each.foreign_cores, ".2f"),
)


def cases_table(rounds: Mapping[str, Mapping[str, Sequence[Figures]]]) -> str:
    """A table for each case: medians over the rounds, a row for each contender."""
    return "\n\n".join(f"### {case}\n\n{_case(found)}" for case, found in rounds.items() if found)


def _case(found: Mapping[str, Sequence[Figures]]) -> str:
    heads = ["", _COLUMNS[0][0], " + ".join(SHARES), *(head for head, _, _ in _COLUMNS[1:])]
    rows = []
    for name, each in found.items():
        cpu, *rest = (f"{median_of(each, what):{form}}" for _, what, form in _COLUMNS)
        rows.append([CONTENDERS[name].title, cpu, _shares(each), *rest])
    return table(heads, rows)


def _shares(rounds: Sequence[Figures]) -> str:
    return " + ".join(f"{median_of(rounds, lambda each, share=share: each.share_ms(share)):.1f}" for share in SHARES)  # type: ignore[misc]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, a line for each row."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *rows))


def bar_table(rows: Iterable[Row]) -> str:
    """What is asked for and what this run came to; what it did not measure is left out."""
    return table(("", "measured", "least to most", "asked for", "met"), [_line(row) for row in rows if row.value is not None])


def _line(row: Row) -> tuple[str, ...]:
    sign = "≤" if row.at_most else "≥"
    spread = f"{min(row.values):.2f} to {max(row.values):.2f}" if len(row.values) > 1 else ""
    unit = f" {row.unit}" if row.unit else ""
    return (row.title, f"{row.value:.2f}{unit}", spread, f"{sign} {row.bar:g}{unit}", "yes" if row.met else "no")

"""The crash matrix: every point, what came of a crash there on real servers and in memory, as a table of `docs/guarantees.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.crash.points import names
from tests.crash.running import Tried
from tests.simulation.runs import simulate
from tests.simulation.worlds import Wanted

GUARANTEES = Path(__file__).parent.parent.parent / "docs" / "guarantees.md"
FIRST_SEED = 30_000
SEEDS = 1_000
ENOUGH = 3
"""Crashes at one point in the simulation."""

_PRODUCER = ("enter:request", "write:request_opened", "recent_add:request", "publish:submit")
_AT_THE_DESK = ("publish:retract", "publish:decide", "publish:rules")
_BOUNDARY = ("changes_absorbed", "retracted", "stale_found", "rechecked", "decided", "rules_changed", "retract", "decide", "rules")
"""Steps that only worlds with shared fields, and a person at the desk, have often."""
_NO_KIND = ("enter", "mark", "leave", "settle", "due", "renew", "dead_add", "dead_remove", "recent_add", "park")


def simulated(point: str) -> str:
    """Return the name of the same point in the simulation."""
    role, call, what, side = point.split(":")
    who = "producer" if role == "client" and f"{call}:{what}" in _PRODUCER else role
    who = "reviewer" if role == "client" and f"{call}:{what}" in _AT_THE_DESK else who
    if call in _NO_KIND:
        return f"{who}.{call}:{side}"
    if call in ("declare", "resize"):  # its way there is one step; it has no after of its own
        return f"{who}.{'declare_agent' if call == 'declare' else 'resize'}:before"
    return f"{who}.{call}.{what if call == 'write' else what.removesuffix('_early').upper()}:{side}"


def in_memory(point: str) -> tuple[int, int]:
    """Crash at a point of the simulation until it is enough; return how many crashes there were, and how many runs broke a promise."""
    crashes = broken = 0
    wanted = Wanted(crash_at=simulated(point), boundary=point.split(":")[2] in _BOUNDARY)
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        run = simulate(seed, wanted)
        crashes += run.crashed_at[simulated(point)]
        broken += bool(run.violations)
        if crashes >= ENOUGH:
            break
    return crashes, broken


def table(tried: Iterable[Tried], memory: dict[str, tuple[int, int]]) -> str:
    """Return the matrix as Markdown, a line for each step with both of its sides."""
    outcomes: dict[str, Counter[str]] = {}
    stories: dict[str, set[str]] = {}
    for each in tried:
        for point in each.trial.points[: max(each.died, 1)]:
            plain = ":".join(point.split(":")[:4])
            outcomes.setdefault(plain, Counter())[each.outcome] += 1
            stories.setdefault(plain, set()).add(each.trial.scenario)
    rows = ["| who dies | step | story | before it, on servers | after it, on servers | before it, in memory | after it, in memory |"]
    rows += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for step in dict.fromkeys(point.rpartition(":")[0] for point in sorted(names())):
        role, call, what = step.split(":")
        sides = [f"{step}:{side}" for side in ("before", "after")]
        told = ", ".join(sorted(set().union(*(stories.get(side, set()) for side in sides))))
        servers = [_servers(outcomes.get(side, Counter())) for side in sides]
        rows.append(
            " | ".join((f"| {role}", f"{call} {what}", told, *servers, *(_memory(*memory.get(side, (0, 0))) for side in sides))) + " |"
        )
    return "\n".join(rows)


def _servers(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcome} {count}" for outcome, count in sorted(outcomes.items())) or "not tried"


def _memory(crashes: int, broken: int) -> str:
    if broken:
        return f"BROKEN {broken}"
    return f"recovered {crashes}" if crashes else "not reached"


def steps_in(text: str) -> set[tuple[str, str]]:
    """Return role and step of every line of the matrix in a document."""
    rows = (line.split(" | ") for line in between(text, "crash matrix").splitlines()[2:])
    return {(cells[0].removeprefix("| "), cells[1]) for cells in rows}


def between(text: str, name: str) -> str:
    """Return what stands between the markers of a generated part."""
    begin, end = _markers(name)
    return text.partition(begin)[2].partition(end)[0].strip()


def put_between(path: Path, name: str, made: str) -> None:
    """Write a generated part into a document."""
    begin, end = _markers(name)
    text = path.read_text(encoding="utf-8")
    before, found, rest = text.partition(begin)
    assert found, f"{path.name} has no markers for the {name}"
    path.write_text(f"{before}{begin}\n{made}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- {name}: generated from here -->", f"<!-- {name}: to here -->"


def figures(tried: Sequence[Tried]) -> dict[str, int]:
    """Return what a run came to, in numbers."""
    return {
        "points": len({point for each in tried for point in each.trial.points}),
        "trials": len(tried),
        "crashes": sum(each.died for each in tried),
        "failed": sum(each.outcome != "recovered" for each in tried),
    }

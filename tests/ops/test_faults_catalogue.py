"""The fault catalogue is whole: every fault stands in it once, and what is said to be held is held by tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAULTS = [f"F{number:02d}" for number in range(1, 68)]
CANNOT_HAPPEN = {"F17"}
"""Nothing that Briefline offers can be hit by these, so no test could show anything."""


def _rows() -> list[list[str]]:
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if re.match(r"\| F\d\d \|", line)]


def _tests_in(folder: Path) -> set[str]:
    """The names of all test functions, read from the syntax: a name in a comment or a text is no test."""
    found = set()
    for module in folder.rglob("test_*.py"):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found.add(node.name)
    return found


def test_every_fault_stands_here_once_and_is_held_by_a_test_or_says_why_not() -> None:
    rows = _rows()
    assert [row[0] for row in rows] == FAULTS
    tests = _tests_in(ROOT / "tests")
    for number, fault, answer, held in rows:
        assert fault and answer, number
        named = re.findall(r"`(test_\w+)`", held)
        assert set(named) <= tests, (number, set(named) - tests)
        if number in CANNOT_HAPPEN:
            assert not named and answer.startswith("not possible: "), number
        else:
            assert named and len(set(named)) == len(named), number


def test_every_test_of_this_catalogue_is_named_in_it() -> None:
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    aside = {"test_a_loop_that_is_only_busy_is_not_reported_and_the_watchdog_ends_with_its_block"}
    assert _tests_in(ROOT / "tests" / "faults") - set(re.findall(r"`(test_\w+)`", text)) == aside


def test_what_a_test_names_as_its_fault_is_one_of_the_catalogue() -> None:
    """Tests that name a fault in a comment behind their signature name one that exists."""
    named = set()
    for module in (ROOT / "tests").rglob("test_*.py"):
        named |= set(re.findall(r"\bF\d\d\b", " ".join(re.findall(r"# (F\d\d(?:, F\d\d)*)", module.read_text(encoding="utf-8")))))
    assert named <= set(FAULTS) and len(named) > 20

"""The page on the boundary says what the code does: the gate's reasons and repairs, the formulas of the metrics, what an audit finds."""

from __future__ import annotations

import re
from pathlib import Path

from ops.brief_checks import Kind
from ops.metrics import FORMULAS
from schemas.facts import Provenance
from schemas.gate import REPAIRS, BoundaryRules, Consumer, Offer, Reason, decide
from schemas.packets import Control, Packet
from schemas.packets import Kind as PacketKind

PAGE = (Path(__file__).parents[2] / "docs" / "boundary.md").read_text(encoding="utf-8")


def rows(section: str) -> list[list[str]]:
    """The table of a section, row by row."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_the_page_names_every_reason_of_the_gate_and_its_repair() -> None:
    assert {name: repair for name, _, repair in rows("The gate")} == {reason.value: repair for reason, repair in REPAIRS.items()}


def test_the_page_names_the_reasons_in_the_order_in_which_the_gate_asks() -> None:
    provenance = Provenance(step="a", tool="t", call_id="c", path="p")
    offer = Offer(Packet(kind=PacketKind.FACT, key="k", payload=1, control=Control(producer="a", provenance=provenance)), artifact=True)
    checks = decide(offer, Consumer("b"), now_ms=0, rules=BoundaryRules()).checks
    asked = list(dict.fromkeys(Reason.STALE if each.name == "freshness" else REASONS.get(each.name, each.reason) for each in checks))
    assert [name for name, _, _ in rows("The gate")] == asked


REASONS = {"use": Reason.NO_PERMISSION, "trust": Reason.UNTRUSTED}
"""Of checks that name a reason only where they do not pass."""


def test_the_page_gives_the_formula_of_every_metric() -> None:
    assert rows("Metrics") == [[name, formula.part, formula.whole] for name, formula in FORMULAS.items()]


def test_the_page_says_what_every_finding_of_an_audit_is() -> None:
    assert [name for name, _ in rows("Audit")] == [kind.value for kind in Kind]


def test_a_reason_that_is_missing_on_the_page_would_be_found() -> None:
    assert len(rows("The gate")) == len(Reason) == 12
    assert re.search(r"^\| `stale` \|", PAGE, re.MULTILINE)

"""Boundary tables: the gate's decisions, metrics and the audit as tables for a terminal. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ops.auditing import Audit
from ops.deciding import Decisions, answers
from ops.metrics import FORMULAS, Formula, Measure, Metrics
from ops.trails import Trail
from schemas.gate import Check, Crossing, Outcome

_OUTCOME_STYLE = {Outcome.PASS: "green", Outcome.REFERENCE: "green", Outcome.COMPRESS: "yellow", Outcome.BLOCK: "red"}


def crossings_tree(decisions: Sequence[Decisions]) -> RenderableType:
    """Each attempt, what was offered to it, the five answers and every check with value and reason."""
    if not decisions:
        return Text("no step was claimed yet, so nothing was offered to any", style="dim")
    return Group(*(_attempt_tree(each) for each in decisions))


def _attempt_tree(decided: Decisions) -> Tree:
    attempt = decided.attempt
    tree = Tree(Text.assemble((attempt.step, "bold"), f"  claimed at event {attempt.position}"))
    if decided.as_decided is False:
        tree.add(Text("not as it was decided: the team has changed since", style="yellow"))
    if attempt.left_out:
        tree.add(Text(f"{attempt.left_out} decisions had no room in the event; they are rebuilt here", style="dim"))
    if not decided.crossings:
        tree.add(Text("nothing was offered", style="dim"))
    for crossing in decided.crossings:
        _add_crossing(tree, crossing)
    return tree


def _add_crossing(tree: Tree, crossing: Crossing) -> None:
    said = str(crossing.outcome) if crossing.reason is None else f"{crossing.outcome}: {crossing.reason}"
    branch = tree.add(Text.assemble((crossing.need, "bold"), f"  {crossing.kind}  ", (said, _OUTCOME_STYLE[crossing.outcome])))
    for question, answer in answers(crossing):
        branch.add(Text.assemble((f"{question}: ", "dim"), answer))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for check in crossing.checks:
        table.add_row(
            Text("✔" if check.passed else "✘", style="green" if check.passed else "red"), check.name, Text(check.value), _why(check)
        )
    branch.add(table)


def _why(check: Check) -> Text:
    return Text("" if check.passed or check.reason is None else check.reason.value, style="red")


def trail_tree(trail: Trail, says: str) -> Tree:
    """A trail, what comes next below what it hangs on."""
    tree = Tree(Text.assemble((trail.name, "bold"), f"  {trail.told}  ", (says, "dim")))
    for each in trail.next:
        _add_trail(tree, each)
    return tree


def _add_trail(tree: Tree, trail: Trail) -> None:
    branch = tree.add(Text.assemble((f"{trail.how} ", "dim"), (trail.name, "bold"), f"  {trail.told}"))
    for each in trail.next:
        _add_trail(branch, each)


def audit_table(audited: Audit) -> RenderableType:
    """What an audit looked at, and everything that it found."""
    looked = f"{audited.briefs} briefs of {audited.lines} lines, {audited.values} values, {audited.sections} sections"
    if audited.passed:
        return Text.assemble(("passed", "green"), f": {looked}; nothing found")
    table = Table(title=f"{audited.request_id}: {looked}", title_justify="left")
    for column in ("found", "step", "line", "what"):
        table.add_column(column, overflow="fold")
    for each in audited.found:
        table.add_row(Text(each.kind.value, style="red"), each.step, "" if each.line is None else str(each.line), Text(each.what))
    for said in audited.unchecked:
        table.add_row(Text("unchecked", style="yellow"), "", "", Text(said))
    return table


def metrics_table(columns: Sequence[tuple[str, Metrics]], *, title: str = "boundary") -> Table:
    """Every metric, a column for each request or team; what cannot be computed says why."""
    table = Table(title=title, title_justify="left")
    table.add_column("metric", no_wrap=True)
    for name, metrics in columns:
        table.add_column(f"{name} ({metrics.requests} requests)" if metrics.requests != 1 else name, overflow="fold")
    for name, formula in FORMULAS.items():
        table.add_row(name.replace("_", " "), *(_metric(metrics.measures[name], formula) for _, metrics in columns))
    return table


def _metric(measure: Measure, formula: Formula) -> Text:
    if measure.value is None:
        return Text(f"– ({formula.none})", style="dim")
    if formula.unit == "%":
        return Text(f"{measure.value:.0%} ({measure.part:g} of {measure.whole:g})")
    return Text(f"{measure.value:,.3f}".rstrip("0").rstrip(".") + f" {formula.unit}")

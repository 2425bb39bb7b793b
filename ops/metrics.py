"""Metrics of the boundary: their names and formulas, and how those of several requests become one. Pure.

Every metric is a part of a whole, so that those of a team are the sums of its requests'; one whose whole is nothing cannot be
computed, and says so instead of 0. `ops.measuring` computes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from schemas.codec import Json


@dataclass(frozen=True, slots=True)
class Formula:
    """What a metric is: a part, of a whole, and why there may be none."""

    part: str
    whole: str
    none: str
    unit: str = "%"
    """`%`, or what the quotient counts."""


FORMULAS: Mapping[str, Formula] = {
    "context_precision": Formula(
        "values of briefs that the result used or cited", "values of briefs of completed steps", "no value crossed into a completed step"
    ),
    "context_recall": Formula(
        "values of briefs that were used",
        "those, facts that a step asked a tool for again though another one had them, and needs that nobody supplied",
        "nothing was used, and nothing found missing",
    ),
    "provenance_coverage": Formula(
        "facts that name tool and call, and judgements that name evidence", "facts and judgements of completed steps", "no step brought any"
    ),
    "figures_covered": Formula(
        "numbers and dates of the answer that stand in a fact, judgement, constraint or the user's words",
        "numbers and dates of the answer",
        "the answer has none",
    ),
    "staleness_rate": Formula(
        "values of briefs that had expired, been replaced or withdrawn when the result that rests on them was committed",
        "values of briefs of results",
        "no value crossed",
    ),
    "handoff_success": Formula(
        "crossings that the gate let through the first time", "crossings that it decided", "the gate decided nothing that was asked for"
    ),
    "conflict_rate": Formula(
        "changes of shared fields that made one contested, or that none took", "changes of shared fields", "no step changed a shared field"
    ),
    "tokens_per_success": Formula("tokens of all results, in and out", "requests that are COMPLETED", "none is COMPLETED", "tokens"),
    "cost_per_success": Formula(
        "tokens times their price", "requests that are COMPLETED", "no price is given, or none is COMPLETED", "money"
    ),
    "seconds_per_success": Formula(
        "seconds from opening to end of requests that are COMPLETED", "requests that are COMPLETED", "none is COMPLETED", "s"
    ),
    "external_calls_per_success": Formula("tool calls of all results", "requests that are COMPLETED", "none is COMPLETED", "calls"),
    "tokens_per_crossing": Formula("estimated tokens of the values that crossed", "values that crossed", "no value crossed", "tokens"),
    "seconds_per_crossing": Formula(
        "seconds from the commit of a step's last input to its claim", "claims of steps that have inputs", "no step has inputs", "s"
    ),
    "recovery": Formula(
        "requests that had ended DEGRADED or FAILED, and were COMPLETED after a replay without running a finished step again",
        "requests that had ended DEGRADED or FAILED",
        "none had failed",
    ),
}
"""Every metric by name, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A part and its whole."""

    part: float = 0.0
    whole: float = 0.0

    @property
    def value(self) -> float | None:
        """The quotient; None where there is no whole."""
        return self.part / self.whole if self.whole else None

    def __add__(self, other: Measure) -> Measure:
        return Measure(self.part + other.part, self.whole + other.whole)


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens cost, in any money."""

    per_million_in: float
    per_million_out: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of one request, or of several together."""

    requests: int
    measures: Mapping[str, Measure]

    def as_json(self) -> dict[str, Json]:
        """Return them as the command line prints them: each with value, part and whole, or why there is none."""
        return {"requests": self.requests, **{name: _json(name, self.measures[name]) for name in FORMULAS}}


def together(several: Iterable[Metrics]) -> Metrics:
    """Return the metrics of several requests as one: parts and wholes are added, so a large request weighs more."""
    found = list(several)
    sums = {name: sum((each.measures[name] for each in found), Measure()) for name in FORMULAS}
    return Metrics(sum(each.requests for each in found), sums)


def _json(name: str, measure: Measure) -> dict[str, Json]:
    formula = FORMULAS[name]
    shape: dict[str, Json] = {"value": measure.value, "part": measure.part, "whole": measure.whole, "unit": formula.unit}
    return shape if measure.value is not None else {**shape, "why_none": formula.none}

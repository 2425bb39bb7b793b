"""Comparing: what differs between two requests, or between two moments of one. Pure; shown by `briefline diff`.

Compared is what a person would look at: the words, constraints, plan, states, facts and their sources, versions, answer.
Times, ids of calls and who did the work differ from run to run and say nothing, so they are left out.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ops.reporting import Report, StepReport
from schemas import fields
from schemas.blackboard import fold
from schemas.codec import Json
from schemas.facts import Fact
from schemas.plans import Step
from schemas.results import MadeWith
from schemas.teams import TeamCard

_VERSIONS = tuple(name for name in MadeWith.model_fields if name != "position")
_HASH_CHARACTERS = 12

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared: a request at an event position."""

    request_id: str
    position: int
    team: str
    status: str

    def __str__(self) -> str:
        return f"{self.request_id}@{self.position}"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same; None where a side does not have it at all.

    `kind` is request, constraint, step, fact or version; `name` is a dotted name within the kind.
    """

    kind: str
    name: str
    a: str | None
    b: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that differs, in the order in which a person would ask, and the answers line by line."""

    a: Side
    b: Side
    differences: tuple[Difference, ...]
    answer: tuple[str, ...]
    """A unified diff of the two answers; empty where they are the same."""

    @property
    def same_team(self) -> bool:
        """Whether both requests are of one team; else steps and facts of the same name may mean different things."""
        return self.a.team == self.b.team

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.differences or self.answer)

    def as_json(self) -> dict[str, Json]:
        """Return the comparison as the JSON object that the command line prints."""
        return {
            **{
                name: {"request_id": side.request_id, "at": side.position, "team": side.team, "status": side.status}
                for name, side in (("a", self.a), ("b", self.b))
            },
            "same_team": self.same_team,
            "differences": [{"kind": each.kind, "name": each.name, "a": each.a, "b": each.b} for each in self.differences],
            "answer": list(self.answer),
        }


def moment_of(text: str) -> tuple[str, int | None]:
    """Read `REQUEST` or `REQUEST@N` as a request's id and an event position (None: now)."""
    request_id, at, position = text.rpartition("@")
    return (request_id, int(position)) if at and position.isascii() and position.isdecimal() else (text, None)


def compare(a: Report, b: Report) -> Comparison:
    """Return what differs between two reports."""
    found = (*_requests(a, b), *_constraints(a, b), *_steps(a, b), *_facts(a, b), *_versions(a, b))
    lines = difflib.unified_diff(a.answer.splitlines(), b.answer.splitlines(), str(_side(a)), str(_side(b)), lineterm="")
    return Comparison(_side(a), _side(b), found, tuple(lines))


def _side(report: Report) -> Side:
    return Side(report.request_id, report.position, report.request.team, report.status.value)


def _differing(
    kind: str, a: Mapping[str, Item], b: Mapping[str, Item], shown: Callable[[Item], str], prefix: str = ""
) -> Iterator[Difference]:
    """What is on one side only, or reads differently; names in the order of the first side, then what the second has beside."""
    for name in dict.fromkeys((*a, *b)):
        left, right = (shown(side[name]) if name in side else None for side in (a, b))
        if left != right:
            yield Difference(kind, prefix + name, left, right)


def _requests(a: Report, b: Report) -> Iterator[Difference]:
    left, right = (
        {"team": each.request.team, "text": each.request.text, "status": each.status.value, "team version": _card_version(each)}
        for each in (a, b)
    )
    return _differing("request", left, right, str)


def _card_version(report: Report) -> str:
    card = fold(report.events).get(fields.CARD)
    return "" if card is None else TeamCard.from_json(card.value).version


def _constraints(a: Report, b: Report) -> Iterator[Difference]:
    left, right = ({record.name: record.text for record in each.constraints} for each in (a, b))
    return _differing("constraint", left, right, str)


def _steps(a: Report, b: Report) -> Iterator[Difference]:
    left, right = ({each.step.id: each for each in report.steps} for report in (a, b))
    yield from _differing("step", left, right, _state)
    for name in (step for step in left if step in right):
        yield from _differing("step", _parts(left[name].step), _parts(right[name].step), str, prefix=f"{name}.")


def _state(each: StepReport) -> str:
    return f"{each.state} ({each.failure.code})" if each.failure is not None else each.state


def _parts(step: Step) -> dict[str, str]:
    """The fields of a definition as texts."""
    values = ((name, getattr(step, name)) for name in Step.model_fields)
    return {name: ", ".join(map(str, value)) if isinstance(value, tuple) else str(value) for name, value in values}


def _facts(a: Report, b: Report) -> Iterator[Difference]:
    left, right = ({f"{step}.{fact.key}": fact for step, fact in report.facts} for report in (a, b))
    return _differing("fact", left, right, _fact)


def _fact(fact: Fact) -> str:
    source = fact.provenance
    return (
        f"{fact.value}{f' {fact.unit}' if fact.unit else ''}  from {source.tool} → {source.path}"
        f"{f' ({source.source_ref})' if source.source_ref else ''}"
    )


def _versions(a: Report, b: Report) -> Iterator[Difference]:
    left, right = ({each.step.id: made for each in report.steps if (made := _made_with(each)) is not None} for report in (a, b))
    for step in (step for step in left if step in right):
        yield from _differing("version", _hashes(left[step]), _hashes(right[step]), str, prefix=f"{step}.")


def _hashes(made: MadeWith) -> dict[str, str]:
    return {name: str(getattr(made, name))[:_HASH_CHARACTERS] for name in _VERSIONS}


def _made_with(each: StepReport) -> MadeWith | None:
    return None if each.result is None else each.result.made_with

"""Deciding: what the gate decided of each crossing of a request, as its events keep it and as the board gives it again. Pure.

An event keeps a decision without its checks; they are the gate's answer to what the board said at the claim, so they are asked
for anew from the fold of the events up to it. Called by `show --crossings`, the audit and the metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ops.reporting import Report
from schemas import fields
from schemas.blackboard import Event, Stored, fold
from schemas.codec import Json, decode
from schemas.gate import Crossing, Reason
from schemas.results import CROSSINGS_LABEL, MADE_WITH_LABEL, AgentResult, MadeWith
from schemas.teams import TeamCard
from workers.gating import Weighed
from workers.preparing import Material, material_of, weigh


@dataclass(frozen=True, slots=True)
class Attempt:
    """One claim of a step, and the event that ended it."""

    step: str
    claim: Event
    end: Event | None = None
    """None: it still runs, or whoever held it died."""

    @property
    def position(self) -> int:
        """Event position that its brief was built from."""
        return self.claim.position

    @property
    def recorded(self) -> tuple[dict[str, Any], ...]:
        """The gate's decisions as they stand in the event that ended it, without what nobody had asked for."""
        return tuple(each for each in self._label if "left_out" not in each)

    @property
    def left_out(self) -> int:
        """Decisions that had no room in that event."""
        return sum(int(each["left_out"]) for each in self._label if "left_out" in each)

    @property
    def made_with(self) -> MadeWith | None:
        """What its brief was; None where none was given, or it never ended."""
        if self.end is None:
            return None
        if (label := self.end.labels.get(MADE_WITH_LABEL)) is not None:
            return MadeWith.from_json(label.encode())
        put = self.end.put.get(fields.result(self.step))
        return None if put is None else AgentResult.from_json(put[1]).made_with

    @property
    def _label(self) -> list[dict[str, Any]]:
        label = "" if self.end is None else self.end.labels.get(CROSSINGS_LABEL, "")
        return decode(label.encode()) if label else []


@dataclass(frozen=True, slots=True)
class Decisions:
    """What the gate decided of all that was offered to one attempt."""

    attempt: Attempt
    crossings: tuple[Crossing, ...]
    """Rebuilt from the board at the claim, with every check, and with what nobody had asked for."""
    as_decided: bool | None
    """Whether they are those that the event keeps; None where it keeps none. False: team card or code has changed since."""


def attempts_of(events: Sequence[Event]) -> list[Attempt]:
    """Return every attempt of every step, in the order of their claims."""
    found: list[Attempt] = []
    open_: dict[str, int] = {}
    for event in events:
        for step in (name.removeprefix(fields.STEP_PREFIX) for name in event.put if name.startswith(fields.STEP_PREFIX)):
            if event.labels.get("event") == "step_claimed":
                open_[step] = len(found)
                found.append(Attempt(step, event))
            elif step in open_:
                index = open_.pop(step)
                found[index] = Attempt(step, found[index].claim, event)
    return found


def state_at(attempt: Attempt, events: Sequence[Event]) -> Mapping[str, Stored]:
    """Return the board as it was at the claim of an attempt."""
    return fold(event for event in events if event.position <= attempt.position)


def material_at(attempt: Attempt, state: Mapping[str, Stored]) -> Material:
    """Return what the brief of an attempt was built from, out of the board as it was at the claim."""
    return material_of(attempt.step, state, attempt.position, now_ms=attempt.claim.at_ms)


def unreadable_at(attempt: Attempt, material: Material) -> list[str]:
    """Return the artifacts that could not be read at the claim, by what was recorded then: the board cannot tell it."""
    unread = {each["need"] for each in attempt.recorded if each.get("reason") == Reason.UNREADABLE_ARTIFACT}
    return [
        fact.artifact.id
        for result in material.results.values()
        for fact in result.facts
        if fact.artifact is not None and f"{result.step_id}.{fact.key}" in unread
    ]


def weighed_at(attempt: Attempt, material: Material, card: TeamCard) -> list[Weighed]:
    """Return the gate's decisions on an attempt anew."""
    return weigh(material, card, unreadable_at(attempt, material))


def decisions_of(report: Report, card: TeamCard | None = None) -> tuple[Decisions, ...]:
    """Return the gate's decisions on each attempt of a request, by a team's card, else by the one that the board has."""
    card = card or card_of(report)
    return tuple(_decisions(attempt, report.events, card) for attempt in attempts_of(report.events))


def card_of(report: Report) -> TeamCard:
    """Return the team card that the request was opened with."""
    return TeamCard.from_json(fold(report.events)[fields.CARD].value)


def _decisions(attempt: Attempt, events: Sequence[Event], card: TeamCard) -> Decisions:
    crossings = tuple(each.crossing for each in weighed_at(attempt, material_at(attempt, state_at(attempt, events)), card))
    if not attempt.recorded:
        return Decisions(attempt, crossings, None)
    told = [each.brief() for each in crossings if each.reason is not Reason.NOT_NEEDED]
    same = all(each in told for each in attempt.recorded) and len(told) == len(attempt.recorded) + attempt.left_out
    return Decisions(attempt, crossings, same)


def as_json(decisions: Sequence[Decisions]) -> list[Json]:
    """Return decisions as `show --crossings --json` prints them."""
    return [
        {
            "step": each.attempt.step,
            "at": each.attempt.position,
            "as_decided": each.as_decided,
            "left_out": each.attempt.left_out,
            "crossings": [crossing.model_dump(mode="json") for crossing in each.crossings],
        }
        for each in decisions
    ]


QUESTIONS: Mapping[str, str] = {
    "why": "need",
    "by whose right": "right",
    "from where": "source",
    "good until when": "until",
    "how to recover": "recover",
}
"""The five questions that every decision answers, and its field that does."""


def answers(crossing: Crossing) -> Iterator[tuple[str, str]]:
    """Yield each of the five questions with its answer."""
    for question, name in QUESTIONS.items():
        said = getattr(crossing, name)
        yield question, said or {"until": "its source changes", "recover": "nothing to recover: it crosses"}.get(name, "")

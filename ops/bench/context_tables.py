"""The figures of what a brief saves, and the tables that print them. Measuring is the same with any way to count tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from ops.bench.passing import SUMMARY_TOKENS, WINDOW_TOKENS, Chain, Count, Handed, Recorded, Way, chains, handed, record
from ops.bench.surviving import STATEMENTS, Survival, can_quote, survival, within

SHORT_SUMMARY_TOKENS = 120
TITLES = {"days": "days", "budget": "budget", "traveler": "fit for a child", "destination": "destination"}


@dataclass(frozen=True)
class Tokens:
    """Of one step, one way."""

    step: str
    handed: int
    """What its first call is given: instructions, what was handed on, task."""
    calls: int
    """All calls together, with what its own work adds."""


@dataclass(frozen=True)
class Left:
    """What is left of the constraints in the last step's input."""

    way: Way
    title: str
    tokens: int
    of: Mapping[str, Survival]
    quotable: bool


@dataclass(frozen=True)
class Measured:
    """Everything that one run says."""

    steps: Mapping[Way, Sequence[Tokens]]
    left: Sequence[Left]
    chains: Sequence[Chain]

    def handed(self, way: Way) -> int:
        """What all steps are handed together."""
        return sum(each.handed for each in self.steps[way])

    def calls(self, way: Way) -> int:
        """All calls of all steps together."""
        return sum(each.calls for each in self.steps[way])

    def last(self, way: Way) -> int:
        """What the last step is handed."""
        return self.steps[way][-1].handed

    def left_by(self, way: Way) -> Left:
        """What is left in the last step's input, one way as it is meant."""
        return next(each for each in self.left if each.way is way)

    @property
    def growth(self) -> tuple[float, float]:
        """How many times more a chain of 12 is handed than one of 6: by history, by briefs."""
        by = {each.steps: each for each in self.chains}
        return by[12].history / by[6].history, by[12].briefs / by[6].briefs


def saved(before: int, after: int) -> float:
    """Return which part of `before` is gone in `after`."""
    return 1 - after / before


async def measure(count: Count) -> Measured:
    """Run the trip and the chains, and count."""
    run = await record()
    given = {way: handed(way, run, count) for way in Way}
    steps = {way: [Tokens(each.step, count(each.first), sum(map(count, each.calls))) for each in found] for way, found in given.items()}
    return Measured(steps, list(_left(run, given, count)), await chains(count))


def _left(run: Recorded, given: Mapping[Way, Sequence[Handed]], count: Count) -> Iterator[Left]:
    whole = given[Way.HISTORY][-1].last
    short = handed(Way.SUMMARIES, run, count, summary_tokens=SHORT_SUMMARY_TOKENS)[-1].last
    texts = (
        (Way.HISTORY, "whole history", whole),
        (Way.HISTORY, f"its last {WINDOW_TOKENS:,} tokens", within(whole, count, WINDOW_TOKENS)),
        (Way.SUMMARIES, f"summary of {SUMMARY_TOKENS}", given[Way.SUMMARIES][-1].last),
        (Way.SUMMARIES, f"summary of {SHORT_SUMMARY_TOKENS}", short),
        (Way.BRIEFS, "brief", given[Way.BRIEFS][-1].first),
    )
    for way, title, text in texts:
        yield Left(way, title, count(text), survival(text, count), can_quote(text, run.materials))


def steps_table(measured: Measured) -> Table:
    """Tokens that each step is handed, and all of its calls."""
    table = Table("step", *(each.value for each in Way), title="Tokens handed to a step (in brackets: all of its model calls)")
    for place, first in enumerate(measured.steps[Way.BRIEFS]):
        row = [measured.steps[way][place] for way in Way]
        table.add_row(first.step, *(f"{each.handed:,} ({each.calls:,})" for each in row))
    table.add_row("all", *(f"{measured.handed(way):,} ({measured.calls(way):,})" for way in Way))
    history = Way.HISTORY
    less = (f"{saved(measured.handed(history), measured.handed(way)):.1%}" for way in (Way.SUMMARIES, Way.BRIEFS))
    table.add_row("less than the history", "", *less)
    return table


def left_table(measured: Measured) -> Table:
    """What stands in the last step's input, and whether an answer written from that alone keeps to it."""
    told = "How many tokens before its end a constraint is stated last, and whether an answer written from that input alone keeps to it"
    table = Table("last step's input", "tokens", *TITLES.values(), "a rule to quote", title="What is left of the constraints", caption=told)
    for each in measured.left:
        table.add_row(
            each.title, f"{each.tokens:,}", *(_shown(each.of[name]) for name in STATEMENTS), "in reach" if each.quotable else "lost"
        )
    return table


def _shown(survival: Survival) -> str:
    stands = f"-{survival.before_end:,}" if survival.stands else "lost"
    return f"{stands}, {'kept' if survival.kept else 'broken'}"


def chains_table(measured: Measured) -> Table:
    """Tokens handed to all steps of a chain together."""
    table = Table("steps", Way.HISTORY.value, Way.BRIEFS.value, "history / briefs", title="Tokens handed to all steps of a chain")
    for each in measured.chains:
        table.add_row(str(each.steps), f"{each.history:,}", f"{each.briefs:,}", f"{each.history / each.briefs:.0f}")
    return table

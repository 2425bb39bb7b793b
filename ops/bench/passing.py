"""What is handed on from step to step, three ways over the same trip: the whole history, summaries, briefs.

One real run of the trip team is recorded. For briefs, its model inputs are what they were. For the two others the same calls, returns and
sections are passed on as those ways would, with the pages where a tool of ours gave a reference. Called by `ops.bench.context`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import orjson

from ops.embedded import embedded
from schemas.codec import Json
from schemas.facts import Fact, Provenance
from schemas.plans import Step
from schemas.results import AgentResult, ResultStatus
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.agents.models import ModelInput
from workers.phrases import ZH
from workers.sentences import sentences_of
from workers.team import Team
from workers.teams.trip import data, pages
from workers.teams.trip.demo import REQUEST
from workers.teams.trip.team import make_team

Count = Callable[[str], int]
"""A text's tokens."""

SUMMARY_TOKENS = 500
WINDOW_TOKENS = 8_000
"""How much of the end of a long input `survived` looks at beside the whole."""
CHAINS = tuple(range(2, 13))
LAST = "final"


class Way(StrEnum):
    """How what came before reaches a step."""

    HISTORY = "whole history"
    SUMMARIES = "summaries"
    BRIEFS = "briefs"


@dataclass(frozen=True)
class Recorded:
    """One run of the trip: every model input, every section, and the pages behind each reference."""

    inputs: Mapping[str, Sequence[ModelInput]]
    sections: Mapping[str, str]
    materials: Mapping[str, str]
    answer: str

    @property
    def steps(self) -> tuple[str, ...]:
        """In the order in which one would pass them on by hand."""
        return tuple(self.inputs)


@dataclass(frozen=True)
class Handed:
    """What one step's model is given: the parts that the way decides, and those that its own work adds call by call."""

    step: str
    first: str
    """Instructions, what was handed on, and the task."""
    calls: tuple[str, ...]
    """Each model call's whole text."""

    @property
    def last(self) -> str:
        """What stands before the model when it answers."""
        return self.calls[-1]


async def record() -> Recorded:
    """Run the trip once, in this process."""
    given: list[ModelInput] = []
    team = make_team(recorder=given.append)
    async with embedded(team) as runtime:
        report = await runtime.ask(REQUEST)
        results = {each.step.id: each.result for each in report.steps if each.result is not None}
        refs = [ref for result in results.values() for ref in result.artifacts]
        materials = {ref.id: (await runtime.artifacts.read(ref.id)).text for ref in refs}
    inputs = {step.id: [each for each in given if each.step_id == step.id] for step in team.steps}
    return Recorded(inputs, {step: result.summary for step, result in results.items()}, materials, report.answer)


def handed(way: Way, run: Recorded, count: Count, *, summary_tokens: int = SUMMARY_TOKENS) -> list[Handed]:
    """Return what each step is given, one way."""
    if way is Way.BRIEFS:
        return [_as_recorded(step, run.inputs[step]) for step in run.steps]
    found: list[Handed] = []
    history, told = [REQUEST], [REQUEST]
    for step in run.steps:
        before = "\n\n".join(history) if way is Way.HISTORY else summary(told, count, summary_tokens)
        first = "\n\n".join((run.inputs[step][0].instructions, before, _task(run.inputs[step][0])))
        own = [_conversation(each, run) for each in run.inputs[step]]
        if step == LAST:
            own = own[:1]  # there is nothing to read on: it has the pages, or has nothing that leads to them
        found.append(Handed(step, first, tuple(f"{first}{each}" for each in own)))
        history += [own[-1], run.sections[step]]
        told.append(run.sections[step])
    return found


def summary(told: Iterable[str], count: Count, limit: int) -> str:
    """What was said so far, its oldest sentences dropped until the rest is within the limit."""
    sentences = [sentence for text in told for sentence in _pieces(text)]
    while sentences and count("".join(sentences)) > limit:
        sentences.pop(0)
    return "".join(sentences)


def _pieces(text: str) -> list[str]:
    """Sentences, and the lines of a list."""
    return [piece for line in f"{text}\n".splitlines(keepends=True) for piece in sentences_of(line)]


def _as_recorded(step: str, inputs: Sequence[ModelInput]) -> Handed:
    calls = tuple("\n\n".join((each.instructions, *map(_text, each.messages))) for each in inputs)
    return Handed(step, calls[0], calls)


def _task(given: ModelInput) -> str:
    """The end of a brief, which says what is to be done: the same for every way."""
    brief = str(given.messages[0]["text"])
    return brief[brief.index(ZH.task) :]


def _conversation(given: ModelInput, run: Recorded) -> str:
    """What a step has said, called and been returned so far, with the pages in the place of their reference."""
    return "".join(f"\n\n{_with_pages(message, run)}" for message in given.messages[1:])


def _with_pages(message: Mapping[str, Json], run: Recorded) -> str:
    text = _text(message)
    if message["role"] == "tool" and text.startswith("{"):
        material = orjson.loads(text).get("material")
        if material in run.materials:
            return run.materials[material]
    return text


def _text(message: Mapping[str, Json]) -> str:
    if "call" in message:
        return f"{message['call']} {message['arguments']}"
    return str(message["text"])


@dataclass(frozen=True)
class Chain:
    """What all steps of a chain are handed together, by two ways."""

    steps: int
    history: int
    briefs: int


async def chains(count: Count, lengths: Iterable[int] = CHAINS) -> list[Chain]:
    """Count for chains of each length what their steps are handed: each step reads pages of its own and finds one price in them."""
    things = [(each.name, each.cost, pages.as_text(pages.spot_pages(each))) for each in data.SPOTS]
    things += [(each.name, each.nightly, pages.as_text(pages.hotel_pages(each))) for each in data.HOTELS]
    read = [count(text) + count(_said(name, cost)) for name, cost, text in things]
    asked = count(REQUEST)
    found: list[Chain] = []
    for length in lengths:
        history = sum(asked + sum(read[:step]) for step in range(length))
        found.append(Chain(length, history, await _briefed(things[:length], count)))
    return found


def _said(name: str, cost: int) -> str:
    return f"{name}：{cost} 元。"


async def _briefed(things: Sequence[tuple[str, int, str]], count: Count) -> int:
    """Run a chain of these, and count its briefs."""

    def look(brief: AgentBrief) -> AgentResult:
        name, cost, _ = things[int(brief.step_id.removeprefix("step-"))]
        source = Provenance(step=brief.step_id, tool="search", call_id="1", path="cost")
        facts = tuple(Fact(key=key, value=value, provenance=source) for key, value in (("name", name), ("cost", cost)))
        said = _said(name, cost)
        return AgentResult(agent="look", step_id=brief.step_id, status=ResultStatus.COMPLETED, summary=said, facts=facts)

    steps = [
        Step(
            id=f"step-{place}",
            agent="look",
            title=f"第 {place + 1} 步",
            task="查一处的价格。",
            depends_on=(f"step-{place - 1}",) * (place > 0),
        )
        for place in range(len(things))
    ]
    async with embedded(Team("chain", [BlackBox("look", look, facts=("name", "cost"))], steps, phrases=ZH)) as runtime:
        report = await runtime.ask(REQUEST)
        return sum(count(each.brief.text) for each in report.briefs)

"""Brief checks: whether one brief holds what its step had declared, all of it and nothing else. Pure, no model.

Three questions of a text, its manifest and the board as it was at the claim: did the declared evidence arrive; does every line
say what the board says where the manifest says it comes from; does any line carry words of another step that were not
declared, wherever the manifest says they come from. Called by the audit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from ops.leaking import Known, Lines, leaked, words_of
from schemas import fields
from schemas.blackboard import ABSENT
from schemas.briefs import Brief, LineOrigin, ManifestLine
from schemas.facts import Fact
from schemas.gate import Outcome
from schemas.packets import OnFailure, Packet
from schemas.plans import Need, Step, needs_of
from schemas.results import AgentResult
from workers.gating import Weighed
from workers.phrases import Phrases
from workers.preparing import Material
from workers.quoting import lines_of, one_line, quote, scalar_text
from workers.writing import value_text


class Kind(StrEnum):
    """What an audit can find."""

    NOT_ARRIVED = "not_arrived"
    """Declared evidence is neither in the brief nor named there as missing; or a result lacks what it had to bring."""
    UNDECLARED = "undeclared"
    """A line carries something of another step that the step did not declare."""
    WRONG_ORIGIN = "wrong_origin"
    """A line is not what the manifest says it is."""
    NOT_ON_THE_BOARD = "not_on_the_board"
    """A line shows a value that the board did not have, or evidence names one."""
    LEAKED_TEXT = "leaked_text"
    """Words of another step stand in a brief, and crossed as nothing that was declared."""
    SECTIONS_DIFFER = "sections_differ"
    """Two sections, or a section and its fact, state different values of one fact."""


@dataclass(frozen=True, slots=True)
class Found:
    """One thing that must not be: where it stands, and what it is."""

    kind: Kind
    step: str
    what: str
    line: int | None = None
    """Of the brief's text, from 1."""


@dataclass(frozen=True, slots=True)
class Given:
    """A brief as a step's agent got it, with the board as it was and what the gate decided."""

    brief: Brief
    material: Material
    weighed: Sequence[Weighed]
    phrases: Phrases
    everybody: Mapping[str, AgentResult]
    """Every result that the board had then, whatever the step declares."""
    planned: Mapping[str, Step]
    """The steps as the team card declares them."""
    planners: Mapping[str, str]
    """Step that was planned at run time -> the step whose agent planned it."""

    @property
    def step(self) -> Step:
        """Whose brief it is."""
        return self.material.step

    @property
    def lines(self) -> list[str]:
        """The text, line by line."""
        return self.brief.text.split("\n")


def check_brief(given: Given) -> Iterator[Found]:
    """Yield everything that is wrong with one brief."""
    yield from _arrivals(given)
    yield from _origins(given)
    yield from _words(given)


def _arrivals(given: Given) -> Iterator[Found]:
    """Every need that is not optional stands in the brief, or is named among what is unknown where the step asked for that."""
    shown = {(line.step, line.key) for line in given.brief.manifest.lines if line.origin in (LineOrigin.FACT, LineOrigin.JUDGEMENT)}
    named = {(line.step, line.key) for line in given.brief.manifest.lines if line.origin is LineOrigin.GAP}
    for need in needs_of(given.step):
        if need.optional or any(_is_of(need, step, key) for step, key in shown):
            continue
        if given.step.on_failure is OnFailure.GAP and any(_is_of(need, step, key) for step, key in named):
            continue
        yield Found(Kind.NOT_ARRIVED, given.step.id, f"needs {need}, and nothing of it stands in the brief")


def _is_of(need: Need, step: str | None, key: str | None) -> bool:
    return step == need.step and (need.key in ("*", key))


def _origins(given: Given) -> Iterator[Found]:
    lines = given.lines
    if [each.line for each in given.brief.manifest.lines] != list(range(1, len(lines) + 1)):
        said = f"the manifest is of {len(given.brief.manifest.lines)} lines, the text has {len(lines)}"
        yield Found(Kind.WRONG_ORIGIN, given.step.id, said)
        return
    for line in given.brief.manifest.lines:
        if wrong := _wrong(given, line, lines[line.line - 1]):
            kind, what = wrong
            yield Found(kind, given.step.id, what, line.line)


_Wrong = tuple[Kind, str]


def _wrong(given: Given, line: ManifestLine, text: str) -> _Wrong | None:
    """What is wrong with a line that claims this origin, or None."""
    material, step = given.material, given.step
    match line.origin:
        case LineOrigin.FACT | LineOrigin.JUDGEMENT:
            return _value_wrong(given, line, text)
        case LineOrigin.SHARED:
            return _shared_wrong(given, line)
        case LineOrigin.SUMMARY:
            return _summary_wrong(given, line, text)
        case LineOrigin.REQUEST:
            return _unless(text in quote(material.request.text), "a line of the user's words")
        case LineOrigin.CONSTRAINT:
            found = next((each for each in material.constraints if each.name == line.key), None)
            said = None if found is None else f"- {one_line(found.label)}{given.phrases.separator}{one_line(found.text)}"
            return _unless(text == said, f"constraint {line.key!r}")
        case LineOrigin.TASK:
            task = {each.removeprefix("> ") for each in lines_of(step.task.strip())}
            beyond = given.phrases.out_of_scope.format(text=step.out_of_scope.strip())
            return _unless(text.removeprefix("> ") in {*task, *lines_of(beyond)}, "a line of the step's task")
        case LineOrigin.RULE:
            return _unless(text in (*given.phrases.scope_rule, *given.phrases.style_rule), "a rule")
        case LineOrigin.HEADING:
            return _unless(_is_heading(given, text), "a heading")
        case LineOrigin.GAP:
            return None  # what it may name is held by its words alone


def _unless(right: bool, what: str) -> _Wrong | None:
    return None if right else (Kind.WRONG_ORIGIN, f"the manifest calls the line {what}, and it is not")


def _value_wrong(given: Given, line: ManifestLine, text: str) -> _Wrong | None:
    name = f"{line.step}.{line.key}"
    if not any(_is_of(need, line.step, line.key) for need in needs_of(given.step)):
        return Kind.UNDECLARED, f"{name} stands in the brief, and is not among the step's needs"
    version = given.material.versions.get(fields.result(line.step or ""), ABSENT)
    if line.version != (None if version == ABSENT else version):
        return Kind.WRONG_ORIGIN, f"{name} is said to be of version {line.version}; the board had {version}"
    packets = [each for each in given.weighed if each.step == line.step and each.key == line.key and not each.shared]
    facts = line.origin is LineOrigin.FACT
    fitting = [each for each in packets if (each.fact is not None) == facts]
    if not fitting:
        return Kind.NOT_ON_THE_BOARD, f"the board had no {line.origin} {name}"
    if not any(_shows(text, each, given.phrases) for each in fitting):
        return Kind.NOT_ON_THE_BOARD, f"the board said {fitting[0].offer.packet.payload!r} of {name}, the brief does not"
    blocked = next((each.crossing.reason for each in fitting if each.crossing.blocked), None)
    return None if blocked is None else (Kind.UNDECLARED, f"{name} stands in the brief, and the gate had blocked it as {blocked}")


def _shows(text: str, weighed: Weighed, phrases: Phrases) -> bool:
    """Whether a line is the key, then the value, then nothing that would make it another value. Prose that was cut may be any."""
    packet = weighed.offer.packet
    before = f"- {one_line(packet.key)}{phrases.separator}"
    if not text.startswith(before):
        return False
    rest, value = text[len(before) :], _value_text(weighed.fact, packet)
    if weighed.crossing.outcome is Outcome.COMPRESS:
        return True
    if weighed.crossing.outcome is Outcome.REFERENCE:
        return value in rest
    return rest.startswith(value) and not re.match(r"\w|[.,:/-]\d", rest[len(value) :])


def _value_text(fact: Fact | None, packet: Packet) -> str:
    if fact is not None and fact.artifact is not None:
        return fact.artifact.id
    return scalar_text(fact.value) if fact is not None else value_text(packet.payload)


def _shared_wrong(given: Given, line: ManifestLine) -> _Wrong | None:
    if line.key not in given.step.reads:
        return Kind.UNDECLARED, f"field {line.key} stands in the brief, and is not among what the step reads"
    version = given.material.versions.get(fields.shared(line.key or ""), ABSENT)
    if line.version != version:
        return Kind.WRONG_ORIGIN, f"field {line.key} is said to be of version {line.version}; the board had {version}"
    return None


def _summary_wrong(given: Given, line: ManifestLine, text: str) -> _Wrong | None:
    step = given.step
    if not step.share_summary or line.step not in step.depends_on:
        return Kind.UNDECLARED, f"text of {line.step} stands in the brief; the step does not ask for it"
    result = given.material.results.get(line.step or "")
    says = Known([result.summary if result is not None else ""])
    return _unless(says.holds(words_of(text)), f"text of {line.step}")


def _is_heading(given: Given, text: str) -> bool:
    phrases = given.phrases
    sections = (phrases.request, phrases.constraints, phrases.facts, phrases.judgements, phrases.shared, phrases.gaps, phrases.summaries)
    if text in ("", phrases.task, *sections):
        return True
    time = re.escape(phrases.observed.format(time="\x00")).replace("\x00", r"[0-9:TZ -]{10,20}")
    for each in given.material.inputs:
        heading = re.escape(phrases.from_step.format(title=one_line(each.title), observed="\x00"))
        if re.fullmatch(heading.replace("\x00", f"(?:{time})?"), text):
            return True
    return False


def _words(given: Given) -> Iterator[Found]:
    """By content: no words of another step stand in the brief, unless they crossed as something declared."""
    lines = Lines(given.lines)
    fixed = given.planned.get(given.step.id)
    for name, result in given.everybody.items():
        if name == given.step.id:
            continue  # what an earlier run of the same step had said is nobody else's
        task = given.step if given.planners.get(given.step.id) in (None, name) else None
        allowed = partial(_allowed, given, fixed or task)
        for prose in (*_prose(result), *(_copied(result) if fixed else ())):
            if piece := leaked(lines, prose, allowed):
                yield Found(Kind.LEAKED_TEXT, given.step.id, f"words of {name} stand in the brief: {piece!r}")
                break


def _allowed(given: Given, task: Step | None) -> Known:
    return Known([*_told_to_all(given), *_crossed(given), *_task_of(task)])


def _prose(result: AgentResult) -> Iterator[str]:
    """What an agent wrote itself."""
    yield result.summary
    for packet in result.packets:
        yield from (packet.control.reason, *_texts(packet.payload))
    for change in result.changes:
        yield from (change.reason, *_texts(change.value))
    if result.failure is not None:
        yield result.failure.description
    yield from result.tool_faults


def _copied(result: AgentResult) -> Iterator[str]:
    """Texts that it copied from its tools. An agent that plans steps may name values that it was given, so those are not asked."""
    yield from (each.value for each in (*result.facts, *result.superseded) if isinstance(each.value, str))


def _told_to_all(given: Given) -> Iterator[str]:
    """What everybody knows: the user's words, the constraints, titles and the phrases of the team's language."""
    material, phrases = given.material, given.phrases
    yield material.request.text
    yield from (f"{each.label} {each.text}" for each in material.constraints)
    yield from (each.title for each in material.inputs)
    for name in phrases.__slots__:
        said = getattr(phrases, name)
        yield from [said] if isinstance(said, str) else said.values() if isinstance(said, dict) else said


def _crossed(given: Given) -> Iterator[str]:
    """What the gate let cross because it was declared."""
    for each in given.weighed:
        if each.crossing.blocked:
            continue
        packet = each.offer.packet
        unit = f" {packet.unit}" if packet.unit else ""
        for value in (_value_text(each.fact, packet), *_texts(packet.payload)):
            yield f"{packet.key} {value}{unit}"
        yield from (packet.basis or "", packet.control.reason)
        if each.fact is not None and each.fact.artifact is not None:
            yield each.fact.artifact.summary
    for name in given.step.reads:
        record = given.material.shared.get(name)
        if record is not None:
            yield record.flagged
            yield from (
                text for claim in (*record.claims, *record.proposals) for text in (*_texts(claim.value), claim.source, claim.reason)
            )
    if given.step.share_summary:
        yield from (result.summary for name, result in given.material.results.items() if name in given.step.depends_on)


def _task_of(step: Step | None) -> Iterator[str]:
    if step is not None:
        yield from (step.task, step.out_of_scope, step.title)


def _texts(value: object) -> Iterable[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for each in value.values() for text in _texts(each)]
        case list() | tuple():
            return [text for each in value for text in _texts(each)]
        case _:
            return []

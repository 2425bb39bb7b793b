"""Writing: the text of a brief, line by line, each with its origin. Pure.

Text from outside (the user's words, values, upstream summaries) is quoted or escaped, so that it can pass for no section. Step
ids and agent names stand in the manifest only. Called by briefing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from schemas import fields
from schemas.blackboard import ABSENT
from schemas.briefs import LeftOut, LineOrigin
from schemas.codec import encode
from schemas.facts import Fact
from schemas.gate import Outcome
from schemas.packets import Kind, Packet
from schemas.plans import Need, Step
from schemas.requests import ConstraintRecord, RequestRecord
from schemas.results import AgentResult
from schemas.shared import FieldRecord
from workers.compressing import Compressed, compress
from workers.gating import Boundary, Weighed
from workers.phrases import Phrases
from workers.quoting import lines_of, one_line, quote, scalar_text
from workers.sentences import cut

SUMMARY_CHARACTERS = 300
"""An upstream text's share of a brief, where a step asks for it at all."""


class Line(NamedTuple):
    """One line of the text and where it came from."""

    text: str
    origin: LineOrigin
    step: str | None = None
    key: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Material:
    """Everything that may stand in a brief, before its size is known."""

    step: Step
    request: RequestRecord
    constraints: Sequence[ConstraintRecord]
    inputs: Sequence[Step]
    results: Mapping[str, AgentResult]
    versions: Mapping[str, str]
    phrases: Phrases
    boundary: Boundary
    crossings: tuple[Weighed, ...] = ()
    blocked: tuple[Weighed, ...] = ()
    missing: tuple[Need, ...] = ()
    unread: tuple[str, ...] = ()
    """Shared fields that are read and do not cross."""
    summaries: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = field(default=())

    def version(self, name: str) -> str | None:
        """Version of a field of the board; None where it is not there."""
        version = self.versions.get(name)
        return None if version == ABSENT else version

    def title(self, step: str) -> str:
        """What a reader knows a step by."""
        return next((one_line(each.title) for each in self.inputs if each.id == step), "")

    @property
    def values(self) -> Iterator[str]:
        """The texts of all values that cross as values, constraints included."""
        yield from (each.text for each in self.constraints)
        yield from (encode(each.offer.packet.payload).decode() for each in self.crossings if each.crossing.outcome is not Outcome.COMPRESS)
        yield from (f"{each.offer.packet.unit or ''} {each.offer.packet.basis or ''}" for each in self.crossings)


_BLANK = Line("", LineOrigin.HEADING)


def write(material: Material) -> tuple[list[Line], tuple[LeftOut, ...]]:
    """Write the sections in their order, one blank line between; return the lines, and what was cut out of prose."""
    prose = {step: _summary(material, step) for step in material.summaries}
    prose |= {each.name: _compressed(material, each) for each in material.crossings if each.crossing.outcome is Outcome.COMPRESS}
    lines: list[Line] = []
    for section in _SECTIONS:
        written = section(material, prose)
        if written and lines:
            lines.append(_BLANK)
        lines += written
    cut_out = (
        LeftOut(step=name.partition(".")[0], key=name.partition(".")[2] or "summary", reason=f"prose_cut: {_told(each)}")
        for name, each in prose.items()
        if not each.whole
    )
    return lines, tuple(cut_out)


def _request_lines(material: Material, _: Mapping[str, Compressed]) -> list[Line]:
    version = material.version(fields.REQUEST)
    quoted = [Line(line, LineOrigin.REQUEST, version=version) for line in quote(material.request.text)]
    return [Line(material.phrases.request, LineOrigin.HEADING), *quoted]


def _constraint_lines(material: Material, _: Mapping[str, Compressed]) -> list[Line]:
    if not material.constraints:
        return []
    written = [Line(material.phrases.constraints, LineOrigin.HEADING)]
    for record in material.constraints:
        text = f"- {one_line(record.label)}{material.phrases.separator}{one_line(record.text)}"
        written.append(Line(text, LineOrigin.CONSTRAINT, key=record.name, version=material.version(fields.constraint(record.name))))
    return written


def _fact_lines(material: Material, _: Mapping[str, Compressed]) -> list[Line]:
    if not material.crossings:
        return []
    written: list[Line] = []
    for definition in material.inputs:
        facts = [each.fact for each in material.crossings if each.step == definition.id and each.fact is not None]
        if not facts:
            continue
        observed = {time: _observed(time, material.phrases) for time in {each.provenance.observed_at for each in facts}}
        times = set(observed.values())
        shared = times.pop() if len(times) == 1 else ""  # one run looks everything up at one time, as a rule
        heading = material.phrases.from_step.format(title=one_line(definition.title), observed=shared)
        written.append(Line(heading, LineOrigin.HEADING, step=definition.id))
        version = material.version(fields.result(definition.id))
        for each in facts:
            text = _fact_text(each, material.phrases, "" if shared else observed[each.provenance.observed_at])
            written.append(Line(text, LineOrigin.FACT, step=definition.id, key=each.key, version=version))
    return [Line(material.phrases.facts, LineOrigin.HEADING), *written] if written else []


def _fact_text(fact: Fact, phrases: Phrases, observed: str) -> str:
    """Key, value and unit; then basis, time and expiry, as far as they are known."""
    unit = f" {one_line(fact.unit)}" if fact.unit else ""
    value = _reference(fact, phrases) if fact.artifact is not None else scalar_text(fact.value)
    said = [phrases.basis.format(basis=one_line(fact.basis))] if fact.basis else []
    said += [phrases.until.format(time=_time(fact.expires_at))] if fact.expires_at else []
    return f"- {one_line(fact.key)}{phrases.separator}{value}{unit}{observed}{_bracketed(said, phrases)}"


def _reference(fact: Fact, phrases: Phrases) -> str:
    assert fact.artifact is not None
    artifact = fact.artifact
    return phrases.artifact.format(id=artifact.id, type=artifact.media_type, size=artifact.size, summary=one_line(artifact.summary))


def _judgement_lines(material: Material, prose: Mapping[str, Compressed]) -> list[Line]:
    if not material.crossings:
        return []
    written: list[Line] = []
    for definition in material.inputs:
        judged = [each for each in material.crossings if each.step == definition.id and each.fact is None and not each.shared]
        if not judged:
            continue
        heading = material.phrases.from_step.format(title=one_line(definition.title), observed="")
        written.append(Line(heading, LineOrigin.HEADING, step=definition.id))
        version = material.version(fields.result(definition.id))
        for each in judged:
            packet = each.offer.packet
            value = prose[each.name].text if each.name in prose else packet.payload
            text = _judgement_text(packet, value, material.phrases)
            written.append(Line(text, LineOrigin.JUDGEMENT, step=definition.id, key=packet.key, version=version))
    return [Line(material.phrases.judgements, LineOrigin.HEADING), *written] if written else []


def _judgement_text(packet: Packet, value: object, phrases: Phrases) -> str:
    control = packet.control
    unit = f" {one_line(packet.unit)}" if packet.unit else ""
    said = [phrases.kinds.get(packet.kind, packet.kind.value), phrases.confidence.format(confidence=control.confidence)]
    said += [phrases.because.format(reason=one_line(control.reason))] if control.reason else []
    said += [phrases.until.format(time=_time(control.expires_at))] if control.expires_at else []
    return f"- {one_line(packet.key)}{phrases.separator}{value_text(value)}{unit}{_bracketed(said, phrases)}"


def _shared_lines(material: Material, _: Mapping[str, Compressed]) -> list[Line]:
    if not material.step.reads:
        return []
    written: list[Line] = []
    for each in (each for each in material.crossings if each.shared):
        card, record = material.boundary.cards[each.shared], material.boundary.shared[each.shared]
        version = material.version(fields.shared(each.shared))
        label = one_line(card.title)
        texts = _shared_texts(record, label, each.offer.packet, material.phrases)
        written += [Line(f"- {text}", LineOrigin.SHARED, key=each.shared, version=version) for text in texts]
    written += _proposal_lines(material)
    return [Line(material.phrases.shared, LineOrigin.HEADING), *written] if written else []


def _proposal_lines(material: Material) -> list[Line]:
    """What others wish of a field, for its owner alone, who takes it up or refuses it; also where there is no value yet."""
    written: list[Line] = []
    stopped = {each.shared for each in material.blocked}
    for name in material.step.reads:
        card, record = material.boundary.cards.get(name), material.boundary.shared.get(name)
        if card is None or record is None or card.owner != material.step.id or record.contested or name in stopped:
            continue
        for claim in (each for each in record.proposals if not each.refused):
            told = material.phrases.proposed_value.format(id=claim.id, value=value_text(claim.value), reason=one_line(claim.reason) or "?")
            text = f"- {one_line(card.title)}{material.phrases.separator}{told}"
            written.append(Line(text, LineOrigin.SHARED, key=name, version=material.version(fields.shared(name))))
    return written


def _shared_texts(record: FieldRecord, label: str, packet: Packet, phrases: Phrases) -> list[str]:
    """A value; or, for who is to settle it, every claim of a contested one."""
    if record.contested:
        claims = [
            phrases.contested_value.format(id=each.id, value=value_text(each.value), source=one_line(each.source) or "?")
            for each in (*record.claims, *record.proposals)
        ]
        return [f"{label}{phrases.separator}{claim}" for claim in claims]
    unit = f" {one_line(packet.unit)}" if packet.unit else ""
    said = [phrases.until.format(time=_time(packet.control.expires_at))] if packet.control.expires_at else []
    said += [one_line(record.flagged)] if record.flagged else []
    return [f"{label}{phrases.separator}{value_text(record.value)}{unit}{_bracketed(said, phrases)}"]


def _gap_lines(material: Material, prose: Mapping[str, Compressed]) -> list[Line]:
    """What is unknown: missing, blocked (contested, stale, withdrawn, ...), assumed, and cut."""
    phrases = material.phrases
    written: list[Line] = []

    def say(text: str, step: str | None, key: str | None = None) -> None:
        written.append(Line(f"- {text}", LineOrigin.GAP, step=step, key=key))

    for definition in material.inputs:
        if definition.id not in material.results:
            say(phrases.step_missing.format(title=material.title(definition.id)), definition.id)
    for each in material.blocked:
        if each.crossing.reason is not None:
            key = material.boundary.cards[each.shared].title if each.shared else each.key
            title = material.title(each.step) or key
            say(
                phrases.not_crossing[each.crossing.reason].format(title=title, key=one_line(key)),
                None if each.shared else each.step,
                each.key,
            )
    told = {(each.step, each.key) for each in material.blocked}
    for need in material.missing:
        if need.key != "*" and need.step in material.results and (need.step, need.key) not in told:
            say(phrases.fact_missing.format(title=material.title(need.step), key=one_line(need.key)), need.step, need.key)
    stopped = {each.shared for each in material.blocked}
    for name in material.unread:
        if name not in stopped:
            card = material.boundary.cards.get(name)
            say(phrases.shared_missing.format(key=one_line(card.title if card else name)), None, name)
    for each in material.crossings:
        if each.offer.packet.kind in (Kind.FINDING, Kind.SUGGESTION) and not each.offer.confirmed:
            say(phrases.assumed.format(title=material.title(each.step), key=one_line(each.key)), each.step, each.key)
    for name, text in prose.items():
        if not text.whole:
            say(phrases.prose_cut.format(title=material.title(name.partition(".")[0]), what=_told(text)), name.partition(".")[0])
    return [Line(phrases.gaps, LineOrigin.HEADING), *written] if written else []


def _summary(material: Material, step: str) -> Compressed:
    """Figures that cross in no value are dropped first, then what is too long; one sentence that is too long is cut inside."""
    compressed = compress(material.results[step].summary, material.values, max_characters=SUMMARY_CHARACTERS)
    if compressed.text or not compressed.cut:
        return compressed
    whole = compress(material.results[step].summary, material.values)
    return Compressed(cut(whole.text, SUMMARY_CHARACTERS), whole.unconfirmed, compressed.cut)


def _compressed(material: Material, each: Weighed) -> Compressed:
    return compress(str(each.offer.packet.payload), material.values, max_tokens=material.boundary.effective.max_tokens)


def _summary_lines(material: Material, prose: Mapping[str, Compressed]) -> list[Line]:
    if not material.summaries:
        return []
    written: list[Line] = []
    for definition in material.inputs:
        if definition.id in material.summaries and prose[definition.id].text:
            heading = material.phrases.from_step.format(title=one_line(definition.title), observed="")
            written.append(Line(heading, LineOrigin.HEADING, step=definition.id))
            version = material.version(fields.result(definition.id))
            quoted = quote(prose[definition.id].text)
            written += [Line(line, LineOrigin.SUMMARY, step=definition.id, version=version) for line in quoted]
    return [Line(material.phrases.summaries, LineOrigin.HEADING), *written] if written else []


def _task_lines(material: Material, _: Mapping[str, Compressed]) -> list[Line]:
    step = material.step
    version = material.version(fields.definition(step.id))
    texts = _task_texts(step.task, step.out_of_scope, material.phrases.out_of_scope)
    written = [Line(text, LineOrigin.TASK, step.id, None, version) for text in texts]
    return [Line(material.phrases.task, LineOrigin.HEADING), *written]


@lru_cache(maxsize=1024)
def _task_texts(task: str, out_of_scope: str, phrase: str) -> tuple[str, ...]:
    """The requests of a team share their tasks."""
    said = task.strip()
    if out_of_scope.strip():
        said += "\n" + phrase.format(text=out_of_scope.strip())
    return tuple(map(_no_heading, lines_of(said)))


def _scope_lines(material: Material, _: Mapping[str, Compressed]) -> Sequence[Line]:
    return _rule_lines(material.phrases.scope_rule, "scope")


def _style_lines(material: Material, _: Mapping[str, Compressed]) -> Sequence[Line]:
    return _rule_lines(material.phrases.style_rule, "style")


@lru_cache(maxsize=64)
def _rule_lines(rule: tuple[str, ...], name: str) -> tuple[Line, ...]:
    return tuple(Line(line, LineOrigin.RULE, key=name) for line in rule)


_SECTIONS: tuple[Callable[[Material, Mapping[str, Compressed]], Sequence[Line]], ...] = (
    _request_lines,
    _constraint_lines,
    _fact_lines,
    _judgement_lines,
    _shared_lines,
    _gap_lines,
    _summary_lines,
    _task_lines,
    _scope_lines,
    _style_lines,
)


def _no_heading(line: str) -> str:
    """A task may be written by an agent at run time: a line of it that looks like a heading is quoted."""
    return f"> {line}" if line.lstrip().startswith(("【", "[", ">", "#")) else line


def _told(prose: Compressed) -> str:
    """What was dropped of a text: how many sentences for length, and the figures that stood in it alone."""
    figures = ", ".join(map(one_line, prose.unconfirmed[:5]))
    return "; ".join(part for part in (f"{prose.cut} sentences" if prose.cut else "", figures) if part)


def value_text(value: object) -> str:
    """A scalar as it reads; a list or an object as compact JSON on one line."""
    if isinstance(value, bool | int | float | str):
        return scalar_text(value)
    return one_line(encode(value).decode())


def _bracketed(said: Sequence[str], phrases: Phrases) -> str:
    if not said:
        return ""
    return f"（{'；'.join(said)}）" if phrases.language == "zh" else f" ({'; '.join(said)})"


def _observed(time: datetime | None, phrases: Phrases) -> str:
    return "" if time is None else phrases.observed.format(time=_time(time))


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}Z"

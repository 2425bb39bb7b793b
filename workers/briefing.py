"""Briefs: what one step's agent gets to see, and a manifest that says where every line came from.

Pure: what was read from the board goes in, text and manifest come out, byte for byte the same for the same board. Text that
comes from outside (the user's words, values, upstream summaries) is quoted or escaped, so that it can pass for no section.
Step ids and agent names stand in the manifest only. Called by the worker line after its claim, and by `show --brief`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC

from schemas import fields
from schemas.blackboard import ABSENT
from schemas.briefs import Brief, LeftOut, LineOrigin, Manifest, ManifestLine
from schemas.facts import Fact
from schemas.plans import Need, Step, inputs_of, needs_of
from schemas.requests import ConstraintRecord, RequestRecord
from schemas.results import AgentResult, Failure, FailureCode
from workers import tokens
from workers.phrases import EN, Phrases
from workers.quoting import lines_of, one_line, quote, scalar_text
from workers.sentences import cut

SUMMARY_CHARACTERS = 300
"""An upstream text's share of a brief, where a step asks for it at all."""


@dataclass(frozen=True, slots=True)
class BriefLimits:
    """How large a brief may be."""

    characters: int = 24_000
    tokens: int = 12_000


@dataclass(frozen=True, slots=True)
class BuiltBrief:
    """A brief, and the facts in it as values: `step.key` -> fact, in the order of the text."""

    brief: Brief
    facts: Mapping[str, Fact]


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    origin: LineOrigin
    step: str | None = None
    key: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class _Crossing:
    """One fact that a need lets cross."""

    step: str
    fact: Fact
    optional: bool

    @property
    def name(self) -> str:
        return f"{self.step}.{self.fact.key}"


@dataclass(frozen=True, slots=True)
class _Material:
    """Everything that may stand in the brief, before its size is known."""

    step: Step
    request: RequestRecord
    constraints: Sequence[ConstraintRecord]
    inputs: Sequence[Step]
    results: Mapping[str, AgentResult]
    versions: Mapping[str, str]
    phrases: Phrases
    crossings: tuple[_Crossing, ...] = ()
    missing: tuple[Need, ...] = ()
    summaries: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = field(default=())

    def version(self, name: str) -> str | None:
        version = self.versions.get(name)
        return None if version == ABSENT else version


def build_brief(
    step: Step,
    *,
    request: RequestRecord,
    constraints: Sequence[ConstraintRecord],
    inputs: Iterable[Step] = (),
    results: Mapping[str, AgentResult] | None = None,
    versions: Mapping[str, str] | None = None,
    position: int = 0,
    phrases: Phrases = EN,
    limits: BriefLimits | None = None,
) -> BuiltBrief | Failure:
    """Build the brief of `step`.

    `constraints` in declared order; `inputs` are the definitions of `plans.inputs_of(step)` in plan order; `results` those of
    them that exist (one that did not complete supplies nothing); `versions` field name -> version, for the manifest.

    Returns a `Failure` instead: `MISSING_FACT` naming `step.key` where no completed step supplied a required need,
    `BRIEF_TOO_LARGE` where constraints and required facts alone are over the limit.
    """
    wanted = set(inputs_of(step))
    material = _Material(
        step=step,
        request=request,
        constraints=constraints,
        inputs=[each for each in inputs if each.id in wanted],
        results={name: result for name, result in (results or {}).items() if name in wanted and result.completed},
        versions=versions or {},
        phrases=phrases,
    )
    gathered = _gather(material)
    if isinstance(gathered, Failure):
        return gathered
    return _fit(gathered, position, limits or BriefLimits())


def _gather(material: _Material) -> _Material | Failure:
    """Pick what crosses, what is missing and what stays behind."""
    needs = needs_of(material.step)
    crossings: list[_Crossing] = []
    left_out: list[LeftOut] = []
    supplied: set[Need] = set()
    for definition in material.inputs:
        result = material.results.get(definition.id)
        for fact in result.facts if result is not None else ():
            matching = [need for need in needs if need.step == definition.id and need.key in ("*", fact.key)]
            if matching:
                supplied.update(matching)
                crossings.append(_Crossing(definition.id, fact, all(need.optional for need in matching)))
            else:
                left_out.append(LeftOut(step=definition.id, key=fact.key, reason="not_needed"))
    missing = tuple(need for need in dict.fromkeys(needs) if need not in supplied)
    for need in missing:
        if not need.optional:
            result = material.results.get(need.step)
            faults = f"; failed tool calls there: {'; '.join(result.tool_faults[:3])}" if result is not None and result.tool_faults else ""
            return Failure(code=FailureCode.MISSING_FACT, description=f"no completed step supplied {need.step}.{need.key}{faults}")
        left_out.append(LeftOut(step=need.step, key=need.key, reason="not_supplied"))
    summaries = []
    for definition in material.inputs:
        if definition.id in material.step.depends_on and definition.id in material.results:
            if material.step.share_summary:
                summaries.append(definition.id)
            else:
                left_out.append(LeftOut(step=definition.id, key="summary", reason="summary_not_asked"))
    return replace(material, crossings=tuple(crossings), missing=missing, summaries=tuple(summaries), left_out=tuple(left_out))


def _fit(material: _Material, position: int, limits: BriefLimits) -> BuiltBrief | Failure:
    """Drop as little as possible, the last first: summaries, then optional facts."""
    droppable = len(material.summaries) + sum(crossing.optional for crossing in material.crossings)
    low, high = 0, droppable
    while low < high:
        middle = (low + high) // 2
        if _size_fits(_render(_without(material, middle)), limits):
            high = middle
        else:
            low = middle + 1
    kept = _without(material, low)
    lines = _render(kept)
    text = "\n".join(line.text for line in lines)
    size = tokens.estimate(text)
    if len(text) > limits.characters or size > limits.tokens:
        return Failure(
            code=FailureCode.BRIEF_TOO_LARGE,
            description=f"what must stand in the brief has {len(text):,} characters and about {size:,} tokens; "
            f"the limits are {limits.characters:,} and {limits.tokens:,}",
        )
    manifest = Manifest(
        lines=tuple(
            ManifestLine(line=number, origin=line.origin, step=line.step, key=line.key, version=line.version)
            for number, line in enumerate(lines, start=1)
        ),
        left_out=kept.left_out,
        characters=len(text),
        tokens=size,
        tokenizer=tokens.TOKENIZER,
        limit_characters=limits.characters,
        limit_tokens=limits.tokens,
    )
    brief = Brief(step_id=material.step.id, text=text, manifest=manifest, position=position)
    return BuiltBrief(brief, {crossing.name: crossing.fact for crossing in kept.crossings})


def _size_fits(lines: Sequence[_Line], limits: BriefLimits) -> bool:
    text = "\n".join(line.text for line in lines)
    return len(text) <= limits.characters and tokens.estimate(text) <= limits.tokens


def _without(material: _Material, count: int) -> _Material:
    """Return the material without its `count` most dispensable parts, each named among what was left out."""
    summaries = list(material.summaries)
    left_out = list(material.left_out)
    while count and summaries:
        left_out.append(LeftOut(step=summaries.pop(), key="summary", reason="summary_over_limit"))
        count -= 1
    crossings = list(material.crossings)
    for index in range(len(crossings) - 1, -1, -1):
        if count and crossings[index].optional:
            dropped = crossings.pop(index)
            left_out.append(LeftOut(step=dropped.step, key=dropped.fact.key, reason="optional_over_limit"))
            count -= 1
    return replace(material, summaries=tuple(summaries), crossings=tuple(crossings), left_out=tuple(left_out))


def _render(material: _Material) -> list[_Line]:
    """Write the sections in their order, one blank line between."""
    sections: tuple[Callable[[_Material], list[_Line]], ...] = (
        _request_lines,
        _constraint_lines,
        _fact_lines,
        _gap_lines,
        _summary_lines,
        _task_lines,
        _scope_lines,
        _style_lines,
    )
    lines: list[_Line] = []
    for section in sections:
        written = section(material)
        if written and lines:
            lines.append(_Line("", LineOrigin.HEADING))
        lines += written
    return lines


def _request_lines(material: _Material) -> list[_Line]:
    version = material.version(fields.REQUEST)
    quoted = [_Line(line, LineOrigin.REQUEST, version=version) for line in quote(material.request.text)]
    return [_Line(material.phrases.request, LineOrigin.HEADING), *quoted]


def _constraint_lines(material: _Material) -> list[_Line]:
    if not material.constraints:
        return []
    written = [_Line(material.phrases.constraints, LineOrigin.HEADING)]
    for record in material.constraints:
        text = f"- {one_line(record.label)}{material.phrases.separator}{one_line(record.text)}"
        written.append(_Line(text, LineOrigin.CONSTRAINT, key=record.name, version=material.version(fields.constraint(record.name))))
    return written


def _fact_lines(material: _Material) -> list[_Line]:
    written: list[_Line] = []
    for definition in material.inputs:
        crossing = [each for each in material.crossings if each.step == definition.id]
        if not crossing:
            continue
        times = {_observed(each.fact, material.phrases) for each in crossing}
        shared = times.pop() if len(times) == 1 else ""  # one run looks everything up at one time, as a rule
        heading = material.phrases.from_step.format(title=one_line(definition.title), observed=shared)
        written.append(_Line(heading, LineOrigin.HEADING, step=definition.id))
        version = material.version(fields.result(definition.id))
        for each in crossing:
            text = _fact_text(each.fact, material.phrases, "" if shared else _observed(each.fact, material.phrases))
            written.append(_Line(text, LineOrigin.FACT, step=definition.id, key=each.fact.key, version=version))
    return [_Line(material.phrases.facts, LineOrigin.HEADING), *written] if written else []


def _fact_text(fact: Fact, phrases: Phrases, observed: str) -> str:
    unit = f" {one_line(fact.unit)}" if fact.unit else ""
    return f"- {one_line(fact.key)}{phrases.separator}{scalar_text(fact.value)}{unit}{observed}"


def _observed(fact: Fact, phrases: Phrases) -> str:
    time = fact.provenance.observed_at
    return "" if time is None else phrases.observed.format(time=f"{time.astimezone(UTC):%Y-%m-%d %H:%M}Z")


def _gap_lines(material: _Material) -> list[_Line]:
    titles = {definition.id: one_line(definition.title) for definition in material.inputs}
    written: list[_Line] = []
    for definition in material.inputs:
        if definition.id not in material.results:
            text = material.phrases.step_missing.format(title=titles[definition.id])
            written.append(_Line(f"- {text}", LineOrigin.GAP, step=definition.id))
    for need in material.missing:
        if need.key != "*" and need.step in material.results:
            text = material.phrases.fact_missing.format(title=titles[need.step], key=one_line(need.key))
            written.append(_Line(f"- {text}", LineOrigin.GAP, step=need.step, key=need.key))
    return [_Line(material.phrases.gaps, LineOrigin.HEADING), *written] if written else []


def _summary_lines(material: _Material) -> list[_Line]:
    written: list[_Line] = []
    for definition in material.inputs:
        if definition.id in material.summaries:
            heading = material.phrases.from_step.format(title=one_line(definition.title), observed="")
            written.append(_Line(heading, LineOrigin.HEADING, step=definition.id))
            version = material.version(fields.result(definition.id))
            text = cut(material.results[definition.id].summary, SUMMARY_CHARACTERS)
            written += [_Line(line, LineOrigin.SUMMARY, step=definition.id, version=version) for line in quote(text)]
    return [_Line(material.phrases.summaries, LineOrigin.HEADING), *written] if written else []


def _task_lines(material: _Material) -> list[_Line]:
    step = material.step
    version = material.version(fields.definition(step.id))
    task = step.task.strip()
    if step.out_of_scope.strip():
        task += "\n" + material.phrases.out_of_scope.format(text=step.out_of_scope.strip())
    written = [_Line(_no_heading(line), LineOrigin.TASK, step=step.id, version=version) for line in lines_of(task)]
    return [_Line(material.phrases.task, LineOrigin.HEADING), *written]


def _scope_lines(material: _Material) -> list[_Line]:
    return [_Line(line, LineOrigin.RULE, key="scope") for line in material.phrases.scope_rule]


def _style_lines(material: _Material) -> list[_Line]:
    return [_Line(line, LineOrigin.RULE, key="style") for line in material.phrases.style_rule]


def _no_heading(line: str) -> str:
    """A task may be written by an agent at run time: a line of it that looks like a heading is quoted."""
    return f"> {line}" if line.lstrip().startswith(("【", "[", ">", "#")) else line

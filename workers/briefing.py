"""Briefs: what one step's agent gets to see, and a manifest that says where every line came from.

Pure: what was read from the board goes in, text and manifest come out, byte for byte the same for the same board. Whatever
comes from another step passes the gate first (`workers.gating`); how it is written down is said in `workers.writing`. Called
by the worker line after its claim, and by `show --brief`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from schemas import fields
from schemas.boundary import APPROVE
from schemas.briefs import Brief, LeftOut, LineOrigin, Manifest, ManifestLine
from schemas.facts import Fact
from schemas.gate import Crossing, May, Reason
from schemas.packets import OnFailure, Packet, Payload
from schemas.plans import Need, Step, inputs_of, needs_of
from schemas.requests import ConstraintRecord, RequestRecord
from schemas.results import AgentResult, Failure, FailureCode, ReadOf
from workers import tokens
from workers.gating import SHARED_STEP, Boundary, Weighed, rests_on, ruling_for, weigh_all
from workers.phrases import EN, Phrases
from workers.writing import Line, Material, write


@dataclass(frozen=True, slots=True)
class BriefLimits:
    """How large a brief may be."""

    characters: int = 24_000
    tokens: int = 12_000


@dataclass(frozen=True, slots=True)
class BuiltBrief:
    """A brief, what crossed into it as values, and what the gate decided of everything that was offered."""

    brief: Brief
    facts: Mapping[str, Fact]
    """`step.key` -> fact, in the order of the text."""
    packets: Mapping[str, Packet] = field(default_factory=dict)
    """`step.key` -> judgement."""
    shared: Mapping[str, Payload] = field(default_factory=dict)
    """Shared field -> value."""
    crossings: tuple[Crossing, ...] = ()
    reads: Mapping[str, ReadOf] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoBrief:
    """Why there is none, and what the gate decided of what was offered."""

    failure: Failure
    crossings: tuple[Crossing, ...] = ()


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
    boundary: Boundary | None = None,
) -> BuiltBrief | NoBrief:
    """Build the brief of `step`.

    `constraints` in declared order; `inputs` are the definitions of `plans.inputs_of(step)` in plan order; `results` those of
    them that exist (one that did not complete supplies nothing); `versions` field name -> version, for gate and manifest.

    Returns `NoBrief` instead, with a failure: `MISSING_FACT` naming `step.key` where no completed step supplied a required need,
    `BLOCKED` or `NEEDS_PERSON` where the gate lets it not cross, `BRIEF_TOO_LARGE` where constraints and required values alone
    are over the limit.
    """
    wanted = inputs_of(step)
    inputs = [each for each in inputs if each.id in wanted]
    completed = {name: result for name, result in (results or {}).items() if name in wanted and result.completed}
    boundary = boundary or Boundary()
    ordered = {each.id: completed[each.id] for each in inputs if each.id in completed}
    weighed = weigh_all(step, ordered, versions or {}, boundary)
    crossing = tuple(each for each in weighed if not each.crossing.blocked)
    blocked = tuple(each for each in weighed if each.crossing.blocked and each.crossing.reason is not Reason.NOT_NEEDED)
    missing, unread = _missing(step, crossing), tuple(name for name in step.reads if not any(each.shared == name for each in crossing))
    material = Material(
        step=step,
        request=request,
        constraints=constraints,
        inputs=inputs,
        results=completed,
        versions=versions or {},
        phrases=phrases,
        boundary=boundary,
        crossings=crossing,
        blocked=blocked,
        missing=missing,
        unread=unread,
        summaries=tuple(each for each in ordered if step.share_summary and each in step.depends_on),
        left_out=tuple(_left_out(step, ordered, weighed, blocked, missing, unread)),
    )
    crossings = tuple(each.crossing for each in weighed)
    built = _failure(material, weighed) or _fit(material, position, limits or BriefLimits(), crossings)
    return NoBrief(built, crossings) if isinstance(built, Failure) else built


def _missing(step: Step, crossing: Iterable[Weighed]) -> tuple[Need, ...]:
    """The needs that nothing meets, each once."""
    supplied = {(each.step, key) for each in crossing if not each.shared for key in ("*", each.key)}
    return tuple(dict.fromkeys(need for need in needs_of(step) if (need.step, need.key) not in supplied))


def _left_out(
    step: Step,
    completed: Iterable[str],
    weighed: Iterable[Weighed],
    blocked: Sequence[Weighed],
    missing: Iterable[Need],
    unread: Iterable[str],
) -> Iterator[LeftOut]:
    """What was offered and stays behind, what nobody supplied, and the summaries that nobody asked for."""
    for each in weighed:
        if each.crossing.reason is not None:
            yield LeftOut(step=each.step, key=each.key, reason=each.crossing.reason)
    for need in missing:
        if not any(_meets(each, need) for each in blocked):
            yield LeftOut(step=need.step, key=need.key, reason="not_supplied")
    for name in unread:
        if not any(each.shared == name for each in blocked):
            yield LeftOut(step=SHARED_STEP, key=name, reason="not_supplied")
    if not step.share_summary:
        for name in completed:
            if name in step.depends_on:
                yield LeftOut(step=name, key="summary", reason="summary_not_asked")


def _failure(material: Material, weighed: Sequence[Weighed]) -> Failure | None:
    """Why the step cannot run on what crosses, or has to ask a person first."""
    step = material.step
    for need in material.missing:
        stopped = [each for each in material.blocked if _meets(each, need)]
        if not need.optional and (failure := _without_need(material, need, stopped)):
            return failure
    for name in material.unread:
        stopped = [each for each in material.blocked if each.shared == name]
        if stopped and step.may is May.COMMIT and step.on_failure is not OnFailure.GAP:
            return _blocked(step, stopped, weighed, fields.shared(name))
    return _to_be_asked(material, weighed)


def _meets(weighed: Weighed, need: Need) -> bool:
    return not weighed.shared and weighed.step == need.step and need.key in ("*", weighed.key)


def _without_need(material: Material, need: Need, stopped: Sequence[Weighed]) -> Failure | None:
    """Why the step cannot run without a required need, or None where it is to go on with the gap."""
    if stopped and material.step.on_failure is OnFailure.GAP:
        return None
    if stopped:
        return _blocked(material.step, stopped, stopped, f"{need.step}.{need.key}")
    result = material.results.get(need.step)
    faults = f"; failed tool calls there: {'; '.join(result.tool_faults[:3])}" if result is not None and result.tool_faults else ""
    description = f"no completed step supplied {need.step}.{need.key}{faults}"
    return Failure(code=FailureCode.MISSING_FACT, description=description, about=(f"{need.step}.{need.key}",))


def _blocked(step: Step, stopped: Sequence[Weighed], weighed: Sequence[Weighed], name: str) -> Failure:
    """A contested value that a step may commit on goes to a person, whatever else the step says."""
    said = "; ".join(f"{each.name} is blocked as {each.crossing.reason}: {each.crossing.recover}" for each in stopped[:5])
    contested = step.may is May.COMMIT and any(each.crossing.reason is Reason.CONTESTED for each in stopped)
    asks = step.on_failure is OnFailure.PERSON or contested
    code = FailureCode.NEEDS_PERSON if asks else FailureCode.BLOCKED
    about = tuple(dict.fromkeys(each.name for each in stopped))
    return Failure(code=code, description=f"{name} does not cross: {said}", about=about, rests_on=rests_on(list(weighed)) if asks else "")


def _to_be_asked(material: Material, weighed: Sequence[Weighed]) -> Failure | None:
    """A step that commits what cannot be taken back asks a person first, however good its facts."""
    step, boundary = material.step, material.boundary
    if not (step.may is May.COMMIT and step.irreversible and boundary.effective.irreversible_asks):
        return None
    ruling = ruling_for(step, boundary, list(weighed))
    if ruling is not None and ruling.choice == APPROVE:
        return None
    offered = ", ".join(f"{each.name} = {each.offer.packet.payload!r}" for each in weighed if not each.crossing.blocked)[:1_000]
    description = f"it commits something that cannot be taken back, so a person is asked first; it would rest on: {offered or 'nothing'}"
    return Failure(code=FailureCode.NEEDS_PERSON, description=description, rests_on=rests_on(list(weighed)))


def _fit(material: Material, position: int, limits: BriefLimits, crossings: tuple[Crossing, ...]) -> BuiltBrief | Failure:
    """Drop as little as possible, the last first: summaries, then optional values."""
    kept, (lines, cut) = material, write(material)
    text = _text(lines)
    if not _size_fits(text, limits):
        low, high = 1, len(material.summaries) + sum(each.optional for each in material.crossings)
        while low < high:
            middle = (low + high) // 2
            if _size_fits(_text(write(_without(material, middle))[0]), limits):
                high = middle
            else:
                low = middle + 1
        kept = _without(material, high)
        lines, cut = write(kept)
        text = _text(lines)
    size = tokens.estimate(text)
    if len(text) > limits.characters or size > limits.tokens:
        return Failure(
            code=FailureCode.BRIEF_TOO_LARGE,
            description=f"what must stand in the brief has {len(text):,} characters and about {size:,} tokens; "
            f"the limits are {limits.characters:,} and {limits.tokens:,}",
        )
    manifest = Manifest(
        lines=_manifest_lines(lines),
        left_out=(*kept.left_out, *cut),
        characters=len(text),
        tokens=size,
        tokenizer=tokens.TOKENIZER,
        limit_characters=limits.characters,
        limit_tokens=limits.tokens,
        boundary=material.boundary.effective.version,
    )
    brief = Brief(step_id=material.step.id, text=text, manifest=manifest, position=position)
    facts: dict[str, Fact] = {}
    packets: dict[str, Packet] = {}
    shared: dict[str, Payload] = {}
    reads: dict[str, ReadOf] = {}
    for each in kept.crossings:
        name = each.name
        reads[name] = each.read
        if each.fact is not None:
            facts[name] = each.fact
        elif each.shared:
            shared[each.shared] = each.offer.packet.payload
        else:
            packets[name] = each.offer.packet
    return BuiltBrief(brief, facts, packets, shared, crossings, reads)


def _manifest_lines(lines: Iterable[Line]) -> tuple[ManifestLine, ...]:
    return tuple(
        [
            _line_of_no_field(number, origin, step, key)
            if version is None
            else ManifestLine(line=number, origin=origin, step=step, key=key, version=version)
            for number, (_, origin, step, key, version) in enumerate(lines, start=1)
        ]
    )


@lru_cache(maxsize=4096)
def _line_of_no_field(number: int, origin: LineOrigin, step: str | None, key: str | None) -> ManifestLine:
    """Headings, rules and empty lines are the same in brief after brief of a step."""
    return ManifestLine(line=number, origin=origin, step=step, key=key)


def _text(lines: Sequence[Line]) -> str:
    return "\n".join([line.text for line in lines])


def _size_fits(text: str, limits: BriefLimits) -> bool:
    return len(text) <= limits.characters and tokens.estimate(text) <= limits.tokens


def _without(material: Material, count: int) -> Material:
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
            left_out.append(LeftOut(step=dropped.step, key=dropped.key, reason="optional_over_limit"))
            count -= 1
    return replace(material, summaries=tuple(summaries), crossings=tuple(crossings), left_out=tuple(left_out))

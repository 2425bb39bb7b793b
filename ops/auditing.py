"""Auditing: whether everything that a request's agents were given was declared, arrived, and agrees. Pure, and without a model.

Each brief that was ever given is rebuilt from the board as it was at the claim, compared with the hash kept beside the result,
and held against what its step declares (`ops.brief_checks`); then the results are held against their steps and each other.
It finds what can be checked so, for any team; it does not prove that prose is right. Called by `briefline audit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from ops.brief_checks import Found, Given, Kind, check_brief
from ops.deciding import Attempt, attempts_of, card_of, material_at, state_at, unreadable_at, weighed_at
from ops.reporting import Report, StepReport
from ops.stating import stated_otherwise
from schemas import fields
from schemas.codec import Json
from schemas.facts import Fact
from schemas.packets import Kind as PacketKind
from schemas.packets import Payload, fingerprint
from schemas.plans import Step, needs_of
from schemas.results import AgentResult, MadeWith
from workers.briefing import NoBrief
from workers.preparing import brief_of
from workers.team import Team


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit of one request found, how much it looked at, and what it could not check."""

    request_id: str
    found: tuple[Found, ...]
    unchecked: tuple[str, ...] = ()
    """Briefs that cannot be rebuilt as they were given, each with the reason."""
    briefs: int = 0
    lines: int = 0
    values: int = 0
    """Facts and judgements of completed steps."""
    sections: int = 0

    @property
    def passed(self) -> bool:
        """Whether nothing was found, and nothing left unchecked."""
        return not self.found and not self.unchecked

    def as_json(self) -> dict[str, Json]:
        """Return the audit as the command line prints it."""
        return {
            "request_id": self.request_id,
            "passed": self.passed,
            "found": [{"kind": each.kind.value, "step": each.step, "line": each.line, "what": each.what} for each in self.found],
            "unchecked": list(self.unchecked),
            "checked": {"briefs": self.briefs, "lines": self.lines, "values": self.values, "sections": self.sections},
        }


def audit(report: Report, team: Team) -> Audit:
    """Audit a request with the code of its team."""
    found: list[Found] = []
    unchecked: list[str] = []
    briefs = lines = 0
    planned = {each.id: each for each in card_of(report).steps}
    for attempt in attempts_of(report.events):
        made_with = attempt.made_with
        if made_with is None:  # the gate stopped it, or it never ended: nobody was given anything that can be known
            continue
        given = _given(report, attempt, team, planned)
        if isinstance(given, str):
            unchecked.append(f"{attempt.step} at event {attempt.position}: {given}")
            continue
        if given.brief.sha256 != made_with.brief_sha256:
            unchecked.append(f"{attempt.step} at event {attempt.position}: its brief is not as it was given; the team has changed since")
        briefs, lines = briefs + 1, lines + len(given.lines)
        found += [*check_brief(given), *_undeclared_reads(given.step, made_with)]
    completed = {each.step.id: each for each in report.steps if each.result is not None and each.state == "COMPLETED"}
    found += [each for step in completed.values() for each in _brought(step)]
    found += _sections(completed)
    results = [each.result for each in completed.values() if each.result is not None]
    return Audit(
        request_id=report.request_id,
        found=tuple(found),
        unchecked=tuple(unchecked),
        briefs=briefs,
        lines=lines,
        values=sum(len(each.facts) + len(each.packets) for each in results),
        sections=sum(bool(each.summary) for each in results),
    )


def _given(report: Report, attempt: Attempt, team: Team, planned: Mapping[str, Step]) -> Given | str:
    """The brief of an attempt, or why it cannot be rebuilt."""
    state = state_at(attempt, report.events)
    material = material_at(attempt, state)
    built = brief_of(material, attempt=1, team=team, unreadable=unreadable_at(attempt, material))
    if isinstance(built, NoBrief):
        return f"no brief can be built as it was: {built.failure.code}: {built.failure.description}"
    everybody = {
        name.removeprefix(fields.RESULT_PREFIX): _result(stored.value)
        for name, stored in state.items()
        if name.startswith(fields.RESULT_PREFIX)
    }
    return Given(
        brief=built.brief,
        material=material,
        weighed=weighed_at(attempt, material, team.card),
        phrases=team.phrases,
        everybody=everybody,
        planned=planned,
        planners={step.id: name for name, result in everybody.items() for step in result.steps},
    )


@lru_cache(maxsize=1024)
def _result(value: bytes) -> AgentResult:
    """A result is looked at beside the brief of every other step."""
    return AgentResult.from_json(value)


def _undeclared_reads(step: Step, made_with: MadeWith) -> Iterator[Found]:
    """What the result says that its brief carried, against what the step declares: true also where the code has changed since."""
    needs = needs_of(step)
    for name in made_with.reads:
        if name.startswith(fields.SHARED_PREFIX):
            declared = name.removeprefix(fields.SHARED_PREFIX) in step.reads
        else:
            producer, _, key = name.partition(".")
            declared = any(need.step == producer and need.key in ("*", key) for need in needs)
        if not declared:
            yield Found(Kind.UNDECLARED, step.id, f"its brief carried {name}, which the step does not declare")


def _brought(report: StepReport) -> Iterator[Found]:
    """A completed step brought what it had to, and what its judgements rest on was in its brief or in its run."""
    result, step = report.result, report.step
    assert result is not None
    own = {each.key for each in result.facts} | {each.key for each in result.packets}
    for key in (*step.expects, *(output.key for output in step.outputs if output.required)):
        if key not in own:
            yield Found(Kind.NOT_ARRIVED, step.id, f"it is COMPLETED without {key}, which it had to bring")
    if result.made_with is None:
        return
    known = {*result.made_with.reads, *(f"{step.id}.{key}" for key in own), *own, *(each.id for each in result.artifacts)}
    for packet in result.packets:
        if packet.kind in (PacketKind.FINDING, PacketKind.DECISION):
            for each in packet.control.evidence:
                if each.ref not in known and not each.ref.startswith("art_"):
                    yield Found(
                        Kind.NOT_ON_THE_BOARD, step.id, f"{packet.key} rests on {each.ref}, which was neither in its brief nor its run"
                    )


def _sections(completed: Mapping[str, StepReport]) -> Iterator[Found]:
    """No two sections say different things of one fact: by what they hold, by what they had read, and by their words."""
    facts: dict[str, list[tuple[str, str, Fact]]] = {}
    for step, each in completed.items():
        assert each.result is not None
        for fact in each.result.facts:
            facts.setdefault(fact.key, []).append((step, each.step.agent, fact))
    for key, told in facts.items():
        yield from _told_twice(key, told)
    yield from _read_otherwise(completed)
    for step, each in completed.items():
        assert each.result is not None
        values = {key: [(name, fact.value) for name, _, fact in told] for key, told in facts.items()}
        for key, said, held in stated_otherwise(each.result.summary, values):
            yield Found(Kind.SECTIONS_DIFFER, step, f"its section states {key} = {said!r}; the fact is {held!r}")


def _told_twice(key: str, told: list[tuple[str, str, Fact]]) -> Iterator[Found]:
    """Two facts are one where their key, unit and basis are the same, and two agents say it, or one names one source for both."""
    for index, (step, agent, fact) in enumerate(told):
        for other, other_agent, earlier in told[:index]:
            source = fact.provenance.source_ref
            one = agent != other_agent or (source is not None and source == earlier.provenance.source_ref)
            if one and (fact.unit, fact.basis) == (earlier.unit, earlier.basis) and fact.value != earlier.value:
                yield Found(Kind.SECTIONS_DIFFER, step, f"it says {key} = {fact.value!r}; the section of {other} says {earlier.value!r}")


def _read_otherwise(completed: Mapping[str, StepReport]) -> Iterator[Found]:
    """A section that was written with a value that its producer has since replaced by another one."""
    for step, each in completed.items():
        assert each.result is not None
        for name, read in each.result.made_with.reads.items() if each.result.made_with is not None else ():
            producer, _, key = name.partition(".")
            source = completed.get(producer)
            if source is None or source.result is None or not read.fingerprint:
                continue
            now: list[Payload] = [fact.value for fact in source.result.facts if fact.key == key]
            now += [packet.payload for packet in source.result.packets if packet.key == key]
            if now and read.fingerprint not in map(fingerprint, now):
                yield Found(
                    Kind.SECTIONS_DIFFER, step, f"it was written with another {name} than the section of {producer} says now ({now[0]!r})"
                )

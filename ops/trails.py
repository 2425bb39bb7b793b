"""Trails: from a value back to all that it rests on, and from a value forward to all that rests on it. Pure.

Everything is read off one request's events: the evidence that judgements and changes of shared fields name, what stood in the
briefs of those who made them, the tool calls that facts were copied from, and artifacts with the places in them. Called by
`show --basis` and `show --touched`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ops.reporting import Report, StepReport
from schemas import fields
from schemas.artifacts import is_artifact_id
from schemas.codec import Json
from schemas.errors import NotFound
from schemas.packets import Evidence
from schemas.shared import FieldRecord


@dataclass(frozen=True, slots=True)
class Link:
    """`of` rests on `on`.

    Both are `field/<name>`, `step.key`, `result/<step>` (all that a step said), the id of an artifact with or without a place in
    it, or a tool call.
    """

    of: str
    on: str
    how: str
    """`evidence`, `read`, `added by`, `copied from`, `refers to`, `part of` or `made with`."""


@dataclass(frozen=True, slots=True)
class Trail:
    """One thing on a trail, how it hangs on the one before it, what is known of it, and what comes next."""

    name: str
    how: str
    told: str
    next: tuple[Trail, ...] = ()

    def names(self) -> Iterator[str]:
        """Everything on the trail, this first."""
        yield self.name
        for each in self.next:
            yield from each.names()

    def as_json(self) -> dict[str, Json]:
        """Return it as the command line prints it."""
        return {"name": self.name, "how": self.how, "told": self.told, "next": [each.as_json() for each in self.next]}


def basis(report: Report, name: str) -> Trail:
    """Return what a value rests on, and what that rests on, down to tool calls and places in artifacts.

    Raises:
        NotFound: the request has nothing of that name.
    """
    links = tuple(links_of(report))
    outward = _by((link.of, link.on, link.how) for link in links)
    return _trail(_found(name, links, report), outward, _told_of(report))


def touched(report: Report, name: str) -> Trail:
    """Return what rests on a value, and what rests on that in turn. An artifact stands for every place in it.

    Raises:
        NotFound: the request has nothing of that name.
    """
    links = tuple(links_of(report))
    inward = _by((link.on, link.of, link.how) for link in links)
    return _trail(_found(name, links, report), inward, _told_of(report))


def links_of(report: Report) -> Iterator[Link]:
    """Yield what rests on what; evidence before what was merely read, and each pair once."""
    seen: set[tuple[str, str]] = set()
    for link in (*_of_fields(report), *_of_results(report)):
        if (link.of, link.on) not in seen and link.of != link.on:
            seen.add((link.of, link.on))
            yield link


def _of_fields(report: Report) -> Iterator[Link]:
    for name, record in _records(report).items():
        yield from _evidence(name, record.evidence)
        yield from (Link(name, read, "read") for read in record.seen)
        for claim in record.claims:
            yield from _evidence(name, claim.evidence)
            yield Link(name, fields.result(claim.step), "added by")


def _of_results(report: Report) -> Iterator[Link]:
    for step in _completed(report):
        result = step.result
        assert result is not None
        for packet in result.packets:
            yield from _evidence(packet.name, packet.control.evidence)
            yield from (Link(packet.name, read, "read") for read in packet.control.seen)
        for fact in result.facts:
            name = f"{step.step.id}.{fact.key}"
            yield Link(name, f"{fact.provenance.tool}({fact.provenance.call_id})", "copied from")
            if fact.artifact is not None:
                yield Link(name, fact.artifact.id, "refers to")
        reads = result.made_with.reads if result.made_with is not None else {}
        yield from (Link(fields.result(step.step.id), read, "read") for read in reads)
        for artifact in result.artifacts:
            yield from (Link(artifact.id, each, "made with") for each in artifact.depends_on)


def _evidence(name: str, evidence: Sequence[Evidence]) -> Iterator[Link]:
    for each in evidence:
        for item in each.items:
            yield Link(name, f"{each.ref}#{item}", "evidence")
            yield Link(f"{each.ref}#{item}", each.ref, "part of")
        if not each.items:
            yield Link(name, each.ref, "evidence")


def _trail(name: str, ways: Mapping[str, Sequence[tuple[str, str]]], told: Mapping[str, str]) -> Trail:
    been = {name}

    def walked(here: str, how: str) -> Trail:
        ahead = [each for each in ways.get(here, ()) if each[0] not in been]
        been.update(each[0] for each in ahead)  # what is one step away is not also shown as further away
        return Trail(here, how, told.get(here.partition("#")[0], ""), tuple(walked(*each) for each in ahead))

    return walked(name, "")


def _by(ways: Iterator[tuple[str, str, str]]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for here, there, how in ways:
        found.setdefault(here, []).append((there, how))
    return found


def _found(name: str, links: Sequence[Link], report: Report) -> str:
    known = dict.fromkeys((*_told_of(report), *(part for link in links for part in (link.of, link.on))))
    for candidate in (name, fields.shared(name)):
        if candidate in known:
            return candidate
    listed = ", ".join(each for each in known if "(" not in each and not is_artifact_id(each.partition("#")[0]))
    raise NotFound(f"the request has nothing called {name!r}; there are: {listed or 'none'}", path="name")


def _told_of(report: Report) -> dict[str, str]:
    """What is known of each thing, in a line."""
    told: dict[str, str] = {}
    for name, record in _records(report).items():
        flagged = f"; {record.flagged}" if record.flagged else ""
        carried = f", carried from request {record.carried_from}" if record.carried_from else ""
        told[name] = f"{record.value!r} by {record.step or 'several'}{carried}{flagged}"
    for step in _completed(report):
        result = step.result
        assert result is not None
        for packet in result.packets:
            told[packet.name] = f"{packet.payload!r}, {packet.kind}, confidence {packet.control.confidence:g}"
        for fact in result.facts:
            told[f"{step.step.id}.{fact.key}"] = f"{fact.value!r}"
        for artifact in result.artifacts:
            told[artifact.id] = f"{artifact.summary} ({artifact.media_type}, {artifact.size:,} bytes)"
    return told


def _records(report: Report) -> dict[str, FieldRecord]:
    return {fields.shared(name): record for name, record in report.shared.items()}


def _completed(report: Report) -> list[StepReport]:
    return [each for each in report.steps if each.result is not None and each.result.completed]

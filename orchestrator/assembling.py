"""The aggregator: the answer out of committed results. Pure and deterministic; no model is called, nothing is rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from orchestrator.headings import demote_headings
from orchestrator.phrases import correction, notice
from orchestrator.said import values_of
from orchestrator.scheduling import Standing, stopped_by
from orchestrator.views import Outline, View
from schemas import fields
from schemas.requests import AnswerRecord, Correction, Gap, RequestStatus
from schemas.results import AgentResult, Failure, FailureCode


def sections_in_commit_order(view: View, standing: Mapping[str, Standing]) -> list[tuple[str, AgentResult]]:
    """Return the completed steps with their results, in the order in which they were committed."""
    found = [(view.step(step), step) for step, state in standing.items() if state is Standing.COMPLETED]
    ordered = sorted((seen.position, step) for seen, step in found if seen is not None)
    results = ((step, view.result(step)) for _, step in ordered)
    return [(step, result) for step, result in results if result is not None]


def gaps_of(view: View, outline: Outline, standing: Mapping[str, Standing], *, ended_by: Failure | None = None) -> tuple[Gap, ...]:
    """Return a gap for every failed step, in plan order, each with what stopped below it.

    A stopped step is named once, under the first failure that stopped it. When the request was ended from outside
    (`ended_by`), what never ran and stands below no failure is a gap of its own.
    """
    named: set[str] = set()
    gaps: list[Gap] = []
    for step in outline.definitions:
        state = standing[step]
        seen = view.step(step)
        if state is Standing.FAILED and seen is not None:
            failure = seen.record.failure or Failure(code="AGENT_ERROR", description="")
            stopped = [below for below in stopped_by(step, outline, standing) if below not in named]
            named.update(stopped)
            gaps.append(Gap(step=step, reason=failure.code, description=failure.description, stopped=tuple(stopped)))
        elif state is Standing.COMPLETED:
            refused = [each.partition(": ")[2] for each in view.absorbed.refused if each.startswith(f"{step}: ")]
            gaps += [Gap(step=step, reason=FailureCode.FIELD_REFUSED, description=each) for each in refused[:1]]
    if ended_by is not None:
        open_steps = [step for step in outline.definitions if not standing[step].settled and step not in named]
        gaps += [Gap(step=step, reason=ended_by.code, description=ended_by.description) for step in open_steps]
    return tuple(gaps)


def corrections_of(view: View, standing: Mapping[str, Standing]) -> tuple[Correction, ...]:
    """Return what this answer says otherwise than the one before it, for each value that was withdrawn after that one was given."""
    answered = view.stored.get(fields.ANSWER)
    if answered is None:
        return ()
    found = []
    for each in (retraction for retraction in view.boundary.retractions if retraction.at_ms >= answered.at_ms):
        now = values_of(view.result(each.step)) if standing.get(each.step) is Standing.COMPLETED else {}
        renewed = view.version(fields.result(each.step)) != each.version and each.key in now
        after = str(now[each.key]) if renewed else ""
        if after == each.value:
            continue  # said again by another run: nothing to correct
        found.append(Correction(step=each.step, key=each.key, before=each.value, after=after, reason=each.reason))
    return tuple(found)


def assemble(
    sections: Sequence[tuple[str, AgentResult]],
    outline: Outline | None,
    gaps: Sequence[Gap],
    *,
    language: Literal["en", "zh"],
    cancelled: bool = False,
    corrections: Sequence[Correction] = (),
) -> AnswerRecord:
    """Return the answer: each section once, in the order given, under its step's title; below them one notice of every gap.

    `corrections` are named first: what was said before, and what holds now.

    `COMPLETED` without a gap, `FAILED` without a section, else `DEGRADED`; `CANCELLED` when it was cancelled.
    """
    if cancelled:
        status = RequestStatus.CANCELLED
    elif not gaps:
        status = RequestStatus.COMPLETED
    else:
        status = RequestStatus.DEGRADED if sections else RequestStatus.FAILED
    titles = {step: _one_line(definition.title) for step, definition in outline.definitions.items()} if outline else {}
    parts = [f"## {titles[step]}\n\n{demote_headings(result.summary)}".rstrip() for step, result in sections]
    if corrections:
        parts.insert(0, correction(corrections, titles, language=language))
    if gaps or cancelled:
        parts.append(notice(status, gaps, titles, any_section=bool(sections), language=language))
    return AnswerRecord(
        status=status,
        text="\n\n".join(parts),
        sections=tuple(step for step, _ in sections),
        gaps=tuple(gaps),
        corrections=tuple(corrections),
    )


def _one_line(title: str) -> str:
    return " ".join(title.split())

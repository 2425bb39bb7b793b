"""Short ways to read a report."""

from __future__ import annotations

from collections.abc import Iterable

from ops.reporting import Report
from schemas.blackboard import Event


def states(report: Report) -> dict[str, str]:
    """Step -> state, as people are shown it."""
    return {each.step.id: each.state for each in report.steps}


def named(events: Iterable[Event], name: str) -> list[Event]:
    """The events of one name."""
    return [event for event in events if event.labels.get("event") == name]


def code_of(report: Report, step_id: str) -> str:
    """Why a step is FAILED; empty where it is not."""
    failure = report.step(step_id).failure
    return failure.code if failure else ""

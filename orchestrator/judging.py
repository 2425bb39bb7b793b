"""Judging: what a RESULT bell means beside the board. Pure. The board is compared first, and the board wins."""

from __future__ import annotations

from orchestrator.causes import ResultCame
from orchestrator.decisions import Decision, Verdict
from orchestrator.views import View
from schemas import fields
from schemas.messages import ORCHESTRATOR


def judge(view: View, cause: ResultCame) -> Decision | None:
    """Return what to do with a RESULT that does not simply fit, or None if it does.

    Of an older epoch, or of a request that is over: late. Of a newer state than the board's: the board was set back;
    it is looked at again. Only the same epoch and the board's own version with a different end, or a wrong sender or
    recipient, is a protocol violation.
    """
    if missing := view.missing((fields.STATUS, fields.step(cause.step_id))):
        return Decision(read_more=missing)
    if view.status.status.over:
        return Decision(verdict=Verdict.LATE, over=True)
    seen = view.step(cause.step_id)
    if seen is None or cause.epoch > seen.record.epoch:
        return Decision(verdict=Verdict.AHEAD, reason="the result is of a step or epoch that the board does not have")
    if cause.recipient != ORCHESTRATOR or cause.sender != seen.record.agent:
        reason = (
            f"step {cause.step_id!r} belongs to agent {seen.record.agent!r}; the result was signed {cause.sender!r} for {cause.recipient!r}"
        )
        return Decision(verdict=Verdict.VIOLATION, reason=reason)
    if cause.epoch < seen.record.epoch:
        return Decision(verdict=Verdict.LATE)
    if cause.state is not seen.record.state:
        if seen.version == cause.version:
            reason = f"the result says {cause.state} for step {cause.step_id!r}, the board says {seen.record.state} at the same version"
            return Decision(verdict=Verdict.VIOLATION, reason=reason)
        return Decision(verdict=Verdict.AHEAD, reason="the result is of a state that the board does not have")
    return None

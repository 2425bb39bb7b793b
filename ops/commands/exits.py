"""Exit codes."""

from __future__ import annotations

from schemas.errors import BrieflineError, Refused, Unavailable, UnsafeServer
from schemas.states import RequestStatus

DONE = 0
UNEXPECTED = 1
REFUSED = 2
DEGRADED = 3
ENDED_FAILED = 4
UNREACHABLE = 5
NOT_PASSED = 6
INTERRUPTED = 130

EXIT_CODES = {
    DONE: "done",
    UNEXPECTED: "an unexpected error",
    REFUSED: "bad input or an unknown name; nothing was opened or changed",
    DEGRADED: "the request ended DEGRADED: the answer names a gap",
    ENDED_FAILED: "the request ended FAILED or CANCELLED",
    UNREACHABLE: "a server cannot be reached, or its settings would break a promise",
    NOT_PASSED: "the audit found something, or could not check a brief",
    INTERRUPTED: "interrupted by Ctrl-C",
}
"""What each exit code means; printed by `briefline --help`."""


def exit_of(status: RequestStatus) -> int:
    """Return the exit code of a request that was waited for."""
    return {RequestStatus.COMPLETED: DONE, RequestStatus.DEGRADED: DEGRADED}.get(status, ENDED_FAILED)


def exit_of_error(error: BrieflineError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, Refused):
        return REFUSED
    return UNREACHABLE if isinstance(error, (Unavailable, UnsafeServer)) else UNEXPECTED

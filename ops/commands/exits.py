"""Exit codes, and what goes to standard output to the byte: JSON, and texts whose hash is kept."""

from __future__ import annotations

import sys

import orjson

from schemas.codec import Json
from schemas.errors import BrieflineError, Refused, Unavailable, UnsafeServer
from schemas.requests import RequestStatus

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


def print_json(value: Json) -> None:
    """Write one JSON value to standard output, text as it is, and nothing else."""
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()


def print_exactly(text: str) -> None:
    """Write a text to standard output as its UTF-8 bytes, so that its hash can be taken; on a terminal a line's end follows."""
    sys.stdout.buffer.write(text.encode())
    if sys.stdout.isatty():
        sys.stdout.buffer.write(b"\n")
    sys.stdout.flush()

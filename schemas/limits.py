"""The limits of everything that is kept or sent, checked before any I/O and refused by name."""

from __future__ import annotations

from schemas.errors import LimitExceeded

MAX_VALUE_BYTES = 256 * 1024
"""One field's value on the blackboard."""

MAX_WRITE_BYTES = 1024 * 1024
"""All values of one write together."""

MAX_WRITE_FIELDS = 2_000
"""Fields that one write puts."""

MAX_REQUEST_TEXT_BYTES = 64 * 1024
"""The user's words, as UTF-8."""

MAX_STEPS = 500
"""Steps of one plan."""

MAX_JSON_DEPTH = 64
"""Nesting of any JSON that is read or written."""

MAX_MESSAGE_BYTES = 256 * 1024
"""One message on the wire. A message says where to look, so it stays far below what a broker takes."""

MAX_NAME_LENGTH = 64
"""Names of steps, agents, tools, constraints and facts (queue names are built from them)."""

MAX_SUMMARY_CHARACTERS = 60_000
"""An agent's text for the user."""

MAX_ARTIFACT_BYTES = 32 * 1024 * 1024
"""One artifact. Its hash is compared whole on reading, so it has to fit into memory."""

MAX_ARTIFACT_SUMMARY_CHARACTERS = 100
"""What a reference says of its artifact."""


MAX_PAYLOAD_BYTES = 16 * 1024
"""A judgement or a shared field's value. What is larger is an artifact."""

MAX_CROSSINGS_BYTES = 32 * 1024
"""The gate's decisions in the event that ends an attempt."""

MAX_PAYLOAD_DEPTH = 8
"""Nesting of a small JSON value."""


def within(size: int, limit: int, what: str, *, path: str = "", unit: str = "bytes") -> None:
    """Refuse what is larger than its limit.

    Raises:
        LimitExceeded: naming what, its size and the limit.
    """
    if size > limit:
        raise LimitExceeded(f"{what} has {size:,} {unit}, the limit is {limit:,}", path=path)

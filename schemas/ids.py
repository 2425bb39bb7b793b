"""Ids: names for what has none of its own: a message, one call of a write, a key that nobody gave."""

from __future__ import annotations

import os

random_bytes = os.urandom
"""What ids are drawn from; a simulation has another source."""


def new_id() -> str:
    """Return 32 random hexadecimal digits, as a UUID has them, without making one: a request draws 18 of these."""
    return random_bytes(16).hex()

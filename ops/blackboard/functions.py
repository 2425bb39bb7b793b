"""The Lua library of the blackboard: its source, and its name, which holds a hash of the source.

Two versions of Briefline may share one Redis: each calls its own library. This room sends nothing. Called by
`ops.blackboard.redis` and `ops.blackboard.connecting`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Library:
    """A function library as FUNCTION LOAD takes it, and the names under which FCALL finds its functions."""

    name: str
    source: bytes

    def function(self, verb: str) -> str:
        """Return the name of one of its functions."""
        return f"{self.name}_{verb}"


def load_library() -> Library:
    """Read the library from the package."""
    source = files("ops.blackboard").joinpath("functions.lua").read_bytes()
    name = f"briefline_{hashlib.sha256(source).hexdigest()[:12]}"
    return Library(name, source.replace(b"@LIBRARY@", name.encode()))

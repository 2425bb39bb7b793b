"""The Lua library of the blackboard: its source, and its name, which holds a hash of the source.

Two versions of Briefline may share one Redis: each calls its own library. The seal, if there is one, is no part of the hash:
who calls the functions need not know it. This room sends nothing. Called by `ops.blackboard.redis`,
`ops.blackboard.connecting` and `ops.access`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

from schemas.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class Library:
    """A function library as FUNCTION LOAD takes it, and the names under which FCALL finds its functions."""

    name: str
    source: bytes

    def function(self, verb: str) -> str:
        """Return the name of one of its functions."""
        return f"{self.name}_{verb}"


def load_library(seal: str = "") -> Library:
    """Read the library from the package, and put the seal into it: a secret of 16 to 64 letters and digits, or none.

    Raises:
        InvalidValue: another seal.
    """
    if seal and not re.fullmatch(r"[0-9A-Za-z]{16,64}", seal):
        raise InvalidValue("a seal is 16 to 64 letters and digits")
    source = files("ops.blackboard").joinpath("functions.lua").read_bytes()
    name = f"briefline_{hashlib.sha256(source).hexdigest()[:12]}"
    return Library(name, source.replace(b"@LIBRARY@", name.encode()).replace(b"@SEAL@", seal.encode()))

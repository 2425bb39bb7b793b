"""What may come in: any JSON, any text, damaged copies of what is right, and junk that a program would not think of."""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
from hypothesis import strategies as st

TEXT = st.text(max_size=40)
"""Any text, lone surrogates and NUL included."""
UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | UNICODE
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(UNICODE, inner, max_size=4), max_leaves=12)
JUNK: st.SearchStrategy[Any] = (
    JSON
    | TEXT
    | st.floats()
    | st.integers()
    | st.binary(max_size=20)
    | st.sets(st.integers(), max_size=3)
    | st.dictionaries(st.integers() | st.none(), TEXT, max_size=3)
    | st.builds(object)
    | st.builds(lambda depth: nested(depth), st.integers(60, 300))
)
"""What a function may return: JSON, and all that is none."""


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """A copy of `data` with bytes changed, cut out or put in; or another JSON value somewhere in it."""
    if draw(st.booleans()):
        return _other_value(draw, data)
    copy = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(copy) - 1)))
        kind = draw(st.sampled_from(["change", "cut", "put in", "end here"]))
        if kind == "change" and copy:
            copy[at] = draw(st.integers(0, 255))
        elif kind == "cut":
            del copy[at : at + draw(st.integers(1, 10))]
        elif kind == "put in":
            copy[at:at] = draw(st.binary(min_size=1, max_size=10))
        else:
            del copy[at:]
    return bytes(copy)


def _other_value(draw: st.DrawFn, data: bytes) -> bytes:
    value = orjson.loads(data)
    here = value
    while isinstance(here, dict | list) and here:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        key = draw(st.sampled_from(keys))
        if not (isinstance(here[key], dict | list) and here[key] and draw(st.booleans())):
            here[key] = draw(JSON)
            return orjson.dumps(value)
        here = here[key]
    return orjson.dumps(draw(JSON))


def junk_bytes(random: Random, good: bytes) -> bytes:
    """One of many ways to be no message and no record; for tests that publish or store by the hundred."""
    match random.randrange(9):
        case 0:
            return b""
        case 1:
            return random.randbytes(random.randrange(1, 200))
        case 2:
            return good[: random.randrange(1, len(good))]
        case 3:
            at = random.randrange(len(good))
            return good[:at] + b"\xff\xfe" + good[at:]
        case 4:
            return b"[" * random.randrange(1, 5000)
        case 5:
            return b'{"specversion": NaN}'
        case 6:
            return orjson.dumps(random.choice([None, 1, [], {}, "text", {"specversion": "1.0", "data": {}}]))
        case 7:
            return good.replace(b'"', b"'")
        case _:
            return b"\x00" * random.randrange(1, 300)

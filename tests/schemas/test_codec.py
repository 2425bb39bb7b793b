"""The one JSON codec: what passes comes back the same, and what could not is refused with its path."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec
from schemas.errors import InvalidValue
from schemas.limits import MAX_JSON_DEPTH

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
INTEGERS = st.integers(-(2**63), 2**63 - 1)
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=25)
EDGES = (2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**40, -(10**40))


def typed(value: Any) -> Any:
    """The value with its types, because `True == 1 == 1.0`."""
    match value:
        case dict():
            return {key: typed(item) for key, item in value.items()}
        case list():
            return [typed(item) for item in value]
        case float():
            return float, value, math.copysign(1, value)
        case _:
            return type(value), value


def nested(depth: int, make: Callable[[Any], Any]) -> Any:
    value: Any = make(1)
    for _ in range(depth - 1):
        value = make(value)
    return value


@given(JSON)
def test_what_is_encoded_comes_back_the_same_types_included(value: Any) -> None:
    assert typed(codec.decode(codec.encode(value))) == typed(value)


@given(JSON)
def test_text_and_bytes_are_read_alike(value: Any) -> None:
    data = codec.encode(value)
    assert typed(codec.decode(data.decode())) == typed(codec.decode(data))


@given(JSON, st.randoms())
def test_a_digest_depends_on_content_and_not_on_the_order_of_keys(value: Any, random: Any) -> None:
    def shuffled(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: shuffled(part[key]) for key in random.sample(list(part), len(part))}
        return [shuffled(item) for item in part] if isinstance(part, list) else part

    assert codec.digest(shuffled(value)) == codec.digest(value)
    assert codec.digest([value]) != codec.digest([value, value])


def test_keys_stay_in_the_order_given_and_text_is_written_as_utf_8() -> None:
    assert codec.encode({"预算": "两千元 🦊", "a": 1}) == '{"预算":"两千元 🦊","a":1}'.encode()


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, ""),
        ({"a": math.inf}, "a"),
        ({"a": [1, {"b": -math.inf}]}, "a.1.b"),
        ([None, {"x": math.nan}], "1.x"),
        ("\ud800", ""),
        ({"text": ["fine", "half \udfff"]}, "text.1"),
        ({"outer": {"\ud800": 1}}, "outer"),
        *(({"n": [0, number]}, "n.1") for number in EDGES),
        ({"n": [None, 2**63]}, "n.1"),
        ({"raw": b"bytes"}, "raw"),
        ({"raw": [bytearray(b"x")]}, "raw.0"),
        ({"map": {1: "one"}}, "map"),
        ({"map": [{None: 1}]}, "map.0"),
        ({"map": {("a", "b"): 1}}, "map"),
        ({"set": {1}}, "set"),
        ({"when": datetime(2026, 1, 1, tzinfo=UTC)}, "when"),
        ({"when": [date(2026, 1, 1)]}, "when.0"),
        ({"object": object()}, "object"),
    ],
)
def test_what_would_not_come_back_the_same_is_refused_with_its_path(value: Any, path: str) -> None:
    for write in (codec.encode, codec.digest, codec.refuse_unsafe):
        with pytest.raises(InvalidValue) as refused:
            write(value)
        assert refused.value.path == path
        assert str(refused.value).startswith(f"{path}: " if path else "")


def test_a_dataclass_is_not_json_even_though_the_library_would_write_it() -> None:
    @dataclass
    class Point:
        x: float

    with pytest.raises(InvalidValue, match=r"^points\.0: Point is not JSON"):
        codec.encode({"points": [Point(1.0)]})


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 10**18])
def test_the_largest_integers_pass(number: int) -> None:
    assert codec.decode(codec.encode({"n": number, "text": str(number)})) == {"n": number, "text": str(number)}


@pytest.mark.parametrize("number", EDGES)
@pytest.mark.parametrize("frame", ["{}", '{{"text":"1","n":[0,{}]}}', "[1.5,{}]"])
def test_an_integer_beyond_64_bits_is_refused_and_never_read_as_a_float(number: int, frame: str) -> None:
    for data in (frame.format(number), frame.format(number).encode()):
        with pytest.raises(InvalidValue, match="beyond 64 bits"):
            codec.decode(data)


@pytest.mark.parametrize("digits", [300, 5_000, 100_000])
def test_an_integer_of_thousands_of_digits_is_refused_in_a_short_text(digits: int) -> None:
    with pytest.raises(InvalidValue) as refused:
        codec.decode(b"9" * digits)
    assert len(str(refused.value)) < 200


@given(st.from_regex(r"[0-9]{18,40}", fullmatch=True), st.floats(allow_nan=False, allow_infinity=False))
def test_long_rows_of_digits_in_texts_and_fractions_pass(digits: str, fraction: float) -> None:
    value = {digits: digits, "f": fraction}
    assert codec.decode(codec.encode(value)) == value
    assert codec.decode(f"0.{digits}") == float(f"0.{digits}")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b"[1,]",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b'{"a":[-1e999]}',
        b"01",
        b"'single'",
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"caf\xe9"',
        b"\xef\xbb\xbf1",
        b"\x00",
        b"1 2",
        '"\ud800"',
    ],
)
def test_what_is_not_json_is_refused(data: bytes | str) -> None:
    with pytest.raises(InvalidValue, match=r"^not JSON: "):
        codec.decode(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_and_nothing_else_happens(data: bytes) -> None:
    try:
        value = codec.decode(data)
    except InvalidValue:
        return
    assert typed(codec.decode(codec.encode(value))) == typed(value)


@pytest.mark.parametrize("make", [lambda inner: [inner], lambda inner: {"k": inner}, lambda inner: [None, {"k": inner}]])
def test_the_limit_of_nesting_is_the_same_on_both_ways(make: Callable[[Any], Any]) -> None:
    levels = 2 if isinstance(make(0), list) and len(make(0)) == 2 else 1
    fits = nested(MAX_JSON_DEPTH // levels, make)
    assert codec.decode(codec.encode(fits)) == fits
    over = nested(MAX_JSON_DEPTH // levels + 1, make)
    with pytest.raises(InvalidValue, match="nested deeper than 64 levels") as refused:
        codec.encode(over)
    assert refused.value.path.count(".") == MAX_JSON_DEPTH
    with pytest.raises(InvalidValue, match="nested deeper than 64 levels"):
        codec.decode(orjson.dumps(over))


@pytest.mark.parametrize("depth", [300, 5_000, 200_000])
def test_nesting_far_beyond_the_limit_breaks_nothing(depth: int) -> None:
    for data in (b"[" * depth + b"]" * depth, b"[" * depth, b'{"k":' * depth):
        with pytest.raises(InvalidValue):
            codec.decode(data)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for write in (codec.encode, codec.digest):
        with pytest.raises(InvalidValue, match="nested deeper"):
            write(loop)


def test_many_brackets_side_by_side_are_not_deep() -> None:
    value: list[Any] = [[[{"a": []}]] for _ in range(500)]
    assert codec.decode(codec.encode(value)) == value
    assert codec.decode(codec.encode("[" * 500)) == "[" * 500

"""The shape of all stored and sent models: immutable, tolerant of what is unknown, strict about values."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.errors import InvalidValue, Unreadable, UnsupportedVersion
from schemas.frozen import Frozen, Name, Scalar, first_problem, validated
from schemas.requests import StepRecord, StepState
from schemas.results import Failure


class Holder(Frozen):
    value: Scalar
    note: str | None = None


class Named(Frozen):
    name: Name
    parts: tuple[Holder, ...] = ()


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXT


@given(SCALARS)
def test_a_scalar_keeps_its_type_in_python_and_through_json(value: Any) -> None:
    held = Holder(value=value)
    again = Holder.from_json(held.to_json())
    for seen in (held.value, again.value):
        assert type(seen) is type(value)
        assert seen == value
    if isinstance(value, float):
        assert math.copysign(1, again.value) == math.copysign(1, value)  # type: ignore[arg-type]  # a float, as was shown


@pytest.mark.parametrize(
    ("written", "value"),
    [
        (b"true", True),
        (b"1", 1),
        (b"1.0", 1.0),
        (b"1e2", 100.0),
        (b'"1"', "1"),
        (b'"true"', "true"),
        (b"0", 0),
        (b"false", False),
        (b'""', ""),
        ('"预算 🦊"'.encode(), "预算 🦊"),
    ],
)
def test_a_scalar_reads_as_the_type_that_it_is_written_in(written: bytes, value: Any) -> None:
    read = Holder.from_json(b'{"value":' + written + b"}").value
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None, [], [1], {}, {"a": 1}, b"x", 2**63, 2**64, -(2**63) - 1, 10**30])
def test_what_is_no_scalar_is_refused_by_its_own_name(bad: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        Holder(value=bad)
    assert first_problem(refused.value).startswith("value: ")
    with pytest.raises(InvalidValue, match="64 bits") as by_path:
        validated(Named, {"name": "n", "parts": [{"value": 1}, {"value": bad}]})
    assert by_path.value.path == "parts.1.value"


@pytest.mark.parametrize(
    "written",
    [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"null", b"[]", b"{}", b"9223372036854775808", b"-9223372036854775809", b"1" * 60],
)
def test_what_is_no_scalar_is_refused_on_reading_too(written: bytes) -> None:
    with pytest.raises(Unreadable, match=r"^Holder: value: "):
        Holder.from_json(b'{"value":' + written + b"}")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"value":1',
        b'{"value":"\xff"}',
        b'{"value":"\\ud800"}',
        b"\xff\xfe",
        pytest.param(b'{"value":' * 5_000, id="deep maps"),
        pytest.param(b"[" * 100_000, id="deep lists"),
    ],
)
def test_bytes_that_hold_no_value_of_ours_are_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable, match=r"^Holder: ") as refused:
        Holder.from_json(data)
    assert len(str(refused.value)) < 500


def test_a_lone_surrogate_cannot_be_written() -> None:
    with pytest.raises(InvalidValue, match="Holder cannot be written as JSON"):
        Holder(value="half \ud800").to_json()


def test_a_value_never_changes() -> None:
    held = Holder(value=1)
    with pytest.raises(ValidationError):
        held.value = 2  # type: ignore[misc]  # refused by the type checker as well
    assert held.value == 1


def test_unknown_fields_are_ignored_and_missing_optional_ones_have_their_default() -> None:
    assert Holder.from_json(b'{"value":1,"of_a_newer_minor":{"deep":[1]}}') == Holder(value=1)
    assert Holder(value=1).to_json() == b'{"value":1}'


@pytest.mark.parametrize("name", ["a", "A1", "after-sales", "iot_2", "9", "x" * 64])
def test_names_hold_letters_digits_hyphens_and_underscores(name: str) -> None:
    assert Named(name=name).name == name


@pytest.mark.parametrize("name", ["", "-a", "_a", "a.b", "a b", "a/b", "a\n", "售后", "a*", "a#", "x" * 65, "é"])
def test_what_a_queue_or_field_could_not_be_called_is_no_name(name: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        validated(Named, {"name": name})
    assert refused.value.path == "name"


def test_a_complaint_stays_a_line_however_long_the_key_is() -> None:
    class Map(Frozen):
        counts: dict[str, int]

    with pytest.raises(Unreadable) as refused:
        Map.from_json(b'{"counts":{"' + b"k" * 200_000 + b'":"x"}}')
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("version", ['"2.0"', '"2"', "2", "null", '"next"'])
def test_a_record_that_says_it_is_of_another_major_version_is_refused_and_not_misread(version: str) -> None:  # F63
    data = b'{"schema_version": %s, "state": "PENDING", "agent": "iot"}' % version.encode()
    with pytest.raises(UnsupportedVersion, match=r"StepRecord .* another major version than 1\.0"):
        StepRecord.from_json(data)


@pytest.mark.parametrize("version", ['"1.0"', '"1.7"', "1"])
def test_a_record_of_a_later_minor_version_is_read_without_what_is_new_in_it(version: str) -> None:
    data = b'{"schema_version": %s, "state": "PENDING", "agent": "iot", "priority": {"of": 7}}' % version.encode()
    assert StepRecord.from_json(data) == StepRecord(state=StepState.PENDING, agent="iot")


def test_a_text_that_speaks_of_schema_versions_is_no_mark() -> None:
    said = Failure(code="X", description='{"schema_version": "9.0"} and "schema_version"')
    assert Failure.from_json(said.to_json()) == said

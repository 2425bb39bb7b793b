"""What both blackboards share before any I/O: versions, the limits of a write, and what a snapshot says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.blackboard import ABSENT, After, Lease, Snapshot, Stored, Write, check_write, next_version
from schemas.errors import InvalidValue, LimitExceeded
from schemas.limits import MAX_VALUE_BYTES, MAX_WRITE_BYTES, MAX_WRITE_FIELDS
from schemas.requests import Role

OPERATION = "0123456789abcdef"
FINE = Write(role=Role.WORKER, writer="worker/1", operation_id=OPERATION, expect={"step/a": "1.abcdef"}, put={"step/a": b"{}"})


def test_a_version_counts_up_from_absent_and_carries_who_wrote_it() -> None:
    first = next_version(ABSENT, "aaaaaaaaaaaaaaak3f9xx")
    assert first == "1.k3f9xx"
    assert next_version(first, "zzzzzz") == "2.zzzzzz"


OPERATIONS = st.text("0123456789abcdef", min_size=6, max_size=32)


@given(st.integers(0, 10**12), OPERATIONS, OPERATIONS)
def test_invariant_10_a_version_from_before_a_rollback_equals_none_from_after_it(count: int, lost: str, again: str) -> None:
    current = f"{count}.ffffff" if count else ABSENT
    assert next_version(current, lost).partition(".")[0] == str(count + 1)
    assert (next_version(current, lost) == next_version(current, again)) == (lost[-6:] == again[-6:])
    assert next_version(current, lost) not in (current, ABSENT)


@pytest.mark.parametrize(
    "write",
    [
        FINE,
        replace(FINE, operation_id="abcdef"),
        replace(FINE, put={}, labels={"event": "late_result_refused"}),  # a note
        replace(FINE, put={"step/a": b"x" * MAX_VALUE_BYTES}),
        replace(FINE, put={f"field/{index}": b"x" * (MAX_WRITE_BYTES // 8) for index in range(8)}),
        replace(FINE, put={f"field/{index}": b"" for index in range(MAX_WRITE_FIELDS)}),
        replace(FINE, lease=Lease("a", 1)),
        replace(FINE, after=After("step/a", 0)),
        replace(FINE, expire_after_seconds=0),
    ],
    ids=range(9),
)
def test_a_write_within_the_limits_passes(write: Write) -> None:
    check_write(write)


@pytest.mark.parametrize(
    ("change", "path", "said"),
    [
        ({"operation_id": "12345"}, "operation_id", "at least 6 characters"),
        ({"operation_id": ""}, "operation_id", "at least 6 characters"),
        ({"put": {"": b""}}, "put", "'' is no field name"),
        ({"put": {"field/a\x00b": b""}}, "put", "is no field name"),
        ({"labels": {"event": "x", "reason": "half \ud800"}}, "labels", "lone surrogate"),
        ({"lease": Lease("a", 0)}, "lease", "longer than 0 ms"),
        ({"lease": Lease("a", -5)}, "lease", "longer than 0 ms"),
        ({"lease": Lease("b", 5)}, "lease", "set by a write that puts its step"),
        ({"after": After("step/a", -1)}, "after", "not negative"),
        ({"after": After("step/b", 1)}, "after", "counted from a field that the write expects"),
        ({"after": After("status", 1), "expect": {"status": ABSENT}}, "after", "counted from a field"),
        ({"expire_after_seconds": -1}, "expire_after_seconds", "not negative"),
    ],
)
def test_a_write_that_makes_no_sense_is_refused_by_name(change: dict[str, Any], path: str, said: str) -> None:
    with pytest.raises(InvalidValue, match=said) as refused:
        check_write(replace(FINE, **change))
    assert refused.value.path == path


@pytest.mark.parametrize(
    ("change", "path", "said"),
    [
        ({"put": {"result/a": b"x" * (MAX_VALUE_BYTES + 1)}}, "result/a", "the value has 262,145 bytes, the limit is 262,144"),
        ({"put": {f"f/{i}": b"x" * MAX_VALUE_BYTES for i in range(5)}}, "put", "the write has 1,310,720 bytes, the limit is 1,048,576"),
        ({"put": {f"f/{i}": b"" for i in range(MAX_WRITE_FIELDS + 1)}}, "put", "the write has 2,001 fields, the limit is 2,000"),
        ({"labels": {"event": "x" * MAX_WRITE_BYTES}}, "put", "the write has 1,048,583 bytes"),
    ],
)
def test_a_write_over_a_limit_is_refused_with_both_numbers(change: dict[str, Any], path: str, said: str) -> None:
    with pytest.raises(LimitExceeded, match=said) as refused:
        check_write(replace(FINE, **change))
    assert refused.value.path == path


def test_limits_count_bytes_and_not_characters() -> None:
    with pytest.raises(LimitExceeded):
        check_write(replace(FINE, put={"result/a": ("预算" * (MAX_VALUE_BYTES // 6 + 1)).encode()}))
    with pytest.raises(LimitExceeded):
        check_write(replace(FINE, labels={"reason": "错" * (MAX_WRITE_BYTES // 3)}))


def test_a_field_that_is_not_there_has_no_value_and_the_version_of_nothing() -> None:
    snapshot = Snapshot("r", {"plan": Stored(b"{}", "3.abcdef", 7, 1000)}, now_ms=1001, position=7, asked=frozenset({"plan", "status"}))
    assert (snapshot.value("plan"), snapshot.version("plan")) == (b"{}", "3.abcdef")
    assert (snapshot.value("status"), snapshot.version("status")) == (None, ABSENT)

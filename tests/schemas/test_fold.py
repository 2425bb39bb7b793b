"""The fold of events: what a request's state is, by definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas.blackboard import ABSENT, Event, Stored, fold, next_version

FIELDS = st.sampled_from(["plan", "step/a", "step/b", "answer"])
PUTS = st.lists(st.dictionaries(FIELDS, st.binary(max_size=8), max_size=3), max_size=12)


def event(position: int, put: dict[str, tuple[str, bytes]]) -> Event:
    """An event that only its position and its puts matter of."""
    return Event(position, 1000 + position, "orchestrator", "o", f"operation-{position}", "", {}, put)


def history(puts: list[dict[str, bytes]]) -> list[Event]:
    """Events of writes that put this, one after the other."""
    versions: dict[str, str] = {}
    events = []
    for position, values in enumerate(puts, 1):
        for name in values:
            versions[name] = next_version(versions.get(name, ABSENT), f"operation-{position:06d}")
        events.append(event(position, {name: (versions[name], value) for name, value in values.items()}))
    return events


def test_no_events_are_no_state() -> None:
    assert fold([]) == {}


def test_a_note_leaves_the_state_as_it_is() -> None:
    events = [event(1, {"plan": ("1.a", b"x")}), event(2, {})]
    assert fold(events) == fold(events[:1]) == {"plan": Stored(b"x", "1.a", 1, 1001)}


def test_the_last_put_of_a_field_counts_and_carries_its_position_and_time() -> None:
    events = [event(1, {"plan": ("1.a", b"x"), "answer": ("1.a", b"y")}), event(2, {"plan": ("2.b", b"z")})]
    assert fold(events) == {"plan": Stored(b"z", "2.b", 2, 1002), "answer": Stored(b"y", "1.a", 1, 1001)}


@given(PUTS, st.integers(0, 12))
def test_the_state_at_any_earlier_event_is_the_fold_up_to_it(puts: list[dict[str, bytes]], cut: int) -> None:
    events = history(puts)
    assert fold([*events[:cut], *events[cut:]]) == fold(events)
    earlier = fold(events[:cut])
    for name, stored in earlier.items():
        last = max(n for n, values in enumerate(puts[:cut], 1) if name in values)
        assert (stored.position, stored.value) == (last, puts[last - 1][name])
    assert set(earlier) == {name for values in puts[:cut] for name in values}


@given(PUTS)
def test_the_count_of_a_version_is_how_often_the_field_was_put(puts: list[dict[str, bytes]]) -> None:
    for name, stored in fold(history(puts)).items():
        assert int(stored.version.partition(".")[0]) == sum(name in values for values in puts)


def test_a_version_is_a_count_and_the_end_of_the_operation_id() -> None:
    assert next_version(ABSENT, "operation-k3f9zz") == "1.k3f9zz"
    assert next_version("9.abcdef", "操作-甲乙丙丁戊己") == "10.甲乙丙丁戊己"

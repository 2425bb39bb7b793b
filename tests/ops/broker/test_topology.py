"""Names, keys, credit and acknowledgements are plain data: no server is needed to see that they fit together."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.broker.acks import Acks, Frame
from ops.broker.backoff import delays
from ops.broker.credit import Adjustment, adjustment
from ops.broker.topology import Topology, takes
from schemas.broker import BROKER_DEAD_QUEUE, RESULT_READY, UNREADABLE_QUEUE, Address, Exchange, request_event, to_agent, to_dead
from schemas.errors import InvalidValue

TOPOLOGY = Topology("briefline.v1")


def test_every_name_carries_the_version_of_the_topology() -> None:
    assert TOPOLOGY.full("tasks.iot") == "briefline.v1.tasks.iot"
    assert {queue.name for queue in TOPOLOGY.fixed} == {"results", "commands", "dead.broker", "dead.unreadable"}
    assert [queue.name for queue in TOPOLOGY.of_agent("iot")] == ["dead.iot", "tasks.iot"]


@pytest.mark.parametrize("name", ["tasks.iot", "dead.iot", "results", "commands", BROKER_DEAD_QUEUE, UNREADABLE_QUEUE])
def test_a_queue_can_be_named_alone_and_is_declared_the_same(name: str) -> None:
    known = {queue.name: queue for queue in (*TOPOLOGY.fixed, *TOPOLOGY.of_agent("iot"))}
    assert TOPOLOGY.queue(name) == known[name]


@pytest.mark.parametrize("name", ["", "tasks", "tasks.", "dead.", "results.x", "mail.iot"])
def test_a_name_outside_of_the_topology_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue):
        TOPOLOGY.queue(name)


def test_what_a_queue_gives_up_has_a_queue_to_go_to() -> None:
    for queue in (*TOPOLOGY.fixed, *TOPOLOGY.of_agent("iot")):
        key = queue.arguments.get("x-dead-letter-routing-key")
        if key is None:
            assert "x-delivery-limit" not in queue.arguments  # nothing is dropped
            continue
        assert queue.arguments["x-dead-letter-exchange"] == "briefline.v1.dead"
        address = Address(Exchange.DEAD, str(key))
        takers = [other.name for other in TOPOLOGY.fixed if any(takes(binding, address) for binding in other.bindings)]
        assert len(takers) == 1
        assert takers != [queue.name]


@pytest.mark.parametrize("agent", ["broker", "unreadable", "a", "Z-9_x"])
def test_no_agents_dead_letters_are_taken_for_what_the_broker_gave_up(agent: str) -> None:
    keys = {binding.key for queue in TOPOLOGY.fixed for binding in queue.bindings}
    assert to_dead(agent).key not in keys


def test_events_match_by_words() -> None:
    def pattern(key: str) -> Address:
        return Address(Exchange.EVENTS, key)

    event = request_event("COMPLETED")
    assert takes(pattern("request.*"), event)
    assert takes(pattern("#"), event)
    assert takes(pattern("request.#"), event)
    assert takes(pattern("#.completed"), event)
    assert not takes(pattern("request"), event)
    assert not takes(pattern("*"), event)
    assert not takes(pattern("result.*"), event)
    assert takes(RESULT_READY, RESULT_READY)
    assert not takes(Address(Exchange.TASKS, "#"), to_agent("iot"))  # only events have patterns


@given(st.floats(0.001, 10), st.floats(0.001, 100), st.integers())
def test_waiting_times_grow_stay_bounded_and_differ_between_processes(first: float, cap: float, seed: int) -> None:
    ours = list(islice(delays(first, cap, Random(seed)), 12))
    assert all(0 < delay <= cap for delay in ours)
    assert all(min(first * 2**n, cap) / 2 <= delay <= min(first * 2**n, cap) for n, delay in enumerate(ours))
    assert ours != list(islice(delays(first, cap, Random(seed + 1)), 12))


def test_fifty_processes_do_not_come_back_at_the_same_time() -> None:  # F55
    times = sorted(next(islice(delays(0.1, 2.0, Random(seed)), 6, 7)) for seed in range(50))
    assert times[-1] - times[0] > 0.8
    assert max(sum(start <= time < start + 0.1 for time in times) for start in times) < 15


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_credit_and_what_is_in_hand_never_exceed_the_prefetch(prefetch: int, granted: int, retired: int) -> None:
    step = adjustment(prefetch=prefetch, granted=granted, retired=retired)
    if step.cancel:
        assert granted + retired > prefetch
        step = adjustment(prefetch=prefetch, granted=0, retired=retired + granted)
        granted, retired = 0, retired + granted
    assert not step.cancel
    assert granted + step.add + retired == max(prefetch, retired + granted)
    assert adjustment(prefetch=prefetch, granted=granted + step.add, retired=retired) == Adjustment()


def test_what_is_done_up_to_a_delivery_is_acknowledged_in_one_frame() -> None:
    acks = Acks()
    for tag in range(1, 8):
        acks.arrived(tag)
    for tag in (3, 1, 2, 6):
        acks.done(tag)
    assert acks.take() == [Frame(3, multiple=True), Frame(6, multiple=False)]
    assert acks.take() == []
    acks.done(4)
    assert acks.take() == [Frame(4, multiple=False)]
    acks.left(5)
    acks.done(7)
    assert acks.take() == [Frame(7, multiple=False)]


@given(st.lists(st.tuples(st.integers(1, 30), st.sampled_from(["done", "left", "take"]))))
def test_no_acknowledgement_covers_a_delivery_that_is_not_done(story: list[tuple[int, str]]) -> None:
    acks = Acks()
    open_at_the_broker, done = set(range(1, 31)), set[int]()
    for tag in range(1, 31):
        acks.arrived(tag)
    for tag, what in [*story, (0, "take")]:
        if what == "take":
            for frame in acks.take():
                covered = {other for other in open_at_the_broker if other <= frame.tag} if frame.multiple else {frame.tag}
                assert covered <= done
                open_at_the_broker -= covered
        elif tag in open_at_the_broker - done:
            if what == "done":
                acks.done(tag)
                done.add(tag)
            else:
                open_at_the_broker.discard(tag)
                acks.left(tag)
    assert not done & open_at_the_broker

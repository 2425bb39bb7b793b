"""What only the broker in memory does: faults on purpose, the same for the same seed, on whatever clock the loop has."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from ops.broker.faults import FaultPlan
from ops.broker.memory import MemoryBroker
from schemas.broker import COMMANDS, COMMANDS_QUEUE, Address, Delivery, Exchange, dead_queue, request_event, to_agent
from schemas.errors import OutcomeUnknown, Undeliverable
from tests.ops.broker.bench import AGENT, TASKS, Seen, Taken, task

EVERYTHING = FaultPlan(duplicate=0.2, lose=0.1, delay=0.3, reorder=0.3, redeliver=0.2, unknown=0.1, longest_delay_seconds=0.02)


async def contents_under(plan: FaultPlan, seed: int, count: int = 60) -> list[str]:
    """What arrives, in its order, when `count` messages are published under a plan, and the outcome of each."""
    story: list[str] = []
    quiet = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        story.append(delivery.message.content)
        await delivery.ack()

    async with MemoryBroker(seed=seed, faults=plan) as broker:
        await broker.declare_agent(AGENT)
        async with broker.consume(TASKS, handler, prefetch=3):
            for number in range(count):
                try:
                    await broker.publish(to_agent(AGENT), task(str(number)))
                except OutcomeUnknown:
                    story.append(f"unknown {number}")
            asyncio.get_running_loop().call_later(0.3, quiet.set)
            await quiet.wait()
        assert broker.depth(TASKS) == 0
    return story


async def test_without_a_plan_every_message_comes_once_and_in_order() -> None:
    assert await contents_under(FaultPlan(), seed=1) == [str(number) for number in range(60)]


async def test_the_same_seed_gives_the_same_faults_and_another_seed_others() -> None:
    no_delay = FaultPlan(duplicate=0.2, lose=0.1, reorder=0.3, unknown=0.1)
    assert await contents_under(no_delay, seed=7) == await contents_under(no_delay, seed=7)
    assert await contents_under(no_delay, seed=7) != await contents_under(no_delay, seed=8)


@pytest.mark.parametrize("seed", range(5))
async def test_under_every_fault_nothing_comes_that_was_not_sent_and_most_of_it_comes(seed: int) -> None:
    story = await contents_under(EVERYTHING, seed)
    arrived = Counter(entry for entry in story if not entry.startswith("unknown"))
    assert set(arrived) <= {str(number) for number in range(60)}
    assert len(arrived) > 40
    assert max(arrived.values()) > 1
    assert [entry for entry in story if not entry.startswith("unknown")] != sorted(arrived, key=int)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (FaultPlan(duplicate=1), {"0": 2, "1": 2}),
        (FaultPlan(lose=1), {}),
        (FaultPlan(delay=1, longest_delay_seconds=0.01), {"0": 1, "1": 1}),
    ],
)
async def test_each_fault_does_what_its_name_says(plan: FaultPlan, expected: dict[str, int]) -> None:
    assert Counter(await contents_under(plan, seed=1, count=2)) == expected


async def test_a_message_that_every_consumer_dies_of_is_given_up() -> None:
    async with MemoryBroker(seed=1, faults=FaultPlan(redeliver=1, longest_delay_seconds=0.001), delivery_limit=3) as broker:
        seen, notices = Seen(), Taken()
        await broker.declare_agent(AGENT)
        async with broker.consume(TASKS, seen, prefetch=1):
            await broker.publish(to_agent(AGENT), task("poison"))
            async with asyncio.timeout(5):
                while broker.depth("dead.broker") == 0:  # noqa: ASYNC110 - the fault plan leaves nobody to be told
                    await asyncio.sleep(0.001)
        assert [bell.content for bell in broker.messages("dead.broker")] == ["poison"]
        assert broker.reasons("dead.broker") == ["delivery_limit"]
        assert (seen.messages.empty(), notices.nothing()) == (True, True)


async def test_an_unknown_outcome_may_or_may_not_have_stored_the_message() -> None:
    async with MemoryBroker(seed=3, faults=FaultPlan(unknown=1)) as broker:
        for number in range(40):
            with pytest.raises(OutcomeUnknown):
                await broker.publish(COMMANDS, task(str(number)))
        assert 10 < broker.depth(COMMANDS_QUEUE) < 30


async def test_a_subscriber_has_a_queue_of_its_own() -> None:
    async with MemoryBroker() as broker:
        broker.subscribe("mine", Address(Exchange.EVENTS, "request.*"))
        seen = Seen()
        async with broker.consume("mine", seen, prefetch=1):
            await broker.publish(request_event("COMPLETED"), task("done"), confirm=False)
            assert (await seen.next()).content == "done"


async def test_a_broker_that_forgets_everything_has_its_fixed_queues_and_running_consumers_still() -> None:
    async with MemoryBroker() as broker:
        await broker.declare_agent(AGENT)
        await broker.declare_agent("idle")
        taken = Taken()
        async with broker.consume(TASKS, taken, prefetch=1):
            await broker.publish(to_agent(AGENT), task("in hand"))
            await broker.publish(to_agent(AGENT), task("waiting"))
            await broker.publish(COMMANDS, task())
            old = await taken.next()
            broker.forget_everything()
            assert (broker.depth(TASKS), broker.depth(COMMANDS_QUEUE), broker.depth(dead_queue(AGENT))) == (0, 0, 0)
            await taken.ack(old)
            await broker.publish(to_agent(AGENT), task("after"))
            new = await taken.next()
            assert new.message.content == "after"
            await taken.ack(new)
            with pytest.raises(Undeliverable):
                await broker.publish(to_agent("idle"), task())
            await broker.publish(COMMANDS, task())


async def test_purging_drops_what_waits_and_leaves_what_is_in_hand() -> None:
    async with MemoryBroker() as broker:
        await broker.declare_agent(AGENT)
        taken = Taken()
        await broker.publish(to_agent(AGENT), task("in hand"))
        await broker.publish(to_agent(AGENT), task("waiting"))
        async with broker.consume(TASKS, taken, prefetch=1):
            await taken.next()
            broker.purge(TASKS)
        assert [bell.content for bell in broker.messages(TASKS)] == ["in hand"]

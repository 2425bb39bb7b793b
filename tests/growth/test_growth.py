"""What a request costs, counted: it does not grow with the requests under way, the agents, the steps, the events, the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from ops.artifacts.keeping import KeptArtifacts
from ops.artifacts.memory import MemoryShelf
from ops.bench.counting import CountedBoard, CountedBroker, Counts
from ops.blackboard.memory import MemoryBlackboard
from ops.blackboard.redis import RedisBlackboard
from ops.broker.memory import MemoryBroker
from ops.embedded import serving
from orchestrator import acting
from schemas.blackboard import Blackboard
from schemas.requests import RequestStatus
from tests.growth.running import Gate, cost_of, grown, step, team_of
from tests.ops.broker.bench import eventually
from tests.support.boards import orchestrator
from tests.support.servers import OwnRedis
from tests.system.cast import told
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.team import Team

pytestmark = pytest.mark.timeout(170)
BYTES_OF_AN_AGENT = 160
"""What a request stores of each agent of its team, once, in the team's card."""
BYTES_OF_A_STEP = 16
"""What each look at a request reads of each step of its plan: its id, in the list of the plan's steps."""


@asynccontextmanager
async def board_of(kind: str, folder: Path) -> AsyncIterator[Blackboard]:
    """A board of its own of this kind."""
    if kind == "memory":
        async with MemoryBlackboard(lease_seconds=60.0) as memory:
            yield memory
    else:
        with OwnRedis(folder) as server:
            async with RedisBlackboard(server.url, lease_seconds=0.5) as board:
                yield board


async def in_flight(board: Blackboard, number: int) -> dict[str, float]:
    """The cost of each of so many requests that are all under way before the first one's agent is done."""
    gate, counts = Gate(), Counts()
    team = Team("stage", [BlackBox("hand", gate)], [step("a"), step("b", "a")])
    async with MemoryBroker() as broker:
        counted = CountedBoard(board, counts)
        # Every step is rung: what a worker goes on with by itself depends on how long the gate kept its agent.
        async with serving(counted, CountedBroker(broker, counts), team, lease_seconds=60.0, quick_seconds=-1.0) as runtime:
            accepted = [await runtime.submit(team, "Please.") for _ in range(number)]
            waiting = [asyncio.create_task(runtime.wait(each.request_id)) for each in accepted]
            gate.opened.set()
            assert set(await asyncio.gather(*waiting)) == {RequestStatus.COMPLETED}
    # A look at who has waited long goes by time, and not by how many there are: one read, and one settling of the mark.
    looks = counts.calls.pop("settle", 0)
    counts.calls["read"] -= looks
    cost = counts.a(number)
    return {name: cost[name] for name in ("board calls", "bytes written", "messages", "message bytes")}


@pytest.mark.parametrize("kind", ["memory", pytest.param("redis", marks=pytest.mark.own_server)])
async def test_a_request_costs_the_same_with_a_hundred_and_with_two_thousand_under_way(kind: str, tmp_path: Path) -> None:
    costs = []
    for number in (100, 2000):
        async with board_of(kind, tmp_path / str(number)) as board:
            costs.append(await in_flight(board, number))
    assert grown(*costs) == {}, costs


async def test_a_step_that_waits_in_a_long_queue_is_not_rung_again_and_one_whose_task_was_lost_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "_BACKLOG_SECONDS", 0.0)
    gate, counts = Gate(), Counts()
    team = Team("stage", [BlackBox("hand", gate)], [step("a")])
    async with MemoryBlackboard(lease_seconds=60.0) as board, MemoryBroker() as broker:
        counted = CountedBoard(board, counts)
        async with serving(counted, CountedBroker(broker, counts), team, lease_seconds=60.0) as runtime:
            accepted = [(await runtime.submit(team, "Please.")).request_id for _ in range(40)]
            waiting = [asyncio.create_task(runtime.wait(each)) for each in accepted]

            async def queued() -> bool:
                return broker.depth("tasks.hand") == 32  # the worker holds eight

            await eventually(queued, seconds=30)
            before = counts.messages
            for each in accepted:
                await board.enter(each, 0)
            looked = counts.calls["settle"]

            async def seen() -> bool:
                return counts.calls["settle"] >= looked + len(accepted)

            await eventually(seen, seconds=30)
            assert counts.messages == before
            broker.purge("tasks.hand")
            for each in accepted:
                await board.enter(each, 0)
            await eventually(queued, seconds=30)
            gate.opened.set()
            assert set(await asyncio.gather(*waiting)) == {RequestStatus.COMPLETED}


async def test_a_request_costs_the_same_with_one_and_with_fifty_agents_but_for_the_team_card() -> None:
    costs = []
    for number in (1, 50):
        agents = [f"hand{n}" for n in range(number)]
        team = team_of(step("a", agent=agents[0]), step("b", "a", agent=agents[-1]), agents=agents)
        async with MemoryBlackboard(lease_seconds=60.0) as board:
            cost = await cost_of(board, team, 20)
        cost["bytes written"] -= number * BYTES_OF_AN_AGENT
        cost["bytes returned"] -= number * BYTES_OF_AN_AGENT
        costs.append(cost)
    assert grown(*costs) == {}, costs


def chain(length: int) -> Team:
    """One step after the other."""
    return team_of(step("s0"), *(step(f"s{n}", f"s{n - 1}") for n in range(1, length)))


def fan(length: int) -> Team:
    """All steps side by side."""
    return team_of(*(step(f"s{n}") for n in range(length)))


def join(length: int) -> Team:
    """All steps side by side, and one that waits for all."""
    names = [f"s{n}" for n in range(length - 1)]
    return team_of(*map(step, names), step("last", *names))


@pytest.mark.parametrize("shape", [chain, fan, join])
async def test_a_step_costs_the_same_in_plans_of_three_thirty_and_three_hundred(shape: Callable[[int], Team]) -> None:
    costs = []
    for length in (3, 30, 300):
        async with MemoryBlackboard(lease_seconds=60.0) as board:
            cost = await cost_of(board, shape(length), unit=length)
        cost["bytes returned"] -= length * BYTES_OF_A_STEP
        costs.append(cost)
    # What all steps share, such as the submission, weighs less the more there are: the small plan bounds the large ones.
    # A step that joins all reads each of them once or twice as they end, in a plan that is too small for sparing it.
    small, middle, large = costs
    names = ("board calls", "bytes written", "messages", "message bytes")
    assert grown({name: small[name] for name in names}, {name: middle[name] for name in names}) == {}, costs
    assert grown({name: small[name] for name in names}, {name: large[name] for name in names}) == {}, costs
    for name in ("fields asked", "bytes returned"):
        assert large[name] <= 1.1 * max(small[name], middle[name]), (name, costs)


async def test_a_step_costs_the_same_on_a_request_of_ten_and_of_ten_thousand_events() -> None:
    costs = []
    for number in (10, 10_000):
        gate, counts = Gate(), Counts()
        team = Team("stage", [BlackBox("hand", gate)], [step("a"), step("b", "a")])
        async with MemoryBlackboard(lease_seconds=60.0) as board, MemoryBroker() as broker:
            counted = CountedBoard(board, counts)
            async with serving(counted, CountedBroker(broker, counts), team, lease_seconds=60.0, quick_seconds=-1.0) as runtime:
                accepted = await runtime.submit(team, "Please.")
                for _ in range(number):
                    await board.write(accepted.request_id, orchestrator(labels={"event": "noted"}))
                gate.opened.set()
                assert await runtime.wait(accepted.request_id) is RequestStatus.COMPLETED
        costs.append(counts.a(1))
    assert grown(*costs) == {}, costs


@pytest.mark.own_server
async def test_redis_does_the_same_work_for_a_write_on_a_request_of_ten_and_of_ten_thousand_events(tmp_path: Path) -> None:
    async with redis_of(tmp_path) as (board, client):
        found = []
        for number in (10, 10_000):
            request_id = f"r{number}"
            await asyncio.gather(*(board.write(request_id, orchestrator({"status": b'"x"'})) for _ in range(number)))
            before = await traffic(client)
            for _ in range(200):
                await board.write(request_id, orchestrator({"status": b'"x"'}))
                await board.read(request_id, ("status",))
            after = await traffic(client)
            found.append({name: float(after[name] - before[name]) for name in after})
        assert grown(*found) == {}, found


@asynccontextmanager
async def redis_of(folder: Path) -> AsyncIterator[tuple[RedisBlackboard, Redis]]:
    """A Redis of the test's own: the board on it, and a client that looks."""
    with OwnRedis(folder) as server:
        async with RedisBlackboard(server.url) as board, Redis.from_url(server.url) as client:
            yield board, client


async def traffic(client: Redis) -> dict[str, int]:
    """Commands that Redis has carried out, those inside functions included, and bytes to and from its clients."""
    commands = await client.info("commandstats")
    stats = await client.info("stats")
    done = {name: each["calls"] for name, each in commands.items() if name not in ("cmdstat_info", "cmdstat_time", "cmdstat_ping")}
    return {"commands": sum(done.values()), "in": stats["total_net_input_bytes"], "out": stats["total_net_output_bytes"]}


async def test_a_result_of_ten_bytes_and_one_of_ten_megabytes_cost_the_broker_the_same_and_the_board_a_reference() -> None:
    costs = []
    for size in (10, 10 * 1024 * 1024):

        async def says(brief: AgentBrief, size: int = size) -> Any:
            return told(brief, finding="x" * size)

        counts, shelf = Counts(), MemoryShelf()
        team = Team("stage", [BlackBox("hand", says, facts=("finding",))], [step("a"), step("b")])
        async with MemoryBlackboard(lease_seconds=60.0) as board, MemoryBroker() as broker:
            counted, artifacts = CountedBoard(board, counts), KeptArtifacts(shelf)
            async with serving(counted, CountedBroker(broker, counts), team, lease_seconds=60.0, artifacts=artifacts) as runtime:
                report = await runtime.ask("Please.")
                assert report.status is RequestStatus.COMPLETED
        costs.append(counts.a(1))
    assert costs[0]["messages"] == costs[1]["messages"]
    assert abs(costs[1]["message bytes"] - costs[0]["message bytes"]) <= 0.01 * costs[0]["message bytes"], costs
    assert costs[1]["bytes written"] <= costs[0]["bytes written"] + 64 * 1024, costs

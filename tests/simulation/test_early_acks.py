"""Early acks in virtual time: a credit that is lent always comes back, whatever breaks while the agent ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ops.blackboard.memory import MemoryBlackboard
from ops.broker.memory import MemoryBroker
from ops.client import Client
from orchestrator.orchestrator import Orchestrator
from schemas.broker import Consumer, Handler
from schemas.errors import Unavailable
from schemas.plans import Step
from schemas.requests import RequestStatus
from tests.simulation import clock
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.team import Team
from workers.worker import Worker

ACK_AFTER_SECONDS = 10.0


class ForgetfulBoard(MemoryBlackboard):
    """It is away just when a step's mark is to be taken."""

    async def leave(self, member: str) -> None:
        raise Unavailable("not now")


class SlowBroker(MemoryBroker):
    """Changing a consumption takes it 2 seconds, as consuming anew over a wire may."""

    @asynccontextmanager
    async def consume(self, queue: str, handler: Handler, *, prefetch: int) -> AsyncIterator[Consumer]:
        async with super().consume(queue, handler, prefetch=prefetch) as consumer:
            quick = consumer.resize

            async def slow(prefetch: int) -> None:
                await asyncio.sleep(2)
                await quick(prefetch)

            consumer.resize = slow  # type: ignore[method-assign]  # this one consumer alone
            yield consumer


async def _status_after_long_steps(board: MemoryBlackboard, broker: MemoryBroker, *seconds: float) -> RequestStatus:
    """Three steps of one agent, one after the other, by a worker with one place; they run for `seconds`."""

    lengths = dict(zip("abc", seconds, strict=True))

    async def work(brief: AgentBrief) -> str:
        await asyncio.sleep(lengths[brief.step_id])
        return "done"

    steps = [
        Step(id=id, title=id, agent="ann", task="Do it.", depends_on=above, needs=())
        for id, above in (("a", ()), ("b", ("a",)), ("c", ("b",)))
    ]
    team = Team("team", [BlackBox("ann", work)], steps)
    stop = asyncio.Event()
    async with broker, asyncio.TaskGroup() as group:
        group.create_task(Orchestrator(board, broker).run(stop=stop))
        group.create_task(Worker(board, broker, team, concurrency=1, ack_after_seconds=ACK_AFTER_SECONDS).run(stop=stop))
        client = Client(board, broker)
        accepted = await client.submit(team, "Please.")
        try:
            async with asyncio.timeout(120):
                return await client.wait(accepted.request_id)
        finally:
            stop.set()


def test_a_credit_comes_back_though_the_board_is_away_after_the_commit() -> None:
    async def main(loop: clock.VirtualLoop) -> RequestStatus:
        return await _status_after_long_steps(ForgetfulBoard(clock=loop.board_clock), MemoryBroker(), 20, 20, 1)

    assert clock.run(main) is RequestStatus.COMPLETED


@pytest.mark.parametrize("seconds", [(11, 15, 1), (11.999, 15, 1), (15, 11, 1)])  # lending takes from 10 s to 12 s
def test_a_credit_comes_back_though_the_agent_ends_while_it_is_being_lent(seconds: tuple[float, ...]) -> None:
    async def main(loop: clock.VirtualLoop) -> RequestStatus:
        return await _status_after_long_steps(MemoryBlackboard(clock=loop.board_clock), SlowBroker(), *seconds)

    assert clock.run(main) is RequestStatus.COMPLETED

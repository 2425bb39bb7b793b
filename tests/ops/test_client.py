"""The client where the command line cannot reach: a command whose sending is in doubt."""

from __future__ import annotations

from contextlib import aclosing
from typing import cast

from ops.client import Client
from ops.embedded import Runtime, embedded
from schemas.broker import Address, Broker
from schemas.errors import OutcomeUnknown
from schemas.messages import AgentMessage
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.team import Team


class _Doubtful:
    """A broker whose first message arrives and takes effect, and is then said to be unknown."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.sent: list[AgentMessage] = []

    async def publish(self, address: Address, bell: AgentMessage, *, confirm: bool = True) -> None:
        """Hand the message on; the first time, wait for its effect and doubt it."""
        self.sent.append(bell)
        await self.runtime.broker.publish(address, bell, confirm=confirm)
        if len(self.sent) == 1:
            async with aclosing(self.runtime.board.watch(bell.request_id, 0)) as events:
                async for event in events:
                    if event.cause == bell.id:
                        break
            raise OutcomeUnknown("the confirm was lost")


async def test_a_replay_that_took_effect_though_its_sending_was_in_doubt_is_no_refusal() -> None:
    tries: list[AgentBrief] = []

    async def fail_once(brief: AgentBrief) -> str:
        tries.append(brief)
        if len(tries) == 1:
            raise ValueError("not yet")
        return "now"

    team = Team("once", [BlackBox("shy", fail_once)], [{"agent": "shy", "title": "Shy", "task": "Answer."}])
    async with embedded(team) as runtime:
        failed = await runtime.ask("please")
        assert failed.status == "FAILED"
        doubtful = _Doubtful(runtime)
        assert await Client(runtime.board, cast(Broker, doubtful)).replay(failed.request_id, "shy") == 1
        assert len(doubtful.sent) == 2
        assert (await runtime.result(failed.request_id)).text == "## Shy\n\nnow"

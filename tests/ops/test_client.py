"""The client where the command line cannot reach: a command whose sending is in doubt, and what it asks of the board."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from typing import Any, cast

import pytest

from ops import opening
from ops.blackboard.memory import MemoryBlackboard
from ops.broker.memory import MemoryBroker
from ops.client import Client
from ops.embedded import Runtime, embedded, serving
from schemas.blackboard import Blackboard, Outcome, Write
from schemas.broker import Address, Broker
from schemas.errors import OutcomeUnknown, Unavailable
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


class _Counted:
    """A board that counts what it is asked for."""

    def __init__(self, inner: Blackboard) -> None:
        self._inner = inner
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._inner, name)


class _SlowToOpen(_Counted):
    """Its writes take a while."""

    async def write(self, request_id: str, write: Write) -> Outcome:
        await asyncio.sleep(0.05)
        return await self._inner.write(request_id, write)


class _NoLine:
    """A broker that is away."""

    async def publish(self, address: Address, bell: AgentMessage, *, confirm: bool = True) -> None:
        raise Unavailable("no line")


async def _done(brief: AgentBrief) -> str:
    return "done"


QUICK = Team("quick", [BlackBox("quick", _done)], [{"agent": "quick", "title": "Quick", "task": "Answer."}])


async def test_a_step_that_ends_at_once_asks_the_board_for_a_claim_and_a_commit_and_marks_nothing() -> None:
    async with MemoryBlackboard() as board, MemoryBroker() as broker:
        counted = _Counted(board)
        async with serving(cast(Blackboard, counted), broker, QUICK, orchestrators=0) as workers, serving(board, broker, QUICK, workers=0):
            await Client(board, broker).answer((await workers.submit(QUICK, "please")).request_id)
        assert {name: counted.calls[name] for name in ("read", "mark", "leave", "renew")} == dict.fromkeys(
            ("read", "mark", "leave", "renew"), 0
        )
        assert counted.calls["write"] == 3, "the opening, the claim and the commit"


async def test_a_step_that_outlasts_its_first_renewal_is_marked_until_it_ends() -> None:
    async def slow(brief: AgentBrief) -> str:
        await asyncio.sleep(0.3)
        return "done"

    team = Team("slow", [BlackBox("slow", slow)], [{"agent": "slow", "title": "Slow", "task": "Answer."}])
    async with MemoryBlackboard() as board, MemoryBroker() as broker:
        counted = _Counted(board)
        async with serving(cast(Blackboard, counted), broker, team, lease_seconds=0.5) as runtime:
            await runtime.answer((await runtime.submit(team, "please")).request_id)
        assert counted.calls["mark"] == counted.calls["renew"] >= 1
        assert counted.calls["leave"] == 1


async def test_an_answer_says_how_the_request_ended_its_text_and_its_gaps() -> None:
    async def broken(brief: AgentBrief) -> str:
        raise ValueError("no stock")

    team = Team(
        "half",
        [BlackBox("quick", _done), BlackBox("broken", broken)],
        [
            {"agent": "quick", "title": "Quick", "task": "Answer."},
            {"agent": "broken", "title": "Broken", "task": "Answer.", "max_attempts": 1, "depends_on": []},
        ],
    )
    async with embedded(team) as runtime:
        accepted = await runtime.submit(team, "please")
        answer = await runtime.answer(accepted.request_id)
        report = await runtime.result(accepted)
        assert (answer.status, answer.text, answer.gaps) == (report.status, report.text, report.gaps)
        assert answer.status == "DEGRADED"
        assert [gap.step for gap in answer.gaps] == ["broken"]


async def test_a_client_that_waits_for_an_answer_looks_at_its_status_once_and_then_at_the_answer() -> None:
    async with MemoryBlackboard() as board, MemoryBroker() as broker, serving(board, broker, QUICK):
        counted = _Counted(board)
        client = Client(cast(Blackboard, counted), broker)
        await client.answer((await client.submit(QUICK, "please")).request_id)
        assert counted.calls == {"enter": 1, "write": 1, "recent_add": 1, "watch_field": 1}


@pytest.mark.parametrize(("board", "deadline", "marks"), [(_Counted, None, 1), (_SlowToOpen, None, 2), (_Counted, 0.01, 2)])
async def test_a_request_is_entered_again_where_its_opening_took_long_or_its_deadline_comes_first(
    board: type[_Counted], deadline: float | None, marks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "FIRST_LOOK_MS", 80)
    counted = board(MemoryBlackboard())
    await Client(cast(Blackboard, counted), MemoryBroker()).submit(QUICK, "please", deadline_seconds=deadline)
    assert counted.calls["enter"] == marks


async def test_a_request_whose_submit_could_not_be_rung_is_looked_at_soon() -> None:
    board = MemoryBlackboard()
    counted = _Counted(board)
    await Client(cast(Blackboard, counted), cast(Broker, _NoLine())).submit(QUICK, "please")
    assert counted.calls["enter"] == 2

"""Reserving under a fence: who died blocks nobody for ever, who lost the step takes nothing, an attempt takes up its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ops.blackboard.memory import MemoryBlackboard
from schemas import fields
from schemas.blackboard import Write, Written
from schemas.errors import NotPermitted
from schemas.plans import Step
from schemas.requests import Role, StepRecord, StepState
from schemas.shared import FieldCard, FieldRecord
from tests.support.boards import Clock
from workers.reserving import FenceLost, Reservations

SEATS = {"seats": FieldCard(name="seats", capacity=3)}


class Row:
    """A board with steps that run, and their reservations."""

    def __init__(self, board: MemoryBlackboard, clock: Clock) -> None:
        self.board = board
        self.clock = clock
        self.count = 0

    async def claimed(self, name: str) -> Reservations:
        """The reservations of a step that was claimed just now, by whoever."""
        self.count += 1
        stored = fields.step(name)
        now = await self.board.read("r", (stored,))
        record = StepRecord(state=StepState.RUNNING, agent="a", attempt=self.count)
        written = await self.board.write(
            "r", Write(Role.ORCHESTRATOR, "test", f"claim-{self.count:06}", {stored: now.version(stored)}, {stored: record.to_json()})
        )
        assert isinstance(written, Written)
        step = Step(id=name, title=name, agent="a", task="x", writes=("seats",))
        return Reservations(step, self.board, "r", written.versions[stored], "worker/1", SEATS, {}, 60_000)

    async def held(self) -> dict[str, tuple[float, bool]]:
        """Id -> amount, and whether it is confirmed."""
        value = (await self.board.read("r", (fields.shared("seats"),))).value(fields.shared("seats"))
        record = FieldRecord() if value is None else FieldRecord.from_json(value)
        return {id: (each.amount, each.confirmed) for id, each in record.reservations.items()}


@pytest_asyncio.fixture
async def row() -> AsyncIterator[Row]:
    """A board whose clock goes when a test lets it."""
    clock = Clock()
    async with MemoryBlackboard(clock=clock) as board:
        yield Row(board, clock)


async def test_what_a_dead_worker_held_is_free_once_its_time_is_over(row: Row) -> None:
    await (await row.claimed("a")).reserve("seats", 3)
    other = await row.claimed("b")
    with pytest.raises(NotPermitted, match="0 of 3 is left"):
        await other.reserve("seats", 1)
    row.clock.seconds += 60
    assert await other.reserve("seats", 3) == 0
    assert await row.held() == {"b:seats": (3, False)}


async def test_the_next_attempt_takes_up_what_the_dead_one_held_and_gives_back_the_rest(row: Row) -> None:
    dead = await row.claimed("a")
    await dead.reserve("seats", 1, "out")
    await dead.reserve("seats", 2, "back")
    again = await row.claimed("a")
    assert await again.reserve("seats", 1, "out") == 0
    await again.confirm()
    assert await row.held() == {"a:out": (1, True)}


async def test_who_lost_the_step_changes_nothing_any_more(row: Row) -> None:
    late = await row.claimed("a")
    await late.reserve("seats", 1)
    await row.claimed("a")
    before = await row.held()
    for call in (late.reserve("seats", 2), late.confirm()):
        with pytest.raises(FenceLost):
            await call
    await late.release()
    assert await row.held() == before


async def test_releasing_and_confirming_nothing_writes_nothing(row: Row) -> None:
    idle = await row.claimed("a")
    position = (await row.board.read("r", ())).position
    await idle.confirm()
    await idle.release()
    assert (await row.board.read("r", ())).position == position

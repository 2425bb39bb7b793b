"""The thin loop and the sweeper around `advance`, on a board in memory: conflicts, commands that come again, looks that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from ops.blackboard.memory import MemoryBlackboard
from ops.broker.memory import MemoryBroker
from orchestrator.acting import Actor
from orchestrator.causes import ReplayAsked, Submitted, Swept
from orchestrator.decisions import Verdict
from orchestrator.orchestrator import Orchestrator
from schemas import fields
from schemas.blackboard import ABSENT, Outcome, Snapshot, Stored, Write
from schemas.broker import COMMANDS, task_queue
from schemas.errors import Unreadable
from schemas.messages import AgentMessage, MessageType, message
from schemas.requests import RequestStatus, Role, StatusRecord, StepRecord, StepState
from tests.orchestrator.building import Request, step
from tests.support.boards import Clock

STEPS = (step("a"), step("b", "a"))


class WatchedBoard(MemoryBlackboard):
    """A board that lets a test do something between two calls."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.before_write: Callable[[Write], Awaitable[None]] | None = None
        self.before_read: Callable[[str], Awaitable[None]] | None = None

    async def write(self, request_id: str, write: Write) -> Outcome:
        if self.before_write is not None:
            await self.before_write(write)
        return await super().write(request_id, write)

    async def read(self, request_id: str, names: Sequence[str]) -> Snapshot:
        if self.before_read is not None:
            await self.before_read(request_id)
        return await super().read(request_id, names)

    async def hold(self, request: Request) -> None:
        """Take over what was built by hand: each role writes its own part."""
        owners = {Role.PRODUCER: (fields.REQUEST, fields.CARD), Role.WORKER: (fields.RESULT_PREFIX,)}
        for role, prefixes in owners.items():
            for name, stored in request.stored.items():
                if name.startswith(prefixes):
                    await self._put(request.id, role, {name: stored.value})
        rest = {name: each.value for name, each in request.stored.items() if not name.startswith(tuple(sum(owners.values(), ())))}
        await self._put(request.id, Role.ORCHESTRATOR, rest)

    async def _put(self, request_id: str, role: Role, put: dict[str, bytes]) -> None:
        fence = {fields.step(name.partition("/")[2]): ABSENT for name in put if name.startswith(fields.RESULT_PREFIX)}
        write = Write(role=role, writer="test", operation_id=f"put-{next(iter(put))}-{role}", expect=fence, put=put)
        await super().write(request_id, write)

    async def step_now(self, request_id: str, step_id: str) -> StepRecord:
        """A step's record."""
        value = (await super().read(request_id, (fields.step(step_id),))).value(fields.step(step_id))
        assert value is not None
        return StepRecord.from_json(value)

    async def status_now(self, request_id: str) -> RequestStatus:
        """The request's status."""
        value = (await super().read(request_id, (fields.STATUS,))).value(fields.STATUS)
        assert value is not None
        return StatusRecord.from_json(value).status


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(clock: Clock) -> WatchedBoard:
    return WatchedBoard(clock)


@pytest.fixture
async def broker() -> MemoryBroker:
    return MemoryBroker()


def actor(board: MemoryBlackboard, broker: MemoryBroker) -> Actor:
    return Actor(board, broker, writer="orchestrator/test", retention_seconds=100)


def ended() -> Request:
    return Request(STEPS).planned().failed("a").status(RequestStatus.FAILED)


class Handed:
    """A delivery that remembers how it was settled."""

    redelivered = False

    def __init__(self, bell: AgentMessage) -> None:
        self.message = bell
        self.settled = ""

    async def ack(self) -> None:
        self.settled = "acked"

    async def nack(self, delay_seconds: float = 0.0) -> None:
        self.settled = "handed back"

    async def park(self, reason: str) -> None:
        self.settled = "parked"


async def test_a_bell_writes_the_plan_and_rings_in_one_go(board: WatchedBoard, broker: MemoryBroker) -> None:
    await board.hold(Request(STEPS).opened())
    await actor(board, broker).act("r-1", Submitted("m"))
    assert await board.status_now("r-1") is RequestStatus.RUNNING
    assert [bell.step_id for bell in broker.messages(task_queue("ann"))] == ["a"]


async def test_invariant_1_an_answer_that_a_replay_overtakes_is_decided_again(board: WatchedBoard, broker: MemoryBroker) -> None:
    """A FAILED, all settled, the answer is on its way; a replay reopens A: the request must not end with A running."""
    await board.hold(Request(STEPS).planned().failed("a"))
    other = actor(board, broker)

    async def replay(write: Write) -> None:
        if fields.ANSWER in write.put:
            board.before_write = None
            await other.act("r-1", ReplayAsked("a", 0, "m"))

    board.before_write = replay
    await actor(board, broker).act("r-1", Swept())
    assert await board.status_now("r-1") is RequestStatus.RUNNING
    assert (await board.step_now("r-1", "a")).state is StepState.PENDING


async def test_invariant_1_a_sweeper_cannot_take_a_request_away_that_is_being_reopened(
    board: WatchedBoard, broker: MemoryBroker, clock: Clock
) -> None:
    """The request is over and its mark comes due between the mark of the replay and its write."""
    await board.hold(ended())
    await board.enter("r-1", 0)
    sweeper = Orchestrator(board, broker)

    async def sweep(write: Write) -> None:
        if write.labels["event"] == "step_replayed":
            board.before_write = None
            await sweeper.sweep()

    board.before_write = sweep
    await actor(board, broker).act("r-1", ReplayAsked("a", 0, "m"))
    clock.seconds += 3600
    assert [due.member for due in await board.due(10, 1000)] == ["r-1"]


async def test_invariant_1_a_replay_that_comes_again_has_the_request_looked_at(
    board: WatchedBoard, broker: MemoryBroker, clock: Clock
) -> None:
    """Its first handler may have died after the write, with nothing rung."""
    await board.hold(Request(STEPS).planned().is_at("a", StepState.PENDING, epoch=1))
    delivery = Handed(message(MessageType.REPLAY, "r-1", sender="x", recipient="orchestrator", step_id="a", epoch=0))
    orchestrator = Orchestrator(board, broker)
    await orchestrator.handle(delivery)
    assert delivery.settled == "acked"
    assert await orchestrator.sweep() == 1
    assert [bell.step_id for bell in broker.messages(task_queue("ann"))] == ["a"]


async def test_a_request_that_breaks_its_look_is_set_back_alone(board: WatchedBoard, broker: MemoryBroker, clock: Clock) -> None:
    for name in ("r-1", "r-2"):
        await board.hold(Request(STEPS, id=name).opened())
        await board.enter(name, 0)

    async def broken(request_id: str) -> None:
        if request_id == "r-1":
            raise KeyError("a mistake of ours")

    board.before_read = broken
    orchestrator = Orchestrator(board, broker)
    assert await orchestrator.sweep() == 2
    board.before_read = None
    assert await board.status_now("r-2") is RequestStatus.RUNNING
    assert await board.status_now("r-1") is RequestStatus.ACCEPTED
    clock.seconds += 59
    assert await board.due(10, 1000) != [] and await board.status_now("r-1") is RequestStatus.ACCEPTED
    clock.seconds += 2
    await orchestrator.sweep()
    assert await board.status_now("r-1") is RequestStatus.RUNNING


async def test_invariant_10_a_board_that_was_set_back_between_two_reads_is_read_anew(board: WatchedBoard, broker: MemoryBroker) -> None:
    """The first read saw a plan that the second finds gone."""
    await board.hold(Request(STEPS).opened())
    before = board._requests["r-1"].events[:]
    await actor(board, broker).act("r-1", Submitted("m"))
    reads = 0

    async def set_back(request_id: str) -> None:
        nonlocal reads
        reads += 1
        if reads == 2:
            held = board._requests["r-1"]
            held.events[:] = before
            for name in [name for name, stored in held.fields.items() if stored.position > len(before)]:
                del held.fields[name]
            status = next(event.put[fields.STATUS] for event in before if fields.STATUS in event.put)
            held.fields[fields.STATUS] = Stored(status[1], status[0], len(before), 0)
            held.operations.clear()

    board.before_read = set_back
    await actor(board, broker).act("r-1", Submitted("m"))
    assert await board.status_now("r-1") is RequestStatus.RUNNING
    assert (await board.step_now("r-1", "a")).state is StepState.PENDING


async def test_a_plan_whose_definitions_are_gone_is_unreadable_and_not_guessed(board: WatchedBoard, broker: MemoryBroker) -> None:
    await board.hold(Request(STEPS).planned())
    del board._requests["r-1"].fields[fields.definition("b")]
    with pytest.raises(Unreadable, match="'b'"):
        await actor(board, broker).act("r-1", Submitted("m"))


async def test_a_refused_command_is_noted_so_that_its_sender_can_be_told(board: WatchedBoard, broker: MemoryBroker) -> None:
    await board.hold(Request(STEPS).planned())
    decision = await actor(board, broker).act("r-1", ReplayAsked("a", 0, "m-7"))
    assert decision.verdict is Verdict.REFUSED
    last = (await board.events("r-1"))[-1]
    assert (last.labels["event"], last.cause, dict(last.put)) == ("command_refused", "m-7", {})


async def test_a_bell_for_a_request_that_does_not_exist_is_parked(board: WatchedBoard, broker: MemoryBroker) -> None:
    delivery = Handed(message(MessageType.SUBMIT, "r-404", sender="producer", recipient="orchestrator"))
    await Orchestrator(board, broker).handle(delivery)
    assert delivery.settled == "parked"
    assert await board.events("r-404") == []


async def test_a_bell_that_is_not_for_orchestrators_is_parked(board: WatchedBoard, broker: MemoryBroker) -> None:
    delivery = Handed(message(MessageType.REQUEST, "r-1", sender="orchestrator", recipient="*"))
    await Orchestrator(board, broker).handle(delivery)
    assert delivery.settled == "parked"


async def test_an_orchestrator_takes_its_commands_from_the_broker_and_stops_when_told(board: WatchedBoard) -> None:
    await board.hold(Request(STEPS).opened())
    async with MemoryBroker() as broker, asyncio.TaskGroup() as group:
        ready, stop = asyncio.Event(), asyncio.Event()
        group.create_task(Orchestrator(board, broker).run(ready=ready, stop=stop))
        await ready.wait()
        await broker.publish(COMMANDS, message(MessageType.SUBMIT, "r-1", sender="producer", recipient="orchestrator"))
        async for event in board.watch("r-1"):
            if event.labels.get("event") == "plan_written":
                break
        stop.set()

"""Two orchestrators, bells that ring twice and out of order: every request comes to the same end (invariant 9), with no sweep needed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ops.blackboard.memory import MemoryBlackboard
from orchestrator.acting import Actor
from orchestrator.causes import Submitted
from orchestrator.orchestrator import cause_of
from schemas import fields
from schemas.blackboard import ABSENT, Outcome, Snapshot, Write
from schemas.broker import Address, Exchange
from schemas.messages import AgentMessage, MessageType
from schemas.plans import Step
from schemas.requests import AnswerRecord, Role, StepRecord
from schemas.results import AgentResult, Failure
from tests.orchestrator.building import Request, result, step
from workers.accepting import end_of, puts_of
from workers.claiming import Claimed, claim
from workers.receiving import task_of
from workers.recording import Hold, record, result_bell

FURTHER = (step("p-1", "p"), step("p-2", "p-1", critical=False))


@st.composite
def plans(draw: st.DrawFn) -> tuple[Step, ...]:
    """Plans of up to 7 steps, one of which (`p`) may plan."""
    names = ["p", *"abcdef"][: draw(st.integers(1, 7))]
    order = draw(st.permutations(names))
    steps = []
    for place, name in enumerate(order):
        above = draw(st.lists(st.sampled_from(order[:place]), unique=True, max_size=3)) if place else []
        steps.append(step(name, *sorted(above), critical=draw(st.booleans()), may_plan=name == "p"))
    return tuple(steps)


@dataclass
class Bag:
    """A broker that only keeps what was rung, in no order."""

    bells: list[AgentMessage] = field(default_factory=list)

    async def publish(self, address: Address, bell: AgentMessage, *, confirm: bool = True) -> None:
        """Keep a TASK or a RESULT."""
        if address.exchange is Exchange.TASKS:
            self.bells.append(bell)

    async def declare_agent(self, agent: str) -> int:
        """There are no queues."""
        return 0

    def consume(self, *_: object, **__: object) -> object:
        """Nobody consumes; the test takes bells out itself."""
        raise AssertionError


class UnhurriedBoard(MemoryBlackboard):
    """A board whose calls take turns of the loop, so that two orchestrators meet."""

    def __init__(self, random: Random) -> None:
        super().__init__(clock=lambda: 1_800_000_000.0)
        self._draw = random

    async def _wait(self) -> None:
        for _ in range(self._draw.randint(0, 3)):
            await asyncio.sleep(0)

    async def read(self, request_id: str, names: Sequence[str]) -> Snapshot:
        await self._wait()
        return await super().read(request_id, names)

    async def write(self, request_id: str, write: Write) -> Outcome:
        await self._wait()
        return await super().write(request_id, write)


@dataclass
class Play:
    """One way through a request: which bell comes next, to whom, how often, is drawn from `random`."""

    failing: frozenset[str]
    random: Random
    bag: Bag = field(default_factory=Bag)

    async def end(self, steps: tuple[Step, ...], *, orchestrators: int, again: float) -> tuple[object, ...]:
        """Play it to its end and return what it came to."""
        self.board = UnhurriedBoard(self.random)
        await self._open(steps)
        self.actors = [
            Actor(self.board, self.bag, writer=f"orchestrator/{number}", retention_seconds=100)  # type: ignore[arg-type]
            for number in range(orchestrators)
        ]
        await asyncio.gather(*(actor.act("r-1", Submitted("m")) for actor in self.actors))
        while self.bag.bells:
            chosen = self.random.sample(self.bag.bells, min(orchestrators, len(self.bag.bells)))
            for bell in chosen:
                if self.random.random() >= again:
                    self.bag.bells.remove(bell)
            await asyncio.gather(*map(self._hand, chosen))
        return await self._came_to()

    async def _open(self, steps: tuple[Step, ...]) -> None:
        put = {name: stored.value for name, stored in Request(steps).opened().stored.items()}
        write = Write(Role.PRODUCER, "producer", "opening", expect=dict.fromkeys(put, ABSENT), put=put)
        await self.board.write("r-1", write)

    async def _hand(self, bell: AgentMessage) -> None:
        if bell.type is MessageType.TASK:
            await self._work(bell)
        else:
            cause = cause_of(bell)
            assert cause is not None
            await self.random.choice(self.actors).act("r-1", cause)

    async def _work(self, bell: AgentMessage) -> None:
        """A worker, whose outcome depends on the step alone."""
        task = task_of(bell, bell.recipient)
        claimed = await claim(self.board, task, writer="worker/1", lease_ms=5_000)
        if not isinstance(claimed, Claimed):
            return
        failure = Failure(code="NO_PROGRESS", description="never") if task.step_id in self.failing else None
        made: AgentResult | None = None if failure else result(task.step_id, steps=FURTHER if task.step_id == "p" else ())
        ended = end_of(claimed.record, failure)
        hold = Hold("r-1", task.step_id, claimed.record, claimed.version, bell.id, "worker/1")
        written = await record(self.board, hold, puts_of(task.step_id, ended, made), {"event": "step_ended"}, dead=failure is not None)
        assert written is not None
        rung = result_bell("r-1", task.step_id, ended, written.versions[fields.step(task.step_id)], None)
        self.bag.bells += [rung] * self.random.choice((1, 1, 2))

    async def _came_to(self) -> tuple[object, ...]:
        state = {name: stored.value for name, stored in self.board._requests["r-1"].fields.items()}
        assert fields.ANSWER in state, "no bell is left, and the request is not over"
        answer = AnswerRecord.from_json(state[fields.ANSWER])
        records = {name: StepRecord.from_json(value) for name, value in state.items() if name.startswith(fields.STEP_PREFIX)}
        runs = [
            event for event in self.board._requests["r-1"].events if event.role == Role.WORKER and event.labels["event"] == "step_claimed"
        ]
        assert len(runs) == len({event.labels["step"] for event in runs}), "a step ran twice"
        return (
            answer.status,
            sorted(answer.sections),
            {(gap.step, gap.reason, gap.stopped) for gap in answer.gaps},
            sorted(answer.text),
            {name: (each.state, each.epoch, each.attempt) for name, each in records.items()},
        )


@settings(max_examples=150, deadline=None)
@given(steps=plans(), failing=st.sets(st.sampled_from("pabcdef"), max_size=2), order=st.integers(0, 2**32))
def test_invariant_9_two_orchestrators_and_doubled_bells_in_any_order_come_to_the_same_end(
    steps: tuple[Step, ...], failing: set[str], order: int
) -> None:
    def end(*, orchestrators: int, again: float) -> tuple[object, ...]:
        play = Play(frozenset(failing), Random(order))
        return asyncio.run(play.end(steps, orchestrators=orchestrators, again=again))

    assert end(orchestrators=2, again=0.4) == end(orchestrators=1, again=0.0)

"""One run: processes, servers in memory, users and faults in one virtual hour, drawn from one seed.

First a time of faults, then calm: every process lives, nothing is lost any more, and whatever was accepted has to end.
"""

from __future__ import annotations

import asyncio
import math
import random as random_module
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from ops.blackboard.memory import MemoryBlackboard
from ops.broker.memory import MemoryBroker, _Arrived
from orchestrator.handing_on import HandingOn
from orchestrator.orchestrator import Orchestrator
from schemas import ids
from schemas.blackboard import Event
from schemas.errors import BrieflineError
from schemas.gate import BoundaryRules
from tests.simulation.agents import Agents
from tests.simulation.clock import VirtualLoop
from tests.simulation.faults import CALM, CountingHand, profile_of
from tests.simulation.forker import Forker
from tests.simulation.happenings import Happenings
from tests.simulation.ledger import Ledger
from tests.simulation.plans import steps_of, team_of
from tests.simulation.ports import SimulatedBoard, SimulatedBroker
from tests.simulation.processes import Died, Life
from tests.simulation.reviewers import Reviewer
from tests.simulation.sharing import SHARE, shared_by
from tests.simulation.states import State
from tests.simulation.users import Operator, Producer, Wish
from workers.team import Team
from workers.worker import Worker

PATIENCE_SECONDS = 1500.0
"""After the faults stop, everything that was accepted has to end within this time (a deadline is twice as long)."""
_MOST_POINTS = 100_000
"""No run of working code passes as many points; one that does is in a loop."""


@dataclass(frozen=True)
class Wanted:
    """What a run is asked to hold beside its seed."""

    crash_at: str = ""
    """A point at which a process dies, the first few times it comes there."""
    set_back: bool = False
    """Whether the board loses its last second, once or twice."""
    calm: bool = False
    """No faults at all."""
    forks: bool = False
    """Whether a third user takes requests up from their middle."""
    replays: bool = False
    """Whether deadlines are short and everything that failed is replayed again and again, at once or much later."""
    boundary: bool = False
    """Whether there are shared fields for sure, and a person who withdraws, decides and changes rules."""


@dataclass
class Process:
    """A process that is started again each time it ends: its name, its present life, and how many it has had."""

    name: str
    live: Callable[[Life], Awaitable[None]]
    life: Life | None = None
    lives: int = 0


@dataclass
class World:
    """Everything of one run."""

    seed: int
    loop: VirtualLoop
    wanted: Wanted = Wanted()
    happened: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    crashed_at: Counter[str] = field(default_factory=Counter)
    lines: deque[tuple[float, str, str, str, str]] = field(default_factory=lambda: deque(maxlen=5000))
    board_away_until: float = 0.0
    broker_away_until: float = 0.0
    set_back: bool = False
    calm: bool = False
    ending: bool = False

    def __post_init__(self) -> None:
        self.random = Random(f"{self.seed}/world")
        self.profile = CALM if self.wanted.calm else profile_of(self.random)
        self.board = MemoryBlackboard(clock=self.loop.board_clock)
        self.broker = MemoryBroker(seed=self.seed, delivery_limit=self.profile.delivery_limit)
        self.hand = CountingHand(self.profile.broker, Random(f"{self.seed}/broker"), self.happened)
        self.broker._faults = self.hand
        self.ledger = Ledger(self)
        self.ack_after_seconds = self.random.choice((6.0, 20.0, 600.0))
        self.lease_seconds = self.random.choice((1.0, 5.0))
        self._agents = Agents(self, self.random)
        drawn = Random(f"{self.seed}/boundary")
        self.shares = drawn.random() < SHARE or self.wanted.boundary
        self._crashes_left = self.random.choice((0, 2, 4)) if not self.wanted.calm else 0
        self._aimed_left = 2 if self.wanted.crash_at else 0
        self._background: set[asyncio.Task[None]] = set()
        self._states: dict[str, tuple[State, int]] = {}
        self.reviewer: Reviewer | None = None
        self._draw_users()
        self._shared_team = self._draw_boundary(drawn) if self.shares else None
        self._draw_processes()

    def _draw_users(self) -> None:
        draw = self.random
        self.keys = [f"key-{self.seed}-{number}" for number in range(draw.choice((1, 1, 1, 2, 3)))]
        wishes: list[Wish] = []
        for key in self.keys:
            deadline = draw.uniform(5, 60) if draw.random() < (0.8 if self.wanted.replays else 0.15) else 3000.0
            wish = Wish(draw.uniform(0, 10), key, f"Request {key}", team_of(self._agents.run, steps_of(draw)), deadline)
            wish.gives_up = draw.random() < 0.4
            wishes.append(wish)
            if draw.random() < 0.3:
                wishes.append(Wish(draw.uniform(0, 40), key, wish.text, wish.team, deadline))
            if draw.random() < 0.1:
                wishes.append(Wish(wish.at_seconds + 5, key, "Something else", wish.team, deadline))
        self.long_deadlines = {wish.key for wish in wishes if wish.deadline_seconds == 3000.0}
        self.producer = Producer(self, wishes)
        self.operator = Operator(self, draw, self.keys)
        self.forker = Forker(self, Random(f"{self.seed}/forker"), self.keys) if self.wanted.forks else None

    def _draw_boundary(self, drawn: Random) -> Team:
        """One team with shared fields for all requests: a worker serves one team."""
        wanted = [wish for wish in self.producer.wishes if wish.team is not None]
        longest = max((wish.team.steps for wish in wanted if wish.team), key=len)
        steps, cards = shared_by(drawn, longest)
        rules = BoundaryRules(on_rules_change=drawn.choice(("keep", "regate", "stop")))
        team = team_of(self._agents.run, steps, fields=cards, rules=rules)
        for wish in wanted:
            wish.team = team
        self.reviewer = Reviewer(self, drawn, self.keys)
        return team

    def _draw_processes(self) -> None:
        names = [f"orchestrator-{number}" for number in range(self.random.choice((1, 2)))]
        names += [f"worker-{number}" for number in range(self.random.choice((1, 2, 3)))]
        lives = {"orchestrator": self._orchestrate, "worker": self._work}
        self.processes = [Process(name, lives[name.partition("-")[0]]) for name in names]
        self.processes += [Process("producer-0", self.producer.live), Process("client-0", self.operator.live)]
        if self.forker is not None:
            self.processes.append(Process("forker-0", self.forker.live))
        self._sweep_seconds = self.random.choice((0.5, 1.0, 2.0))
        self._grace_seconds = self.random.choice((0.0, 5.0))
        self._concurrency = self.random.choice((1, 2, 8))
        further = Random(f"{self.seed}/hands on")
        self._hands_on = further.random() < 0.8
        self._quick_seconds = further.choice((0.1, math.inf, math.inf))
        if self.reviewer is not None:
            self.processes.append(Process("reviewer-0", self.reviewer.live))
        team = team_of(self._agents.run, steps_of(self.random)[:1])
        self._worker_team = self._shared_team or team

    async def _orchestrate(self, life: Life) -> None:
        board, broker = SimulatedBoard(life), SimulatedBroker(life)
        orchestrator = Orchestrator(board, broker, name=life.name, sweep_seconds=self._sweep_seconds)
        await orchestrator.run(stop=life.stop)

    async def _work(self, life: Life) -> None:
        board, broker = SimulatedBoard(life), SimulatedBroker(life)
        worker = Worker(
            board,
            broker,
            self._worker_team,
            name=life.name,
            concurrency=self._concurrency,
            lease_seconds=self.lease_seconds,
            ack_after_seconds=self.ack_after_seconds,
            grace_seconds=self._grace_seconds,
            onward=HandingOn(board, broker) if self._hands_on else None,
            quick_seconds=self._quick_seconds,
        )
        worker._attempts._jitter = Random(f"{self.seed}/{life.name}/jitter")
        await worker.run(stop=life.stop)

    # What the run asks about itself.

    @property
    def now_ms(self) -> int:
        """The board's time."""
        return int(self.loop.board_clock() * 1000)

    def events(self, request_id: str) -> list[Event]:
        """Everything that was written of a request."""
        request = self.board._requests.get(request_id)
        return [] if request is None else request.events

    def state(self, request_id: str) -> State:
        """A request's state now."""
        state, position = self._states.get(request_id, (State(), 0))
        events = self.events(request_id)
        if len(events) < position:
            state, position = State(), 0
        for event in events[position:]:
            state.take(event)
        self._states[request_id] = (state, len(events))
        return state

    def forget_states(self) -> None:
        """The board was set back: what was folded is no longer true."""
        self._states.clear()

    def marked(self, request_id: str, step_id: str, *, itself: bool = False) -> bool:
        """Whether the request or this step of it will be looked at; `itself`: the step."""
        marks = self.board._due._marks
        return (request_id in marks and not itself) or f"{request_id}#{step_id}" in marks

    def trace(self, life: Life | None, what: str, request_id: str = "", detail: str = "") -> None:
        """Keep a line for who reads a failing run."""
        self.lines.append((self.loop.time(), life.name if life else "world", what, request_id[:8], detail))

    # What is done to it.

    def passes(self, life: Life, point: str) -> None:
        """A process comes to a point; it may die there.

        Raises:
            Died: it did.
        """
        self.passed[point] += 1
        if self.calm:
            return
        aimed = point == self.wanted.crash_at and self._aimed_left > 0 and life.random.random() < 0.7
        if aimed:
            self._aimed_left -= 1
        elif self._crashes_left > 0 and self.profile.crash and life.random.random() < self.profile.crash:
            self._crashes_left -= 1
        else:
            return
        self.crash(life, point)
        raise Died

    def crash(self, life: Life, point: str) -> None:
        """End a life at once. Its line breaks now or is found broken up to 5 s later; it is started again some time after."""
        if life.dead:
            return
        life.dead = True
        self.happened["crash"] += 1
        self.crashed_at[point] += 1
        self.trace(life, f"died at {point}")
        for consumer in life.consumers:
            consumer.refuse()
        self.lose_line(life, self.random.choice((0.0, self.random.uniform(0, 5))))
        if life.task is not None:
            life.task.cancel()

    def lose_line(self, life: Life, after_seconds: float) -> None:
        """What a life has in hand goes back to its queues; what it settles from now on is settled on a dead line."""
        for consumer in life.consumers:
            for arrived in list(consumer.in_hand):
                del consumer.in_hand[arrived]
                if not arrived.queue.deleted:
                    self.loop.call_later(after_seconds, self._take_back, arrived)

    def _take_back(self, arrived: _Arrived) -> None:
        if not arrived.queue.deleted:
            self.broker.take_back(arrived.queue, arrived.stored)

    def later(self, effect: Callable[[], Awaitable[object]], seconds: float) -> None:
        """Let something take effect though nobody waits for it."""

        async def arrive() -> None:
            await asyncio.sleep(seconds)
            try:
                await effect()
            except BrieflineError:
                return

        task = self.loop.create_task(arrive())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # The run.

    async def run(self) -> None:
        """Let it all happen, up to quiet; what was broken stands in the ledger afterwards."""
        self.loop.set_exception_handler(self._unhandled)
        keepers = [self.loop.create_task(self._keep(process)) for process in self.processes]
        faults_seconds = 0.0 if self.wanted.calm else self.random.uniform(20, 60)
        faults = self.loop.create_task(Happenings(self).happen(faults_seconds))
        await asyncio.sleep(faults_seconds)
        faults.cancel()
        self._become_calm()
        await self._quiet()
        await self._stop(keepers)

    async def _keep(self, process: Process) -> None:
        """Start a process, and start it again each time it ends before it is done."""
        while True:
            process.lives += 1
            life = process.life = Life(self, process.name, process.lives)
            life.task = self.loop.create_task(self._lived(process, life))
            await life.task
            if process.name.startswith("producer") and self.producer.done:
                return
            if process.name.startswith("client") and self.operator.done:
                return
            if process.name.startswith("reviewer") and self.reviewer is not None and self.reviewer.done:
                return
            if process.name.startswith("forker") and self.forker is not None and self.forker.done:
                return
            if self.ending:
                return
            await asyncio.sleep(0.1 if self.calm else life.random.choice((0.2, 1.0, 10.0)))

    async def _lived(self, process: Process, life: Life) -> None:
        try:
            await process.live(life)
        except BaseException as error:
            if not life.dead:
                self.ledger.broken(1, f"{life.name} fell over by itself: {error!r}")

    def _become_calm(self) -> None:
        self.calm = True
        self.profile = CALM
        self.hand.follow(CALM.broker)
        self.board_away_until = self.broker_away_until = 0.0
        for process in self.processes:
            if process.life is not None:
                process.life.paused_until = 0.0
        self.trace(None, "calm")

    async def _quiet(self) -> None:
        """Wait until users are done and every open request is over, then a little longer for what still moves."""
        until = self.loop.time() + PATIENCE_SECONDS
        still = 0
        while self.loop.time() < until and still < 5:
            await asyncio.sleep(2)
            still = still + 1 if self._over() else 0
            if self.passed.total() > _MOST_POINTS:
                self.ledger.broken(1, "the system does not come to rest")
                break
        self.trace(None, "quiet" if still else "out of patience")

    def _over(self) -> bool:
        users = (self.producer, self.operator, self.forker, self.reviewer)
        if not all(user is None or user.done for user in users):
            return False
        states = [self.state(request_id) for request_id in self.board._requests]
        return all(state.status is not None and state.status.status.over for state in states)

    async def _stop(self, keepers: Iterable[asyncio.Task[None]]) -> None:
        """Let the sweeper look at everything once more, long after; then end every process in order."""
        self.loop.jump(1000.0)
        await asyncio.sleep(3 * self._sweep_seconds + 12)
        self.ending = True
        for process in self.processes:
            if process.life is not None:
                process.life.stop.set()
        _, running = await asyncio.wait(list(keepers), timeout=120)
        for process in self.processes:
            if process.life is not None:
                process.life.dead = True
        for keeper in running:
            self.ledger.broken(1, "a process did not stop when it was told to")
            keeper.cancel()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if not isinstance(error, Died):
            self.ledger.broken(1, f"unhandled: {context.get('message')}: {error!r}")


def seed_everything(seed: int) -> Callable[[], None]:
    """Make the ids of a run a matter of its seed; returns how to undo it."""
    draw = Random(f"{seed}/ids")
    before, state = ids.random_bytes, random_module.getstate()
    ids.random_bytes = draw.randbytes
    random_module.seed(seed)

    def undo() -> None:
        ids.random_bytes = before
        random_module.setstate(state)

    return undo

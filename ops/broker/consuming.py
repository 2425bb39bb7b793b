"""Consuming one queue of RabbitMQ, over lost connections, deleted queues and changes of credit.

Every consumer has a channel of its own on the process's one consuming connection (`ops.broker.sharing`), and publishing
goes on when that is lost. Deliveries are handled in tasks of the consumer's own, which no lost line cancels: settling them
is then logged, and the broker hands them out again. Called by `ops.broker.rabbitmq`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from random import Random

import structlog
from aiormq import Channel, spec

from ops.broker.acks import Acks
from ops.broker.background import Background
from ops.broker.backoff import delays
from ops.broker.credit import adjustment
from ops.broker.dispatching import Dispatcher
from ops.broker.frames import Delivered, acknowledgement, refusal
from ops.broker.line import CLOSE_SECONDS, Line, Server, prepared, report_mismatch, translated, why_closed
from ops.broker.sharing import SharedLine
from ops.broker.topology import Queue
from schemas.errors import NotPermitted, Unavailable, UnsafeServer
from schemas.messages import AgentMessage, from_wire

FIRST_PAUSE_SECONDS = 0.1
STABLE_SECONDS = 10.0
"""A consumption that held this long starts over with short pauses."""
ACK_WINDOW_SECONDS = 0.01
"""How long an acknowledgement waits for others, unless half the credit is used up by such as wait."""
MISMATCH_PAUSE_SECONDS = 30.0
"""Between two looks at a queue that exists with other arguments: only a person can change that."""

Park = Callable[[Delivered, str], Awaitable[None]]
"""Stores a message, as it came, with the reason; raises `Unavailable` while that cannot be done."""

log = structlog.get_logger(__name__)


class _Intake:
    """One channel, what is consumed on it, and what came in over it (`ops.broker.frames.Listener`)."""

    def __init__(self, line: Line, channel: Channel, take: Callable[[Arrived], None], park: Park) -> None:
        self.line = line
        self.channel = channel
        self.tags: set[str] = set()
        self.granted = 0
        self.in_hand: set[Arrived] = set()
        self.acks = Acks()
        self.misfit = False
        self.failed = ""
        self.wake = asyncio.Event()
        self._take = take
        self._park = park
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waiting = 0
        line.listen(channel, self)
        channel.closing.add_done_callback(lambda _: self.wake.set())
        channel.on_consumer_cancel_callbacks.add(self._on_cancel)

    @property
    def over(self) -> bool:
        """Whether nothing will come in here any more."""
        return bool(self.failed) or self.channel.is_closed or self.line.is_closed

    @property
    def retired(self) -> int:
        """Deliveries in hand that came by a consumption that was cancelled since."""
        return sum(arrived.consumption not in self.tags for arrived in self.in_hand)

    def fail(self, reason: str) -> None:
        """Give this channel up. One on which a call got no answer may stay open for long, and hand out nothing."""
        self.failed = reason
        self.wake.set()

    def delivered(self, message: Delivered) -> None:
        """Take a message that came in."""
        arrived = Arrived(message, self, self._park)
        self.in_hand.add(arrived)
        self.acks.arrived(arrived.tag)
        self._take(arrived)

    def returned(self, message: Delivered) -> None:
        """Nothing is published here."""

    def confirmed(self, tag: int, *, multiple: bool, kept: bool) -> None:
        """Nothing is published here."""

    def let_go(self, arrived: Arrived) -> None:
        """Note a delivery that is no longer in hand: credit that was taken back may be free again."""
        self.in_hand.discard(arrived)
        if arrived.consumption not in self.tags:
            self.misfit = True
            self.wake.set()

    def done(self, arrived: Arrived) -> None:
        """Acknowledge a delivery, together with others that are done by then."""
        self.acks.done(arrived.tag)
        self._waiting += 1
        if self._waiting * 2 >= self.granted:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(ACK_WINDOW_SECONDS, self.flush)

    def hand_back(self, arrived: Arrived) -> None:
        """Put a delivery back into its queue."""
        if self.over:
            log.warning("settling_failed", how="requeue", error="its connection was lost")
        else:
            self.line.send(refusal(self.channel.number, arrived.tag))
        self.acks.left(arrived.tag)

    def flush(self) -> None:
        """Send the acknowledgements that are due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting = 0
        frames = self.acks.take()
        if self.channel.is_closed or self.line.is_closed:
            if frames:
                log.warning("settling_failed", how="ack", error="its connection was lost", frames=len(frames))
            return
        self.line.send(b"".join(acknowledgement(self.channel.number, frame.tag, multiple=frame.multiple) for frame in frames))

    def _on_cancel(self, frame: spec.Basic.Cancel) -> None:
        self.fail("the queue was deleted")


class Arrived:
    """A message as it came over one channel (`ops.broker.dispatching.Arrival`)."""

    __slots__ = ("_intake", "_message", "_park", "consumption", "tag")

    def __init__(self, message: Delivered, intake: _Intake, park: Park) -> None:
        self._message = message
        self._intake = intake
        self._park = park
        self.consumption = message.consumption
        self.tag = message.tag

    @property
    def redelivered(self) -> bool:
        """Whether the broker says that it handed it out before."""
        return self._message.redelivered

    def read(self) -> AgentMessage:
        """Return the message that came; see `ops.broker.dispatching.Arrival`."""
        return from_wire(self._message.body)

    async def ack(self) -> None:
        """Settle it for good, together with others that are done now; on a lost line the broker hands it out again."""
        self._intake.let_go(self)
        if self._intake.over:
            log.warning("settling_failed", how="ack", error="its connection was lost")
        else:
            self._intake.done(self)

    async def requeue(self) -> None:
        """Hand it back at once."""
        self.hand_back()

    def hand_back(self) -> None:
        """Hand it back at once."""
        self._intake.let_go(self)
        self._intake.hand_back(self)

    async def park(self, reason: str) -> None:
        """Store it with the reason, confirmed, then settle it."""
        await self._park(self._message, reason)
        await self.ack()


class RabbitMQConsumer:
    """The consumption of one queue (`schemas.broker.Consumer`)."""

    def __init__(
        self,
        server: Server,
        shared: SharedLine,
        queue: Queue,
        dispatcher: Dispatcher,
        tasks: Background,
        park: Park,
        *,
        prefetch: int,
        random: Random,
    ) -> None:
        self._server = server
        self._shared = shared
        self._queue = queue
        self._name = server.topology.full(queue.name)
        self._dispatcher = dispatcher
        self._tasks = tasks
        self._park = park
        self._prefetch = prefetch
        self._random = random
        self._stopping = False
        self._intake: _Intake | None = None
        self._fitting = asyncio.Lock()
        self._first_try = asyncio.Event()
        self._tags = (f"{server.instance}.{queue.name}.{number}" for number in itertools.count(1))

    @property
    def consuming(self) -> bool:
        """Whether the broker hands out to this consumer now, as far as its credit goes."""
        return self._intake is not None and not self._intake.over and not self._stopping

    async def resize(self, prefetch: int) -> None:
        """Take at most `prefetch` unsettled deliveries from now on; what is in hand stays there to be settled."""
        self._prefetch = prefetch
        await self._fit()

    async def stop(self) -> None:
        """Take nothing more; what the broker had sent ahead and no handler has seen goes back."""
        self._stopping = True
        await self._fit()

    def refuse(self) -> None:
        """Hand back whatever still arrives: the block of this consumer is being left."""
        self._stopping = True

    async def tried(self) -> None:
        """Return once the first try has ended, well or badly, or the deadline has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._server.call_timeout_seconds):
                await self._first_try.wait()

    async def run(self) -> None:
        """Consume until stopped, and then until the line is lost."""
        loop, longest = asyncio.get_running_loop(), self._server.longest_pause_seconds
        pauses = delays(FIRST_PAUSE_SECONDS, longest, self._random)
        while not self._stopping:
            began, pause = loop.time(), 0.0
            try:
                await self._one_connection()
            except UnsafeServer as error:
                report_mismatch(self._name, error)
                pause = MISMATCH_PAUSE_SECONDS
            except NotPermitted as error:
                log.warning("queue_missing", queue=self._name, reason=str(error))
            except Unavailable as error:
                log.warning("consuming_line_lost", queue=self._name, error=str(error))
            self._first_try.set()
            if loop.time() - began > STABLE_SECONDS:
                pauses = delays(FIRST_PAUSE_SECONDS, longest, self._random)
            await asyncio.sleep(pause or next(pauses))

    async def _one_connection(self) -> None:
        async with self._shared.used() as line:
            channel = await prepared(self._server, line, self._queue)
            intake = self._intake = _Intake(line, channel, self._take, self._park)
            try:
                await self._fit()
                if not intake.over:
                    log.info("consuming_started", queue=self._name, prefetch=self._prefetch)
                    self._first_try.set()
                while not intake.over:
                    await intake.wake.wait()
                    intake.wake.clear()
                    if intake.misfit:
                        await self._fit()
            finally:
                self._intake = None
                await self._last_words(intake)
                await self._shared.give_back(line, channel)
            raise Unavailable(intake.failed or why_closed(channel))

    async def _last_words(self, intake: _Intake) -> None:
        """Send what is due before the channel closes, if it still takes anything."""
        intake.flush()
        if not intake.over:
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await intake.line.flushed()

    async def _fit(self) -> None:
        """Bring what is consumed in line with the credit. Where that fails the channel is given up, and the run opens another."""
        async with self._fitting:
            intake = self._intake
            if intake is None or intake.over:
                return
            intake.misfit = False
            try:
                with translated(f"consuming {self._name}"):
                    async with asyncio.timeout(self._server.call_timeout_seconds):
                        await self._adjust(intake)
            except Unavailable as error:
                intake.fail(str(error))

    async def _adjust(self, intake: _Intake) -> None:
        prefetch = 0 if self._stopping else self._prefetch
        step = adjustment(prefetch=prefetch, granted=intake.granted, retired=intake.retired)
        if step.cancel:
            for tag in sorted(intake.tags):
                await intake.channel.basic_cancel(tag)
                intake.tags.discard(tag)
            intake.granted = 0
            step = adjustment(prefetch=prefetch, granted=0, retired=intake.retired)
        if step.add:
            # RabbitMQ applies a channel's prefetch to each consumer that begins after it, for itself.
            await intake.channel.basic_qos(prefetch_count=step.add)
            tag = next(self._tags)
            intake.tags.add(tag)
            intake.granted += step.add
            await intake.channel.basic_consume(self._name, _never, consumer_tag=tag)

    def _take(self, arrived: Arrived) -> None:
        if self._stopping:
            arrived.hand_back()
        else:
            self._tasks.start(self._dispatcher.dispatch(arrived))


async def _never(_: object) -> None:
    """What the driver would call for a delivery: they come past it."""

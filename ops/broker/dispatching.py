"""What happens to one delivery, whichever broker handed it in: read it, call the handler, try again, or park it.

Nothing that a handler raises leaves this room, and no message stays unsettled while the consumer runs: what cannot be
read is parked at once, what keeps failing is parked with its last error, and what waits for a server stays in hand.
Called by both brokers, once per delivery, in a task of the consumer's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Protocol

import structlog

from ops.broker.backoff import delays
from schemas.broker import Handler
from schemas.errors import Unavailable, Unreadable
from schemas.messages import AgentMessage

TRIES = 5
"""How often a handler may raise over one message before it is parked."""
FIRST_DELAY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 5.0
"""Between two looks at a server that does not answer."""
MAX_REASON_CHARACTERS = 500

log = structlog.get_logger(__name__)


class Arrival(Protocol):
    """One message as a broker hands it in. Every way to settle it is used at most once."""

    @property
    def redelivered(self) -> bool:
        """Whether it may have been handed out before."""
        ...

    def read(self) -> AgentMessage:
        """Return the message that came.

        Raises:
            Unreadable: it is none of ours.
        """
        ...

    async def ack(self) -> None:
        """Settle it for good."""
        ...

    async def requeue(self) -> None:
        """Hand it back."""
        ...

    async def park(self, reason: str) -> None:
        """Store it with the reason where people look, then settle it.

        Raises:
            Unavailable: it is not stored, and not settled.
        """
        ...


class HandedOut:
    """The delivery that a handler sees (`schemas.broker.Delivery`): an arrival that was read, settled exactly once."""

    __slots__ = ("_arrival", "message", "settled")

    def __init__(self, arrival: Arrival, message: AgentMessage) -> None:
        self._arrival = arrival
        self.message = message
        self.settled = False

    @property
    def redelivered(self) -> bool:
        """Whether it may have been handed out before."""
        return self._arrival.redelivered

    async def ack(self) -> None:
        """It is done with."""
        self._settle()
        await self._arrival.ack()

    async def nack(self, delay_seconds: float = 0.0) -> None:
        """Hand it back after `delay_seconds`; until then it stays in hand and keeps its place in the prefetch."""
        self._settle()
        if delay_seconds > 0:
            await asyncio.sleep(delay_seconds)
        await self._arrival.requeue()

    async def park(self, reason: str) -> None:
        """Move it to the unreadable ones; raises `Unavailable` as long as that cannot be done, and can be called again."""
        self._settle()
        try:
            await self._arrival.park(short(reason))
        except BaseException:
            self.settled = False
            raise

    def _settle(self) -> None:
        if self.settled:
            raise RuntimeError(f"message {self.message.id} was settled already")
        self.settled = True


class Dispatcher:
    """Calls one handler for the deliveries of one queue."""

    def __init__(self, queue: str, handler: Handler, random: Random) -> None:
        self._queue = queue
        self._handler = handler
        self._random = random

    async def dispatch(self, arrival: Arrival) -> None:
        """Bring one arrival to its end. Raises nothing but cancellation, which leaves it to the broker unsettled."""
        try:
            message = arrival.read()
        except Unreadable as error:
            await self._park(arrival, str(error))
        except Exception as error:  # a hole in the codec must not stop the consumer either
            await self._park(arrival, f"reading it raised {_told(error)}")
        else:
            await self._handle(HandedOut(arrival, message), arrival)

    async def _handle(self, delivery: HandedOut, arrival: Arrival) -> None:
        failures = 0
        retries = delays(FIRST_DELAY_SECONDS, LONGEST_RETRY_SECONDS, self._random)
        waits = delays(FIRST_DELAY_SECONDS, LONGEST_WAIT_SECONDS, self._random)
        while True:
            error = await self._call(delivery)
            if delivery.settled:
                if error is not None:
                    self._log(delivery).error("handler_failed_after_settling", error=_told(error))
                return
            if _is_unavailable(error):
                self._log(delivery).warning("handler_waits", error=_told(error))
                await asyncio.sleep(next(waits))
                continue
            failures += 1
            told = _told(error) if error is not None else "the handler returned without settling the message"
            self._log(delivery).error("handler_failed", error=told, failures=failures, exc_info=error)
            if failures == TRIES:
                await self._park(arrival, f"its handler failed {TRIES} times, at last with {told}")
                return
            await asyncio.sleep(next(retries))

    async def _call(self, delivery: HandedOut) -> BaseException | None:
        try:
            await self._handler(delivery)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return error  # nobody cancelled us: something that the handler awaited was cancelled
        except Exception as error:
            return error
        return None

    async def _park(self, arrival: Arrival, reason: str) -> None:
        waits: Iterator[float] = delays(FIRST_DELAY_SECONDS, LONGEST_WAIT_SECONDS, self._random)
        while True:
            try:
                await arrival.park(short(reason))
            except Unavailable as error:
                log.warning("parking_waits", queue=self._queue, error=str(error))
                await asyncio.sleep(next(waits))
            else:
                log.error("message_parked", queue=self._queue, reason=short(reason))
                return

    def _log(self, delivery: HandedOut) -> structlog.stdlib.BoundLogger:
        bell = delivery.message
        bound: structlog.stdlib.BoundLogger = log.bind(
            queue=self._queue, message_id=bell.id, request_id=bell.request_id, step_id=bell.step_id
        )
        return bound


def short(reason: str) -> str:
    """Return a reason that fits into a message header, whatever bytes an error quoted."""
    return reason.encode("utf-8", "replace").decode()[:MAX_REASON_CHARACTERS]


def _told(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"


def _is_unavailable(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_unavailable(part) for part in error.exceptions)
    return isinstance(error, Unavailable)

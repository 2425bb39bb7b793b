"""Commands to Redis that are issued while others are on their way leave together, as one pipeline.

Each command keeps its own deadline and its own error, and a waiter that is cancelled disturbs nobody. Whatever was not
answered when a connection broke is sent again on a new one, within the deadline: only commands that may be sent twice
belong here. This room knows no command. Called by `ops.blackboard.redis`.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from ops.blackboard.refusals import NO_LINE, Refusal, is_forbidden, message_of, refusal_of, translated
from schemas.errors import InvalidValue, OutcomeUnknown, Unavailable, UnsafeServer

Argument: TypeAlias = str | bytes | int
Reply: TypeAlias = Any
LateCommand: TypeAlias = Callable[[], Sequence[Argument]]
"""A command whose arguments are known only when there is a connection to send it on."""

MAX_COMMANDS = 128
"""Commands of one flight: a renewal waits behind no more than these."""
_NOT_LOADED = (
    "the functions of this version of Briefline are not on this Redis, and this user may not load them. "
    "An administrator loads them: python -m ops.access library | redis-cli -x FUNCTION LOAD (docs/security.md)"
)
MAX_FLIGHT_BYTES = 4 * 1024 * 1024


class Call:
    """A command on its way: its bytes (or what to make them of), its waiter, its deadline, and whether it was ever sent."""

    __slots__ = ("command", "deadline", "packed", "reply", "sent")

    def __init__(self, command: LateCommand | None, packed: bytes, reply: asyncio.Future[Reply], deadline: float) -> None:
        self.command = command
        self.packed = packed
        self.reply = reply
        self.deadline = deadline
        self.sent = False


class Lost(Exception):
    """A flight that did not come home; what it carried waits in the queue again."""


class Pipe:
    """A queue of commands, and `lanes` that each carry what waits, one flight at a time, over a connection of their own.

    `connect` returns a connection that is ready, `discard` takes one back that is of no use any more, `load` puts the
    function library on the server. All three may raise what redis-py raises.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[AbstractConnection]],
        discard: Callable[[AbstractConnection], Awaitable[None]],
        load: Callable[[AbstractConnection], Awaitable[None]],
        *,
        call_timeout_seconds: float,
        deadline_seconds: float,
        flight: int = MAX_COMMANDS,
    ) -> None:
        self._connect = connect
        self._discard = discard
        self._load = load
        self._call_timeout = call_timeout_seconds
        self._deadline = deadline_seconds
        self._flight = flight
        self._waiting: deque[Call] = deque()
        self._open: dict[Call, None] = {}
        self._wanted = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._trouble = ""
        self.closed = False

    def call(self, *command: Argument, urgent: bool = False) -> asyncio.Future[Reply]:
        """Send a command; the future has its reply, or an error of `schemas.errors`. `urgent`: before what waits already.

        Raises:
            InvalidValue: text that UTF-8 cannot hold.
        """
        return self._queue(None, _packed(command), urgent)

    def call_late(self, command: LateCommand) -> asyncio.Future[Reply]:
        """Send a command whose arguments depend on which server answers: it is made anew for a new connection, and to be sent again."""
        return self._queue(command, _packed(command()), urgent=False)

    def _queue(self, command: LateCommand | None, packed: bytes, urgent: bool) -> asyncio.Future[Reply]:
        if self.closed:
            raise Unavailable("the blackboard is closed")
        loop = asyncio.get_running_loop()
        call = Call(command, packed, loop.create_future(), loop.time() + self._deadline)
        self._open[call] = None
        if urgent:
            self._waiting.appendleft(call)
        else:
            self._waiting.append(call)
        self._wanted.set()
        if self._timer is None:
            self._timer = loop.call_at(call.deadline, self._expire)
        return call.reply

    async def run_lane(self) -> None:
        """Carry commands until cancelled. Each lane is a background task of the board."""
        lane = _Lane()
        try:
            while True:
                await self._wanted.wait()
                try:
                    await self._fly(lane)
                except Lost:
                    await self._recover(lane)
        finally:
            await self._hang_up(lane)

    def close(self) -> None:
        """End the waiting of everybody who still waits."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        for call in list(self._open):
            self._fail(call, Unavailable("the blackboard was closed"))

    async def _recover(self, lane: _Lane) -> None:
        """Fly again, each time later and at a random moment, until a flight comes home (an empty one does)."""
        again = AsyncRetrying(retry=retry_if_exception_type(Lost), wait=wait_random_exponential(multiplier=0.02, max=1.0))
        await again(self._fly, lane)

    async def _fly(self, lane: _Lane) -> None:
        batch = self._boarded()
        if not batch:
            return
        try:
            refusals = await self._exchange(lane, batch)
        except (*NO_LINE, ResponseError) as error:
            self._trouble = message_of(error)
            await self._hang_up(lane)
            raise Lost from error
        except BaseException:  # replies may be under way that are nobody's any more
            await self._hang_up(lane)
            raise
        finally:
            self._board_again(batch)
        if Refusal.PASSING in refusals:
            await self._hang_up(lane)
            raise Lost

    async def _exchange(self, lane: _Lane, batch: list[Call]) -> set[Refusal]:
        """Send the batch and hand out the replies; what is to be sent again stays open. Returns why."""
        refusals: set[Refusal] = set()
        loop = asyncio.get_running_loop()
        heard = loop.time()
        async with asyncio.timeout(self._call_timeout) as limit:
            anew = lane.connection is None
            if lane.connection is None:
                lane.connection = await self._connect()
            for call in batch:
                # What this client knew when the command was packed still holds, unless there was trouble in between.
                if call.command is not None and (anew or call.sent):
                    call.packed = _packed(call.command())
                call.sent = True
            await lane.connection.send_packed_command([call.packed for call in batch], check_health=False)
            for call in batch:
                try:
                    reply = await lane.connection.read_response(disable_decoding=True, timeout=math.inf)
                except ResponseError as error:
                    refusals.add(self._refused(call, error))
                    continue
                if not call.reply.done():
                    call.reply.set_result(reply)
                self._open.pop(call, None)
                now = loop.time()
                if now - heard > self._call_timeout / 10:  # not for each: a timer costs as much as a reply
                    heard = now
                    limit.reschedule(now + self._call_timeout)
            if Refusal.UNLOADED in refusals:
                await self._load_for(batch, lane.connection)
        return refusals

    async def _load_for(self, batch: list[Call], connection: AbstractConnection) -> None:
        """Load the functions. Where this user may not, who waits for one is told at once: only an administrator can change that."""
        try:
            await self._load(connection)
        except ResponseError as error:
            if not is_forbidden(error):
                raise
            for call in [call for call in batch if call in self._open]:
                self._fail(call, UnsafeServer(_NOT_LOADED))

    def _refused(self, call: Call, error: ResponseError) -> Refusal:
        refusal = refusal_of(error)
        if refusal is Refusal.FINAL:
            self._fail(call, translated(error))
        self._trouble = message_of(error)
        return refusal

    def _board_again(self, batch: list[Call]) -> None:
        """Put what was not answered back at the head of the queue, in its order."""
        again = [call for call in batch if call in self._open]
        self._waiting.extendleft(reversed(again))
        if again:
            self._wanted.set()

    def _boarded(self) -> list[Call]:
        """Take what goes with the next flight; nobody waits any more for what was cancelled or has run out of time."""
        batch: list[Call] = []
        size = 0
        while self._waiting and len(batch) < self._flight and size < MAX_FLIGHT_BYTES:
            call = self._waiting.popleft()
            if call.reply.done():
                self._open.pop(call, None)
                continue
            batch.append(call)
            size += len(call.packed)
        if not self._waiting:
            self._wanted.clear()
        return batch

    async def _hang_up(self, lane: _Lane) -> None:
        connection, lane.connection = lane.connection, None
        if connection is not None:
            await self._discard(connection)

    def _expire(self) -> None:
        """End the waiting of commands whose deadline has passed, and look again when the next one's does."""
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        for call in [call for call in self._open if call.deadline <= now]:
            what = OutcomeUnknown if call.sent else Unavailable
            trouble = f": {self._trouble}" if self._trouble else ""
            self._fail(call, what(f"Redis gave no answer within {self._deadline:g} s{trouble}"))
        if self._open:
            self._timer = loop.call_at(min(call.deadline for call in self._open), self._expire)

    def _fail(self, call: Call, error: Exception) -> None:
        self._open.pop(call, None)
        if not call.reply.done():
            call.reply.set_exception(error)


def _packed(command: Sequence[Argument]) -> bytes:
    try:
        packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]  # its stub knows tuples of one item only
    except UnicodeEncodeError as error:
        raise InvalidValue(f"a lone surrogate at character {error.start} cannot be stored as UTF-8") from error
    return packed


class _Lane:
    """The connection of one lane."""

    __slots__ = ("connection",)

    def __init__(self) -> None:
        self.connection: AbstractConnection | None = None

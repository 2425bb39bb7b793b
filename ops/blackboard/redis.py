"""The blackboard on Redis: the port's calls, each one Lua function or one plain command.

Reads go to the server that the URL names, which is the primary. Every call has an overall deadline and is sent again
within it; that is safe, because writes carry operation ids and everything else may happen twice. This room decides
nothing: the rules stand in `functions.lua`. Called by the wiring, through the port.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from ops.blackboard.checking import check, check_length, check_request_id, encodable
from ops.blackboard.connecting import ask, clock_ms, connection_pool, put_library, read_clock, read_info, take_connection
from ops.blackboard.functions import load_library
from ops.blackboard.grace import Grace
from ops.blackboard.instance import Instance, read_instance
from ops.blackboard.keys import board_key, dead_key, due_keys, events_key, hints_of, recent_key, request_keys, shard_of
from ops.blackboard.pipelining import Argument, Pipe
from ops.blackboard.refusals import Elsewhere, translated
from ops.blackboard.replies import event_of, outcome_of, slots_of, snapshot_of, write_arguments
from ops.blackboard.safety import findings, refuse_unsafe
from ops.blackboard.waking import SAFETY_SECONDS, woken
from ops.blackboard.watching import Hints
from ops.findings import Finding
from schemas.blackboard import DeadEntry, Due, Event, Outcome, Snapshot, Write
from schemas.errors import BrieflineError, InvalidValue, Unavailable

T = TypeVar("T")

EVENTS_PER_READ = 200
RECENT_KEPT = 10_000
CONFIRMATION_SECONDS = 0.1
"""How long a first look waits for its subscription to be confirmed."""


class RedisBlackboard:
    """The port `schemas.blackboard.Blackboard` on one Redis 7.0 or newer.

    `call_timeout_seconds` is how long the server may be silent during an exchange before the connection is given up;
    `deadline_seconds` how long a call may take, all attempts together. `pool_size` connections at most, one more where
    somebody watches. `lease_seconds` is how long nobody takes over after the board was away for as long. `check_safety`
    refuses, at start, a server that could drop state.

    Raises, at start: `Unavailable`, `UnsafeServer`.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "briefline",
        call_timeout_seconds: float = 5.0,
        deadline_seconds: float = 15.0,
        pool_size: int = 32,
        lease_seconds: float = 5.0,
        check_safety: bool = True,
        stays_in_touch: bool = True,
        id_key: str | None = None,
    ) -> None:
        if not prefix or "{" in prefix or "}" in prefix:
            raise InvalidValue("a key prefix is not empty and has no braces", path="prefix")
        self._prefix = prefix
        self._call_timeout = call_timeout_seconds
        self._deadline = deadline_seconds
        self._check_safety = check_safety
        self._library = load_library()
        self._functions = {verb: self._library.function(verb) for verb in _FUNCTIONS}
        self._grace = Grace(lease_seconds)
        self._instance = Instance(id_key or board_key(prefix))
        self._look_now: asyncio.Future[Any] | None = None
        self._looked_at = 0.0
        self._touch = asyncio.Event()
        if stays_in_touch:
            self._touch.set()
        self._pool = connection_pool(url, size=max(2, pool_size), wait_seconds=call_timeout_seconds)
        # A read of many events would hold up what is small and urgent: it has connections of its own.
        self._pipe = self._new_pipe()
        self._bulk = self._new_pipe(flight=1)
        self._bulk_lanes = max(1, min(8, pool_size - 1))
        self._hint_pool = connection_pool(url, size=1, wait_seconds=call_timeout_seconds)
        self._hints = Hints(self._hint_pool, call_timeout_seconds=call_timeout_seconds, silence_seconds=SAFETY_SECONDS)
        self._due_keys = due_keys(prefix)
        self._due_turn = 0
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    def _new_pipe(self, **options: int) -> Pipe:
        return Pipe(
            self._connect,
            self._discard,
            lambda connection: put_library(connection, self._library),
            call_timeout_seconds=self._call_timeout,
            deadline_seconds=self._deadline,
            **options,
        )

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._tasks = [self._group.create_task(self._pipe.run_lane(), name="blackboard-pipe")]
        self._tasks += [self._group.create_task(self._bulk.run_lane(), name=f"blackboard-bulk-{n}") for n in range(self._bulk_lanes)]
        self._tasks += [
            self._group.create_task(self._hints.run(), name="blackboard-hints"),
            self._group.create_task(self._stay_in_touch(), name="blackboard-touch"),
        ]
        try:
            await self._pipe.call("PING")
            if self._check_safety:
                refuse_unsafe(await self.check())
                await self._find_library()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._close()

    async def _close(self) -> None:
        self._pipe.close()
        self._bulk.close()
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(None, None, None)
        await self._pool.aclose()
        await self._hint_pool.aclose()

    async def _find_library(self) -> None:
        """Say at start, and not at the first request, that the functions are missing and this user may not load them."""
        with suppress(Unavailable, Elsewhere):  # the first call will tell
            await self._pipe.call("FCALL_RO", self._functions["read"], 3, *request_keys(self._prefix, "nothing")[:3])

    async def check(self) -> list[Finding]:
        """Return how safe the server's settings are (eviction, persistence, memory, version, role), and which board it is."""
        return await self._once(self._look)

    async def slots(self) -> list[tuple[int, int, tuple[str, int]]]:
        """Return who has which slots, as the server of a Redis Cluster says: first and last one, host and port of their primary."""
        return await self._once(self._slots)

    async def _slots(self, connection: AbstractConnection) -> list[tuple[int, int, tuple[str, int]]]:
        return slots_of(await ask(connection, "CLUSTER", "SLOTS"), self._pool.connection_kwargs.get("host", ""))

    async def _look(self, connection: AbstractConnection) -> list[Finding]:
        info = await read_info(connection)
        config = None
        try:
            pairs = [text.decode() for text in await ask(connection, "CONFIG", "GET", "appendfsync")]
            config = dict(zip(pairs[::2], pairs[1::2], strict=True))
        except ResponseError:  # an access list, or a hosted server, that forbids CONFIG
            pass
        return [*findings(info, config), self._instance.finding()]

    async def _once(self, act: Callable[[AbstractConnection], Awaitable[T]]) -> T:
        """Do something over a connection that nobody else uses, once, within the deadline."""
        try:
            async with asyncio.timeout(self._deadline):
                connection = await self._connect()
                try:
                    return await act(connection)
                finally:
                    await self._discard(connection)
        except ResponseError as error:
            raise translated(error) from error
        except (RedisError, TimeoutError, OSError) as error:
            raise Unavailable(f"Redis does not answer: {error}") from error

    async def _connect(self) -> AbstractConnection:
        """Return a new connection, once it is known which server it leads to."""
        connection = await take_connection(self._pool)
        try:
            info = await read_info(connection, "server")
            now = await read_clock(connection)
            self._instance.met(await read_instance(connection, self._instance.key, now))
        except BaseException:
            await self._discard(connection)
            raise
        self._grace.met(info.get("run_id", ""), int(info.get("uptime_in_seconds", 0)) * 1000, now)
        return connection

    async def _discard(self, connection: AbstractConnection) -> None:
        await connection.disconnect(nowait=True)
        await self._pool.release(connection)

    async def _stay_in_touch(self) -> None:
        """Ask the time when nothing was heard for a third of a lease, so that an absence of the board is noticed."""
        pause = self._grace.lease_ms / 3000
        heard = 0
        while True:
            await self._touch.wait()
            await asyncio.sleep(pause)
            if self._grace.heard_ms == heard:
                try:
                    self._grace.heard(clock_ms(await self._pipe.call("TIME")))
                except Unavailable:
                    continue
            heard = self._grace.heard_ms

    async def read(self, request_id: str, fields: Sequence[str]) -> Snapshot:
        """See `Blackboard.read`."""
        check_request_id(request_id)
        values, meta, leases, _, _ = request_keys(self._prefix, request_id)
        reply = await self._pipe.call("FCALL_RO", self._functions["read"], 3, values, meta, leases, *fields)
        self._grace.heard(reply[1])
        return snapshot_of(request_id, fields, reply)

    async def write(self, request_id: str, write: Write) -> Outcome:
        """See `Blackboard.write`."""
        check_request_id(request_id)
        check(write)
        start = ("FCALL", self._functions["write"], 5, *request_keys(self._prefix, request_id))
        if write.unheld:  # a reconnection may find that the board was away: what it found goes with the command
            self._touch.set()
            reply = await self._pipe.call_late(lambda: (*start, *write_arguments(write, self._grace)))
        else:
            reply = await self._pipe.call(*start, *write_arguments(write, self._grace))
        self._grace.heard(reply[1])
        return outcome_of(request_id, write, reply)

    async def renew(self, request_id: str, step_id: str, version: str, milliseconds: int) -> bool:
        """See `Blackboard.renew`. Renewals go before everything else that waits to be sent."""
        check_request_id(request_id)
        check_length(milliseconds, 1, "a lease")
        keys = request_keys(self._prefix, request_id)[:3]
        now, kept = await self._pipe.call("FCALL", self._functions["renew"], 3, *keys, step_id, version, milliseconds, urgent=True)
        self._grace.heard(now)
        return bool(kept)

    async def events(self, request_id: str, after: int = 0) -> list[Event]:
        """See `Blackboard.events`."""
        check_request_id(request_id)
        key, found = events_key(self._prefix, request_id), list[Event]()
        while True:
            entries = await self._bulk.call("FCALL_RO", self._functions["events"], 1, key, after, EVENTS_PER_READ)
            found += map(event_of, entries)
            if len(entries) < EVENTS_PER_READ:
                return found
            after = found[-1].position

    async def watch(self, request_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """See `Blackboard.watch`. It outlasts an absence of the server."""
        check_request_id(request_id)
        with self._hints.of(events_key(self._prefix, request_id)) as wake:
            while True:
                wake.clear()
                known = self._instance.id
                try:
                    for event in await self.events(request_id, after):
                        after = event.position
                        yield event
                except Unavailable:
                    if self._pipe.closed:
                        raise
                await self._news(wake, known, SAFETY_SECONDS)

    async def watch_field(
        self, request_id: str, name: str, *, also: Sequence[str] = (), look_seconds: float = SAFETY_SECONDS
    ) -> AsyncGenerator[Snapshot, None]:
        """See `Blackboard.watch_field`. It outlasts an absence of the server."""
        check_request_id(request_id)
        with self._hints.of(*hints_of(self._prefix, request_id, name)) as wake:
            # The first look comes after the subscription's confirmation (a wake of its own), so that none is needed before it.
            await woken(wake, CONFIRMATION_SECONDS)
            while True:
                wake.clear()
                known = self._instance.id
                try:
                    yield await self.read(request_id, (name, *also))
                except Unavailable:
                    if self._pipe.closed:
                        raise
                await self._news(wake, known, look_seconds)

    async def _news(self, wake: asyncio.Event, known: str | None, look_seconds: float) -> None:
        """Wait for a hint, or until this is not the board any more that it was; one look at its id serves all who wait."""
        while True:
            await woken(wake, look_seconds)
            if wake.is_set() or await self._found(look_seconds) != known or known is None:
                return

    async def _found(self, look_seconds: float) -> str | None:
        """Return the board's id as it was found within the last `look_seconds`; None where it cannot be."""
        now = asyncio.get_running_loop().time()
        if self._look_now is None or (self._look_now.done() and now - self._looked_at >= look_seconds / 2):
            self._looked_at = now
            self._look_now = self._pipe.call("GET", self._instance.key)
        try:
            found = await asyncio.shield(self._look_now)
        except BrieflineError:
            return None
        if found is not None:
            self._instance.met(found.decode(errors="replace"))
        return None if found is None else self._instance.id

    async def enter(self, member: str, delay_ms: int) -> None:
        """See `Blackboard.enter`."""
        check_length(delay_ms, 0, "a delay")
        await self._index("enter", self._due_key(member), member, delay_ms)

    async def mark(self, member: str, delay_ms: int) -> None:
        """See `Blackboard.mark`."""
        check_length(delay_ms, 0, "a delay")
        await self._index("mark", self._due_key(member), member, delay_ms)

    async def leave(self, member: str) -> None:
        """See `Blackboard.leave`."""
        await self._index("drop", self._due_key(member), member)

    async def due(self, limit: int, forward_ms: int) -> list[Due]:
        """See `Blackboard.due`. Each call begins at another shard, so that a full one starves nobody."""
        check_length(forward_ms, 1, "the way forward")
        self._due_turn += 1
        found: list[Due] = []
        for shard in range(len(self._due_keys)):
            if len(found) < limit:
                found += await self.due_of((self._due_turn + shard) % len(self._due_keys), limit - len(found), forward_ms)
        return found

    async def due_of(self, shard: int, limit: int, forward_ms: int) -> list[Due]:
        """Do what `due` does for one shard of the index."""
        check_length(forward_ms, 1, "the way forward")
        reply = await self._index("due", self._due_keys[shard], limit, forward_ms)
        return [Due(member.decode(), int(mark)) for member, mark in zip(reply[1::2], reply[2::2], strict=True)]

    async def settle(self, due: Due, delay_ms: int | None) -> None:
        """See `Blackboard.settle`."""
        check_length(delay_ms or 0, 0, "a delay")
        await self._index("settle", self._due_key(due.member), due.member, due.mark, "" if delay_ms is None else delay_ms)

    async def dead_add(self, entry: DeadEntry) -> None:
        """See `Blackboard.dead_add`."""
        check_request_id(entry.request_id)
        await self._index("add", dead_key(self._prefix), _dead_member(entry), 0)

    async def dead_list(self, limit: int = 1000) -> list[DeadEntry]:
        """See `Blackboard.dead_list`."""
        return [_dead_entry(member) for member in await self._newest(dead_key(self._prefix), limit)]

    async def dead_remove(self, entry: DeadEntry) -> None:
        """See `Blackboard.dead_remove`."""
        await self._index("drop", dead_key(self._prefix), _dead_member(entry))

    async def recent_add(self, tenant: str, request_id: str) -> None:
        """See `Blackboard.recent_add`; the newest 10,000 stay."""
        check_request_id(request_id)
        await self._index("add", recent_key(self._prefix, tenant), request_id, RECENT_KEPT)

    async def recent(self, tenant: str, limit: int = 100) -> list[str]:
        """See `Blackboard.recent`."""
        return await self._newest(recent_key(self._prefix, tenant), limit)

    def _due_key(self, member: str) -> str:
        encodable((member,))
        return self._due_keys[shard_of(member)]

    async def _newest(self, key: str, limit: int) -> list[str]:
        members = await self._pipe.call("FCALL_RO", self._functions["newest"], 1, key, limit) if limit > 0 else []
        return [member.decode() for member in members]

    async def _index(self, verb: str, key: str, *arguments: Argument) -> Any:
        return await self._pipe.call("FCALL", self._functions[verb], 1, key, *arguments)


_FUNCTIONS = ("read", "events", "newest", "write", "renew", "enter", "mark", "due", "settle", "drop", "add")


def _dead_member(entry: DeadEntry) -> str:
    return f"{entry.request_id}#{entry.step_id}#{entry.epoch}"


def _dead_entry(member: str) -> DeadEntry:
    request_id, step_id, epoch = member.split("#")
    return DeadEntry(request_id, step_id, int(epoch))

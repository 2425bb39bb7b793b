"""The blackboard in memory, for one process: embedded mode, the tests of users' teams, and the reference for Redis.

Same checks, limits, outcomes and errors as on Redis; nothing is shared with callers that could be changed. One event
loop at a time may use it. Called by the wiring, through the port.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType, TracebackType
from typing import Self

from ops.blackboard.checking import check, check_length, check_request_id, encodable, forbid, is_fenced, waits_for
from ops.blackboard.memory_indexes import Arrivals, DueIndex
from ops.blackboard.waking import SAFETY_SECONDS, woken
from ops.findings import Finding, Level
from schemas.blackboard import ABSENT, Conflict, DeadEntry, Due, Event, Held, Outcome, Snapshot, Stored, Write, Written, next_version
from schemas.errors import NotPermitted
from schemas.fields import STEP_PREFIX, check_owner, step

RECENT_KEPT = 10_000
_STEP = len(STEP_PREFIX)


class _Request:
    """What the board holds of one request."""

    __slots__ = ("events", "expires_at_ms", "fields", "leases", "operations")

    def __init__(self) -> None:
        self.fields: dict[str, Stored] = {}
        self.events: list[Event] = []
        self.operations: dict[str, int] = {}
        self.leases: dict[str, tuple[int, str]] = {}
        """Step id -> end, and the version of the step that the lease is bound to."""
        self.expires_at_ms: int | None = None

    def version(self, name: str) -> str:
        stored = self.fields.get(name)
        return ABSENT if stored is None else stored.version


_NOTHING = _Request()
"""What is read of a request that does not exist; never written to."""


class MemoryBlackboard:
    """The port `schemas.blackboard.Blackboard` in dictionaries.

    `clock` is the board's clock, in seconds since the epoch. `lease_seconds` has no effect here: this board is never
    away, so that nobody needs a grace after its return.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time, lease_seconds: float = 5.0) -> None:
        self._clock = clock
        self._requests: dict[str, _Request] = {}
        self._due = DueIndex()
        self._dead: Arrivals[DeadEntry] = Arrivals()
        self._recent: dict[str, Arrivals[str]] = {}
        self._watchers: dict[str, dict[asyncio.Event, str | None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    async def check(self) -> list[Finding]:
        """Return what this board can lose."""
        return [Finding(Level.WARN, "in memory: everything ends with this process", "Use Redis for what must outlast it")]

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _find(self, request_id: str, now: int) -> _Request:
        check_request_id(request_id)
        request = self._requests.get(request_id)
        if request is None:
            return _NOTHING
        if request.expires_at_ms is not None and now >= request.expires_at_ms:
            del self._requests[request_id]
            return _NOTHING
        return request

    async def read(self, request_id: str, fields: Sequence[str]) -> Snapshot:
        """See `Blackboard.read`."""
        encodable(fields)
        now = self._now()
        return _snapshot(request_id, self._find(request_id, now), fields, now)

    async def write(self, request_id: str, write: Write) -> Outcome:
        """See `Blackboard.write`. The order of the checks is that of `functions.lua`."""
        check(write)
        now = self._now()
        request = self._find(request_id, now)
        known = request.operations.get(write.operation_id)
        if known is not None:
            event = request.events[known - 1]
            versions = {name: version for name, (version, _) in event.put.items()}
            return Written(versions, known, event.at_ms, _snapshot(request_id, request, write.returning, now), replayed=True)
        for name, expected in write.expect.items():
            actual = request.version(name)
            if actual != expected:
                return Conflict(name, expected, actual, _snapshot(request_id, request, write.returning, now))
        _check_owners(request, write)
        held = _held(request, write, now)
        if held is not None:
            return Held(*held, _snapshot(request_id, request, write.returning, now))
        if request is _NOTHING:
            request = self._requests[request_id] = _Request()
        event = _store(request, write, now)
        for wake, field in self._watchers.get(request_id, {}).items():
            if field is None or field in write.put:
                wake.set()
        versions = {name: version for name, (version, _) in event.put.items()}
        return Written(versions, event.position, now, _snapshot(request_id, request, write.returning, now))

    async def renew(self, request_id: str, step_id: str, version: str, milliseconds: int) -> bool:
        """See `Blackboard.renew`."""
        check_length(milliseconds, 1, "a lease")
        encodable((step_id, version))
        now = self._now()
        request = self._find(request_id, now)
        if version == ABSENT or request.version(step(step_id)) != version:
            return False
        request.leases[step_id] = (now + milliseconds, version)
        return True

    async def events(self, request_id: str, after: int = 0) -> list[Event]:
        """See `Blackboard.events`."""
        kept = self._find(request_id, self._now()).events[max(0, after) :]
        return [replace(event, labels=MappingProxyType(event.labels), put=MappingProxyType(event.put)) for event in kept]

    async def watch(self, request_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """See `Blackboard.watch`."""
        with self._woken(request_id, None) as wake:
            while True:
                wake.clear()
                for event in await self.events(request_id, after):
                    after = event.position
                    yield event
                await wake.wait()

    async def watch_field(
        self, request_id: str, name: str, *, also: Sequence[str] = (), look_seconds: float = SAFETY_SECONDS
    ) -> AsyncGenerator[Snapshot, None]:
        """See `Blackboard.watch_field`."""
        with self._woken(request_id, name) as wake:
            while True:
                wake.clear()
                yield await self.read(request_id, (name, *also))
                await woken(wake, look_seconds)

    @contextmanager
    def _woken(self, request_id: str, name: str | None) -> Iterator[asyncio.Event]:
        """An event that is set by each write of the request, or (with `name`) of that field."""
        wake = asyncio.Event()
        watchers = self._watchers.setdefault(request_id, {})
        watchers[wake] = name
        try:
            yield wake
        finally:
            del watchers[wake]
            if not watchers and self._watchers.get(request_id) is watchers:
                del self._watchers[request_id]

    async def enter(self, member: str, delay_ms: int) -> None:
        """See `Blackboard.enter`."""
        check_length(delay_ms, 0, "a delay")
        encodable((member,))
        self._due.enter(member, self._now() + delay_ms)

    async def mark(self, member: str, delay_ms: int) -> None:
        """See `Blackboard.mark`."""
        check_length(delay_ms, 0, "a delay")
        encodable((member,))
        self._due.mark(member, self._now() + delay_ms)

    async def leave(self, member: str) -> None:
        """See `Blackboard.leave`."""
        encodable((member,))
        self._due.leave(member)

    async def due(self, limit: int, forward_ms: int) -> list[Due]:
        """See `Blackboard.due`."""
        check_length(forward_ms, 1, "the way forward")
        return self._due.due(self._now(), limit, forward_ms)

    async def settle(self, due: Due, delay_ms: int | None) -> None:
        """See `Blackboard.settle`."""
        check_length(delay_ms or 0, 0, "a delay")
        encodable((due.member,))
        self._due.settle(due, None if delay_ms is None else self._now() + delay_ms)

    async def dead_add(self, entry: DeadEntry) -> None:
        """See `Blackboard.dead_add`."""
        check_request_id(entry.request_id)
        encodable((entry.request_id, entry.step_id))
        self._dead.add(entry)

    async def dead_list(self, limit: int = 1000) -> list[DeadEntry]:
        """See `Blackboard.dead_list`."""
        return self._dead.newest(limit)

    async def dead_remove(self, entry: DeadEntry) -> None:
        """See `Blackboard.dead_remove`."""
        self._dead.remove(entry)

    async def recent_add(self, tenant: str, request_id: str) -> None:
        """See `Blackboard.recent_add`; the newest 10,000 stay."""
        check_request_id(request_id)
        encodable((tenant, request_id))
        self._recent.setdefault(tenant, Arrivals(RECENT_KEPT)).add(request_id)

    async def recent(self, tenant: str, limit: int = 100) -> list[str]:
        """See `Blackboard.recent`."""
        arrivals = self._recent.get(tenant)
        return [] if arrivals is None else arrivals.newest(limit)


def _snapshot(request_id: str, request: _Request, names: Sequence[str], now: int) -> Snapshot:
    fields: dict[str, Stored] = {}
    leases: dict[str, int] = {}
    for name in names:
        stored = request.fields.get(name)
        if stored is not None:
            fields[name] = stored
            if name.startswith(STEP_PREFIX):
                lease = request.leases.get(name[_STEP:])
                if lease is not None and lease[1] == stored.version:
                    leases[name[_STEP:]] = lease[0]
    return Snapshot(request_id, fields, now, len(request.events), leases, frozenset(names))


def _check_owners(request: _Request, write: Write) -> None:
    """Refuse what is not permitted as the board stands: `check` took every field that the write expects nothing of for absent."""
    for name in write.put:
        if name in request.fields and name not in write.expect:
            try:
                check_owner(write.role, name, absent=False, fenced=is_fenced(name, write.expect))
            except NotPermitted:
                raise forbid(write, name) from None


def _held(request: _Request, write: Write, now: int) -> tuple[str, int] | None:
    """Return what holds the write back, and until when."""
    for step_id in write.unheld:
        lease = request.leases.get(step_id)
        if lease is not None and lease[1] == request.version(step(step_id)) and now < lease[0]:
            return step_id, lease[0]
    if write.after is not None:
        until = request.fields[write.after.field].at_ms + write.after.milliseconds
        if now < until:
            return waits_for(write.after.field), until
    return None


def _store(request: _Request, write: Write, now: int) -> Event:
    position = len(request.events) + 1
    put: dict[str, tuple[str, bytes]] = {}
    for name, value in write.put.items():
        version = next_version(request.version(name), write.operation_id)
        request.fields[name] = Stored(value, version, position, now)
        put[name] = (version, value)
    if write.lease is not None:
        request.leases[write.lease.step] = (now + write.lease.milliseconds, put[step(write.lease.step)][0])
    if write.expire_after_seconds is not None:
        request.expires_at_ms = now + write.expire_after_seconds * 1000 if write.expire_after_seconds else None
    event = Event(
        position=position,
        at_ms=now,
        role=write.role.value,
        writer=write.writer,
        operation_id=write.operation_id,
        cause=write.cause,
        labels=dict(write.labels),
        put=put,
    )
    request.events.append(event)
    request.operations[write.operation_id] = position
    return event

"""The blackboard's port: what is. Everything above it is plain Python over these few calls.

Implementations: `ops.blackboard.redis` and `ops.blackboard.memory`, held to one contract suite (`tests/contract`).
Values are opaque bytes here; the records in them are read by whoever knows the field.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeAlias

from schemas.errors import InvalidValue
from schemas.fields import step
from schemas.limits import MAX_VALUE_BYTES, MAX_WRITE_BYTES, MAX_WRITE_FIELDS, within
from schemas.requests import Role

ABSENT = "0"
"""The version of a field that does not exist."""


class Stored(NamedTuple):
    """One field as it is: value, version (count plus a piece of the operation id), position and Redis time of its write."""

    value: bytes
    version: str
    position: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a read saw, at one moment. A field that was asked for and is not in `fields` is absent."""

    request_id: str
    fields: Mapping[str, Stored]
    now_ms: int
    """The board's clock, milliseconds since the epoch."""
    position: int
    """Position of the request's last event; 0 where there is no such request."""
    leases: Mapping[str, int] = field(default_factory=dict)
    """Step id -> end (board clock, ms) of a lease that fits the step's version, over or not; for the `step/` fields read."""
    asked: frozenset[str] = frozenset()
    """The fields that were read; what is not among them is unknown, not absent."""

    def without(self, name: str) -> Snapshot:
        """Return the snapshot as if one field had not been read."""
        return replace(self, fields={key: each for key, each in self.fields.items() if key != name}, asked=self.asked - {name})

    def value(self, name: str) -> bytes | None:
        """Return a field's value, or None."""
        stored = self.fields.get(name)
        return None if stored is None else stored.value

    def version(self, name: str) -> str:
        """Return a field's version; `ABSENT` where it does not exist."""
        stored = self.fields.get(name)
        return ABSENT if stored is None else stored.version


@dataclass(frozen=True, slots=True)
class Lease:
    """A hold on a step for a length of time, set in the claim's own write and bound to the version that it gives the step."""

    step: str
    milliseconds: int


@dataclass(frozen=True, slots=True)
class After:
    """A condition: at least `milliseconds` have passed since `field` was written."""

    field: str
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Write:
    """One atomic change, or none at all.

    The write expects everything that its decision read, also what it does not change. A write that puts nothing is a
    note: it appends its event and changes no field.
    """

    role: Role
    writer: str
    """Role and instance, for people."""
    operation_id: str
    """Drawn for one call, used again only when that call is sent again."""
    expect: Mapping[str, str] = field(default_factory=dict)
    """Field -> version, `ABSENT` for a field that must not exist."""
    put: Mapping[str, bytes] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    """What happened, for timelines: `event` names it, the rest are its details. Short texts."""
    cause: str = ""
    """Id of the message, or name of the timer, that led to the write."""
    lease: Lease | None = None
    unheld: tuple[str, ...] = ()
    """Steps that must have no live lease."""
    after: After | None = None
    expire_after_seconds: int | None = None
    """Set the request's expiry; 0 takes it away; None leaves it."""
    returning: tuple[str, ...] = ()
    """Fields that every outcome carries as they are after the call."""


@dataclass(frozen=True, slots=True)
class Written:
    """The write took effect. `replayed`: it had done so before, under the same operation id, and nothing happened now."""

    versions: Mapping[str, str]
    """New version of each field that was put."""
    position: int
    at_ms: int
    returned: Snapshot
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing changed: `field` is at another version than expected (the first such field in the order of `expect`)."""

    field: str
    expected: str
    actual: str
    returned: Snapshot


@dataclass(frozen=True, slots=True)
class Held:
    """Nothing changed: a live lease is on `step`, or the `after` time has not come; try again at `until_ms` (board clock).

    Where `after` names a field that is no step's, `step` is that field's name.
    """

    step: str
    until_ms: int
    returned: Snapshot


Outcome: TypeAlias = Written | Conflict | Held


@dataclass(frozen=True, slots=True)
class Event:
    """One write as it was recorded: what was put, by whom, why. `fold` of all of them is the state."""

    position: int
    at_ms: int
    role: str
    writer: str
    operation_id: str
    cause: str
    labels: Mapping[str, str]
    put: Mapping[str, tuple[str, bytes]]
    """Field -> (version, value)."""


@dataclass(frozen=True, slots=True)
class DeadEntry:
    """An entry of the index of failed steps; the board says what is true of it."""

    request_id: str
    step_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Due:
    """A member whose time has come, and the mark that `due` has given it meanwhile."""

    member: str
    mark: int


class Blackboard(Protocol):
    """The port. Every call has an overall deadline and raises `Unavailable` past it."""

    async def read(self, request_id: str, fields: Sequence[str]) -> Snapshot:
        """Return the named fields as they are; one round trip. An unknown request gives a snapshot at position 0."""
        ...

    async def write(self, request_id: str, write: Write) -> Outcome:
        """Apply `write` whole, or say why not.

        Raises:
            NotPermitted: the role does not own a field, or a worker's put lacks its fence.
            LimitExceeded: a value or the write is too large.
            InvalidValue: a version, name or length that is none.
            BoardOutOfMemory: refused by the server's memory limit; nothing changed.
            Unavailable: no answer; the call may be sent again with the same operation id.
        """
        ...

    async def renew(self, request_id: str, step_id: str, version: str, milliseconds: int) -> bool:
        """Prolong the lease from now, as long as `step/<id>` still has `version`, also after the lease has ended. False: lost."""
        ...

    async def events(self, request_id: str, after: int = 0) -> list[Event]:
        """Return the events after a position, oldest first."""
        ...

    def watch(self, request_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield events after a position as they come, without end and without polling. Close it when done."""
        ...

    def watch_field(
        self, request_id: str, name: str, *, also: Sequence[str] = (), look_seconds: float = 10.0
    ) -> AsyncGenerator[Snapshot, None]:
        """Yield a snapshot of one field now, and again whenever a write may have changed it (what it was in between is skipped).

        `also` are further fields of the snapshot; their changes wake nobody. Cheaper than `watch` for who waits for an end:
        writes of other fields wake nobody. After `look_seconds` of silence it makes sure that the board is still the one it
        was, with one question for all who wait in this process, and looks again where it is not, so that a board which lost
        the request is noticed. Close it when done.
        """
        ...

    async def enter(self, member: str, delay_ms: int) -> None:
        """Mark a member (`request` or `request#step`) to be looked at within `delay_ms` from now.

        Of two marks the earlier wins. The mark always changes by this call, so that a look begun before it cannot
        `settle` what it did not see.
        """
        ...

    async def mark(self, member: str, delay_ms: int) -> None:
        """Set a member's mark to `delay_ms` from now, whatever it was: for who holds the step, or has just given it back."""
        ...

    async def leave(self, member: str) -> None:
        """Take a member's mark away: for who held the step, at its commit."""
        ...

    async def due(self, limit: int, forward_ms: int) -> list[Due]:
        """Return up to `limit` members whose time has come, and move each `forward_ms` on before anybody else reads it."""
        ...

    async def settle(self, due: Due, delay_ms: int | None) -> None:
        """After a look: set the next one, or (None) take the mark away; nothing happens if the mark has changed since `due`."""
        ...

    async def dead_add(self, entry: DeadEntry) -> None:
        """Index a failed step; adding it again changes nothing."""
        ...

    async def dead_list(self, limit: int = 1000) -> list[DeadEntry]:
        """Return the newest entries of the index, newest first; each is to be checked against the board."""
        ...

    async def dead_remove(self, entry: DeadEntry) -> None:
        """Take an entry out of the index."""
        ...

    async def recent_add(self, tenant: str, request_id: str) -> None:
        """Index a request under its tenant; a hint for listings."""
        ...

    async def recent(self, tenant: str, limit: int = 100) -> list[str]:
        """Return the tenant's newest request ids, newest first."""
        ...


def next_version(current: str, operation_id: str) -> str:
    """Return the version after `current`: a count, a dot, and the last characters of the operation id that writes.

    The piece of the operation id keeps a version from before a rollback of the server from ever equalling one after it.
    """
    return f"{int(current.partition('.')[0]) + 1}.{operation_id[-6:]}"


def check_write(write: Write) -> None:
    """Refuse a write that breaks a limit or names what cannot be, before any I/O.

    Raises:
        LimitExceeded: a value or the whole write is too large, or puts too many fields.
        InvalidValue: a short operation id, an empty field name, a negative length, a lease or an `after` without its field,
            a label that is no Unicode.
    """
    if len(write.operation_id) < 6:
        raise InvalidValue("an operation id has at least 6 characters", path="operation_id")
    within(len(write.put), MAX_WRITE_FIELDS, "the write", path="put", unit="fields")
    total = _length("".join((*write.labels, *write.labels.values())))
    for name, value in write.put.items():
        if not name or "\x00" in name:
            raise InvalidValue(f"{name!r} is no field name", path="put")
        within(len(value), MAX_VALUE_BYTES, "the value", path=name)
        total += len(value)
    within(total, MAX_WRITE_BYTES, "the write", path="put")
    if write.lease is not None and (write.lease.milliseconds <= 0 or step(write.lease.step) not in write.put):
        raise InvalidValue("a lease is longer than 0 ms, and set by a write that puts its step", path="lease")
    if write.after is not None and (write.after.milliseconds < 0 or write.expect.get(write.after.field, ABSENT) == ABSENT):
        raise InvalidValue("a length is not negative, and counted from a field that the write expects", path="after")
    if write.expire_after_seconds is not None and write.expire_after_seconds < 0:
        raise InvalidValue("a length is not negative", path="expire_after_seconds")


def _length(labels: str) -> int:
    if labels.isascii():
        return len(labels)
    try:
        return len(labels.encode())
    except UnicodeEncodeError as error:
        raise InvalidValue("a lone surrogate cannot be stored as UTF-8", path="labels") from error


def fold(events: Iterable[Event]) -> dict[str, Stored]:
    """Return the state that a request's events add up to: for each field what was put last."""
    state: dict[str, Stored] = {}
    for event in events:
        for name, (version, value) in event.put.items():
            state[name] = Stored(value=value, version=version, position=event.position, at_ms=event.at_ms)
    return state

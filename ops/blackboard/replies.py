"""Arguments and replies of the Lua functions, from and to the words of `schemas.blackboard`. Called by `ops.blackboard.redis`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from ops.blackboard.checking import forbid, waits_for
from ops.blackboard.grace import Grace
from ops.blackboard.pipelining import Argument
from schemas.blackboard import Conflict, Event, Held, Outcome, Snapshot, Stored, Write, Written
from schemas.errors import Unreadable
from schemas.fields import STEP_PREFIX, step

_FIRST_PUT = 14
"""Where an event entry's fields and values begin, after the seven pairs that say when, who and why."""


def write_arguments(write: Write, grace: Grace) -> list[Argument]:
    """Return a write as the function `write` takes it: names last and together, so that it can ask for them without a copy."""
    lease, after, expire = write.lease, write.after, write.expire_after_seconds
    arguments: list[Argument] = [
        write.operation_id,
        write.role.value,
        write.writer,
        write.cause,
        orjson.dumps(dict(write.labels)) if write.labels else b"{}",
        write.operation_id[-6:],
        grace.heard_ms,
        grace.calm_until_ms,
        grace.lease_ms,
        -1 if expire is None else expire,
        "" if lease is None else lease.step,
        0 if lease is None else lease.milliseconds,
        "" if after is None else after.field,
        0 if after is None else after.milliseconds,
        len(write.expect),
        len(write.put),
        len(write.returning),
        *write.expect.values(),
        *write.put.values(),
        *write.returning,
        *write.expect,
        *write.put,
    ]
    arguments += map(step, write.unheld)
    return arguments


def snapshot_of(request_id: str, names: Sequence[str], reply: Sequence[Any]) -> Snapshot:
    """Return what the head of a reply says of the fields asked for. A value without a version is none."""
    _, now, position, values, metas, ends = reply[:6]
    fields: dict[str, Stored] = {}
    leases: dict[str, int] = {}
    holds = iter(ends)
    for name, value, meta in zip(names, values, metas, strict=True):
        hold = next(holds) if name.startswith(STEP_PREFIX) else None
        if meta is None:
            continue
        stored = _stored(name, value, meta)
        fields[name] = stored
        if hold is not None:
            end, _, version = hold.decode(errors="replace").partition(" ")
            if version == stored.version:
                leases[name[len(STEP_PREFIX) :]] = int(end)
    return Snapshot(request_id, fields, now, position, leases, frozenset(names))


def _stored(name: str, value: bytes | None, meta: bytes) -> Stored:
    try:
        position, at, version = meta.decode().split(" ", 2)
        return Stored(value if value is not None else b"", version, int(position), int(at))
    except ValueError as error:
        raise Unreadable(f"the version of field {name!r} is damaged: {meta!r}") from error


def outcome_of(request_id: str, write: Write, reply: Sequence[Any]) -> Outcome:
    """Return the outcome of a write.

    Raises:
        NotPermitted: the board's state does not let this role put a field.
    """
    kind: bytes = reply[0]
    if kind == b"forbidden":
        raise forbid(write, reply[6].decode())
    returned = snapshot_of(request_id, write.returning, reply)
    if kind == b"written":
        return Written(_versions(list(write.put), reply[8], write.operation_id), reply[6], reply[7], returned)
    if kind == b"replayed":
        names = [name.decode() for name in reply[9]]
        return Written(_versions(names, reply[8], write.operation_id), reply[6], reply[7], returned, replayed=True)
    if kind == b"conflict":
        return Conflict(reply[6].decode(), reply[7].decode(), reply[8].decode(), returned)
    return Held(waits_for(reply[6].decode()), reply[7], returned)


def _versions(names: list[str], counts: bytes, operation_id: str) -> dict[str, str]:
    origin = operation_id[-6:]
    return {name: f"{count}.{origin}" for name, count in zip(names, counts.decode().split(), strict=True)}


def event_of(entry: Sequence[Any]) -> Event:
    """Return the event of a stream entry.

    Raises:
        Unreadable: the entry is none of ours.
    """
    identity, pairs = entry
    try:
        at, role, writer, operation, cause, labels, counts = pairs[1:_FIRST_PUT:2]
        names = [name.decode() for name in pairs[_FIRST_PUT::2]]
        versions = _versions(names, counts, operation.decode())
        return Event(
            position=int(identity.partition(b"-")[0]),
            at_ms=int(at),
            role=role.decode(),
            writer=writer.decode(),
            operation_id=operation.decode(),
            cause=cause.decode(),
            labels=orjson.loads(labels),
            put={name: (versions[name], value) for name, value in zip(names, pairs[_FIRST_PUT + 1 :: 2], strict=True)},
        )
    except (ValueError, TypeError) as error:
        raise Unreadable(f"event {identity!r} is damaged: {error}") from error


def slots_of(reply: Sequence[Sequence[Any]], asked: str) -> list[tuple[int, int, tuple[str, int]]]:
    """Read a reply to CLUSTER SLOTS: first and last slot, host and port of the primary; one without a host is `asked` itself."""
    return [(int(first), int(last), (primary[0].decode() if primary[0] else asked, int(primary[1]))) for first, last, primary, *_ in reply]

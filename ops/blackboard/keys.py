"""Names of keys in Redis. All keys of a request stand under one hash tag; the indexes stand outside. Called by `ops.blackboard.redis`."""

from __future__ import annotations

from zlib import crc32

from schemas.fields import ANSWER

SHARDS = 4
"""Sorted sets that the due index is spread over."""


def request_keys(prefix: str, request_id: str) -> tuple[str, str, str, str, str]:
    """Return values, meta, leases, operations, events: in the order in which the functions take them."""
    start = f"{prefix}:{{{request_id}}}:"
    return f"{start}values", f"{start}meta", f"{start}leases", f"{start}operations", f"{start}events"


def events_key(prefix: str, request_id: str) -> str:
    """Return the key of a request's event stream, which is also the channel of its hints."""
    return f"{prefix}:{{{request_id}}}:events"


def hints_of(prefix: str, request_id: str, field: str) -> tuple[str, str | None]:
    """Return the channel that tells of a field's writes, and the name to listen for there; None where it tells of nothing else.

    The answer has a channel of its own, all others share that of the request.
    """
    channel = events_key(prefix, request_id)
    return (f"{channel}:{field}", None) if field == ANSWER else (channel, field)


def due_keys(prefix: str) -> tuple[str, ...]:
    """Return the keys of the due index, one a shard."""
    return tuple(f"{prefix}:due:{shard}" for shard in range(SHARDS))


def shard_of(member: str) -> int:
    """Return the shard of a member of the due index: decided by the request's id, so that its steps stand beside it."""
    return crc32(member.partition("#")[0].encode()) % SHARDS


def board_key(prefix: str, part: int | None = None) -> str:
    """Return the key of the board's id, written once and never changed; each node of a Redis Cluster has a part's."""
    return f"{prefix}:board" if part is None else f"{prefix}:board:{part}"


def dead_key(prefix: str) -> str:
    """Return the key of the index of failed steps."""
    return f"{prefix}:dead"


def recent_key(prefix: str, tenant: str) -> str:
    """Return the key of a tenant's index of recent requests."""
    return f"{prefix}:recent:{tenant}"

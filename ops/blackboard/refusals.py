"""What Redis says when it does not do what was asked, in the words of `schemas.errors`. Called by `ops.blackboard.pipelining`."""

from __future__ import annotations

from enum import Enum

import redis.exceptions as redis_errors

from schemas.errors import BoardOutOfMemory, BrieflineError, NotPermitted, Unreadable, UnsafeServer

NO_LINE = (redis_errors.ConnectionError, redis_errors.TimeoutError, TimeoutError, OSError)
"""The connection is of no use any more; what was sent on it may have taken effect."""

_PASSING = ("READONLY", "LOADING", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "MISCONF", "NOREPLICAS", "UNBLOCKED", "BUSY ")
_UNLOADED = "Function not found"


class Elsewhere(UnsafeServer):
    """The key is on another node of a Redis Cluster. `arriving`: its slot is on its way there, so `address` has it soon."""

    def __init__(self, address: tuple[str, int], *, arriving: bool) -> None:
        super().__init__(
            "this Redis is one node of a cluster that has others: name it as one, redis+cluster://HOST:PORT (rediss+cluster:// with TLS)"
        )
        self.address = address
        self.arriving = arriving


class Refusal(Enum):
    """What to do about an error that Redis answered."""

    PASSING = "try again, on a new connection"
    UNLOADED = "load the function library and try again"
    FINAL = "tell the caller"


def refusal_of(error: Exception) -> Refusal:
    """Say what an error reply calls for. None of the refused commands has changed anything."""
    text = message_of(error)
    if _UNLOADED in text:
        return Refusal.UNLOADED
    passing = (redis_errors.ReadOnlyError, redis_errors.TryAgainError, redis_errors.MasterDownError, redis_errors.ClusterDownError)
    return Refusal.PASSING if isinstance(error, passing) or text.startswith(_PASSING) else Refusal.FINAL


def translated(error: Exception) -> BrieflineError:
    """Return the error for the caller."""
    text = message_of(error)
    if isinstance(error, redis_errors.AskError):  # MOVED is a kind of it
        return Elsewhere(error.node_addr, arriving=not isinstance(error, redis_errors.MovedError))
    if isinstance(error, redis_errors.OutOfMemoryError) or text.startswith("OOM"):
        return BoardOutOfMemory("Redis is at its maxmemory and refuses the write; nothing was changed")
    if is_forbidden(error):
        return NotPermitted(f"Redis refuses this user: {text}")
    if "WRONGTYPE" in text:
        return Unreadable(f"a key of the blackboard holds another kind of value than it should: {text}")
    if " script: " in text:
        return Unreadable(f"what Redis holds of this request is damaged: {text}")
    return UnsafeServer(f"Redis refuses the blackboard's command: {text}")


def is_forbidden(error: Exception) -> bool:
    """Whether the access list of the server forbids it: a command, a key, or what a function asks about."""
    return isinstance(error, redis_errors.NoPermissionError) or "The user executing the script" in message_of(error)


def message_of(error: Exception) -> str:
    """Return the text of an error reply, or the kind of an error that has none."""
    return str(error) or type(error).__name__

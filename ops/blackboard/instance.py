"""Which board this is: an id that is written once beside the requests, and gone with them.

A server that came back without its data, or another one behind the same address, has another id: a client that
remembers the one it met first notices, and says so once per change. Nothing else follows from it here: what the board
does not hold did not happen. Called by `ops.blackboard.redis`, on each new connection and for `briefline check`.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

import structlog
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from ops.blackboard.connecting import ask
from ops.findings import Finding, Level

log = structlog.get_logger()


class Instance:
    """What one client knows of the board's identity: the id it met last, and the last change of it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.id: str | None = None
        self.replaced: tuple[str, str] | None = None
        """Old and new id of the last change that this client has seen."""

    def met(self, found: str | None) -> None:
        """Take in the id that a new connection has found; None where it could not be read."""
        if found is None or found == self.id:
            return
        if self.id is not None:
            self.replaced = self.id, found
            log.error("board_replaced", key=self.key, old=self.id, new=found, reason="what the old board held is not on this one")
        self.id = found

    def finding(self) -> Finding:
        """Say which board this is, for `briefline check`."""
        if self.id is None:
            return Finding(Level.WARN, "the board's id can be neither read nor written", f"Let clients SET and GET the key {self.key}")
        if self.replaced is not None:
            old, new = self.replaced
            return Finding(Level.WARN, f"board {new}; until it was replaced: {old}", "Find out where the data of the old one is")
        return Finding(Level.OK, f"board {self.id} (made at that time; another id later means another board)")


async def read_instance(connection: AbstractConnection, key: str, now_ms: int) -> str | None:
    """Return the board's id, writing a new one where there is none; None where an access list forbids both.

    The id begins with the board's time at which it was made, so that a person sees when a board began.
    """
    made = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    offered = f"{made}-{secrets.token_hex(6)}"
    try:
        found = await ask(connection, "SET", key, offered, "NX", "GET")
    except ResponseError:  # no memory for it, a replica, or an access list: what is there can perhaps be read
        try:
            found = await ask(connection, "GET", key)
        except ResponseError:
            return None
        return None if found is None else _text(found)
    return offered if found is None else _text(found)


def _text(found: bytes) -> str:
    return found.decode(errors="replace")

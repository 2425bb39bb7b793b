"""Following one request: its events as they come, and a clear end where the board no longer has it.

A board that was replaced by an empty one tells nobody: a watch of it waits for ever. So where nothing has come for a
while, the request is looked at, and who waits is told what became of it. Called by `ops.client`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from schemas import fields
from schemas.blackboard import Blackboard, Event
from schemas.errors import NotFound, Unavailable

LOOK_SECONDS = 10.0
"""How long silence is trusted before the request is looked at."""


async def events_of(board: Blackboard, request_id: str, after: int, *, look_seconds: float = LOOK_SECONDS) -> AsyncGenerator[Event, None]:
    """Yield the events of a request after a position as they come. Close it when done.

    It ends only where the board stands elsewhere than what was seen (it was set back): the caller reads anew. A board
    that is not there is waited for.

    Raises:
        NotFound: the board no longer has the request.
    """
    async with aclosing(board.watch(request_id, after)) as events:
        coming = asyncio.ensure_future(anext(events))
        try:
            while True:
                await asyncio.wait({coming}, timeout=look_seconds)
                if coming.done():
                    event = coming.result()
                    after = event.position
                    yield event
                    coming = asyncio.ensure_future(anext(events))
                elif await _elsewhere(board, request_id, after):
                    return
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


async def _elsewhere(board: Blackboard, request_id: str, after: int) -> bool:
    try:
        position = (await board.read(request_id, (fields.STATUS,))).position
    except Unavailable:
        return False
    if position == 0:
        raise gone(request_id)
    return position != after


def gone(request_id: str) -> NotFound:
    """Return the error that says that a request was there, and is not any more."""
    return NotFound(
        f"the board no longer has request {request_id!r}: it was replaced or has lost its data, or the request is past its retention; "
        "nothing more will come of it",
        path="request",
    )

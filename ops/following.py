"""Following one request: its events as they come, and a clear end where the board no longer has it.

A board that was replaced by an empty one tells nobody: a watch of it waits for ever. So where nothing has come for a
while, the request's status is watched as well, which tells of a board that is another one, and who waits is told what
became of the request. Called by `ops.client`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from schemas import fields
from schemas.blackboard import Blackboard, Event, Snapshot
from schemas.errors import NotFound

LOOK_SECONDS = 10.0
"""How long silence is trusted before the request is looked at."""


async def events_of(board: Blackboard, request_id: str, after: int, *, look_seconds: float = LOOK_SECONDS) -> AsyncGenerator[Event, None]:
    """Yield the events of a request after a position as they come. Close it when done.

    It ends only where the board stands elsewhere than what was seen (it was set back): the caller reads anew. A board
    that is not there is waited for.

    Raises:
        NotFound: the board no longer has the request.
    """
    async with aclosing(board.watch(request_id, after)) as events, aclosing(_signs(board, request_id, look_seconds)) as signs:
        coming = asyncio.ensure_future(anext(events))
        sign = asyncio.ensure_future(anext(signs))
        try:
            while True:
                await asyncio.wait({coming, sign}, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    event = coming.result()
                    after = event.position
                    yield event
                    coming = asyncio.ensure_future(anext(events))
                else:
                    position = sign.result().position
                    if position == 0:
                        raise gone(request_id)
                    if position < after:
                        return
                    sign = asyncio.ensure_future(anext(signs))
        finally:
            for each in (coming, sign):
                each.cancel()
            await asyncio.gather(coming, sign, return_exceptions=True)


async def _signs(board: Blackboard, request_id: str, look_seconds: float) -> AsyncGenerator[Snapshot, None]:
    """Yield the status where it may have changed, or the board may be another one; nobody is asked before `look_seconds` have passed."""
    await asyncio.sleep(look_seconds)
    async with aclosing(board.watch_field(request_id, fields.STATUS, look_seconds=look_seconds)) as snapshots:
        async for snapshot in snapshots:
            yield snapshot


def gone(request_id: str) -> NotFound:
    """Return the error that says that a request was there, and is not any more."""
    return NotFound(
        f"the board no longer has request {request_id!r}: it was replaced or has lost its data, or the request is past its retention; "
        "nothing more will come of it",
        path="request",
    )

"""Many processes on one field of one request: compare-and-set loses nothing, and fields of their own are in nobody's way."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from ops.blackboard.redis import RedisBlackboard
from schemas import fields
from schemas.blackboard import fold
from schemas.shared import FieldRecord

PROCESSES, TIMES = 8, 1_000
ROOT = Path(__file__).parents[2]


async def race(url: str, prefix: str, request_id: str, names: list[str]) -> int:
    """Run one process for each name, and return how many of their writes came too late."""
    arguments = [[url, prefix, request_id, name, str(TIMES)] for name in names]
    running = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.contract.racing", *each, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        for each in arguments
    ]
    ended = await asyncio.gather(*(process.communicate() for process in running))
    assert [process.returncode for process in running] == [0] * len(names), ended[0][1].decode()
    return sum(int(out) for out, _ in ended)


async def counted(board: RedisBlackboard, request_id: str, names: list[str]) -> list[object]:
    """What the fields say at the end; the same as the fold of all events."""
    stored = [fields.shared(name) for name in names]
    now = await board.read(request_id, stored)
    assert dict(now.fields) == fold(await board.events(request_id))
    return [FieldRecord.from_json(now.fields[name].value).value for name in stored]


@pytest.mark.timeout(170)
async def test_invariant_10_eight_processes_lose_no_increment_of_one_field_or_of_their_own(redis_url: str, key_prefix: str) -> None:
    async with RedisBlackboard(redis_url, prefix=key_prefix) as board:
        late = await race(redis_url, key_prefix, "shared", ["count"] * PROCESSES)
        assert await counted(board, "shared", ["count"]) == [PROCESSES * TIMES]
        assert late > 0, "they never met, so nothing was shown"

        own = [f"count-{number}" for number in range(PROCESSES)]
        assert await race(redis_url, key_prefix, "distinct", own) == 0
        assert await counted(board, "distinct", own) == [TIMES] * PROCESSES

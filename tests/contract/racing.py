"""One process of the race: it adds one to a shared field, again and again, by compare-and-set, and tells how often it was too late.

Started by `test_races.py`: `python -m tests.contract.racing URL PREFIX REQUEST FIELD TIMES`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import uuid

from ops.blackboard.redis import RedisBlackboard
from schemas import fields
from schemas.blackboard import Write, Written
from schemas.requests import Role
from schemas.shared import FieldRecord


async def race(url: str, prefix: str, request_id: str, name: str, times: int) -> int:
    """Increment `times` times; return how many writes lost against another process."""
    lost = 0
    stored = fields.shared(name)
    async with RedisBlackboard(url, prefix=prefix) as board:
        now = await board.read(request_id, (stored,))
        for _ in range(times):
            while True:
                value = now.value(stored)
                record = FieldRecord() if value is None else FieldRecord.from_json(value)
                count = record.value if isinstance(record.value, int) else 0
                write = Write(
                    role=Role.ORCHESTRATOR,
                    writer="race",
                    operation_id=uuid.uuid4().hex,
                    expect={stored: now.version(stored)},
                    put={stored: FieldRecord(value=count + 1).to_json()},
                    returning=(stored,),
                )
                outcome = await board.write(request_id, write)
                now = outcome.returned
                if isinstance(outcome, Written):
                    break
                lost += 1
                await asyncio.sleep(random.random() * 0.01)  # else all of them come back at once, and seven of eight in vain
    return lost


if __name__ == "__main__":
    url, prefix, request_id, name, times = sys.argv[1:]
    print(asyncio.run(race(url, prefix, request_id, name, int(times))))

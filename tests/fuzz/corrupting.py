"""Fields of a board overwritten behind its back, as a broken disk or a foreign client would; and put right again."""

from __future__ import annotations

from redis.asyncio import Redis

from ops.blackboard.memory import MemoryBlackboard
from ops.blackboard.redis import RedisBlackboard
from schemas.blackboard import fold


async def overwrite(board: MemoryBlackboard | RedisBlackboard, redis: Redis | None, request_id: str, name: str, value: bytes) -> None:
    """Give a field other bytes under the version that it has."""
    if isinstance(board, MemoryBlackboard):
        request = board._requests[request_id]
        request.fields[name] = request.fields[name]._replace(value=value)
        return
    assert redis is not None
    key = await _values_key(redis, request_id)
    assert await redis.hexists(key, name), name
    await redis.hset(key, name, value)


async def restore(board: MemoryBlackboard | RedisBlackboard, redis: Redis | None, request_id: str) -> None:
    """Give every field the bytes that the events say."""
    for name, stored in fold(await board.events(request_id)).items():
        await overwrite(board, redis, request_id, name, stored.value)


async def _values_key(redis: Redis, request_id: str) -> bytes:
    (key,) = [key async for key in redis.scan_iter(match=f"*{{{request_id}}}:values", count=1000)]
    return bytes(key)

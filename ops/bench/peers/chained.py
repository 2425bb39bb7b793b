"""A chain and a diamond by hand: steps that send each other on, for contenders that know messages and nothing of plans.

No state but the last result and, for the diamond, which branch has come; nobody decides, retries or recovers anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aio_pika
import orjson
import redis.asyncio

from ops.bench.figures import Figures
from ops.bench.loads import Load
from ops.bench.peers.peer import RABBITMQ_URL, REDIS_URL, Payload, joined, stamped

AFTER = {"chain": {"a": "b", "b": "c"}, "diamond": {"a": "bc", "b": "d", "c": "d"}}
"""Case -> step -> the steps that it sends to."""
STEPS = "abcd"
KEPT_SECONDS = 3600

Letter = dict[str, Any]
"""What goes from step to step: `case`, `given` (the payload), `reply` (the client's queue), `by` (who sent it)."""
Send = Callable[[Letter, str], Awaitable[object]]
"""Publishes a letter to a queue, with a confirm."""

board = redis.asyncio.Redis.from_url(REDIS_URL or "redis://127.0.0.1")


async def act(step: str, letter: Letter, prefix: str, send: Send) -> None:
    """Run a step on a letter and send it on; the last one keeps the result in Redis and answers the client."""
    if step == "d":
        branches = await _arrived(letter)
        if branches is None:
            return
        given = joined(branches)
    else:
        given = stamped(letter["given"])
    onward = {**letter, "given": given, "by": step}
    after = AFTER[letter["case"]].get(step, "")
    if after:
        await asyncio.gather(*(send(onward, f"{prefix}.{each}") for each in after))
        return
    await board.set(f"{prefix}:{letter['reply']}:{_name(given)}", orjson.dumps(given), ex=KEPT_SECONDS)
    await send(onward, letter["reply"])


async def _arrived(letter: Letter) -> list[Payload] | None:
    """Note that a branch has come, and return all of them once both have."""
    key = f"branches:{letter['reply']}:{_name(letter['given'])}"
    async with board.pipeline(transaction=True) as calls:
        calls.hset(key, letter["by"], orjson.dumps(letter["given"]))
        calls.expire(key, KEPT_SECONDS)
        calls.hgetall(key)
        *_, found = await calls.execute()
    return [orjson.loads(each) for each in found.values()] if len(found) == 2 else None


def _name(given: Payload) -> str:
    return f"{given['id']}-{given['t0']}"


async def drive(case: str, prefix: str, load: Load) -> Figures:
    """Put the load on one case: publish to the first step with a confirm, and wait for the answer in a queue of one's own."""
    waiting: dict[str, asyncio.Future[Payload]] = {}

    async def answered(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        async with message.process():
            given = orjson.loads(message.body)["given"]
            if future := waiting.pop(_name(given), None):
                future.set_result(given)

    async with await aio_pika.connect(RABBITMQ_URL) as connection:
        channel = await connection.channel()
        await channel.set_qos(200)
        replies = await channel.declare_queue(exclusive=True)
        await replies.consume(answered)

        async def ask(given: Payload) -> Payload:
            future = waiting[_name(given)] = asyncio.get_running_loop().create_future()
            body = orjson.dumps({"case": case, "given": given, "reply": replies.name, "by": ""})
            message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT, content_type="application/json")
            await channel.default_exchange.publish(message, f"{prefix}.a")
            return await future

        return await load.lanes(ask)

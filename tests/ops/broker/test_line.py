"""What the driver raises, and what it only seems to raise, comes out of the wall as errors of ours."""

from __future__ import annotations

import asyncio

import pytest
from aiormq.exceptions import AMQPConnectionError

from ops.broker.line import translated, with_heartbeat
from ops.broker.safety import version_finding
from ops.findings import Level
from schemas.errors import Unavailable

LINE_ERRORS = [
    AMQPConnectionError("reset"),
    OSError("refused"),
    TimeoutError(),
    Exception(),
    RuntimeError("closed"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    asyncio.CancelledError("the channel was closed"),
]


@pytest.mark.parametrize("error", LINE_ERRORS, ids=lambda error: type(error).__name__)
async def test_every_way_to_lose_a_line_is_unavailable(error: BaseException) -> None:
    with pytest.raises(Unavailable, match="declaring") as raised, translated("declaring"):
        raise error
    assert raised.value.__cause__ is error


async def test_our_own_cancellation_passes() -> None:
    async def work() -> None:
        with translated("x"):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://u:p%40@host:5672/my%2Fvhost", "amqp://u:p%40@host:5672/my%2Fvhost?heartbeat=10"),
        ("amqps://host/?heartbeat=60&cafile=/ca.pem", "amqps://host/?heartbeat=60&cafile=%2Fca.pem"),
    ],
)
def test_the_heartbeat_is_ours_unless_the_url_names_one(url: str, expected: str) -> None:
    assert with_heartbeat(url) == expected


@pytest.mark.parametrize(
    ("product", "version", "level"),
    [
        ("RabbitMQ", "3.10.8", Level.OK),
        ("RabbitMQ", "4.1.0-rc.1", Level.OK),
        ("RabbitMQ", "3.9.29", Level.FAIL),
        ("LavinMQ", "2.1.0", Level.WARN),
        ("", "", Level.WARN),
    ],
)
def test_the_look_at_a_server_judges_its_version(product: str, version: str, level: Level) -> None:
    assert version_finding(product, version).level is level

"""A look at a RabbitMQ before anything relies on it: is it there, what is it, does its topology fit.

It declares no queue that is missing, and drops nothing. What AMQP does not tell (the acknowledgement timeout, policies)
is said as advice. Called by `briefline check`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ops.broker.line import Line, Server, close, connected, declare, is_declared, opened
from ops.broker.topology import DEFAULT_PREFIX, Queue, Topology
from ops.findings import Finding, Level
from schemas.errors import NotPermitted, Unavailable, UnsafeServer

OLDEST_VERSION = (3, 10)
"""The first version whose quorum queues dead-letter at least once."""


async def look_at_broker(
    url: str,
    *,
    prefix: str = DEFAULT_PREFIX,
    agents: Iterable[str] = (),
    ack_after_seconds: float = 600.0,
    call_timeout_seconds: float = 5.0,
) -> list[Finding]:
    """Return what there is to say about the RabbitMQ at `url` and the queues below `prefix`, those of `agents` included."""
    topology = Topology(prefix)
    server = Server(url, topology, "briefline check", call_timeout_seconds, call_timeout_seconds)
    queues = (*topology.fixed, *(queue for agent in agents for queue in topology.of_agent(agent)))
    try:
        async with connected(server, "looking") as connection:
            found = [_version(connection)]
            found += [await _queue(server, connection, queue) for queue in queues]
    except Unavailable as error:
        return [Finding(Level.FAIL, str(error), "start RabbitMQ, or set BRIEFLINE_RABBITMQ_URL to where it is and who may use it")]
    return [*found, _ack_timeout(ack_after_seconds)]


def version_finding(product: str, version: str) -> Finding:
    """Say whether this version keeps what is promised."""
    numbers = tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
    what = f"{product} {version} answers"
    if product != "RabbitMQ" or not version:
        return Finding(Level.WARN, what, "only RabbitMQ itself is tested")
    if numbers < OLDEST_VERSION:
        return Finding(Level.FAIL, what, "use RabbitMQ 3.10 or later: before it, quorum queues dead-letter at most once")
    return Finding(Level.OK, what)


def _version(connection: Line) -> Finding:
    properties = connection.server_properties
    return version_finding(_text(properties.get("product")), _text(properties.get("version")))


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes | bytearray) else str(value or "")


async def _queue(server: Server, connection: Line, queue: Queue) -> Finding:
    name = server.topology.full(queue.name)
    if not await is_declared(server, await opened(server, connection), queue.name):
        return Finding(Level.WARN, f"queue {name} is not declared yet", "it is declared when an orchestrator or a worker starts")
    try:
        # A passive declaration compares nothing; the full one of a queue that exists changes nothing, or is refused.
        channel = await opened(server, connection)
        await declare(server, channel, queue)
        await close(server, channel)
    except NotPermitted:
        return Finding(Level.OK, f"queue {name} is declared; this user may not compare its arguments")
    except UnsafeServer as error:
        return Finding(
            Level.FAIL,
            str(error),
            f"delete {name} while it is empty, or set BRIEFLINE_TOPOLOGY_PREFIX to a new name; settings are policies",
        )
    return Finding(Level.OK, f"queue {name} is declared as this version needs it")


def _ack_timeout(ack_after_seconds: float) -> Finding:
    return Finding(
        Level.OK,
        f"tasks are acknowledged after {ack_after_seconds:g} s at the latest (BRIEFLINE_ACK_AFTER_SECONDS)",
        "RabbitMQ's own `consumer_timeout` in rabbitmq.conf (milliseconds, 1800000 unless set) must be well above that; "
        "it cannot be read over AMQP, and before 3.12 not be set per queue",
    )

"""Clusters of our own on this machine: Redis nodes that share the slots, RabbitMQ nodes that share the queues.

They show how Briefline behaves on several nodes, not how fast it is there: all nodes are processes on loopback. Called by
`ops.servers` and by tests.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ops.own_servers import LOOPBACK, POLL_SECONDS, OwnServer, RabbitMQProcess, RedisProcess, free_port, reply_of
from schemas.errors import Unavailable

SLOTS = 16_384
JOIN_SECONDS = 60.0


class _Cluster:
    """Nodes that start one after the other, the first one first, and stop in the opposite order."""

    def __init__(self, nodes: Sequence[OwnServer]) -> None:
        self._members = nodes

    def start(self) -> None:
        """Start the nodes; returns once all of them are one cluster. Raises `Unavailable` when they do not become one."""
        try:
            for node in self._members:
                node.start()
            self._join()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the nodes."""
        for node in reversed(self._members):
            node.stop()

    def _join(self) -> None:
        """Make one cluster of nodes that run."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class RedisCluster(_Cluster):
    """A Redis Cluster: so many primaries without replicas, each with its part of the slots; one node has them all."""

    def __init__(self, folder: Path, nodes: int = 1) -> None:
        options = {"cluster-enabled": "yes", "cluster-node-timeout": "5000"}
        self.nodes = [
            RedisProcess(folder / f"node-{n}", options={**options, "cluster-port": str(free_port())}) for n in range(1, nodes + 1)
        ]
        super().__init__(self.nodes)

    @property
    def url(self) -> str:
        """Where clients reach the first node: the only one, or one that names the others."""
        url = self.nodes[0].url
        return url if len(self.nodes) == 1 else url.replace("redis://", "redis+cluster://")

    def command(self, node: int, *words: object) -> bytes:
        """Return the beginning of what a node answers to a command of plain words."""
        return reply_of(LOOPBACK, self.nodes[node].port, " ".join(map(str, words)).encode() + b"\r\n", 4096)

    def _join(self) -> None:
        count = len(self.nodes)
        for index, node in enumerate(self.nodes):
            first, last = SLOTS * index // count, SLOTS * (index + 1) // count - 1
            self._done(index, "CLUSTER", "ADDSLOTSRANGE", first, last)
            if index:
                self._done(0, "CLUSTER", "MEET", LOOPBACK, node.port, node.options["cluster-port"])
        wanted = (b"cluster_state:ok", f"cluster_known_nodes:{count}\r".encode())
        give_up = time.monotonic() + JOIN_SECONDS
        for index in range(count):
            while not all(each in self.command(index, "CLUSTER", "INFO") for each in wanted):
                if time.monotonic() > give_up:
                    raise Unavailable(f"Redis node {index + 1} of {count} has not joined the others")
                time.sleep(POLL_SECONDS)

    def _done(self, node: int, *words: object) -> None:
        answer = self.command(node, *words)
        if not answer.startswith(b"+OK"):
            raise Unavailable(f"Redis refuses {' '.join(map(str, words))}: {answer.decode(errors='replace').strip()}")


class RabbitMQCluster(_Cluster):
    """A RabbitMQ cluster: each node's own port, folder and name; one cookie and one port mapper, which are the first node's."""

    def __init__(self, folder: Path, nodes: int = 3) -> None:
        # The last folder is what `ops.servers.controller` looks for.
        first = RabbitMQProcess(folder / "node-1" / "rabbitmq-server")
        others = [RabbitMQProcess(folder / f"node-{n}" / "rabbitmq-server", beside=first) for n in range(2, nodes + 1)]
        self.nodes = [first, *others]
        super().__init__(self.nodes)

    @property
    def url(self) -> str:
        """Where clients reach one node; any other serves them as well."""
        return self.nodes[0].url

    def _join(self) -> None:
        """They have found each other as they started; here it is only awaited."""
        self.nodes[0].control("await_online_nodes", str(len(self.nodes)), "--timeout", f"{JOIN_SECONDS:g}")

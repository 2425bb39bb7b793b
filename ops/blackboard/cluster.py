"""The blackboard on a Redis Cluster: one board a node, and each call goes to the node that has the slot of its key.

All keys of a request share a hash tag, so a request lies on one node whole, and each index key on one. A node that says
`MOVED` is believed: the slots are learned anew and the call is sent again, which is safe for every call of the port. While a
slot is on its way between two nodes, its calls wait for its arrival. This room knows no command. Called by the wiring.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from itertools import chain
from random import Random
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

import structlog
from redis.crc import key_slot

from ops.blackboard.checking import check_request_id, encodable
from ops.blackboard.keys import board_key, dead_key, due_keys, events_key, recent_key, shard_of
from ops.blackboard.redis import RedisBlackboard
from ops.blackboard.refusals import Elsewhere
from ops.blackboard.waking import SAFETY_SECONDS
from ops.findings import Finding, Level
from schemas.blackboard import DeadEntry, Due, Event, Outcome, Snapshot, Write
from schemas.errors import InvalidValue, Unavailable

T = TypeVar("T")
Address: TypeAlias = tuple[str, int]

PAUSE_SECONDS = 0.05
"""How long a call waits, about, before it asks again for a slot that is on its way."""

log = structlog.get_logger()


class ClusterBlackboard:
    """The port `schemas.blackboard.Blackboard` on a Redis Cluster; `url` names any node of it.

    `deadline_seconds` is how long a call follows its slot, and how long each node may take for it; the other options are those
    of `RedisBlackboard`, of which there is one a node.

    Raises, at start: what a `RedisBlackboard` raises.
    """

    def __init__(self, url: str, *, prefix: str = "briefline", deadline_seconds: float = 15.0, **options: Any) -> None:
        self._seed = url.replace("+cluster://", "://", 1)
        self._prefix = prefix
        self._deadline = deadline_seconds
        self._options = options
        self._due_keys = due_keys(prefix)
        self._due_turn = 0
        self._owners: list[tuple[int, int, Address]] = []
        self._nodes: dict[Address, _Node] = {}
        self._learning = asyncio.Lock()
        self._learned = 0
        self._group = asyncio.TaskGroup()
        self._random = Random()
        self._closed = False
        self._board_at(_address_of(self._seed))  # what is wrong with an option is said now

    def _board_at(self, address: Address, owners: Sequence[tuple[int, int, Address]] = ()) -> RedisBlackboard:
        url, id_key = _url_at(self._seed, address), _id_key(self._prefix, address, owners)
        return RedisBlackboard(url, prefix=self._prefix, deadline_seconds=self._deadline, id_key=id_key, **self._options)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        try:
            await self._learn(self._learned)
            await asyncio.gather(*(self._node(address) for address in {owner for _, _, owner in self._owners}))
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._close()

    async def _close(self) -> None:
        self._closed = True
        for node in self._nodes.values():
            node.leave.set()
        await self._group.__aexit__(None, None, None)

    async def check(self) -> list[Finding]:
        """Return how safe each node's settings are, and how many nodes there are."""
        owners = await self._board_at(_address_of(self._seed)).slots()
        addresses = sorted({owner for _, _, owner in owners})
        found = await asyncio.gather(*(self._board_at(address, owners).check() for address in addresses))
        covered = sum(last - first + 1 for first, last, _ in owners)
        whole = Finding(Level.OK, f"Redis Cluster of {len(addresses)} nodes with slots")
        if covered < 16_384:
            whole = Finding(Level.FAIL, f"{16_384 - covered} slots of the cluster have no node", "See `redis-cli --cluster check`")
        named = [
            Finding(each.level, f"{host}:{port}: {each.what}", each.advice)
            for (host, port), node in zip(addresses, found, strict=True)
            for each in node
        ]
        return [whole, *named]

    async def _at(self, key: str, act: Callable[[RedisBlackboard], Awaitable[T]]) -> T:
        """Do something on the node that has this key, wherever it is by now."""
        give_up = asyncio.get_running_loop().time() + self._deadline
        while True:
            seen = self._learned
            try:
                return await act(await self._node_of(key))
            except Elsewhere as moved:
                if asyncio.get_running_loop().time() > give_up:
                    raise Unavailable(f"the slot of {key} finds no node: {moved}") from moved
                await self._follow(moved, seen)
            except Unavailable:
                await self._look_around(seen)
                raise

    async def _follow(self, moved: Elsewhere, seen: int) -> None:
        if moved.arriving:
            await asyncio.sleep(PAUSE_SECONDS * (0.5 + self._random.random()))
        else:
            await self._learn(seen, moved.address)

    async def _look_around(self, seen: int) -> None:
        """After a silence: another node may have taken over. The next call goes there."""
        if not self._closed:
            with suppress(Unavailable):
                await self._learn(seen)

    async def _learn(self, seen: int, first: Address | None = None) -> None:
        """Ask who has which slot, once for all who come with the same knowledge; `first` is asked before the others.

        Raises:
            Unavailable: no node answers.
        """
        async with self._learning:
            if seen != self._learned:
                return
            asked = dict.fromkeys([*([first] if first else []), *self._nodes, _address_of(self._seed)])
            trouble: Unavailable | None = None
            for address in asked:
                try:
                    self._owners = await self._board_at(address).slots()
                    break
                except Unavailable as error:
                    trouble = error
            else:
                raise Unavailable("no node of the Redis Cluster answers") from trouble
            self._learned += 1
            owners = {owner for _, _, owner in self._owners}
            if self._learned > 1:
                log.info("cluster_slots_changed", nodes=len(owners))
            for address in [address for address in self._nodes if address not in owners]:
                self._nodes.pop(address).leave.set()

    async def _node_of(self, key: str) -> RedisBlackboard:
        slot = key_slot(key.encode())
        for first, last, owner in self._owners:
            if first <= slot <= last:
                return await self._node(owner)
        raise Unavailable(f"no node of the Redis Cluster has slot {slot}")

    async def _node(self, address: Address) -> RedisBlackboard:
        if self._closed:
            raise Unavailable("the blackboard is closed")
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = _Node()
            self._group.create_task(self._hold(address, node), name=f"blackboard-node-{address[1]}")
        return await asyncio.shield(node.board)

    async def _hold(self, address: Address, node: _Node) -> None:
        """Keep the board of one node open until it has no slot any more, or this board is closed."""
        try:
            async with self._board_at(address, self._owners) as board:
                node.board.set_result(board)
                await node.leave.wait()
        except Exception as error:
            if node.board.done():
                raise
            node.board.set_exception(error)
            node.board.exception()  # nobody may be waiting any more
        finally:
            if self._nodes.get(address) is node:
                del self._nodes[address]

    async def read(self, request_id: str, fields: Sequence[str]) -> Snapshot:
        """See `Blackboard.read`."""
        return await self._at(self._key(request_id), lambda board: board.read(request_id, fields))

    async def write(self, request_id: str, write: Write) -> Outcome:
        """See `Blackboard.write`."""
        return await self._at(self._key(request_id), lambda board: board.write(request_id, write))

    async def renew(self, request_id: str, step_id: str, version: str, milliseconds: int) -> bool:
        """See `Blackboard.renew`."""
        return await self._at(self._key(request_id), lambda board: board.renew(request_id, step_id, version, milliseconds))

    async def events(self, request_id: str, after: int = 0) -> list[Event]:
        """See `Blackboard.events`."""
        return await self._at(self._key(request_id), lambda board: board.events(request_id, after))

    async def watch(self, request_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """See `Blackboard.watch`. It goes along when the request's slot moves to another node."""
        position = after

        def begin(board: RedisBlackboard) -> AsyncGenerator[Event, None]:
            return board.watch(request_id, position)

        async with aclosing(self._along(request_id, begin)) as events:
            async for event in events:
                position = event.position
                yield event

    async def watch_field(
        self, request_id: str, name: str, *, also: Sequence[str] = (), look_seconds: float = SAFETY_SECONDS
    ) -> AsyncGenerator[Snapshot, None]:
        """See `Blackboard.watch_field`. It goes along when the request's slot moves to another node."""

        def begin(board: RedisBlackboard) -> AsyncGenerator[Snapshot, None]:
            return board.watch_field(request_id, name, also=also, look_seconds=look_seconds)

        async with aclosing(self._along(request_id, begin)) as snapshots:
            async for snapshot in snapshots:
                yield snapshot

    async def _along(self, request_id: str, begin: Callable[[RedisBlackboard], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        key = self._key(request_id)
        while True:
            seen = self._learned
            try:
                async with aclosing(begin(await self._node_of(key))) as coming:
                    async for each in coming:
                        yield each
            except Elsewhere as moved:
                with suppress(Unavailable):
                    await self._follow(moved, seen)
            except Unavailable:
                if self._closed:
                    raise
                await self._look_around(seen)
                await asyncio.sleep(PAUSE_SECONDS)

    async def enter(self, member: str, delay_ms: int) -> None:
        """See `Blackboard.enter`."""
        await self._at(self._due_key(member), lambda board: board.enter(member, delay_ms))

    async def mark(self, member: str, delay_ms: int) -> None:
        """See `Blackboard.mark`."""
        await self._at(self._due_key(member), lambda board: board.mark(member, delay_ms))

    async def leave(self, member: str) -> None:
        """See `Blackboard.leave`."""
        await self._at(self._due_key(member), lambda board: board.leave(member))

    async def due(self, limit: int, forward_ms: int) -> list[Due]:
        """See `Blackboard.due`. Each call begins at another shard; a node that is away keeps nobody from the others' shards.

        Raises:
            Unavailable: no shard could be read.
        """
        self._due_turn += 1
        found: list[Due] = []
        troubles: list[Unavailable] = []
        for turn in range(len(self._due_keys)):
            if len(found) < limit:
                try:
                    found += await self._due_of((self._due_turn + turn) % len(self._due_keys), limit - len(found), forward_ms)
                except Unavailable as trouble:
                    troubles.append(trouble)
        if len(troubles) == len(self._due_keys):
            raise troubles[0]
        return found

    async def _due_of(self, shard: int, limit: int, forward_ms: int) -> list[Due]:
        return await self._at(self._due_keys[shard], lambda board: board.due_of(shard, limit, forward_ms))

    async def settle(self, due: Due, delay_ms: int | None) -> None:
        """See `Blackboard.settle`."""
        await self._at(self._due_key(due.member), lambda board: board.settle(due, delay_ms))

    async def dead_add(self, entry: DeadEntry) -> None:
        """See `Blackboard.dead_add`."""
        await self._at(dead_key(self._prefix), lambda board: board.dead_add(entry))

    async def dead_list(self, limit: int = 1000) -> list[DeadEntry]:
        """See `Blackboard.dead_list`."""
        return await self._at(dead_key(self._prefix), lambda board: board.dead_list(limit))

    async def dead_remove(self, entry: DeadEntry) -> None:
        """See `Blackboard.dead_remove`."""
        await self._at(dead_key(self._prefix), lambda board: board.dead_remove(entry))

    async def recent_add(self, tenant: str, request_id: str) -> None:
        """See `Blackboard.recent_add`."""
        await self._at(self._recent_key(tenant), lambda board: board.recent_add(tenant, request_id))

    async def recent(self, tenant: str, limit: int = 100) -> list[str]:
        """See `Blackboard.recent`."""
        return await self._at(self._recent_key(tenant), lambda board: board.recent(tenant, limit))

    def _key(self, request_id: str) -> str:
        check_request_id(request_id)
        encodable((request_id,))
        return events_key(self._prefix, request_id)

    def _due_key(self, member: str) -> str:
        encodable((member,))
        return self._due_keys[shard_of(member)]

    def _recent_key(self, tenant: str) -> str:
        encodable((tenant,))
        return recent_key(self._prefix, tenant)


class _Node:
    """The board of one node: there once it is open, until it is told to leave."""

    def __init__(self) -> None:
        self.board: asyncio.Future[RedisBlackboard] = asyncio.get_running_loop().create_future()
        self.leave = asyncio.Event()


def _address_of(url: str) -> Address:
    parts = urlsplit(url)
    if not parts.hostname:
        raise InvalidValue("the URL of a Redis Cluster names a node by host and port", path="redis_url")
    return parts.hostname, parts.port or 6379


def _id_key(prefix: str, address: Address, owners: Sequence[tuple[int, int, Address]]) -> str:
    """The key of the id of a node's part of the board: one that lies there; a client notices a node that was replaced by it."""
    mine = [(first, last) for first, last, owner in owners if owner == address]
    keys = chain([board_key(prefix)], (board_key(prefix, part) for part in range(16_384)))
    return next((key for key in keys if any(first <= key_slot(key.encode()) <= last for first, last in mine)), board_key(prefix))


def _url_at(url: str, address: Address) -> str:
    """The same URL, with its user and options, at another node."""
    host, port = address
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    shown = f"[{host}]" if ":" in host else host
    return parts._replace(netloc=f"{user}{at}{shown}:{port}").geturl()

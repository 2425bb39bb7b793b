"""Everything that any version up to now wrote: read without loss, told the same, and played on to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from redis.asyncio import Redis

from ops.blackboard.keys import request_keys
from ops.blackboard.redis import RedisBlackboard
from ops.broker.memory import MemoryBroker
from ops.embedded import Runtime, serving
from ops.records import RECORDS, record_of
from ops.reporting import report
from orchestrator.orchestrator import cause_of
from schemas.blackboard import Event, Written, fold
from schemas.messages import SCHEMA_VERSION, MessageType, from_wire, to_wire
from schemas.requests import StepRecord
from tests.support.boards import orchestrator
from tests.upgrade.casting import stage
from tests.upgrade.recorded import VERSIONS, board_with, came_to, event_of, events_in, files, line_of, request_id_of
from workers.receiving import task_of
from workers.team import Team
from workers.teams.bitmall.team import make_team

MESSAGES = files("messages")
REQUESTS = files("requests")
SESSIONS = files("sessions")
"""Their records stand beside the requests, under ids of their own."""


def named(path: Path) -> str:
    """A file by its version and name."""
    return f"{path.parent.parent.name}/{path.stem}"


def is_kept(written: Any, read: Any) -> bool:
    """Whether all that was written is there after reading, at any depth; more may be."""
    match written:
        case dict():
            return isinstance(read, dict) and all(name in read and is_kept(value, read[name]) for name, value in written.items())
        case list():
            return isinstance(read, list) and len(written) == len(read) and all(map(is_kept, written, read))
        case _:
            return type(written) is type(read) and bool(written == read)


def test_the_present_version_and_all_before_it_have_files() -> None:
    assert SCHEMA_VERSION in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_versions_files_show_every_kind_of_message_and_of_record(version: str) -> None:
    kinds = {from_wire(path.read_bytes()).type for path in files("messages", version)}
    written = (*files("requests", version), *files("sessions", version))
    names = {name for path in written for event in events_in(path) for name in event.put}
    records = {record_of(name) for name in names}
    first = set(MessageType) if version == SCHEMA_VERSION else kinds
    assert kinds == first and (records == set(RECORDS.values()) or version != SCHEMA_VERSION)


@pytest.mark.parametrize("path", MESSAGES, ids=named)
def test_a_message_is_read_without_loss_and_means_the_same(path: Path) -> None:
    written = orjson.loads(path.read_bytes())
    bell = from_wire(path.read_bytes())
    assert is_kept(written["data"], bell.model_dump(mode="json"))
    again = from_wire(to_wire(bell))
    assert again == bell
    if bell.type is MessageType.TASK:
        task = task_of(bell, bell.recipient)
        assert (task.step_id, task.epoch, task.seen) == (written["data"]["step_id"], bell.epoch, written["data"]["seen"])
    elif bell.type is not MessageType.REQUEST:
        cause = cause_of(bell)
        assert cause is not None and cause.message_id == written["id"]


@pytest.mark.parametrize("path", [*REQUESTS, *SESSIONS], ids=named)
def test_every_field_is_read_without_loss(path: Path) -> None:
    for event in events_in(path):
        for name, (_, value) in event.put.items():
            record = record_of(name)
            assert record is not None, name
            assert is_kept(orjson.loads(value), record.from_json(value).model_dump(mode="json")), (event.position, name)
        assert event_of(orjson.loads(line_of(event))) == event


@pytest.mark.parametrize("path", REQUESTS, ids=named)
def test_a_request_is_told_as_it_was_told_then(path: Path) -> None:
    events = events_in(path)
    expected = orjson.loads((path.parent.parent / "reports" / f"{path.stem}.json").read_bytes())
    assert came_to(report(request_id_of(events), events)) == expected


@asynccontextmanager
async def played_on(events: list[Event], team: Team) -> AsyncIterator[Runtime]:
    """The request on a board of its own, with an orchestrator and a worker of today, to be looked at now."""
    async with board_with(events) as board, MemoryBroker() as broker, serving(board, broker, team) as runtime:
        await board.enter(request_id_of(events), 0)
        yield runtime


def until(path: Path) -> list[tuple[Path, int]]:
    """Every place at which a process of then may have been replaced by one of today."""
    return [(path, count) for count in range(1, len(events_in(path)) + 1)]


IN_THE_MIDST = [place for path in REQUESTS if path.stem in ("bitmall", "stage") for place in until(path)]


@pytest.mark.parametrize(("path", "count"), IN_THE_MIDST, ids=[f"{named(path)}-{count}" for path, count in IN_THE_MIDST])
async def test_a_request_that_then_began_is_finished_today_wherever_it_was(path: Path, count: int) -> None:
    events = events_in(path)
    expected = orjson.loads((path.parent.parent / "reports" / f"{path.stem}.json").read_bytes())
    async with played_on(events[:count], make_team() if path.stem == "bitmall" else stage()) as runtime:
        async with asyncio.timeout(20):
            assert await runtime.wait(request_id_of(events)) == expected["status"]
        now = came_to(await runtime.show(request_id_of(events)))
    assert [(each["id"], each["state"]) for each in now["steps"]] == [(each["id"], each["state"]) for each in expected["steps"]]
    assert [(each["step"], each["key"], each["value"]) for each in now["facts"]] == [
        (each["step"], each["key"], each["value"]) for each in expected["facts"]
    ]
    assert now["gaps"] == expected["gaps"]


@pytest.mark.parametrize("path", files("redis"), ids=named)
async def test_the_keys_that_then_stood_in_redis_are_read_and_written_on(path: Path, redis_url: str, key_prefix: str) -> None:
    kept = await asyncio.to_thread(lambda: orjson.loads(path.read_bytes()))
    request_id, keys = kept["request_id"], kept["keys"]
    names = {name.rpartition(":")[2]: name for name in request_keys(key_prefix, request_id)}
    async with Redis.from_url(redis_url) as client:
        for short, content in keys.items():
            if isinstance(content, list):
                for entry, values in content:
                    await client.xadd(names[short], values, id=entry)
            elif content:
                await client.hset(names[short], mapping=content)
    async with RedisBlackboard(redis_url, prefix=key_prefix) as board:
        events = await board.events(request_id)
        state = fold(events)
        snapshot = await board.read(request_id, tuple(state))
        assert snapshot.position == len(events) and snapshot.fields == state
        told = report(request_id, events)
        assert told.status == "DEGRADED" and told.step("more").state == "COMPLETED"
        version = state["step/optional"].version
        failed = StepRecord.from_json(state["step/optional"].value)
        write = orchestrator({"step/optional": failed.to_json()}, {"step/optional": version}, expire=60)
        outcome = await board.write(request_id, write)
        assert isinstance(outcome, Written) and outcome.position == len(events) + 1
        first = await board.write(request_id, orchestrator({"plan": b"{}"}, {}, id=events[0].operation_id))
        assert isinstance(first, Written) and first.replayed, "what was done then is known to be done"

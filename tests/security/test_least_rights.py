"""Each role under a user of its own on real servers: the work gets done, and what a role has no business with the servers refuse."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiormq import spec
from aiormq.exceptions import ChannelAccessRefused
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from ops.artifacts.keeping import KeptArtifacts
from ops.artifacts.memory import MemoryShelf
from ops.blackboard.functions import load_library
from ops.blackboard.grace import Grace
from ops.blackboard.keys import request_keys
from ops.blackboard.redis import RedisBlackboard
from ops.blackboard.replies import write_arguments
from ops.client import Client
from ops.private import read_private
from ops.rabbitmq.permissions import definitions
from ops.redis.rules import rules_of
from ops.users import ADMIN, Duty, users_of, worker_user
from orchestrator.orchestrator import Orchestrator
from schemas.artifacts import artifact_of
from schemas.blackboard import ABSENT, DeadEntry, Write, Written
from schemas.broker import COMMANDS, RESULT_READY, Address, Exchange, request_event, to_agent, to_dead
from schemas.errors import AgentFailed, BrieflineError, InvalidSettings, NotPermitted, UnsafeServer
from schemas.messages import MessageType, message
from schemas.requests import Role, SessionTurn
from schemas.results import PRIVATE_LABEL
from tests.security.guarded import KEYS, TOPOLOGY, Guarded, load
from tests.support import boards
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.team import Team
from workers.worker import Worker

pytestmark = pytest.mark.own_server

PRODUCER, ORCHESTRATOR, OPERATOR = "briefline-producer", "briefline-orchestrator", "briefline-operator"
ANN, BOB = "briefline-worker-ann", "briefline-worker-bob"
EVERYBODY = (PRODUCER, ORCHESTRATOR, OPERATOR, ANN, BOB)


class Hurdle:
    """Agents of which `bob` fails twice in different ways before he does it."""

    def __init__(self) -> None:
        self.runs = 0

    def team(self) -> Team:
        """`ann` first, then `bob`."""
        return Team(
            "pair",
            [BlackBox("ann", lambda brief: "Ann has done it."), BlackBox("bob", self.stumble)],
            [
                {"id": "first", "agent": "ann", "title": "Ann's part", "task": "Do it."},
                {"id": "second", "agent": "bob", "title": "Bob's part", "task": "Do it.", "depends_on": ["first"], "needs": []},
            ],
        )

    def stumble(self, brief: AgentBrief) -> str:
        self.runs += 1
        if self.runs == 1:
            raise AgentFailed("AGAIN", "try again", retryable=True)
        if self.runs == 2:
            raise AgentFailed("NEVER", "does not go")
        return "Bob has done it."


@asynccontextmanager
async def serving(servers: Guarded, team: Team) -> AsyncIterator[Client]:
    """An orchestrator and a worker for each agent, each under its own user, for a client that is the producer."""
    async with AsyncExitStack() as stack:

        async def both(user: str) -> tuple[Any, Any]:
            return await stack.enter_async_context(servers.board(user)), await stack.enter_async_context(servers.broker(user))

        stop = asyncio.Event()
        serve: list[Orchestrator | Worker] = [Orchestrator(*await both(ORCHESTRATOR), sweep_seconds=0.1)]
        serve += [Worker(*await both(f"briefline-worker-{name}"), team, agents=(name,), lease_seconds=1.0) for name in team.agents]
        client = Client(*await both(PRODUCER))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        for each in serve:
            group.create_task(each.run(stop=stop))
        stack.callback(stop.set)
        yield client


async def test_requests_are_finished_with_each_role_under_its_own_least_rights(servers: Guarded) -> None:
    hurdle = Hurdle()
    team = hurdle.team()
    async with asyncio.timeout(60), serving(servers, team) as client:
        accepted = await client.submit(team, "Please.")
        status = await client.wait(accepted.request_id)
        assert (status, hurdle.runs) == ("DEGRADED", 2)

        async with servers.board(OPERATOR) as board, servers.broker(OPERATOR) as broker:
            operator = Client(board, broker)
            (letter,) = await operator.dead()
            assert (letter.step_id, letter.reason) == ("second", "NEVER")
            await operator.replay(accepted.request_id, "second")
            assert await operator.wait(accepted.request_id) == "COMPLETED"
            report = await operator.show(accepted.request_id, team)
            assert "Ann has done it." in report.answer and "Bob has done it." in report.answer
            assert await operator.dead() == []
            assert (await operator.recent())[0].request_id == accepted.request_id


async def test_a_producer_forks_and_goes_on_with_a_session_under_its_own_least_rights(servers: Guarded) -> None:
    hurdle = Hurdle()
    hurdle.runs = 2
    async with asyncio.timeout(60), serving(servers, hurdle.team()) as client:
        first = await client.submit(hurdle.team(), "Please.", session="sofa")
        assert await client.wait(first.request_id) == "COMPLETED"
        second = await client.submit(hurdle.team(), "And now?", session="sofa")
        fork = await client.fork(first.request_id, "second")
        assert [await client.wait(each.request_id) for each in (second, fork)] == ["COMPLETED", "COMPLETED"]
        assert (await client.show(second.request_id)).request.session == SessionTurn(name="sofa", turn=2, previous=first.request_id)
        assert (await client.show(fork.request_id)).step("first").record.reused is not None


async def test_who_may_write_no_note_reads_no_private_record(servers: Guarded) -> None:
    request = await opened(servers)
    store, told = KeptArtifacts(MemoryShelf()), {"request": request, "step": "a"}
    record = artifact_of(json.dumps(told).encode(), producer="a", private=True)
    await store.put(record)
    left = boards.orchestrator({}, labels={"event": "step_failed", "step": "a", "attempt": "1", PRIVATE_LABEL: record.ref.id})
    async with servers.board(ORCHESTRATOR) as board:
        await board.write(request, left)
    before = await state_of(servers, request)
    for user in (OPERATOR, ANN):
        async with servers.board(user) as board:
            with pytest.raises(BrieflineError):
                await read_private(board, store, request, "a", reader="eve")
    assert await state_of(servers, request) == before
    async with servers.board(PRODUCER) as board:
        assert (await read_private(board, store, request, "a", reader="ann")).told == told
    async with servers.board(OPERATOR) as board:
        assert (await board.events(request))[-1].labels["by"] == "ann"


async def test_a_producer_says_when_a_session_expires_and_of_no_request(servers: Guarded) -> None:
    request = await opened(servers)
    fields, events = await state_of(servers, request)
    write = boards.orchestrator({"session": b"1"}, {"session": ABSENT}, role=Role.PRODUCER, expire=60)
    with pytest.raises(NoPermissionError):
        await call_write(servers, PRODUCER, request, write)
    assert await state_of(servers, request) == (fields, events)
    session = f"s-{secrets.token_hex(6)}"
    async with servers.board(PRODUCER) as board:
        assert isinstance(await board.write(session, write), Written)
    for puts in ({"session": b"1", "constraint/x": b"1"}, {"constraint/x": b"1"}, {}):
        wide = boards.orchestrator(puts, {"session": ABSENT}, role=Role.PRODUCER, expire=60)
        with pytest.raises(NoPermissionError):
            await call_write(servers, PRODUCER, f"s-{secrets.token_hex(6)}", wide)


async def opened(servers: Guarded) -> str:
    """A request whose two steps are planned, one for each agent; returns its id."""
    request = f"r-{secrets.token_hex(6)}"
    async with servers.board(PRODUCER) as board:
        await board.write(request, boards.opening())
    planned = {"plan": b'["a","b"]', "plan/a": b'{"agent":"ann"}', "plan/b": b'{"agent":"bob","task":"{\\"agent\\":\\"ann\\"}"}'}
    pending = {"step/a": b'"PENDING"', "step/b": b'"PENDING"'}
    async with servers.board(ORCHESTRATOR) as board:
        await board.write(request, boards.orchestrator({**planned, **pending}))
    return request


async def call_write(servers: Guarded, user: str, request: str, write: Write, **changed: Any) -> Any:
    """Call the function as a client would that is not ours: nothing is checked before."""
    keys: Any = changed.get("keys", request_keys(KEYS, request))
    async with servers.raw_redis(user) as client:
        return await send(client, "FCALL", load_library().function("write"), len(keys), *keys, *write_arguments(write, Grace(1.0)))


async def send(client: Redis, *command: Any) -> Any:
    """Send a command as it stands."""
    return await client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped


async def state_of(servers: Guarded, request: str) -> Any:
    async with servers.board(OPERATOR) as board:
        names = ("request", "status", "card", "plan", "plan/a", "plan/b", "answer", "step/a", "step/b", "result/a", "result/b")
        return (await board.read(request, names)).fields, await board.events(request)


FOREIGN: dict[str, tuple[str, Role, Mapping[str, bytes]]] = {
    "a worker as orchestrator: the answer": (ANN, Role.ORCHESTRATOR, {"answer": b'"bought"'}),
    "a worker as orchestrator: the plan": (ANN, Role.ORCHESTRATOR, {"plan/a": b'{"agent":"ann","tools":["all"]}'}),
    "a worker as orchestrator: the status": (ANN, Role.ORCHESTRATOR, {"status": b'"COMPLETED"'}),
    "a worker as producer: a constraint": (ANN, Role.PRODUCER, {"constraint/budget": b"9"}),
    "a worker in its own role: the answer": (ANN, Role.WORKER, {"answer": b"1"}),
    "the worker of another agent: its step": (ANN, Role.WORKER, {"step/b": b'"RUNNING"'}),
    "the worker of another agent: its result": (ANN, Role.WORKER, {"result/b": b'"bought"'}),
    "a worker for a step that is in no plan": (ANN, Role.WORKER, {"step/c": b'"RUNNING"'}),
    "a producer as worker": (PRODUCER, Role.WORKER, {"step/a": b'"RUNNING"'}),
    "a producer as orchestrator": (PRODUCER, Role.ORCHESTRATOR, {"answer": b"1"}),
    "an orchestrator as worker": (ORCHESTRATOR, Role.WORKER, {"result/a": b"1"}),
    "an operator as orchestrator": (OPERATOR, Role.ORCHESTRATOR, {"answer": b"1"}),
}


@pytest.mark.parametrize("case", FOREIGN)
async def test_redis_itself_refuses_a_write_to_a_field_of_another_owner(servers: Guarded, case: str) -> None:
    user, role, puts = FOREIGN[case]
    request = await opened(servers)
    fields, events = await state_of(servers, request)
    expect = {f"step/{name}": fields[f"step/{name}"].version for name in "ab"} if role is Role.WORKER else {}
    write = boards.orchestrator(puts, expect, role=role)

    if case == "a worker in its own role: the answer":
        reply = await call_write(servers, user, request, write)
        assert reply[0] == b"forbidden"
    else:
        with pytest.raises(NoPermissionError):
            await call_write(servers, user, request, write)
    assert await state_of(servers, request) == (fields, events)


async def test_our_own_client_says_that_redis_refused_the_user(servers: Guarded) -> None:
    request = await opened(servers)
    async with servers.board(ANN) as board:
        with pytest.raises(NotPermitted, match="may not write as orchestrator"):
            await board.write(request, boards.orchestrator({"answer": b"1"}))
        version = (await board.read(request, ["step/b"])).version("step/b")
        with pytest.raises(NotPermitted, match="another agent"):
            await board.write(request, boards.claim("b", version))
        with pytest.raises(NotPermitted, match="may not hold"):
            await board.renew(request, "b", version, 1000)
    async with servers.board(OPERATOR) as board:
        with pytest.raises(NotPermitted):
            await board.enter(request, 0)


async def test_a_worker_takes_and_holds_the_steps_of_its_own_agent(servers: Guarded) -> None:
    request = await opened(servers)
    async with servers.board(BOB) as board:
        version = (await board.read(request, ["step/b"])).version("step/b")
        claimed = await board.write(request, boards.claim("b", version))
        assert isinstance(claimed, Written)
        assert await board.renew(request, "b", claimed.versions["step/b"], 1000)


async def test_a_worker_cannot_say_when_a_request_expires_or_pass_one_requests_keys_for_anothers(servers: Guarded) -> None:
    mine, other = await opened(servers), await opened(servers)
    before = await state_of(servers, other)
    version = (await state_of(servers, mine))[0]["step/a"].version
    claim = boards.orchestrator({"step/a": b'"RUNNING"'}, {"step/a": version}, role=Role.WORKER)
    with pytest.raises(NoPermissionError, match="expires"):
        await call_write(servers, ANN, mine, boards.orchestrator(claim.put, claim.expect, role=Role.WORKER, expire=1))
    mixed = (request_keys(KEYS, other)[0], *request_keys(KEYS, mine)[1:])
    for keys in (mixed, request_keys("another", mine), tuple(reversed(request_keys(KEYS, mine)))):
        with pytest.raises(NoPermissionError):
            await call_write(servers, ANN, mine, claim, keys=keys)
    assert await state_of(servers, other) == before


COMMANDS_OF_NOBODY: tuple[tuple[Any, ...], ...] = (
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("KEYS", "*"),
    ("SCAN", 0),
    ("RANDOMKEY",),
    ("CONFIG", "GET", "*"),
    ("CONFIG", "SET", "maxmemory-policy", "allkeys-lru"),
    ("EVAL", "return 1", 0),
    ("FUNCTION", "LIST", "WITHCODE"),
    ("FUNCTION", "DUMP"),
    ("FUNCTION", "FLUSH"),
    ("FUNCTION", "LOAD", "#!lua name=x\nredis.register_function('x', function() end)"),
    ("ACL", "LIST"),
    ("ACL", "SETUSER", "eve", "on", "nopass", "+@all", "~*"),
    ("MONITOR",),
    ("SLOWLOG", "GET"),
    ("OBJECT", "ENCODING", f"{KEYS}:dead"),
    ("SHUTDOWN",),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("DEL", f"{KEYS}:dead"),
    ("SELECT", 1),
    ("PSUBSCRIBE", "*"),
    ("SUBSCRIBE", "another:{r}:events"),
)


@pytest.mark.parametrize("user", EVERYBODY)
async def test_no_role_may_flush_look_around_change_the_server_or_read_another_prefix(servers: Guarded, user: str) -> None:
    async with servers.raw_redis(user) as client:
        for command in COMMANDS_OF_NOBODY:
            with pytest.raises(NoPermissionError):
                await send(client, *command)
        read, keys = load_library().function("read"), request_keys("another", "r")[:3]
        with pytest.raises(NoPermissionError):
            await send(client, "FCALL_RO", read, 3, *keys, "answer")
        # The brackets of the prefix are no pattern: they would match this one.
        with pytest.raises(NoPermissionError):
            await send(client, "FCALL_RO", read, 3, *request_keys("guarded1", "r")[:3], "answer")
        with pytest.raises(NoPermissionError):
            await client.hget("another:{r}:values", "answer")


async def test_a_command_past_the_functions_finds_nothing_and_changes_nothing(servers: Guarded) -> None:
    request = await opened(servers)
    before = await state_of(servers, request)
    values, meta, leases, operations, events = request_keys(KEYS, request)
    async with servers.raw_redis(ANN) as client:
        for key in (values, meta, leases, operations):
            assert await client.hmget(key, ["answer", "step/b", "plan"]) == [None, None, None]
        assert await client.xrange(events) == []
        await client.hset(values, mapping={"answer": "bought", "result/b": "bought"})
        await client.hset(meta, "answer", "9 9 9.x")
        await client.xadd(events, {"at": "1", "role": "orchestrator"}, id="99-0")
        for key in (values, meta, leases, events):
            await client.pexpireat(key, 1)
    assert await state_of(servers, request) == before
    async with servers.raw_redis(ADMIN) as admin:
        assert any(servers.secrets.seal.encode() in key for key in await admin.keys("*"))


async def test_a_worker_can_neither_empty_the_indexes_nor_put_off_what_they_remember(servers: Guarded) -> None:
    request = await opened(servers)
    async with servers.board(ORCHESTRATOR) as board, servers.board(ANN) as worker:
        await board.enter(request, 3_600_000)
        await board.dead_add(DeadEntry(request, "a", 1))
        for act in (
            worker.due(10, 1000),
            worker.mark(request, 3_600_000),
            worker.leave(request),
            worker.dead_remove(DeadEntry(request, "a", 1)),
            worker.recent_add("default", request),
        ):
            with pytest.raises(NotPermitted):
                await act
        async with servers.raw_redis(ANN) as client:
            with pytest.raises(NoPermissionError):
                await send(client, "FCALL", load_library().function("add"), 1, f"{KEYS}:dead", "x", 1)
        await worker.enter(request, 0)
        await worker.mark(f"{request}#a", 1000)
        await worker.leave(f"{request}#a")
        assert DeadEntry(request, "a", 1) in await board.dead_list()
        await board.dead_remove(DeadEntry(request, "a", 1))
        await board.leave(request)


async def test_with_all_rights_nothing_is_asked_and_the_seal_is_not_seen(servers: Guarded) -> None:
    request = await opened(servers)
    async with RedisBlackboard(servers.redis_url(ADMIN), prefix=KEYS) as board:
        version = (await board.read(request, ["step/b"])).version("step/b")
        await board.write(request, boards.claim("b", version))
        await board.write(request, boards.orchestrator({"answer": b"1"}, expire=60))
        assert (await board.read(request, ["answer"])).value("answer") == b"1"


async def test_a_user_that_may_not_load_the_functions_says_at_start_who_has_to(servers: Guarded) -> None:
    async with servers.raw_redis(ADMIN) as admin:
        await admin.function_flush()
    try:
        with pytest.raises(UnsafeServer, match=r"may not load them.*python -m ops\.access library"):
            async with servers.board(ANN):
                pass
    finally:
        load(servers)
    async with servers.board(ANN):
        pass


async def refused(servers: Guarded, user: str, *steps: tuple[str, dict[str, Any]]) -> None:
    """Each call on a channel of its own, which the refusal closes."""
    for name, arguments in steps:
        async with servers.raw_channel(user) as channel:
            with pytest.raises(ChannelAccessRefused):
                await getattr(channel, name)(**arguments)


def publishing(servers: Guarded, address: Address) -> tuple[str, dict[str, Any]]:
    return "basic_publish", {"body": b"{}", "exchange": servers.topology.full(address.exchange), "routing_key": address.key}


async def test_a_worker_can_neither_read_anothers_queue_nor_ring_what_is_not_its_own(servers: Guarded) -> None:
    full = servers.topology.full
    foreign = ("tasks.bob", "results", "commands", "dead.broker", "dead.ann", "dead.unreadable")
    reading = [("basic_get", {"queue": full(name)}) for name in foreign]
    ringing = [
        publishing(servers, address)
        for address in (to_agent("ann"), to_agent("bob"), COMMANDS, request_event("COMPLETED"), Address(Exchange.DEAD, ".broker"))
    ]
    past_the_exchanges = [("basic_publish", {"body": b"{}", "exchange": "", "routing_key": full("tasks.bob")})]
    changing: list[tuple[str, dict[str, Any]]] = [
        ("queue_declare", {"queue": full("tasks.eve"), "durable": True}),
        ("queue_delete", {"queue": full("tasks.ann")}),
        ("queue_purge", {"queue": full("tasks.bob")}),
        ("queue_bind", {"queue": full("tasks.ann"), "exchange": full("tasks"), "routing_key": "bob"}),
        ("exchange_delete", {"exchange": full("tasks")}),
        ("queue_declare", {"queue": "elsewhere"}),
    ]
    await refused(servers, ANN, *reading, *ringing, *past_the_exchanges, *changing)

    async with servers.raw_channel(ANN) as channel:
        assert isinstance((await channel.basic_get(full("tasks.ann"))).delivery, spec.Basic.GetEmpty)
    async with servers.broker(ANN) as broker:
        await broker.publish(to_dead("ann"), message(MessageType.SUBMIT, "r", sender="ann", recipient="people"))


async def test_a_producer_and_an_operator_ring_commands_and_nothing_else(servers: Guarded) -> None:
    full = servers.topology.full
    foreign = [
        publishing(servers, address) for address in (to_agent("ann"), RESULT_READY, Address(Exchange.DEAD, ".broker"), to_dead("ann"))
    ]
    reading = [("basic_get", {"queue": full(name)}) for name in ("tasks.ann", "results", "commands", "dead.broker")]
    for user in (PRODUCER, OPERATOR):
        await refused(servers, user, *foreign, *reading, ("queue_delete", {"queue": full("commands")}))
    await refused(servers, PRODUCER, ("basic_get", {"queue": full("dead.ann")}))
    async with servers.raw_channel(OPERATOR) as channel:
        await channel.basic_get(full("dead.ann"))


async def test_a_process_that_may_not_declare_waits_for_its_queue_and_says_which(
    servers: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "tasks.ann"
    async with servers.raw_channel(ORCHESTRATOR) as channel:
        await channel.queue_delete(servers.topology.full(name))
    async with servers.broker(ANN) as worker, servers.broker(ORCHESTRATOR) as orchestrator:
        seen = asyncio.Event()

        async def handle(delivery: Any) -> None:
            await delivery.ack()
            seen.set()

        async with asyncio.timeout(20), worker.consume(name, handle, prefetch=1) as consumer:
            assert not consumer.consuming
            await orchestrator.declare_agent("ann")
            await orchestrator.publish(to_agent("ann"), message(MessageType.SUBMIT, "r", sender="orchestrator", recipient="ann"))
            await seen.wait()
    assert f"there is no queue {TOPOLOGY}.{name}, and this user may not declare it" in "".join(capsys.readouterr())


def test_importing_the_rights_again_changes_nothing_but_salt_and_an_agents_name_is_no_pattern() -> None:
    users = users_of(["a.b", "查询*"])
    passwords = {user.name: "p" for user in users}
    first, second = (definitions(users, passwords, prefix="x.v1") for _ in range(2))
    assert first["permissions"] == second["permissions"]
    assert json.dumps(first["bindings"]) == json.dumps(second["bindings"])
    (worker,) = (each for each in first["permissions"] if each["user"] == "briefline-worker-a.b")
    assert (worker["configure"], worker["read"]) == ("^$", r"^(x\.v1\.tasks\.a\.b)$")
    assert "%R~p:agent:查询\\*" in rules_of(worker_user("查询*"), "p")


def test_no_user_is_given_all_rights_or_the_mark_of_them() -> None:
    for user in users_of(["a"]):
        rules = rules_of(user, "p")
        assert not {"~*", "allkeys", "+@all", "allcommands", "&*", "%R~*"} & set(rules)
        assert not any(rule.startswith(("~p:*", "~p:role:", "%R~p:role:*", "~p:r*")) for rule in rules)
        assert sum(rule.startswith("%R~p:role:") for rule in rules) == 1
        assert (user.duty is Duty.OPERATOR) == (not any(rule.startswith("~") for rule in rules))


def test_an_agent_that_could_not_be_told_from_the_broker_gets_no_user() -> None:
    with pytest.raises(InvalidSettings, match="call it otherwise"):
        users_of(["broker"])

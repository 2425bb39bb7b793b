"""Sessions: the requests of one conversation, one after the other, on both pairs of servers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ops.blackboard.memory import MemoryBlackboard
from ops.client import Client
from ops.opening import OPENING_MS, Accepted
from ops.sessions import Session, carried, next_turn, take_turn
from schemas import fields
from schemas.blackboard import Snapshot, Stored, Written
from schemas.errors import InvalidValue, KeyReused, SessionBusy
from schemas.requests import RequestRecord, RequestStatus, SessionRecord, SessionTurn, StatusRecord, session_id
from schemas.shared import Claim, FieldCard, FieldRecord, Reservation
from tests.support.boards import orchestrator
from tests.system.cast import Cast, Gate, step
from tests.system.conftest import System, expires
from workers.team import Team


async def turn_of(client: Client, request_id: str) -> tuple[int, str | None]:
    """A request's turn, and the request before it."""
    session = (await client.show(request_id)).request.session
    assert session is not None
    return session.turn, session.previous


async def test_the_requests_of_a_session_know_their_turn_and_each_other(system: System) -> None:
    async with system.serve(Cast().team(step("a"))) as runtime:
        first = await runtime.submit(runtime.team, "please", session="sofa")
        await runtime.wait(first.request_id)
        second = await runtime.submit(runtime.team, "please", session="sofa")
        other = await runtime.submit(runtime.team, "please", session="chair")
        await asyncio.gather(*(runtime.wait(each.request_id) for each in (second, other)))
        turns = [await turn_of(runtime, each.request_id) for each in (first, second, other)]
        listed = {each.request_id: each.session for each in await runtime.recent()}
    assert turns == [(1, None), (2, first.request_id), (1, None)]
    assert listed[second.request_id] == SessionTurn(name="sofa", turn=2, previous=first.request_id)
    assert await expires(system, session_id("default", "sofa"))


async def test_a_request_of_a_session_whose_last_one_is_not_over_is_refused_by_name(system: System) -> None:
    gate = Gate()
    async with system.serve(Cast({"a": gate}).team(step("a"))) as runtime:
        first = await runtime.submit(runtime.team, "please", session="sofa")
        with pytest.raises(SessionBusy, match=f"session 'sofa' is busy: its request {first.request_id} is not over"):
            await runtime.submit(runtime.team, "please", session="sofa")
        assert await runtime.board.recent("default") == [first.request_id], "nothing was opened"
        await runtime.submit(runtime.team, "please", session="chair")
        gate.opened.set()
        await runtime.wait(first.request_id)
        assert (await runtime.submit(runtime.team, "please", session="sofa")).new


async def test_a_request_may_wait_for_its_turn(system: System) -> None:
    gate = Gate()
    async with system.serve(Cast({"a": gate}).team(step("a"))) as runtime:
        first = await runtime.submit(runtime.team, "please", session="sofa")
        waiting = asyncio.create_task(runtime.submit(runtime.team, "and", session=Session("sofa", wait=True)))
        await gate.entered.wait()
        assert not waiting.done()
        gate.opened.set()
        second = await waiting
        assert (await runtime.status(first.request_id)).over
        assert await turn_of(runtime, second.request_id) == (2, first.request_id)


async def test_of_several_at_once_one_wins_and_the_others_are_refused_or_wait(system: System) -> None:
    async with system.serve(Cast().team(step("a"))) as runtime:

        async def one(session: Session | str) -> Accepted | SessionBusy:
            try:
                return await runtime.submit(runtime.team, "please", session=session)
            except SessionBusy as error:
                return error

        told = await asyncio.gather(*(one("sofa") for _ in range(6)))
        won = [each for each in told if isinstance(each, Accepted)]
        assert len(won) == 1
        await runtime.wait(won[0].request_id)
        patient = await asyncio.gather(*(one(Session("sofa", wait=True)) for _ in range(5)))
        turns = {await turn_of(runtime, each.request_id) for each in patient if isinstance(each, Accepted)}
    assert sorted(turn for turn, _ in turns) == [2, 3, 4, 5, 6], "each after the other"
    assert {won[0].request_id} < {previous for _, previous in turns}


async def test_the_same_key_is_the_same_request_whatever_the_session_says_meanwhile(system: System) -> None:
    gate = Gate()
    cast = Cast()
    async with system.serve(cast.team(step("a"))) as runtime:

        def ask(text: str = "please", session: str = "sofa") -> Coroutine[Any, Any, Accepted]:
            return runtime.submit(runtime.team, text, session=session, idempotency_key="first")

        first = await ask()
        assert await ask() == Accepted(first.request_id, new=False)
        await runtime.wait(first.request_id)
        cast.acts["a"] = gate
        second = await runtime.submit(runtime.team, "and", session="sofa")
        assert await ask() == Accepted(first.request_id, new=False)
        for text, session in (("other", "sofa"), ("please", "chair")):
            with pytest.raises(KeyReused):
                await ask(text, session)
        assert await turn_of(runtime, second.request_id) == (2, first.request_id)
        gate.opened.set()


async def test_a_turn_that_was_taken_and_never_opened_is_taken_again_by_its_key_or_given_up_in_time(system: System) -> None:
    team = Cast().team(step("a"))
    client = Client(system.board, system.broker)
    died = await take_turn(system.board, Session("sofa"), team.card, tenant="default", request_id="died", deadline_ms=1000)
    assert await take_turn(system.board, Session("sofa"), team.card, tenant="default", request_id="died", deadline_ms=1000) == died
    with pytest.raises(SessionBusy, match="its request died is not over"):
        await client.submit(team, "please", session="sofa")
    if system.clock is None:
        return  # a minute of Redis' own time
    waiting = asyncio.create_task(client.submit(team, "please", session=Session("sofa", wait=True, look_seconds=0.01)))
    await asyncio.sleep(0)
    system.clock.passed += OPENING_MS / 1000
    async with asyncio.timeout(5):
        assert await turn_of(client, (await waiting).request_id) == (2, None)


async def test_a_session_is_remembered_as_long_as_its_last_request_may_be(system: System) -> None:
    team = Cast().team(step("a"))
    async with system.serve(team) as runtime:
        for _ in range(2):
            await runtime.wait((await runtime.submit(team, "please", session=Session("armchair", retention_seconds=50))).request_id)
    seconds = team.card.deadline_seconds + 50
    if isinstance(system.board, MemoryBlackboard):
        ends = system.board._requests[session_id("default", "armchair")].expires_at_ms
        assert ends is not None
        left = ends / 1000 - system.board._clock()
    else:
        assert system.redis is not None
        (key,) = [key async for key in system.redis.scan_iter(match=f"*{{{session_id('default', 'armchair')}}}:values")]
        left = await system.redis.ttl(key)
    assert seconds - 30 < left <= seconds


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "\udcff"])
async def test_a_session_has_a_name(name: str, system: System) -> None:
    with pytest.raises(InvalidValue, match="session"):
        await Client(system.board, system.broker).submit(Cast().team(step("a")), "please", session=name)
    assert await system.board.recent("default") == []


async def test_a_forked_request_is_in_no_session(system: System) -> None:
    async with system.serve(Cast().team(step("a"))) as runtime:
        first = await runtime.submit(runtime.team, "please", session="sofa")
        await runtime.wait(first.request_id)
        fork = await runtime.result(await runtime.fork(first.request_id, "a"))
        assert fork.request.session is None


CARDS = {
    "mood": FieldCard(name="mood", carry=True),
    "pieces": FieldCard(name="pieces", type="integer", carry=True),
    "draft": FieldCard(name="draft"),
}


def declaring(team: Team) -> Team:
    """A team that declares shared fields."""
    team.card = team.card.model_copy(update={"fields": CARDS})
    return team


async def say(system: System, request_id: str, **values: object) -> None:
    """Give shared fields a value, as the orchestrator does when it takes a step's changes in."""
    puts = {fields.shared(name): FieldRecord(value=value, step="a").to_json() for name, value in values.items()}
    versions = await system.board.read(request_id, tuple(puts))
    write = orchestrator(puts, {name: versions.version(name) for name in puts})
    assert isinstance(await system.board.write(request_id, write), Written)


async def said(system: System, request_id: str) -> dict[str, tuple[object, str]]:
    """Shared field -> its value, and the request that it was carried from."""
    snapshot = await system.board.read(request_id, tuple(map(fields.shared, CARDS)))
    records = {name.removeprefix("field/"): FieldRecord.from_json(stored.value) for name, stored in snapshot.fields.items()}
    return {name: (record.value, record.carried_from) for name, record in records.items()}


async def test_fields_declared_to_carry_are_there_when_the_next_request_opens_and_say_where_they_come_from(system: System) -> None:
    async with system.serve(declaring(Cast().team(step("a")))) as runtime:
        made: list[str] = []
        for values in ({"mood": "calm", "pieces": 3, "draft": "x"}, {"pieces": 4}, {}):
            request_id = (await runtime.submit(runtime.team, "please", session="sofa")).request_id
            if values:
                await say(system, request_id, **values)
            await runtime.wait(request_id)
            made.append(request_id)
        first, second, third = made
        assert await said(system, second) == {"mood": ("calm", first), "pieces": (4, "")}
        opening = (await runtime.events(second))[0]
        assert {"field/mood", "field/pieces"} == {name for name in opening.put if name.startswith("field/")}
        assert await said(system, third) == {"mood": ("calm", first), "pieces": (4, second)}
        fork = await runtime.fork(second, "a")
        assert (await said(system, fork.request_id)) == {"mood": ("calm", first), "pieces": (3, first)}, "as the source began"
        await runtime.wait(fork.request_id)
        alone = await runtime.submit(runtime.team, "please", session="chair")
        await runtime.wait(alone.request_id)
        assert await said(system, alone.request_id) == {}


async def test_what_no_longer_fits_is_left_behind_and_named(system: System) -> None:
    team = declaring(Cast().team(step("a")))
    other = Team("other", list(team.agents.values()), [step("a")])
    async with system.serve(team) as runtime:
        first = (await runtime.submit(team, "please", session="sofa")).request_id
        await say(system, first, mood="calm", pieces="many")
        await runtime.wait(first)
        second = (await runtime.submit(team, "please", session="sofa")).request_id
        await runtime.wait(second)
        assert await said(system, second) == {"mood": ("calm", first)}
        assert (await runtime.events(second))[0].labels["not_carried"] == "pieces"
        third = (await runtime.submit(declaring(other), "please", session="sofa")).request_id
        await runtime.wait(third)
        assert await said(system, third) == {}, "another team's fields are not this one's"


def test_proposals_and_open_reservations_stay_behind_and_contributions_keep_their_place_beside_new_ones() -> None:
    held = {each: Reservation(step=each, amount=1, until_ms=9, confirmed=each == "a") for each in "ab"}
    claims, proposals = (Claim(step="a", value=1), Claim(step="c@r0", value=2)), (Claim(step="b", value=3),)
    record = FieldRecord(value="x", claims=claims, proposals=proposals, reservations=held, seen={"a.k": "1.abcdef"})
    request = RequestRecord(id="r1", tenant="t", team="stage", text="x", idempotency_key="k", content_sha256="0")
    stored = {
        fields.REQUEST: Stored(request.to_json(), "1.abcdef", 1, 0),
        fields.shared("mood"): Stored(record.to_json(), "1.abcdef", 5, 0),
    }
    found = carried(declaring(Cast().team(step("a"))).card, Snapshot("r1", stored, 0, 9))
    (kept,) = map(FieldRecord.from_json, found.fields.values())
    assert (kept.carried_from, kept.proposals, kept.seen) == ("r1", (), {})
    assert ([each.step for each in kept.claims], [*kept.reservations]) == (["a@r1", "c@r0"], ["a@r1"])


def seen(at_ms: int, now_ms: int) -> Snapshot:
    record = SessionRecord(name="s", turn=3, last="r3", previous="r2")
    return Snapshot("id", {fields.SESSION: Stored(record.to_json(), "3.abcdef", 3, at_ms)}, now_ms, 3)


def status(status: RequestStatus | None) -> Snapshot:
    stored = {} if status is None else {fields.STATUS: Stored(StatusRecord(status=status, deadline_ms=1).to_json(), "1.abcdef", 1, 0)}
    return Snapshot("r3", stored, 0, len(stored))


@pytest.mark.parametrize("over", [each for each in RequestStatus if each.over])
def test_whoever_comes_after_a_request_that_is_over_is_next(over: RequestStatus) -> None:
    assert next_turn("s", seen(0, 1), status(over), "r4") == SessionTurn(name="s", turn=4, previous="r3")


def test_a_request_that_is_gone_is_no_previous_one() -> None:
    assert next_turn("s", seen(0, OPENING_MS), status(None), "r4") == SessionTurn(name="s", turn=4, previous="r2")

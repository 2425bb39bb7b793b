"""Every edge that takes values: each is read, or refused in one of the ways that are promised, and nothing else happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ops import cli
from ops.blackboard.memory import MemoryBlackboard
from ops.blackboard.redis import RedisBlackboard
from ops.broker.memory import MemoryBroker
from ops.client import Client
from ops.records import RECORDS
from schemas import plans
from schemas.agents import AgentCard
from schemas.blackboard import Blackboard
from schemas.boundary import AbsorbedRecord, BoundaryRecord, Retraction, Ruling
from schemas.codec import decode, encode
from schemas.errors import InvalidPlan, InvalidValue, Refused, Unreadable
from schemas.facts import Fact
from schemas.frozen import Frozen, validated
from schemas.gate import BoundaryRules
from schemas.messages import MessageType, from_wire, message, to_wire
from schemas.plans import Step
from schemas.requests import (
    AnswerRecord,
    ConstraintRecord,
    Gap,
    Origin,
    PlanRecord,
    RequestRecord,
    RequestStatus,
    SessionRecord,
    StatusRecord,
    StepRecord,
    StepState,
)
from schemas.results import AgentResult, Failure, MadeWith, ResultStatus
from schemas.shared import Claim, Communication, FieldRecord, Reservation
from tests.fuzz.strategies import JSON, JUNK, TEXT, UNICODE, damaged
from tests.system.cast import Cast, fact, step
from tests.workers.agents.runs import asks, brief_of, run
from workers.accepting import Terms, accept
from workers.agents.tools import Tool, ToolObservation
from workers.facts import ExtractedFacts, FactRules, value_at
from workers.team import Constraint

FAILURE = Failure(code="NO_STOCK", description="没有库存")
MADE_WITH = MadeWith(brief_sha256="0" * 64, position=3)
FACT = fact("a", "k", 1.5)
SAMPLES: dict[str, Frozen] = {
    "request": RequestRecord(id="r", tenant="t", team="t", text="请看", constraints=("a",), idempotency_key="k", content_sha256="0"),
    "card": Cast().team(step("a"), step("b", "a")).card,
    "status": StatusRecord(status=RequestStatus.FAILED, deadline_ms=1000, replays=1, failure=FAILURE),
    "plan": PlanRecord(steps=("a", "b"), taken_in=(("a", 0),)),
    "answer": AnswerRecord(
        status=RequestStatus.DEGRADED, text="完成", sections=("a",), gaps=(Gap(step="b", reason="TIMEOUT", stopped=("c",)),)
    ),
    "session": SessionRecord(name="s", turn=2, last="r2", previous="r1"),
    "constraint/": ConstraintRecord(name="a", label="A", value=1, origin=Origin.GIVEN, text="1"),
    "plan/": Step(id="a", title="A", agent="hand", task="Do.", needs=("b.c?",), tools=("look",)),
    "step/": StepRecord(state=StepState.FAILED, agent="hand", failure=FAILURE, first_error="x", worker="w"),
    "result/": AgentResult(
        agent="hand",
        step_id="a",
        status=ResultStatus.COMPLETED,
        summary="好",
        facts=(fact("a", "k", 1.5),),
        failure=FAILURE,
        made_with=MADE_WITH,
    ),
    "boundary": BoundaryRecord(
        retractions=(Retraction(step="a", key="k", version="1.abcdef", reason="wrong"),),
        rulings={"step:a": Ruling(choice="approve", value={"a": [1]})},
        rules=BoundaryRules(named="policy"),
    ),
    "absorbed": AbsorbedRecord(steps=(("a", 0),), refused=("a: no",)),
    "field/": FieldRecord(
        value={"name": "好", "cost": 1.5},
        claims=(Claim(step="a", value=[1, "x"]),),
        communicated=(Communication(content="Told.", at_ms=1),),
        reservations={"a:x": Reservation(step="a", amount=2, until_ms=5)},
    ),
}
"""One of every record, with its optional parts."""


def test_there_is_a_sample_of_every_record() -> None:
    assert {name: type(sample) for name, sample in SAMPLES.items()} == dict(RECORDS)


@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_record_is_read_or_unreadable_and_what_was_read_can_be_kept(name: str, data: st.DataObject) -> None:
    record = RECORDS[name]
    given_bytes = data.draw(damaged(SAMPLES[name].to_json()))
    try:
        read = record.from_json(given_bytes)
    except Unreadable as error:
        assert len(str(error)) < 700
        return
    assert record.from_json(read.to_json()) == read


@given(st.sampled_from(sorted(RECORDS)), st.binary(max_size=60))
@settings(max_examples=150, deadline=None)
def test_random_bytes_are_no_record(name: str, value: bytes) -> None:
    with pytest.raises(Unreadable):
        RECORDS[name].from_json(value)


BELL = message(MessageType.TASK, "r", sender="orchestrator", recipient="hand", step_id="a", seen={"step/a": "1.abcdef"}, trace="00-1-2-01")


@given(damaged(to_wire(BELL)))
@settings(max_examples=200, deadline=None)
def test_a_damaged_message_is_read_or_unreadable_with_a_short_text(body: bytes) -> None:
    try:
        bell = from_wire(body)
    except Unreadable as error:
        assert len(str(error)) < 900
        return
    assert from_wire(to_wire(bell)) == bell


NAMES = st.sampled_from(["a", "b", "c", "hand", "", "a b", "名", "x" * 65, "a/b"])
NEEDS = st.sampled_from(["a.k", "b.*", "a.k?", "*", "", ".", "a.", ".k", "a.k.k", "z.k", "a.k??"]) | TEXT
STEPS = st.fixed_dictionaries(
    {"agent": st.sampled_from(["hand", "eye", "nobody"]), "title": UNICODE, "task": UNICODE},
    optional={
        "id": NAMES,
        "depends_on": st.lists(NAMES, max_size=3),
        "needs": st.none() | st.lists(NEEDS, max_size=3),
        "expects": st.lists(st.sampled_from(["k", "l", ""]), max_size=2),
        "tools": st.none() | st.lists(st.sampled_from(["look", "none", ""]), max_size=2),
        "timeout_seconds": st.floats() | st.integers(),
        "budget": st.dictionaries(st.sampled_from(["tokens", "model_calls"]), st.integers() | UNICODE, max_size=2),
        "max_attempts": st.integers() | st.floats(),
        "critical": JSON,
    },
)
CARDS = {
    "hand": AgentCard(name="hand", tools=("look",), facts={"k": ("look",)}),
    "eye": AgentCard(name="eye", facts={"l": ()}),
}


@given(st.lists(STEPS, max_size=6), JSON)
@settings(max_examples=200, deadline=None)
def test_any_plan_is_refused_by_path_or_can_be_carried_out(given_steps: list[dict[str, Any]], anything: Any) -> None:
    made: list[Step] = []
    for each in (*given_steps, anything):
        try:
            made.append(validated(Step, each))
        except InvalidValue as error:
            assert len(str(error)) < 700
    try:
        plans.validate(made, CARDS)
    except Refused as error:
        assert error.path.startswith("steps")
        return
    known = {each.id for each in made}
    assert len(known) == len(made) and all(set(plans.inputs_of(each)) <= known - {each.id} for each in made)
    with pytest.raises(InvalidPlan):
        plans.validate([made[0], *made], CARDS)


@given(
    st.lists(JUNK, max_size=4),
    st.lists(st.sampled_from(["a", "b.0", "a.b.1.c", "0", "a.99999999999999999999", "名"]), min_size=1, max_size=3),
)
@settings(max_examples=150, deadline=None)
def test_facts_are_copied_from_any_return_and_can_be_kept(returns: list[Any], paths: list[str]) -> None:
    kept = []
    for value in returns:
        try:
            kept.append(decode(encode(value)))
        except InvalidValue:
            continue
    rules = FactRules.of(*(("look", path, f"key{number}") for number, path in enumerate(paths)))
    observations = [ToolObservation("look", {}, value, f"call-{number}", 1) for number, value in enumerate(kept)]
    found = rules.extract(observations, step="a", tools={}, now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    assert isinstance(found, ExtractedFacts)
    for each in found.facts:
        assert Fact.from_json(each.to_json()) == each
        source = next(seen for seen in observations if seen.call_id == each.provenance.call_id)
        assert value_at(source.returned, each.provenance.path) == each.value


@given(JUNK)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_tool_returns_the_run_ends_in_a_result_that_can_be_kept(returned: Any) -> None:
    def look() -> Any:
        """Look it up."""
        return returned

    brief = brief_of()
    result = asyncio.run(run(Tool("look", look), model=asks("look"), brief=brief, rules=FactRules.of(("look", "a", "k"))))
    kept, _ = accept(result, Terms(brief, MADE_WITH, "r", 0, datetime.now(UTC)))
    assert kept is not None and AgentResult.from_json(kept.to_json()) == kept


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
TEAM = Cast().team(step("a"), constraints=[Constraint("number", "Number", type="integer"), Constraint("word", "Word")])


@given(
    text=TEXT,
    given_values=st.dictionaries(st.sampled_from(["number", "word", "colour", ""]) | TEXT, ANYTHING, max_size=3),
    key=st.none() | TEXT,
    tenant=st.just("default") | TEXT,
    deadline=st.none() | st.floats(),
    trace=st.none() | TEXT,
)
@settings(max_examples=150, deadline=None)
def test_whatever_is_submitted_is_accepted_whole_or_refused_and_opens_nothing(
    text: str, given_values: dict[str, Any], key: str | None, tenant: str, deadline: float | None, trace: str | None
) -> None:
    async def submitted() -> None:
        async with MemoryBlackboard() as board, MemoryBroker() as broker:
            client = Client(board, broker, tenant=tenant)
            try:
                accepted = await client.submit(
                    TEAM, text, constraints=given_values, idempotency_key=key, deadline_seconds=deadline, trace=trace
                )
            except Refused:
                assert not board._requests
                return
            assert (await client.show(accepted.request_id)).request.text == text
            assert [each.request_id for each in await client.recent()] == [accepted.request_id]
            assert not await client.damaged(accepted.request_id)

    asyncio.run(submitted())


Ask = Callable[[Client, str, str], Any]
ASKS: dict[str, Ask] = {
    "status": lambda client, request, step_id: client.status(request),
    "show": lambda client, request, step_id: client.show(request),
    "wait": lambda client, request, step_id: client.wait(request),
    "cancel": lambda client, request, step_id: client.cancel(request, step_id),
    "replay": lambda client, request, step_id: client.replay(request, step_id),
    "drop": lambda client, request, step_id: client.drop(request, step_id, "why"),
    "dead letter": lambda client, request, step_id: client.dead_letter(request, step_id),
}


async def refused(board: Blackboard, asked: list[tuple[str, str, str]]) -> None:
    """Ask for what is not there, under any names; each is refused, and nothing is sent or stored."""
    async with MemoryBroker() as broker:
        client = Client(board, broker)
        real = (await client.submit(TEAM, "Please.")).request_id
        sent = broker.depth("commands")
        for what, request, step_id in asked:
            with pytest.raises(Refused):
                await ASKS[what](client, request, step_id)
            if what in ("replay", "drop", "dead letter"):
                with pytest.raises(Refused):
                    await ASKS[what](client, real, step_id)
        assert broker.depth("commands") == sent
        assert len(await board.events(real)) == 1


ASKED = st.lists(st.tuples(st.sampled_from(sorted(ASKS)), TEXT, TEXT), min_size=1, max_size=8)


@given(ASKED)
@settings(max_examples=60, deadline=None)
def test_any_id_of_a_request_or_step_that_is_not_there_is_refused_in_memory(asked: list[tuple[str, str, str]]) -> None:
    async def on_memory() -> None:
        async with MemoryBlackboard() as board:
            await refused(board, asked)

    asyncio.run(on_memory())


@given(asked=ASKED)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_id_of_a_request_or_step_that_is_not_there_is_refused_on_redis(
    redis_url: str, key_prefix: str, asked: list[tuple[str, str, str]]
) -> None:
    async def on_redis() -> None:
        async with RedisBlackboard(redis_url, prefix=key_prefix) as board:
            await refused(board, asked)

    asyncio.run(on_redis())


@given(st.lists(TEXT, max_size=3), st.binary(max_size=30))
@settings(max_examples=100, deadline=None)
def test_the_command_line_reads_any_constraint_and_any_words_or_says_one_line(given_pairs: list[str], words: bytes) -> None:
    try:
        pairs = cli._pairs(given_pairs)
    except typer.Exit as left:
        assert left.exit_code == 2
    else:
        assert all("=" in each for each in given_pairs) and len(pairs) <= len(given_pairs)
    try:
        assert cli._text(words).encode() == words
    except typer.Exit as left:
        assert left.exit_code == 2

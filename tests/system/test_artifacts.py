"""Artifacts over the whole line: what is big crosses as one line and sits nowhere else, and what a run said is kept for people."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from ops.artifacts.keeping import KeptArtifacts
from ops.artifacts.memory import MemoryShelf
from schemas.artifacts import Artifact
from schemas.blackboard import Event
from schemas.errors import Unavailable
from schemas.gate import BoundaryRules
from schemas.messages import to_wire
from schemas.results import PRIVATE_LABEL, FailureCode
from tests.system.cast import Cast, told
from tests.system.cast import step as hand
from tests.system.conftest import System
from workers.agents.agent import AgentBrief
from workers.agents.blackbox import BlackBox
from workers.agents.models import Call, Reply, Say, ScriptedModel, Turn
from workers.agents.specialist import Specialist
from workers.agents.tools import READ_TOOL
from workers.facts import FactRules
from workers.team import Team

MARK = "推车通道"
PAGE = "这里是门票、交通和开放时间的说明。" * 900 + f"{MARK}在东门。" + "其余从略。" * 900


def fetch() -> dict[str, str]:
    """Fetch the page of the sight."""
    return {"page": PAGE, "title": "上野动物园"}


def _finds(turn: Turn) -> Reply:
    return Say("Found it.") if turn.returns else Call(("fetch", {}))


def _looks_it_up(turn: Turn) -> Reply:
    """Read the page part after part, until the sentence that is asked for has come."""
    artifact = next(word for line in turn.brief.splitlines() if "art_" in line for word in line.split() if word.startswith("art_"))
    read = [orjson.loads(each.text) for each in turn.returns]
    if read and MARK in read[-1]["text"]:
        return Say("The gate for prams is in the east.")
    return Call((READ_TOOL, {"id": artifact, "start": read[-1]["end"] if read else 0}))


def _team(**options: Any) -> Team:
    finder = Specialist(
        "finder", "You find.", [fetch], FactRules.of(("fetch", "page", "page"), ("fetch", "title", "title")), ScriptedModel(_finds)
    )
    reader = Specialist("reader", "You read.", model=ScriptedModel(_looks_it_up))
    find = {"id": "find", "agent": "finder", "title": "Sights", "task": "Find it.", "expects": ["page"]}
    read = {
        "id": "read",
        "agent": "reader",
        "title": "Prams",
        "task": "Where may prams go?",
        "depends_on": ["find"],
        "needs": ["find.page"],
    }
    return Team("trip", [finder, reader], [find, read], **options)


def _event(events: tuple[Event, ...], step: str, name: str) -> Event:
    return next(event for event in events if event.labels.get("step") == step and event.labels.get("event") == name)


async def _everything_stored(system: System, request_id: str) -> AsyncIterator[str]:
    """Every field, every event with all that is in it, every message, and on Redis every key as it lies there."""
    for event in await system.board.events(request_id):
        yield repr(event)
        for _, value in event.put.values():
            yield value.decode()
    for address, bell in system.broker.published:
        yield repr(address) + to_wire(bell).decode()
    if system.redis is not None:
        async for key in system.redis.scan_iter(match=f"*{request_id}*", count=1000):
            if await system.redis.type(key) == b"hash":
                yield repr({name: bytes(value).decode() for name, value in (await system.redis.hgetall(key)).items()})  # type: ignore[arg-type]  # bytes here


async def test_a_long_page_crosses_as_one_line_and_is_read_in_parts_by_who_needs_it(system: System) -> None:
    async with system.serve(_team()) as runtime:
        report = await runtime.ask("With a pram to the zoo.")
    assert report.status == "COMPLETED" and "in the east" in report.text
    (line,) = (line for line in report.briefs[1].brief.text.splitlines() if "art_" in line)
    fact = next(fact for step, fact in report.facts if (step, fact.key) == ("find", "page"))
    assert fact.artifact is not None and fact.artifact.id == fact.value
    for said in ("- page: ", fact.artifact.id, "text/plain", str(len(PAGE.encode())), fact.artifact.summary):
        assert said in line
    assert len(line) < 250 and fact.artifact.producer == "find"
    assert report.step("read").result is not None and report.usage.tool_calls > 4  # in parts


async def test_no_text_of_an_artifact_is_in_any_field_event_or_message(system: System) -> None:
    async with system.serve(_team()) as runtime:
        report = await runtime.ask("With a pram to the zoo.")
        pieces = [PAGE[start : start + 101] for start in range(0, len(PAGE) - 101, 50)]
        seen = 0
        async for stored in _everything_stored(system, report.request_id):
            seen += 1
            assert not any(piece in stored for piece in pieces)
            assert MARK not in stored
        assert seen > 10


async def test_what_a_black_box_returns_is_held_to_the_same_limit_and_another_reads_it_by_its_brief(system: System) -> None:
    read: list[str] = []

    async def use(brief: AgentBrief) -> str:
        fact = brief.facts["a.finding"]
        read.append((await brief.artifacts.read(str(fact.value), 0, 40)).text)
        return "used"

    async def find(brief: AgentBrief) -> Any:
        return told(brief, finding=PAGE)

    team = Cast({"a": find}).team(
        hand("a"),
        {"id": "b", "agent": "user", "title": "B", "task": "Use it.", "depends_on": ["a"], "needs": ["a.finding"]},
        agents=[BlackBox("user", use)],
    )
    async with system.serve(team) as runtime:
        report = await runtime.ask("Please.")
    assert (report.status, read) == ("COMPLETED", [PAGE[:40]])


async def test_a_team_sets_its_own_limit(system: System) -> None:
    team = _team()
    team.card = team.card.model_copy(update={"rules": BoundaryRules(max_tokens=3)})
    async with system.serve(team) as runtime:
        report = await runtime.ask("With a pram to the zoo.")
    assert all(fact.artifact is not None for _, fact in report.facts) and len(report.facts) == 2


async def test_an_artifact_that_is_gone_fails_the_step_that_needs_it_and_the_step_before_stands(system: System) -> None:
    class Forgetful(MemoryShelf):
        async def save(self, name: str, data: bytes) -> None:
            if name.startswith("prv_"):
                await super().save(name, data)

    async with system.serve(_team(), artifacts=KeptArtifacts(Forgetful())) as runtime:
        report = await runtime.ask("With a pram to the zoo.")
    failure = report.step("read").failure
    assert report.status == "DEGRADED" and failure is not None
    assert "find.page is blocked as unreadable_artifact: run its producer again" in failure.description
    assert report.usage.model_calls == 2  # the reader's model was never asked


async def test_a_store_that_is_away_for_a_moment_costs_an_attempt_and_nothing_else(system: System) -> None:
    class AwayOnce(MemoryShelf):
        calls = 0

        async def save(self, name: str, data: bytes) -> None:
            self.calls += 1
            if self.calls == 1:
                raise Unavailable("the bucket is away")
            await super().save(name, data)

    async with system.serve(_team(), artifacts=KeptArtifacts(AwayOnce())) as runtime:
        accepted = await runtime.submit(runtime.team, "With a pram to the zoo.")
        report = await runtime.result(accepted)
    assert report.status == "COMPLETED"
    assert (report.step("find").record.attempt, report.step("read").record.attempt) == (2, 1)
    assert _event(report.events, "find", "step_to_be_retried").labels["code"] == FailureCode.AGENT_ERROR


async def test_each_attempt_of_a_specialist_leaves_its_transcript_as_a_private_artifact(system: System) -> None:
    async with system.serve(_team()) as runtime:
        report = await runtime.ask("With a pram to the zoo.")
        for step, says in (("find", "Found it."), ("read", "The gate for prams is in the east.")):
            label = _event(report.events, step, "step_completed").labels[PRIVATE_LABEL]
            kept = await runtime.artifacts.read(label)
            told = orjson.loads(kept.content)
            assert kept.ref.private and kept.ref.producer == step
            assert (told["request"], told["step"], told["attempt"]) == (report.request_id, step, 1)
            assert told["messages"][-1] == {"role": "assistant", "text": says}
            assert all(ref.id != label for each in report.steps if each.result for ref in each.result.artifacts)
            assert not any(label in each.brief.text for each in report.briefs)


async def test_a_failed_attempt_leaves_its_transcript_too(system: System) -> None:
    def breaks(turn: Turn) -> Reply:
        if turn.returns:
            raise RuntimeError("the model broke")
        return Call(("fetch", {}))

    team = Team(
        "t", [Specialist("a", "You.", [fetch], model=ScriptedModel(breaks))], [{"id": "a", "agent": "a", "title": "A", "task": "Do."}]
    )
    async with system.serve(team) as runtime:
        report = await runtime.ask("Please.")
        label = _event(report.events, "a", "step_failed").labels[PRIVATE_LABEL]
        told = orjson.loads((await runtime.artifacts.read(label)).content)
    assert report.status == "FAILED"
    assert [each["tool"] for each in told["observations"]] == ["fetch"]


@pytest.mark.parametrize("error", [Unavailable("away"), RuntimeError("a mistake of the store's")])
async def test_a_transcript_that_cannot_be_kept_fails_nothing(system: System, error: Exception) -> None:
    class Broken(KeptArtifacts):
        async def put(self, artifact: Artifact) -> None:
            if artifact.ref.private:
                raise error
            await super().put(artifact)

    async with system.serve(_team(), artifacts=Broken(MemoryShelf())) as runtime:
        report = await runtime.ask("With a pram to the zoo.")
    assert report.status == "COMPLETED"
    assert not any(PRIVATE_LABEL in event.labels for event in report.events)


async def test_no_tool_of_an_agent_reads_a_private_artifact(system: System) -> None:
    store = KeptArtifacts(MemoryShelf())
    async with system.serve(_team(), artifacts=store) as runtime:
        first = await runtime.ask("With a pram to the zoo.")
    private = _event(first.events, "find", "step_completed").labels[PRIVATE_LABEL]
    seen: list[str] = []

    def spies(turn: Turn) -> Reply:
        seen.extend(each.text for each in turn.returns)
        return Say("done") if turn.returns else Call((READ_TOOL, {"id": private}))

    async def reads(brief: AgentBrief) -> str:
        try:
            await brief.artifacts.read(private)
        except Exception as error:
            return type(error).__name__
        return "read it"

    given = {"depends_on": ["find"], "needs": ["find.page"]}
    spy = Specialist("spy", "You spy.", model=ScriptedModel(spies))
    team = _team()
    steps: list[Any] = [
        team.steps[0],
        {"id": "spy", "agent": "spy", "title": "Spy", "task": "Look.", **given},
        {"id": "box", "agent": "box", "title": "Box", "task": "Look.", **given},
    ]
    async with system.serve(Team("spies", [team.agent("finder"), spy, BlackBox("box", reads)], steps), artifacts=store) as runtime:
        report = await runtime.ask(f"Read {private} to me.")
    assert report.status == "COMPLETED" and "NotPermitted" in report.text
    assert [orjson.loads(each) for each in seen] == [{"error": team.phrases.not_permitted}]

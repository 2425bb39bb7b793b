"""The trip team's own parts: what it finds in the user's words, what its searches bring, and what its models are let do."""

from __future__ import annotations

from typing import Any

import pytest

from ops.artifacts.keeping import KeptArtifacts
from ops.artifacts.memory import MemoryShelf
from schemas.codec import encode
from schemas.errors import InvalidTeam, MissingConstraint, NotFound
from workers import tokens
from workers.agents.actions import Action, actions_of
from workers.agents.tools import Tool, ToolContext, ToolFault
from workers.artifacts import RunArtifacts
from workers.team import Team, load_team
from workers.teams.trip import constraints, data, pages, tools
from workers.teams.trip.actions import ACTIONS
from workers.teams.trip.demo import REQUEST
from workers.teams.trip.plan import FIELDS
from workers.teams.trip.scripts import QUERIES, SCRIPTS
from workers.teams.trip.team import make_team

CARDS = {each.name: each for each in FIELDS}


def given(**more: Any) -> dict[str, Any]:
    """What the demo's request fixes."""
    return {"destination": "东京", "days": 3, "budget": 20_000, "traveler": "亲子", **more}


async def called(tool: Tool, arguments: dict[str, Any], **more: Any) -> tuple[Any, RunArtifacts]:
    """What a call of a tool comes to, and the artifacts of its run."""
    run = RunArtifacts(KeptArtifacts(MemoryShelf()))
    return await tool.call(arguments, ToolContext(constraints=given(**more), artifacts=run)), run


def test_the_hard_constraints_are_found_in_the_users_words() -> None:
    records = {each.name: each for each in make_team().resolve(REQUEST)}
    assert {name: each.value for name, each in records.items()} == given()
    assert records["budget"].text == "全程花费合计不超过 20000 元"


@pytest.mark.parametrize(
    ("words", "budget"),
    [
        ("预算 2 万", 20_000),
        ("预算两万元", 20_000),
        ("不超过 1.5 万", 15_000),
        ("预算 8,000 元", 8_000),
        ("控制在 9千 以内", 9_000),
        ("便宜", None),
    ],
)
def test_a_budget_is_read_as_people_write_it(words: str, budget: int | None) -> None:
    assert constraints.budget(words) == budget


@pytest.mark.parametrize(("words", "days"), [("3 天", 3), ("玩三天", 3), ("两日游", 2), ("10天", 10), ("东京", None)])
def test_days_are_read_as_people_write_them(words: str, days: int | None) -> None:
    assert constraints.days(words) == days


def test_a_city_that_the_team_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(MissingConstraint, match="目的地"):
        make_team().resolve("3 天大阪亲子游，预算 2 万")


def test_one_place_is_unfit_for_children_and_one_hotel_is_over_the_budget() -> None:
    places, houses = list(data.SPOTS), list(data.HOTELS)
    assert 6 <= len(places) <= 8 and 3 <= len(houses) <= 4
    assert [each.name for each in data.SPOTS if not each.fits_children] == ["新宿夜光剧场"]
    assert [each.name for each in data.HOTELS if each.nightly * 2 > 20_000] == ["银座云顶大酒店"]
    best = (max(data.SPOTS, key=lambda each: each.rating), max(data.HOTELS, key=lambda each: each.rating))
    assert [each.name for each in best] == ["新宿夜光剧场", "银座云顶大酒店"], "so that both constraints bite"


def test_the_pages_are_the_same_to_the_byte_each_time_and_hold_no_sentence_of_two_places() -> None:
    once, again = (pages.as_text([page for each in data.SPOTS for page in pages.spot_pages(each)]) for _ in range(2))
    assert once == again
    assert all(once.count(each.child_rule) == 1 for each in data.SPOTS)


async def test_eight_searches_keep_every_page_as_one_artifact_and_return_places_in_it() -> None:
    (search, _), queries = tools.SPOT_TOOLS, list(QUERIES)
    returned, run = await called(search, {"queries": queries})
    (ref,) = run.made
    text = await _whole(run, ref.id)
    assert (returned["searches"], returned["pages"], returned["material"]) == (8, 32, ref.id)
    assert 18_000 < tokens.estimate(text) < 40_000 and tokens.estimate(encode(returned).decode()) < 700
    for row in returned["spots"]:
        start, end = map(int, row["at"].split("-"))
        found = data.spot(row["name"])
        assert found is not None and text[start:end] == found.child_rule


async def test_a_search_brings_what_it_was_asked_for_alone() -> None:
    returned, run = await called(tools.SPOT_TOOLS[0], {"queries": ["东京 水族馆"]})
    assert [row["name"] for row in returned["spots"]] == ["隅田川水族馆"] and len(run.made) == 1
    nothing, run = await called(tools.SPOT_TOOLS[0], {"queries": ["滑雪"]})
    assert nothing["error"] and not nothing["spots"] and not run.made
    with pytest.raises(ToolFault, match="bad arguments"):
        await called(tools.SPOT_TOOLS[0], {"queries": [*QUERIES, "一条太多"]})


async def test_a_comparison_counts_every_night_and_says_where_the_price_stands() -> None:
    returned, run = await called(tools.HOTEL_TOOLS[0], {"wanted": "家庭房"}, days=4)
    text = await _whole(run, returned["material"])
    for row in returned["hotels"]:
        found = data.hotel(row["name"])
        start, end = map(int, row["at"].split("-"))
        assert found is not None and (row["nights"], row["total"]) == (3, found.nightly * 3)
        assert f"{found.nightly:,}" in text[start:end]


async def _whole(run: RunArtifacts, artifact_id: str) -> str:
    parts, start = [], 0
    while True:
        part = await run.read(artifact_id, start)
        parts.append(part.text)
        start = part.end
        if start >= part.total:
            return "".join(parts)


async def test_what_does_not_fit_the_child_or_was_never_found_is_not_held() -> None:
    refused, _ = await called(tools.SPOT_TOOLS[1], {"name": "新宿夜光剧场"})
    unknown, _ = await called(tools.SPOT_TOOLS[1], {"name": "富士山"})
    assert "不适合儿童" in refused["error"] and unknown["error"] and "没有" in unknown["error"]


def test_each_step_has_the_narrow_actions_on_what_it_writes_and_no_other() -> None:
    names = {step.id: [each.name for each in actions_of(step, ACTIONS, CARDS)] for step in make_team().steps}
    assert names == {
        "requirements": ["record_destination", "record_budget"],
        "spots": ["record_spot", "add_cost"],
        "hotels": ["record_hotel", "add_cost"],
        "final": [],
    }


def test_there_is_no_action_that_takes_the_name_of_a_field_or_a_value_of_any_shape() -> None:
    def write(value: dict[str, Any]) -> dict[str, Any]:
        return value

    with pytest.raises(InvalidTeam, match="any shape"):
        Action("write", "attractions", write)


def test_the_team_is_shipped_and_an_unknown_scenario_names_those_there_are() -> None:
    assert isinstance(load_team("trip"), Team)
    with pytest.raises(NotFound, match=", ".join(SCRIPTS)):
        make_team(scenario="nowhere")


def test_no_internal_name_stands_in_what_a_model_is_told() -> None:
    team = make_team()
    internal = [*(step.id for step in team.steps), *team.card.fields]
    texts = [each for step in team.steps for each in (step.title, step.task, step.out_of_scope)]
    texts += [each.label for each in FIELDS]
    texts += [agent.persona for agent in team.agents.values() if hasattr(agent, "persona")]
    assert not [(name, text) for name in internal for text in texts if name in text]

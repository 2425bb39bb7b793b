"""Teams: what fits together, what is refused and where, and how one is loaded by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import InvalidPlan, InvalidTeam, InvalidValue, MissingConstraint, NotFound
from schemas.facts import Sensitivity
from schemas.requests import Origin
from tests.workers.agents.runs import replies
from workers.agents.blackbox import BlackBox
from workers.agents.models import Say
from workers.agents.specialist import Specialist
from workers.agents.tools import tool
from workers.facts import FactRules
from workers.team import Constraint, Team, load_team, shipped_teams

STEPS: list[dict[str, Any]] = [{"agent": "a", "title": "A", "task": "do"}]


def team(*constraints: Constraint, **options: Any) -> Team:
    """A team of one black box."""
    return Team("mine", [BlackBox("a", lambda brief: "")], STEPS, constraints, **options)


def look(query: str) -> dict[str, Any]:
    """Look."""
    return {}


def test_the_card_is_the_pure_data_of_a_team() -> None:
    made = Team(
        "mine",
        [Specialist("a", "You look.", [tool(look)], FactRules.of(("look", "x", "key")))],
        STEPS,
        [Constraint("budget", "Budget", "integer", "CNY", required=True)],
        model=replies(Say("")),
        deadline_seconds=60,
    )

    assert made.card.from_json(made.card.to_json()) == made.card
    assert made.card.agents["a"].facts == {"key": ("look",)} and made.card.agents["a"].tools == ("look",)
    assert (made.card.deadline_seconds, made.card.constraints[0].required, made.steps[0].id) == (60, True, "a")


def test_the_cards_version_changes_with_persona_tools_rules_model_plan_and_wording() -> None:
    def version(persona: str = "p", key: str = "k", title: str = "A", wording: str = "", model: str = "m", description: str = "") -> str:
        agent = Specialist("a", persona, [tool(look, description=description)], FactRules.of(("look", "x", key)))
        script = replies(Say(""))
        named = type(script)(script.script, model)
        return Team("t", [agent], [{**STEPS[0], "title": title}], [Constraint("c", "C", wording=wording)], model=named).card.version

    changed = [
        version(persona="q"),
        version(key="l"),
        version(title="B"),
        version(wording="{value}!"),
        version(model="n"),
        version(description="d"),
    ]
    assert version() == version()
    assert len({version(), *changed}) == 7


def test_what_a_result_was_made_with_names_every_part() -> None:
    made = Team("t", [Specialist("a", "p", [tool(look)])], STEPS, model=replies(Say("")))
    used = made.made_with("a", brief_sha256="f" * 64, position=9)

    assert (used.team, used.brief_sha256, used.position) == (made.card.version, "f" * 64, 9)
    assert used.persona and used.tools and used.model and used.rules == ""


@pytest.mark.parametrize(
    ("agents", "steps", "error", "path"),
    [
        ([], STEPS, InvalidTeam, "agents"),
        ([BlackBox("a", print), BlackBox("a", print)], STEPS, InvalidTeam, "agents.1.name"),
        ([print], STEPS, InvalidTeam, "agents.0"),
        ([Specialist("a", "p")], STEPS, InvalidTeam, "agents.a.model"),
        ([BlackBox("bad name", print)], STEPS, InvalidTeam, "agents.0"),
        ([BlackBox("a", print)], [{"agent": "a", "title": "", "task": "x"}], InvalidTeam, "steps.0"),
        ([BlackBox("a", print)], [], InvalidPlan, "steps"),
        ([BlackBox("a", print)], [{"agent": "b", "title": "B", "task": "x"}], InvalidPlan, "steps.0.agent"),
    ],
)
def test_a_team_that_does_not_fit_together_is_refused_where_it_does_not(
    agents: list[Any], steps: list[Any], error: type[InvalidTeam], path: str
) -> None:
    with pytest.raises(error) as refused:
        Team("t", agents, steps)
    assert refused.value.path == path


def test_constraints_are_refused_when_named_twice() -> None:
    with pytest.raises(InvalidTeam, match="declared twice"):
        team(Constraint("a", "A"), Constraint("a", "B"))


def number_in(text: str) -> int | None:
    """The first number of a text."""
    return next((int(word) for word in text.split() if word.isdecimal()), None)


BUDGET = Constraint("budget", "Budget", "integer", "CNY", extract=number_in, wording="within {value} {unit}")


def test_a_given_value_wins_over_an_extracted_one_and_the_origin_is_kept() -> None:
    given = team(BUDGET).resolve("spend 500 please", {"budget": 2000})[0]
    extracted = team(BUDGET).resolve("spend 500 please")[0]

    assert (given.value, given.origin, given.text) == (2000, Origin.GIVEN, "within 2000 CNY")
    assert (extracted.value, extracted.origin) == (500, Origin.EXTRACTED)
    assert team(BUDGET).resolve("spend nothing") == ()


def test_constraints_come_in_declared_order_and_without_a_wording_read_as_value_and_unit() -> None:
    records = team(Constraint("b", "B", "number", "kg"), Constraint("a", "A")).resolve("", {"a": "x", "b": "1.5"})

    assert [(record.name, record.text, record.value) for record in records] == [("b", "1.5 kg", 1.5), ("a", "x", "x")]


def test_a_required_constraint_that_nobody_gave_is_refused_by_name() -> None:
    for given in ({}, {"order": "  "}, {"order": None}):
        with pytest.raises(MissingConstraint, match="Order number") as refused:
            team(Constraint("order", "Order number", required=True)).resolve("no number here", given)
        assert refused.value.path == "constraints.order"


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("integer", "2000", 2000),
        ("integer", " 2,000 ", 2000),
        ("number", "1.5", 1.5),
        ("number", 2, 2),
        ("boolean", "true", True),
        ("boolean", "No", False),
        ("text", " 88231 ", "88231"),
    ],
)
def test_values_arrive_as_text_or_typed(kind: Any, given: object, expected: object) -> None:
    record = team(Constraint("c", "C", kind)).resolve("", {"c": given})[0]

    assert record.value == expected and type(record.value) is type(expected)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("integer", "many"),
        ("integer", "1.5"),
        ("integer", True),
        ("integer", 2**63),
        ("number", "nan"),
        ("number", float("inf")),
        ("boolean", 1),
        ("boolean", "perhaps"),
        ("text", 5),
        ("text", "\ud800"),
        ("text", ["x"]),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_path(kind: Any, given: object) -> None:
    with pytest.raises(InvalidValue) as refused:
        team(Constraint("c", "C", kind)).resolve("", {"c": given})
    assert refused.value.path == "constraints.c"


def test_a_constraint_that_the_team_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidValue, match="there are: budget"):
        team(BUDGET).resolve("", {"bugdet": 1})


def test_an_agent_that_the_team_does_not_have_is_not_found() -> None:
    with pytest.raises(NotFound, match="there are: a"):
        team().agent("b")


def test_a_shipped_team_is_loaded_by_its_name_and_by_its_place() -> None:
    assert "bitmall" in shipped_teams()
    assert load_team("bitmall") is load_team("workers.teams.bitmall:team") is load_team("workers.teams.bitmall.team:team")
    assert load_team("workers.teams.bitmall.team:make_team").card == load_team("bitmall").card
    assert load_team("bitmall", scenario="product-stuck").card.version != load_team("bitmall").card.version


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("bitmal", NotFound, "shipped are: bitmall"),
        ("no.such.module:team", NotFound, "no module 'no'"),
        ("workers.teams.nothing:team", NotFound, "no module"),
        ("workers.teams.bitmall:nothing", NotFound, "has no 'nothing'"),
        ("workers.teams.bitmall.team:DEMO_TODAY", InvalidTeam, "not a Team"),
        (":team", NotFound, "package.module:attribute"),
        ("..x:team", NotFound, "package.module:attribute"),
        ("workers.team:", NotFound, "package.module:attribute"),
        ("", NotFound, "shipped are"),
    ],
)
def test_a_team_that_is_not_there_is_said_clearly(name: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        load_team(name)


def test_options_go_to_a_team_that_takes_them_only() -> None:
    with pytest.raises(NotFound, match="no scenario 'sad'"):
        load_team("bitmall", scenario="sad")
    with pytest.raises(NotFound, match="no option colour"):
        load_team("bitmall", colour="red")
    with pytest.raises(NotFound, match="takes no options"):
        load_team("workers.team:Team", scenario="x")


def test_what_a_users_module_lacks_is_not_taken_for_the_module_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_with_a_hole.py").write_text("import a_library_that_is_missing\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(InvalidTeam, match="'mine_with_a_hole' needs a module that is not there: 'a_library_that_is_missing'"):
        load_team("mine_with_a_hole:team")


def test_a_module_that_cannot_be_imported_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_with_a_slip.py").write_text("team = = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(InvalidTeam, match="'mine_with_a_slip' cannot be imported: SyntaxError"):
        load_team("mine_with_a_slip:team")


def test_a_misspelt_key_of_a_step_is_refused_and_the_right_one_is_named() -> None:
    step = {"agent": "box", "title": "Box", "task": "Do it.", "max_atempts": 9}

    with pytest.raises(InvalidTeam, match=r"steps\.0\.max_atempts: a step has no 'max_atempts'; did you mean 'max_attempts'"):
        Team("t", [BlackBox("box", lambda brief: "done")], [step])


def test_loading_a_team_does_not_load_the_model_library() -> None:
    code = "import sys; from workers.team import load_team; load_team('bitmall'); sys.exit('pydantic_ai' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_an_agents_clearance_stands_on_its_card_and_in_its_version() -> None:
    restricted = Team("t", [BlackBox("a", print, clearance=Sensitivity.RESTRICTED)], STEPS)
    assert restricted.card.agents["a"].clearance is Sensitivity.RESTRICTED
    assert restricted.card.version != Team("t", [BlackBox("a", print)], STEPS).card.version
    cleared = Team("t", [Specialist("a", "p", clearance=Sensitivity.PUBLIC)], STEPS, model=replies(Say("")))
    assert cleared.card.agents["a"].clearance is Sensitivity.PUBLIC

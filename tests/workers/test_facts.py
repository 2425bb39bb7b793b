"""Fact rules: what becomes a fact, what never does, and what is refused when a team loads."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field

from schemas.errors import InvalidTeam
from schemas.facts import Sensitivity, Zone
from schemas.results import Failure, FailureCode
from workers.agents.tools import Tool, ToolObservation
from workers.facts import ExtractedFacts, FactRule, FactRules, value_at


def nothing() -> dict[str, Any]:
    """Return an empty object."""
    return {}


def observed(returned: Any, *, tool: str = "look", call: int = 1, error: str | None = None) -> ToolObservation:
    """A call of a tool that returned this."""
    return ToolObservation(tool, {}, returned, f"call-{call}", call, error)


def extracted(rules: FactRules, *observations: ToolObservation, **options: Any) -> ExtractedFacts:
    """What the rules make of these calls."""
    found = rules.extract(observations, step="s", tools=options.pop("tools", {}), **options)
    assert isinstance(found, ExtractedFacts)
    return found


def values(found: ExtractedFacts) -> dict[str, Any]:
    """Key -> value."""
    return {fact.key: fact.value for fact in found.facts}


RULES = FactRules.of(("look", "a.b.0.c", "deep"), ("look", "n", "n"))


def test_dotted_paths_reach_through_objects_and_lists_and_values_keep_their_type() -> None:
    found = extracted(RULES, observed({"a": {"b": [{"c": True}]}, "n": 1999}))

    assert values(found) == {"deep": True, "n": 1999}
    assert [type(fact.value) for fact in found.facts] == [bool, int]


@pytest.mark.parametrize("path", ["a.9.c", "a.x", "a.-1", "x.y.z", "n.0", "a.b.0"])
def test_a_path_that_leads_nowhere_gives_nothing(path: str) -> None:
    assert value_at({"a": [{"c": 1}], "n": "text"}, path) is None


@pytest.mark.parametrize("value", ["", "  \n", None, [], {}, ["x"], {"x": 1}])
def test_blank_and_composite_values_give_no_fact(value: object) -> None:
    assert extracted(RULES, observed({"n": value})).facts == ()


@pytest.mark.parametrize("value", [0, False, 0.0])
def test_zero_and_false_are_values(value: object) -> None:
    assert values(extracted(RULES, observed({"n": value}))) == {"n": value}


@pytest.mark.parametrize("returned", ["n", ["n"], 5, [{"n": 1}]])
def test_a_return_that_is_no_object_gives_no_fact(returned: object) -> None:
    assert extracted(RULES, observed(returned)).facts == ()


def test_trap_T05_a_return_with_an_error_gives_no_fact_however_plausible_its_fields() -> None:
    assert extracted(RULES, observed({"n": 1999, "error": "not this order"})).facts == ()
    assert extracted(RULES, observed({"n": 1999}, error="ValueError: broken")).facts == ()
    assert values(extracted(RULES, observed({"n": 1999, "error": None}))) == {"n": 1999}


def test_trap_T06_a_corrected_call_wins_and_the_replaced_value_is_kept_as_superseded() -> None:
    found = extracted(RULES, observed({"n": 1}, call=1), observed({"n": 2}, call=2))

    assert values(found) == {"n": 2}
    assert [(fact.value, fact.provenance.call_id) for fact in found.superseded] == [(1, "call-1")]


def test_an_equal_value_supersedes_nothing_but_another_type_does() -> None:
    assert extracted(RULES, observed({"n": 1}), observed({"n": 1}, call=2)).superseded == ()
    assert [fact.value for fact in extracted(RULES, observed({"n": True}), observed({"n": 1}, call=2)).superseded] == [True]


def test_a_rule_may_keep_the_first_or_demand_the_same() -> None:
    first = FactRules.of(FactRule("look", "n", "n", keep="first"))
    same = FactRules.of(FactRule("look", "n", "n", keep="same"))
    two = (observed({"n": 1}), observed({"n": 2}, call=2))

    kept = extracted(first, *two)
    assert (values(kept), [fact.value for fact in kept.superseded]) == ({"n": 1}, [2])
    failure = same.extract(two, step="s", tools={})
    assert isinstance(failure, Failure) and failure.code == FailureCode.FACTS_DIFFER and "n must" in failure.description
    assert values(extracted(same, observed({"n": 1}), observed({"n": 1}, call=2))) == {"n": 1}


def test_a_fact_says_where_it_comes_from() -> None:
    moment = datetime(2026, 7, 20, tzinfo=UTC)
    tools = {"look": Tool("look", nothing, zone=Zone.EXTERNAL, source="page.url")}
    rules = FactRules.of(FactRule("look", "n", "n", unit="CNY"))
    fact = extracted(rules, observed({"n": 1, "page": {"url": "https://example.org"}}), tools=tools, now=lambda: moment).facts[0]

    source = fact.provenance
    assert (source.step, source.tool, source.call_id, source.path) == ("s", "look", "call-1", "n")
    assert (source.source_ref, source.zone, source.observed_at, source.rules_version) == (
        "https://example.org",
        Zone.EXTERNAL,
        moment,
        rules.version,
    )
    assert fact.unit == "CNY"


def test_facts_come_in_the_order_of_the_rules() -> None:
    found = extracted(FactRules.of(("b", "x", "first"), ("a", "x", "second")), observed({"x": 1}, tool="a"), observed({"x": 2}, tool="b"))

    assert [fact.key for fact in found.facts] == ["first", "second"]


def test_the_version_of_a_table_changes_with_its_rules() -> None:
    assert FactRules.of(("a", "b", "c")).version == FactRules.of(("a", "b", "c")).version != FactRules.of(("a", "b", "d")).version


def test_two_rules_for_one_key_are_refused() -> None:
    with pytest.raises(InvalidTeam, match="two rules") as refused:
        FactRules.of(("a", "x", "key"), ("b", "y", "key"))
    assert refused.value.path == "rules.1.key"


class Part(BaseModel):
    """A part."""

    name: str
    tags: dict[str, int] = {}


class Output(BaseModel):
    """An output with every kind of nesting."""

    parts: list[Part] | None = None
    pair: tuple[int, str] = (1, "")
    either: Part | int = 0
    price: int | None = None
    anything: Any = None
    renamed: str = Field(default="", serialization_alias="otherName")


def look_up() -> Output:
    """Look up."""
    return Output()


@pytest.mark.parametrize("path", ["parts.0.name", "parts.7.tags.any", "pair.1", "either.name", "price", "anything.x.0.y", "otherName"])
def test_a_path_that_the_declared_output_can_have_is_taken(path: str) -> None:
    FactRules.of(("look", path, "k")).check({"look": Tool("look", look_up)})


@pytest.mark.parametrize(
    "path", ["parts.0.nmae", "parts.name", "parts", "parts.0", "pair.2", "pair.x", "either.nmae", "price.x", "renamed", "nothing"]
)
def test_trap_T08_a_path_that_the_declared_output_cannot_have_is_refused_when_the_team_loads(path: str) -> None:
    with pytest.raises(InvalidTeam) as refused:
        FactRules.of(("look", "price", "p"), ("look", path, "k")).check({"look": Tool("look", look_up)})
    assert refused.value.path == "rules.1.path"


def test_a_rule_for_a_tool_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidTeam, match="no tool 'lok'"):
        FactRules.of(("lok", "price", "p")).check({"look": Tool("look", look_up)})


def test_without_a_declared_output_any_path_is_taken() -> None:
    FactRules.of(("look", "what.ever.0", "k")).check({"look": Tool("look", nothing)})


def test_a_rule_says_what_a_value_counts_how_long_it_holds_and_what_it_may_be_used_for() -> None:
    rule = FactRule(
        "look",
        "n",
        "n",
        unit="CNY",
        basis="per night",
        ttl_seconds=90,
        confidence=0.7,
        sensitivity=Sensitivity.RESTRICTED,
        allowed_use=("quote",),
        forbidden_use=("train",),
    )
    now = datetime(2026, 3, 1, tzinfo=UTC)
    found = FactRules.of(rule).extract([observed({"n": 1})], step="s", tools={}, now=lambda: now)
    assert isinstance(found, ExtractedFacts)
    (fact,) = found.facts
    assert (fact.basis, fact.confidence, fact.expires_at) == ("per night", 0.7, now + timedelta(seconds=90))
    assert (fact.sensitivity, fact.allowed_use, fact.forbidden_use) == (Sensitivity.RESTRICTED, ("quote",), ("train",))
    assert FactRules.of(rule).version != FactRules.of(replace(rule, ttl_seconds=91)).version


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        (FactRule("look", "n", "n", confidence=1.5), "rules.0.confidence"),
        (FactRule("look", "n", "n", ttl_seconds=0), "rules.0.ttl_seconds"),
    ],
)
def test_a_rule_with_an_impossible_confidence_or_time_is_refused_by_path(wrong: FactRule, path: str) -> None:
    with pytest.raises(InvalidTeam) as refused:
        FactRules.of(wrong)
    assert refused.value.path == path

"""Plans: the one gate that refuses what could not be carried out, and the graph functions over steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.agents import AgentCard
from schemas.errors import InvalidPlan, InvalidValue, LimitExceeded
from schemas.frozen import validated
from schemas.limits import MAX_STEPS
from schemas.plans import (
    Need,
    Step,
    ancestors,
    dependents,
    descendants,
    facts_of,
    inputs_of,
    needs_of,
    parse_need,
    validate,
)

AGENTS = {
    "orders": AgentCard(
        name="orders", tools=("find_order", "find_return"), facts={"order.id": ("find_order",), "refund": ("find_return", "find_order")}
    ),
    "devices": AgentCard(name="devices", tools=("find_device",), facts={"model": ("find_device",)}),
    "blackbox": AgentCard(name="blackbox"),
    "giver": AgentCard(name="giver", facts={"verdict": ()}),
}


def step(name: str, agent: str = "orders", **given: Any) -> Step:
    return Step(id=name, title=f"Part {name}", agent=agent, task="Do it.", **given)


def refused(*steps: Step, known: dict[str, Step] | None = None) -> InvalidPlan:
    with pytest.raises(InvalidPlan) as found:
        validate(steps, AGENTS, known=known)
    assert str(found.value).startswith(f"{found.value.path}: ")
    return found.value


# --- the gate -------------------------------------------------------------------------------------------------------


def test_a_sound_plan_passes_in_any_order_of_its_steps() -> None:
    plan = (
        step("end", depends_on=("mid",), needs=("mid.model", "first.order.id", "first.*?"), expects=("refund",), tools=("find_return",)),
        step("mid", "devices", depends_on=("first",)),
        step("first", expects=("order.id",)),
    )
    validate(plan, AGENTS)
    validate(plan[::-1], AGENTS)


def test_a_circle_is_refused_with_the_steps_in_their_order() -> None:
    error = refused(step("a", depends_on=("c",)), step("b", depends_on=("a",)), step("c", depends_on=("b",)))
    assert error.path == "steps"
    shown = str(error).partition("circle: ")[2].split(" -> ")
    assert shown[0] == shown[-1]
    assert set(shown) == {"a", "b", "c"}
    waits_for = {"a": "c", "b": "a", "c": "b"}
    assert all(waits_for[one] == other for one, other in pairwise(shown))


def test_a_step_that_waits_for_itself_is_a_circle() -> None:
    assert "circle: a -> a" in str(refused(step("a", depends_on=("a",))))


@pytest.mark.parametrize(
    ("steps", "path", "said"),
    [
        ((), "steps", "at least one step"),
        ((step("a"), step("b"), step("a")), "steps.2.id", "'a' is used twice"),
        ((step("a"), step("b", "nobody")), "steps.1.agent", "no agent 'nobody'; there are: blackbox, devices, giver, orders"),
        ((step("a"), step("b", depends_on=("a", "x"))), "steps.1.depends_on.1", "no step 'x'; there are: a, b"),
        ((step("a", tools=("find_order", "delete_all")),), "steps.0.tools", "no tool 'delete_all'; there are: find_order, find_return"),
        ((step("a", expects=("order.id", "price")),), "steps.0.expects", "produces fact 'price'; there are: order.id, refund"),
        ((step("a", tools=("find_return",), expects=("order.id",)),), "steps.0.expects", "produces fact 'order.id'; there are: refund"),
        ((step("a", tools=(), expects=("refund",)),), "steps.0.expects", "produces fact 'refund'"),
        ((step("a"), step("b", needs=("a.refund",))), "steps.1.needs.0", "'a' is no step that 'b' depends on"),
        ((step("a"), step("b", depends_on=("a",), needs=("a.*", "b.refund"))), "steps.1.needs.1", "'b' is no step that 'b' depends on"),
        ((step("a"), step("b", depends_on=("a",), needs=("x.y",))), "steps.1.needs.0", "'x' is no step"),
        ((step("a"), step("b", depends_on=("a",), needs=("a.price?",))), "steps.1.needs.0", "produces fact 'price'; there are: order.id"),
        ((step("a", "blackbox"), step("b", depends_on=("a",), needs=("a.x",))), "steps.1.needs.0", "'blackbox' of step 'a' declares no"),
        ((step("a", "blackbox"), step("b", depends_on=("a",), needs=("a.*?",))), "steps.1.needs.0", "'blackbox' of step 'a' declares no"),
        ((step("a", "blackbox"), step("b", depends_on=("a",))), "steps.1.depends_on.0", "or write needs=() to depend on the order alone"),
        ((step("a", tools=()), step("b", depends_on=("a",))), "steps.1.depends_on.0", "declares no facts"),
        ((step("a"), step("b", depends_on=("a",), needs=("a",))), "steps.1.needs.0", "a need has the form"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_could_not_be_carried_out_is_refused_by_path(steps: tuple[Step, ...], path: str, said: str) -> None:
    error = refused(*steps)
    assert error.path == path
    assert said in str(error)


def test_a_sibling_is_no_ancestor_and_neither_is_a_descendant() -> None:
    plan = (step("a"), step("b", depends_on=("a",)), step("c", depends_on=("a",), needs=("b.refund",)), step("d", depends_on=("c",)))
    assert refused(*plan).path == "steps.2.needs.0"
    assert refused(step("a", needs=("b.refund",)), step("b", depends_on=("a",))).path == "steps.0.needs.0"


def test_a_black_box_may_stand_above_when_nothing_has_to_cross_or_it_declares_its_facts() -> None:
    validate((step("a", "blackbox"), step("b", depends_on=("a",), needs=())), AGENTS)
    validate((step("a", "giver", tools=()), step("b", depends_on=("a",), needs=("a.verdict",))), AGENTS)
    assert facts_of(step("a", "giver", tools=()), AGENTS["giver"]) == {"verdict"}


def test_the_tools_of_a_step_narrow_what_it_can_produce() -> None:
    assert facts_of(step("a"), AGENTS["orders"]) == {"order.id", "refund"}
    assert facts_of(step("a", tools=("find_return",)), AGENTS["orders"]) == {"refund"}
    assert facts_of(step("a", tools=()), AGENTS["orders"]) == frozenset()


def test_a_plan_has_a_limit_of_steps_that_counts_those_already_there() -> None:
    steps = tuple(step(f"s{index}") for index in range(MAX_STEPS))
    validate(steps, AGENTS)
    with pytest.raises(LimitExceeded, match="the plan has 501 steps, the limit is 500"):
        validate((*steps, step("more")), AGENTS)
    with pytest.raises(LimitExceeded, match="501 steps"):
        validate((step("more"),), AGENTS, known={each.id: each for each in steps})


def test_further_steps_may_build_on_known_ones_and_may_not_take_their_place() -> None:
    known = {"first": step("first"), "box": step("box", "blackbox")}
    validate((step("next", depends_on=("first", "box"), needs=("first.refund",)),), AGENTS, known=known)
    validate((), AGENTS, known=known)
    assert refused(step("first"), known=known).path == "steps.0.id"
    assert refused(step("next", depends_on=("gone",)), known=known).path == "steps.0.depends_on.0"
    assert refused(step("next", depends_on=("box",)), known=known).path == "steps.0.depends_on.0"


def test_the_path_begins_where_the_caller_says() -> None:
    with pytest.raises(InvalidPlan) as found:
        validate((step("a", "nobody"),), AGENTS, path="result.steps")
    assert found.value.path == "result.steps.0.agent"


# --- steps and needs -------------------------------------------------------------------------------------------------


def test_the_id_of_a_step_defaults_to_its_agent() -> None:
    made = validated(Step, {"agent": "orders", "title": "Orders", "task": "Do it."})
    assert made.id == "orders"
    assert Step.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("id", "a.b"),
        ("agent", "a/b"),
        ("title", ""),
        ("title", "x" * 201),
        ("task", ""),
        ("depends_on", ["a b"]),
        ("timeout_seconds", 0),
        ("timeout_seconds", float("inf")),
        ("max_attempts", 0),
        ("max_attempts", 101),
        ("budget", {"tokens": 0}),
    ],
)
def test_a_step_that_makes_no_sense_is_refused_by_path(field: str, bad: object) -> None:
    with pytest.raises(InvalidValue) as found:
        validated(Step, {"id": "a", "agent": "orders", "title": "T", "task": "t", field: bad})
    assert found.value.path.startswith(field)


@pytest.mark.parametrize(
    ("text", "need"),
    [
        ("a.b", Need("a", "b", False)),
        ("a.*", Need("a", "*", False)),
        ("a.b?", Need("a", "b", True)),
        ("a.*?", Need("a", "*", True)),
        ("a.order.id", Need("a", "order.id", False)),
        ("a.订单?", Need("a", "订单", True)),
    ],
)
def test_a_need_is_read_and_written_the_same(text: str, need: Need) -> None:
    assert parse_need(text) == need
    assert str(need) == text


@pytest.mark.parametrize("text", ["", ".", "a", "a.", ".b", "?", "a?", "a.?"])
def test_what_is_no_need_is_refused(text: str) -> None:
    with pytest.raises(InvalidPlan, match="a need has the form") as found:
        parse_need(text, path="steps.0.needs.1")
    assert found.value.path == "steps.0.needs.1"


# --- the graph, on random plans --------------------------------------------------------------------------------------


@st.composite
def plans(draw: Callable[[Any], Any]) -> list[Step]:
    """A DAG of up to ten steps, listed in any order; needs name some ancestors."""
    count = draw(st.integers(1, 10))
    above: dict[str, set[str]] = {}
    steps = []
    for index in range(count):
        name = f"s{index}"
        parents = draw(st.lists(st.sampled_from(sorted(above)), max_size=3)) if above else []  # a parent may be named twice
        above[name] = set(parents).union(*(above[parent] for parent in parents))
        wanted = st.lists(st.sampled_from(sorted(above[name])), max_size=3) if above[name] else st.just([])
        needs = draw(st.none() | wanted.map(lambda names: tuple(f"{each}.refund" for each in names)))
        steps.append(step(name, depends_on=tuple(parents), needs=needs))
    return list(draw(st.permutations(steps)))


def reachable(start: str, edges: dict[str, set[str]]) -> set[str]:
    """The slow, obvious way: every end of every path of at least one edge."""
    return {end for child in edges[start] for end in {child} | reachable(child, edges)}


@given(plans())
def test_a_random_dag_is_a_valid_plan(steps: list[Step]) -> None:
    validate(steps, AGENTS)


@given(plans(), st.randoms())
def test_a_random_dag_with_one_edge_back_is_a_circle(steps: list[Step], random: Any) -> None:
    end = random.choice(steps)
    start = random.choice(sorted({end.id, *ancestors(end.id, {each.id: each for each in steps})}))
    looped = [each.model_copy(update={"depends_on": (*each.depends_on, end.id)}) if each.id == start else each for each in steps]
    assert "circle" in str(refused(*looped))


@given(plans())
def test_ancestors_and_descendants_are_what_paths_lead_to(steps: list[Step]) -> None:
    every = {each.id: each for each in steps}
    up = {each.id: set(each.depends_on) for each in steps}
    down = {name: {other for other in up if name in up[other]} for name in up}
    for name in every:
        assert ancestors(name, every) == reachable(name, up)
        assert descendants([name], steps) == reachable(name, down)
    assert descendants(every, steps) == {name for name in every if up[name]}
    assert descendants([], steps) == frozenset()


@given(plans())
def test_dependents_are_the_edges_turned_round_each_once(steps: list[Step]) -> None:
    found = dependents(steps)
    assert set(found) == {each.id for each in steps}
    pairs = [(child, parent) for parent, children in found.items() for child in children]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {(each.id, parent) for each in steps for parent in each.depends_on}


@given(plans())
def test_inputs_are_what_a_step_waits_for_and_reads_each_once(steps: list[Step]) -> None:
    every = {each.id: each for each in steps}
    for each in steps:
        inputs = inputs_of(each)
        assert len(inputs) == len(set(inputs))
        assert set(inputs) == set(each.depends_on) | {need.step for need in needs_of(each)}
        assert set(inputs) <= ancestors(each.id, every)
        assert inputs[: len(set(each.depends_on))] == tuple(dict.fromkeys(each.depends_on))


@given(plans())
def test_without_needs_everything_crosses_and_with_needs_only_what_they_list(steps: list[Step]) -> None:
    for each in steps:
        if each.needs is None:
            assert needs_of(each) == tuple(Need(parent, "*", optional=True) for parent in each.depends_on)
        else:
            assert tuple(map(str, needs_of(each))) == each.needs

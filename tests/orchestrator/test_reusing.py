"""What a fork takes over of its source, and what it does not take on trust."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.advancing import advance
from orchestrator.causes import Submitted
from orchestrator.decisions import Change, Decision
from orchestrator.views import View
from schemas import fields
from schemas.blackboard import ABSENT, Snapshot, Stored
from schemas.requests import ForkedFrom, RequestRecord, Reused, StepRecord, StepState
from tests.orchestrator.building import RETENTION_SECONDS, Request, result, step

STEPS = (step("a"), step("b", "a"), step("c", "b"))


def source() -> Request:
    """Three steps, two of them completed."""
    return Request(STEPS, id="s-1").planned().completed("a").completed("b").running("c")


def fork(of: Request, *reused: str) -> Request:
    """A fork at the last step, as the orchestrator leaves it after it has written the plan."""
    made = Request(STEPS, id="f-1").opened()
    record = RequestRecord.from_json(made.stored[fields.REQUEST].value)
    origin = ForkedFrom(request=of.id, position=of.position, step="c", reused=reused or ("a", "b"))
    made.put({fields.REQUEST: record.model_copy(update={"forked_from": origin})})
    written = made.change(Submitted()).put
    made.position += 1
    made.stored |= {name: Stored(value, f"1.{made.position:06d}", made.position, made.now_ms) for name, value in written.items()}
    return made


def asked(made: Request, of: Request) -> tuple[Decision, View]:
    """What is decided once everything that is asked for was read, of the fork and of its source."""
    view = made.view()
    while True:
        decision = advance(view, Submitted(), retention_seconds=RETENTION_SECONDS)
        if decision.read_more:
            more = {name: made.stored[name] for name in decision.read_more if name in made.stored}
            view = view.joined(Snapshot(made.id, more, made.now_ms, made.position, {}, frozenset(decision.read_more)))
            continue
        if not decision.read_source:
            return decision, view
        names = decision.read_source
        found = {name: of.stored[name] for name in names if name in of.stored}
        view = view.with_source(Snapshot(of.id, found, of.now_ms, of.position, {}, frozenset(names)))


def change(made: Request, of: Request) -> Change:
    """The write that follows."""
    decision, _ = asked(made, of)
    assert decision.change is not None
    return decision.change


def test_the_plan_of_a_fork_is_written_while_it_stays_accepted() -> None:
    made = fork(source())
    assert made.view().status.status == "ACCEPTED"
    assert made.view().plan is not None


def test_the_first_reused_step_is_one_write_that_expects_all_it_was_decided_on() -> None:
    of = source()
    made = fork(of)
    written = change(made, of)
    assert (written.event, dict(written.details)) == ("step_reused", {"step": "a", "from": f"s-1@{of.stored[fields.step('a')].position}"})
    assert written.put[fields.result("a")] == of.stored[fields.result("a")].value
    record = StepRecord.from_json(written.put[fields.step("a")])
    assert (record.state, record.attempt) == (StepState.COMPLETED, 0)
    assert record.reused == Reused(request="s-1", position=of.stored[fields.step("a")].position)
    assert written.expect == {
        fields.PLAN: made.version(fields.PLAN),
        fields.STATUS: made.version(fields.STATUS),
        fields.step("a"): made.version(fields.step("a")),
        fields.result("a"): ABSENT,
    }


def test_a_step_is_reused_on_top_of_reused_ones_and_expects_them() -> None:
    of = source()
    made = fork(of).completed("a", reused=Reused(request="s-1", position=3))
    written = change(made, of)
    assert written.details["step"] == "b"
    assert written.expect[fields.step("a")] == made.version(fields.step("a"))


def test_a_fork_that_has_everything_begins_and_rings_afterwards() -> None:
    of = source()
    origin = Reused(request="s-1", position=3)
    made = fork(of).completed("a", reused=origin).completed("b", reused=origin)
    written = change(made, of)
    assert (written.event, dict(written.details)) == ("fork_begun", {"reused": "2"})
    assert written.put.keys() == {fields.STATUS}
    assert {fields.PLAN, fields.STATUS, *map(fields.step, "abc")} == written.expect.keys()


def _gone(of: Request) -> None:
    of.stored.clear()


def _runs_again(of: Request) -> None:
    of.running("a")


def _without_result(of: Request) -> None:
    del of.stored[fields.result("a")]


def _of_another_step(of: Request) -> None:
    of.put({fields.result("a"): result("b")})


def _defined_otherwise(of: Request) -> None:
    of.put({fields.definition("a"): step("a", tools=("look",))})


def _unreadable(of: Request) -> None:
    stored = of.stored[fields.result("a")]
    of.stored[fields.result("a")] = Stored(b"{", stored.version, stored.position, stored.at_ms)


def _committed_later(of: Request) -> None:
    of.completed("a")


@pytest.mark.parametrize(
    "spoil", [_gone, _runs_again, _without_result, _of_another_step, _defined_otherwise, _unreadable, _committed_later]
)
def test_what_the_source_does_not_have_as_it_was_runs_anew_with_what_is_below_it(spoil: Callable[[Request], None]) -> None:
    of = source()
    made = fork(of)
    spoil(of)
    written = change(made, of)
    assert (written.event, dict(written.details)) == ("fork_begun", {"reused": "0", "run_anew": "a, b"})


def test_a_list_that_leaves_out_what_a_step_rests_on_reuses_nothing_of_it() -> None:
    of = source()
    assert change(fork(of, "b"), of).details == {"reused": "0", "run_anew": "b"}

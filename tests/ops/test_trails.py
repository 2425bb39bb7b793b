"""Trails: what a value rests on, and what rests on it, read off one request and off no other."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ops import trails
from ops.boundary_tables import trail_tree
from ops.embedded import embedded
from ops.rendering import console
from ops.reporting import Report
from schemas.errors import NotFound
from workers.teams.negotiation.demo import REQUESTS
from workers.teams.negotiation.team import make_team


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def report() -> AsyncIterator[Report]:
    """An offer that was made and said."""
    async with embedded(make_team()) as runtime:
        yield await runtime.ask(REQUESTS[0])


def _table(report: Report) -> str:
    return next(str(fact.value) for step_, fact in report.facts if (step_, fact.key) == ("profile", "evidenceTable"))


@pytest.mark.asyncio(loop_scope="module")
async def test_evidence_comes_before_what_was_merely_read_and_each_thing_stands_once(report: Report) -> None:
    trail = trails.basis(report, "committed_offers")
    assert [(each.name, each.how) for each in trail.next[:2]] == [("review.review_opinion", "evidence"), ("field/offer", "evidence")]
    names = list(trail.names())
    assert len(names) == len(set(names)) and names[0] == "field/committed_offers"
    assert {each.how for each in trail.next[2:]} == {"read"}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_fact_ends_at_its_call_and_a_finding_at_the_rows_that_it_names(report: Report) -> None:
    fact = trails.basis(report, "identity.identityStatus")
    assert [(each.how, each.name.partition("(")[0]) for each in fact.next] == [("copied from", "verifyIdentity")]
    finding = trails.basis(report, "profile.proposal_limit")
    rows = [each for each in finding.next if each.how == "evidence"]
    assert [each.name for each in rows] == [f"{_table(report)}#r12", f"{_table(report)}#r18"]
    assert [each.how for each in rows[0].next] == ["part of"] and "账户表" in rows[0].told


@pytest.mark.asyncio(loop_scope="module")
async def test_an_artifact_stands_for_every_place_in_it(report: Report) -> None:
    whole = set(trails.touched(report, _table(report)).names())
    assert set(trails.touched(report, f"{_table(report)}#r18").names()) - {f"{_table(report)}#r18"} <= whole
    assert {"profile.evidenceTable", "field/committed_offers"} <= whole


@pytest.mark.asyncio(loop_scope="module")
async def test_what_the_request_does_not_have_is_refused_with_what_it_has(report: Report) -> None:
    with pytest.raises(NotFound, match=r"nothing called 'offers'; there are: .*field/offer"):
        trails.basis(report, "offers")
    with pytest.raises(NotFound):
        trails.touched(report, "art_0")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_trail_is_printed_with_what_is_known_of_each_thing(report: Report) -> None:
    shown = console()
    with shown.capture() as captured:
        shown.print(trail_tree(trails.basis(report, "offer"), "rests on"))
    assert "field/offer" in captured.get() and "'communicated'" in captured.get() and "copied from" in captured.get()
    assert trails.basis(report, "offer").as_json()["name"] == "field/offer"


async def test_values_that_rest_on_each_other_make_no_endless_trail() -> None:
    """The second draft had read the verdict on the first, and the verdict rests on the draft."""
    async with embedded(make_team(scenario="promising")) as runtime:
        report = await runtime.ask(REQUESTS[0])
    for name in ("offer", "compliance_verdict"):
        names = list(trails.basis(report, name).names())
        assert {"field/offer", "field/compliance_verdict"} <= set(names) and len(names) == len(set(names))


def test_the_demo_of_the_negotiation_tells_both_turns_and_what_waits_for_a_person() -> None:
    command = [sys.executable, "-m", "ops", "demo", "--team", "negotiation", "--json"]
    done = subprocess.run(command, capture_output=True, check=True)
    first, second = json.loads(done.stdout)["requests"]
    assert (first["session"]["turn"], second["session"]["turn"]) == (1, 2)
    assert "每月还款 500 元" in first["answer"] and "desk" not in first
    assert "400" not in second["answer"] and [each["item"] for each in second["desk"]] == ["action:send.handover"]

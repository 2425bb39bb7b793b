"""The bar: which rows there are, what they come to, and when they are met."""

from __future__ import annotations

import pytest

from ops.bench.bar import MEASURES, Row, measured
from ops.bench.contenders import CONTENDERS
from tests.ops.bench.samples import figures, whole


def _by_key(rows: list[Row]) -> dict[str, Row]:
    return {row.key: row for row in rows}


def test_a_whole_run_measures_every_row() -> None:
    rows = measured(whole(), {"killed_worker_seconds": [4.0], "broker_back_seconds": [1.0], "help_wall": [0.3]})
    assert [row.key for row in rows if row.value is None] == []
    assert len(_by_key(rows)) == len(rows) == 18


def test_every_row_is_about_contenders_and_cases_that_there_are() -> None:
    for key in set(_by_key(measured({}))) - set(MEASURES):
        _, case, ours, theirs = key.split("_")
        assert case in CONTENDERS[ours].cases
        assert case in CONTENDERS[theirs].cases


def test_a_row_that_was_not_measured_is_neither_met_nor_missed() -> None:
    rows = _by_key(measured({"chain": {"briefline": [figures()]}}))
    assert rows["cpu_chain_briefline_celery"].as_json() | {"title": ""} == {
        "title": "", "value": None, "bar": 0.45, "at_most": True, "met": None, "values": [],
    }  # fmt: skip
    assert rows["killed_worker_seconds"].met is None
    assert rows["worker_rss_mib"].value == 50.0


def test_the_median_of_the_rounds_is_held_against_the_bar() -> None:
    ours = [figures(cpu_ms=4.0, rate=300.0), figures(cpu_ms=4.0, rate=100.0), figures(cpu_ms=9.0, rate=230.0)]
    rows = _by_key(measured({"chain": {"briefline": ours, "celery": 3 * [figures(cpu_ms=10.0, rate=100.0)]}}))
    cpu, rate = rows["cpu_chain_briefline_celery"], rows["rate_chain_briefline_celery"]
    assert cpu.value == pytest.approx(0.4)
    assert rate.value == pytest.approx(2.3)
    assert cpu.met
    assert rate.met


@pytest.mark.parametrize(("value", "at_most", "met"), [(0.5, True, True), (0.51, True, False), (0.5, False, True), (0.49, False, False)])
def test_exactly_the_bar_is_enough(value: float, at_most: bool, met: bool) -> None:
    assert Row("key", "title", 0.5, at_most, (value,)).met is met


def test_where_seconds_are_promised_each_time_the_worst_counts() -> None:
    row = _by_key(measured({}, {"killed_worker_seconds": [4.0, 6.5, 4.1]}))["killed_worker_seconds"]
    assert (row.value, row.met) == (6.5, False)

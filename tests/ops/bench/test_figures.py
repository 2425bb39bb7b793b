"""The plain statistics of the bench."""

from __future__ import annotations

import orjson
import pytest

from ops.bench.figures import figures_of, median_of, percentile, ratios
from tests.ops.bench.samples import figures


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([7.0], 50, 7.0),
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([1.0, 2.0, 3.0, 4.0], 50, 2.0),
        (list(map(float, range(1, 101))), 99, 99.0),
        ([1.0, 9.0], 99, 9.0),
    ],
)
def test_a_percentile_is_the_value_of_the_nearest_rank(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_cpu_counts_all_processes_and_is_told_for_one_request() -> None:
    found = figures(cpu_ms=8.0)
    assert found.cpu_ms_per_request == pytest.approx(8.0)
    assert found.share_ms("workers") == pytest.approx(6.0)
    assert found.share_ms("redis") == 0.0


def test_a_ratio_is_taken_within_each_round_so_that_a_slow_round_slows_both() -> None:
    ours = [figures(rate=200.0), figures(rate=20.0), figures(rate=240.0)]
    theirs = [figures(rate=100.0), figures(rate=10.0), figures(rate=80.0)]
    assert ratios(ours, theirs, lambda each: each.requests_per_second) == pytest.approx([2.0, 2.0, 3.0])
    assert median_of(ours, lambda each: each.requests_per_second) == pytest.approx(200.0)


def test_rounds_that_do_not_pair_up_are_refused() -> None:
    with pytest.raises(ValueError, match="longer"):
        ratios([figures(), figures()], [figures(), figures(), figures()], lambda each: each.seconds)


def test_figures_survive_the_way_from_one_process_to_the_other() -> None:
    found = figures()
    assert figures_of(orjson.loads(orjson.dumps(found.as_json()))) == found

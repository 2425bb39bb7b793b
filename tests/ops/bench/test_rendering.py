"""Tables, page, picture and JSON of a run."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import orjson

from ops.bench.bar import measured
from ops.bench.contenders import CONTENDERS
from ops.bench.page import page
from ops.bench.picture import picture
from ops.bench.rendering import as_json, bar_table, cases_table, ratios_table, table
from tests.ops.bench.samples import CONDITIONS, figures, whole


def test_every_line_of_a_table_has_a_cell_for_each_heading() -> None:
    rounds = whole()
    for text in (cases_table(rounds), ratios_table(rounds), bar_table(measured(rounds))):
        for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
            assert len({line.count("|") for line in block.splitlines()}) == 1, block
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_ours_is_held_beside_those_that_run_as_it_does() -> None:
    told = ratios_table(whole())
    assert "| chain: briefline / celery | 0.50 | 2.00 | 0.50 | 0.50 | 0.50 | 0.50 | 1.00 |" in told
    assert "| diamond: embedded / autogen | 0.50 | 2.00 |" in told
    assert "briefline / langgraph" not in told
    assert "facts" not in told  # nobody else runs it


def test_the_table_of_the_bar_leaves_out_what_was_not_measured_and_says_what_is_missed() -> None:
    rounds = {"chain": {"briefline": [figures(rss_mib=81.0)], "celery": [figures()]}}
    told = bar_table(measured(rounds))
    assert "| largest worker process, no-op agents | 81.00 MiB |  | ≤ 80 MiB | no |" in told
    assert "dramatiq" not in told


def test_the_json_has_a_key_for_each_row_and_an_entry_for_each_contender_in_each_case() -> None:
    rounds = whole()
    rows = measured(rounds)
    read = orjson.loads(orjson.dumps(as_json(rows, rounds, CONDITIONS)))
    assert list(read["ratios"]) == [row.key for row in rows]
    assert read["ratios"]["cpu_chain_briefline_celery"] | {"values": 0, "title": ""} == {
        "title": "", "value": 0.5, "bar": 0.45, "at_most": True, "met": False, "values": 0,
    }  # fmt: skip
    assert {(each["case"], each["contender"]) for each in read["cases"]} == {
        (case, name) for case, found in rounds.items() for name in found
    }
    assert len(read["cases"][0]["rounds"]) == 3
    assert read["run"]["pairs"] == 3


def test_the_page_names_every_contender_and_says_when_others_took_too_much() -> None:
    rounds = whole()
    quiet = page(measured(rounds), rounds, CONDITIONS)
    for each in CONTENDERS.values():
        assert each.title in quiet
        assert each.settings in quiet
    assert "too much" not in quiet
    assert "0.70: too much for figures to be quoted" in page(measured(rounds), rounds, replace(CONDITIONS, foreign_cores=0.7))


def test_the_picture_shows_each_ratio_as_a_bar_and_in_words_and_reads_in_the_dark() -> None:
    drawn = picture(whole())
    root = ElementTree.fromstring(drawn)
    bars = [each for each in root.iter("{http://www.w3.org/2000/svg}rect") if each.get("rx") == "2"]
    assert len(bars) == 2 * len(CONTENDERS)
    assert "prefers-color-scheme: dark" in drawn
    assert "Briefline 0.50 and 0.50" in drawn
    right = max(float(each.get("x", "0")) + float(each.get("width", "0")) for each in bars)
    assert right <= float(root.get("viewBox", "").split()[2])

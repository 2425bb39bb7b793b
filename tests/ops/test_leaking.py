"""Words of one text in another: found by content, whatever lies between them, and never across two things that are allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops import leaking
from ops.leaking import Known, Lines, pieces_of, words_of


def leaked(lines: list[str], prose: str, allowed: Known) -> str:
    """The piece of `prose` that stands in the lines, and is not allowed to."""
    return leaking.leaked(Lines(lines), prose, lambda: allowed)


ENGLISH = "The customer sounded angry and will leave us soon."
CHINESE = "用户语气不满，估计很快就会转到别家去买。"
NOTHING = Known([])


@pytest.mark.parametrize("prose", [ENGLISH, CHINESE])
def test_a_sentence_that_stands_in_a_line_is_found(prose: str) -> None:
    assert leaked([f"- note: {prose}"], f"Before. {prose} After.", NOTHING)


@pytest.mark.parametrize(
    ("line", "prose"),
    [
        ("...估计很快就会转到别家去买...", CHINESE),
        ("> THE CUSTOMER SOUNDED ANGRY AND WILL, leave", ENGLISH),
        ("the  customer—sounded angry and: will", ENGLISH),
        ("估 计 很 快 就 会 转 到 别 家 去 买", CHINESE),
        ("Ｔｈｅ customer sounded angry and will", ENGLISH),
    ],
)
def test_a_part_of_it_is_found_whatever_its_case_width_and_punctuation(line: str, prose: str) -> None:
    assert leaked([line], prose, NOTHING)


@pytest.mark.parametrize(
    "line", ["The customer sounded happy and will stay with us.", "用户语气平和，没有别的要求。", "", "angry", "估计很快"]
)
def test_other_words_and_short_pieces_are_no_leak(line: str) -> None:
    assert leaked([line], ENGLISH, NOTHING) == ""
    assert leaked([line], CHINESE, NOTHING) == ""


def test_what_is_allowed_to_stand_there_is_no_leak() -> None:
    assert leaked([ENGLISH], ENGLISH, Known([f"They wrote: {ENGLISH}"])) == ""


def test_two_allowed_texts_allow_nothing_that_reaches_from_one_into_the_other() -> None:
    halves = Known(["The customer sounded angry", "and will leave us soon."])
    assert leaked([ENGLISH], ENGLISH, halves)


def test_words_over_two_lines_are_two_texts() -> None:
    assert leaked(["The customer sounded", "angry and will leave us soon."], "The customer sounded angry and will", NOTHING) == ""


@given(st.text(max_size=80))
def test_every_piece_of_a_text_stands_in_it(text: str) -> None:
    known = Known([text])
    assert all(known.holds(piece) for piece in pieces_of(text))
    assert known.holds(words_of(text))


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_text_that_is_allowed_whole_never_leaks(line: str, prose: str) -> None:
    assert leaked([line], prose, Known([prose])) == ""

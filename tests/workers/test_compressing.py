"""Compressing: prose is cut at a sentence end, a figure that crosses nowhere else takes its sentence with it, and all that is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers import tokens
from workers.compressing import Compressed, compress, figures_of
from workers.sentences import sentences_of


def test_what_fits_and_has_no_strange_figure_crosses_as_it_is() -> None:
    assert compress("One thing. Another one.", []) == Compressed("One thing. Another one.")
    assert compress("先看订单。再看保修。", []).whole


@pytest.mark.parametrize(
    ("text", "known", "left", "strange"),
    [
        ("It costs 1,999. Fine.", ["2000"], "Fine.", ("1,999",)),
        ("It costs 1,999. Fine.", ["price 1999"], "It costs 1,999. Fine.", ()),
        ("签收于 2026-06-22。可以保修。", [], "可以保修。", ("2026-06-22",)),
        ("签收于 2026-06-22。可以保修。", ["2026-06-22"], "签收于 2026-06-22。可以保修。", ()),
        ("价格一千二百元。可以买。", [], "可以买。", ("一千二百",)),
        ("限三天内。可以买。", [], "可以买。", ("三",)),
        ("价格１９９９元。可以买。", ["1999"], "价格１９９９元。可以买。", ()),
        ("第一件事。一切正常。", [], "第一件事。一切正常。", ()),
        ("At 12:30. Soon.", ["12"], "Soon.", ("12:30",)),
    ],
)
def test_a_figure_that_crosses_nowhere_else_takes_its_sentence_with_it(
    text: str, known: list[str], left: str, strange: tuple[str, ...]
) -> None:
    compressed = compress(text, known)
    assert (compressed.text, compressed.unconfirmed, compressed.cut) == (left, strange, 0)
    assert compressed.whole is not bool(strange)


def test_each_strange_figure_is_told_once() -> None:
    assert compress("It is 5. It was 5. It will be 6.", []).unconfirmed == ("5", "6")


def test_what_is_over_a_limit_is_cut_at_a_sentence_end_and_nothing_after_it_is_taken_up_again() -> None:
    text = "A first sentence. A second sentence that is much longer than the first. A third."
    compressed = compress(text, [], max_characters=40)
    assert (compressed.text, compressed.cut) == ("A first sentence.", 2)
    assert compress(text, [], max_tokens=5).text == "A first sentence."
    assert compress(text, [], max_characters=3) == Compressed("", (), 3)


def test_figures_are_one_however_they_are_written() -> None:
    assert figures_of("1,999 and ２０００ on 2026-06-22") == {"1999", "2000", "2026-06-22"}
    assert figures_of("no number") == set()


TEXTS = st.lists(
    st.sampled_from(["One thing. ", "It is 5. ", "价格 1999 元。", "可以买。", "At 12:30! ", "\n", "What? ", "…"]), max_size=8
).map("".join)


@given(TEXTS, st.lists(st.sampled_from(["5", "1999", "12:30"]), max_size=2), st.none() | st.integers(0, 60), st.none() | st.integers(0, 20))
def test_what_is_left_is_whole_sentences_in_their_order_within_the_limits_and_without_a_strange_figure(
    text: str, known: list[str], characters: int | None, most: int | None
) -> None:
    compressed = compress(text, known, max_characters=characters, max_tokens=most)
    assert figures_of(compressed.text) <= {figure for each in known for figure in figures_of(each)}
    assert characters is None or len(compressed.text) <= characters
    assert most is None or tokens.estimate(compressed.text) <= most
    rest = iter(sentences_of(text))
    left = sentences_of(compressed.text)
    assert all(any(each.strip() == sentence.strip() for sentence in rest) for each in left if each.strip())
    if compressed.whole:
        assert compressed.text == text.strip()

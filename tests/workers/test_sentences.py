"""Cut text ends where a reader would stop, and never inside what a reader sees as one character."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from workers.sentences import ELLIPSIS, cut

FAMILY = "👨‍👩‍👧‍👦"
FLAG = "🇨🇳"
ACCENTED = "e\u0301"


def graphemes(text: str) -> list[str]:
    """The characters of a text as a reader counts them."""
    return regex.findall(r"\X", text)


def test_trap_T12_a_thousand_chinese_characters_end_at_a_full_stop_within_three_hundred() -> None:
    text = "保修期内经检测确认属于硬件故障的可以免费维修。" * 50
    result = cut(text[:1000], 300)

    assert len(result) <= 300
    assert result.endswith("。") and text.startswith(result)
    assert len(result) > 270, "it is the last full stop, not the first"


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("短句。", 300, "短句。"),
        ("一句话。第二句话还没有说完", 8, "一句话。"),
        ("他说：“行。”然后走了很远很远", 10, "他说：“行。”"),
        ("It costs 3.50 dollars. Then more words", 30, "It costs 3.50 dollars."),
        ("It costs 3.50 dollars and more words", 12, "It costs…"),
        ("これは文です。次の文", 8, "これは文です。"),
        ("यह वाक्य है। अगला वाक्य", 15, "यह वाक्य है।"),
        ("هل هذا سؤال؟ نعم هذا سؤال", 15, "هل هذا سؤال؟"),
        ("没有句号，只有逗号和后面的字", 9, "没有句号…"),
        ("没有任何标点的一长串文字", 6, "没有任何标…"),
        ("สวัสดีชาวโลกทั้งหลาย", 8, "สวัสดีช…"),
        ("abc", 0, ""),
        ("abc", -1, ""),
        ("abcdef", 1, ELLIPSIS),
    ],
)
def test_text_is_cut_at_its_last_sentence_else_clause_else_character(text: str, limit: int, expected: str) -> None:
    assert cut(text, limit) == expected


@pytest.mark.parametrize("unit", [FAMILY, FLAG, ACCENTED, "👍🏽", "‼️", "한"])
@pytest.mark.parametrize("limit", range(41))
def test_no_limit_cuts_inside_a_character(unit: str, limit: int) -> None:
    result = cut(unit * 20, limit)

    assert len(result) <= limit
    assert all(each == unit for each in graphemes(result.removesuffix(ELLIPSIS)))


@given(st.text(), st.integers(0, 60))
def test_the_result_is_a_beginning_of_the_text_within_the_limit(text: str, limit: int) -> None:
    result = cut(text, limit)

    assert len(result) <= limit or result == text.strip() == ""
    assert text.strip().startswith(result) or text.strip().startswith(result.removesuffix(ELLIPSIS))

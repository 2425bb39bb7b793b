"""How many tokens a text is likely to be, without a network.

The vocabulary files of real tokenizers are downloads, so the size of a brief is measured by a documented estimate with a
name of its own. Called by briefing and by the scripted model.
"""

from __future__ import annotations

import re

TOKENIZER = "wide1-narrow4"
"""One token for each character beyond Latin-1 script, one for each started four of the rest."""

_WIDE = re.compile("[\u2e80-\U0010ffff]")
"""CJK, kana, hangul and emoji, of which a token holds about one; below stand the alphabetic scripts."""


def estimate(text: str) -> int:
    """Return the estimated number of tokens of `text`: an upper-end guess for English and Chinese prose alike."""
    wide = 0 if text.isascii() else len(_WIDE.findall(text))
    return wide + -(-(len(text) - wide) // 4)

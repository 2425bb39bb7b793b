"""How many tokens a text is likely to be, without a network.

The vocabulary files of real tokenizers are downloads, so the size of a brief is measured by a documented estimate with a
name of its own. Called by briefing and by the scripted model.
"""

from __future__ import annotations

TOKENIZER = "wide1-narrow4"
"""One token for each character beyond Latin-1 script, one for each started four of the rest."""

_NARROW_BELOW = 0x2E80
"""Below stand the alphabetic scripts, above CJK, kana, hangul and emoji, of which a token holds about one."""


def estimate(text: str) -> int:
    """Return the estimated number of tokens of `text`: an upper-end guess for English and Chinese prose alike."""
    narrow = sum(1 for character in text if ord(character) < _NARROW_BELOW)
    return len(text) - narrow + -(-narrow // 4)

"""Quoting: how text from outside stands in a text of ours, so that it can pass for no line, heading or rule in it.

Pure. The words stay visibly the same; line breaks and control characters become visible. Called by briefing and by teams for
the wording of constraints.
"""

from __future__ import annotations

import unicodedata

from schemas.frozen import Scalar

_TAGS = frozenset(map(chr, range(0xE0000, 0xE0080)))
"""A second, invisible ASCII: a person sees nothing where a model reads a sentence."""
_DIRECTION_MARKS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def scalar_text(value: Scalar) -> str:
    """Return a value on one line: text as it is, numbers and booleans as JSON writes them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return one_line(value) if isinstance(value, str) else str(value)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, whatever separates them, with every other control character made visible."""
    return [_shown(line) for line in text.splitlines()] or [""]


def quote(text: str) -> list[str]:
    """Return the lines of a text from outside, each marked as quoted: none of them can pass for a heading or a rule."""
    return [f"> {line}" if line else ">" for line in lines_of(text.strip())]


def one_line(text: str) -> str:
    """Return a text on one line, line breaks and control characters made visible."""
    return _shown(text.strip())


def _shown(line: str) -> str:
    """Printable text, as most is, has nothing in it that would have to be made visible."""
    return line if line.isprintable() else "".join(map(_visible, line))


def _visible(character: str) -> str:
    """Line breaks would forge lines; control marks, direction marks and tags would show another text than the model reads."""
    if character == "\t":
        return " "
    if unicodedata.category(character) in ("Cc", "Zl", "Zp") or character in _DIRECTION_MARKS:
        return {"\n": "\\n", "\r": "\\r"}.get(character, f"\\u{ord(character):04x}")
    if character in _TAGS:
        return f"\\U{ord(character):08x}"
    return character

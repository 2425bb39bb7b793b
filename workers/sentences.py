"""Cutting text: at the end of a sentence, else of a clause, never inside a character that a reader sees as one.

Pure. What counts as one character is Unicode's extended grapheme cluster (UAX 29), which `regex` knows as `\\X`: a flag, a
family of emoji or a letter with its marks stays whole. Called by briefing.
"""

from __future__ import annotations

import regex

ELLIPSIS = "…"

_SENTENCE_END = regex.compile(
    r"""
    (?: [。！？｡．⁇⁈⁉‼…।॥۔؟።။៕]+          # full stops that need nothing after them
      | [.!?]+ (?= ["'”’」』）)\]]* (?:\s|$) )   # Latin ones, which also stand in numbers and names
    )
    ["'”’」』）)\]\p{M}\uFE0F]*                   # what closes it belongs to the sentence, and so do marks on it
    """,
    regex.VERBOSE,
)
_CLAUSE_END = regex.compile(r"[，、；：,;:،؛၊\s][\p{M}\u200d\uFE0F]*")
_GRAPHEME = regex.compile(r"\X")


def cut(text: str, limit: int) -> str:
    """Return `text`, or as many whole sentences of its beginning as fit within `limit` characters (code points).

    Where not even one sentence fits, the text ends at its last clause mark or space, else at the last whole character, and an
    ellipsis is added. The result is never longer than `limit`.
    """
    text = text.strip()
    if len(text) <= limit:
        return text
    if limit <= 0:
        return ""
    whole = _last_end(_SENTENCE_END, text, limit)
    if whole:
        return text[:whole].rstrip()
    room = limit - len(ELLIPSIS)
    clause = _last_end(_CLAUSE_END, text, room)
    end = clause or _last_end(_GRAPHEME, text, room)
    return text[:end].rstrip().rstrip("，、；：,;:،؛၊") + ELLIPSIS


def sentences_of(text: str) -> list[str]:
    """Return a text in its sentences, each with what follows it up to the next one; joined again they are the text."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    starts = [0, *ends]
    pieces = [text[start:end] for start, end in zip(starts, [*ends, len(text)], strict=True)]
    return [piece for piece in pieces if piece]


def _last_end(pattern: regex.Pattern[str], text: str, limit: int) -> int:
    """Return where the last match that ends within `limit` ends, or 0."""
    end = 0
    for match in pattern.finditer(text):
        if match.end() > limit:
            break
        end = match.end()
    return end

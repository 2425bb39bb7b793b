"""Leaking: whether a text holds what another one says, by its words alone. Pure, for Chinese and alphabetic scripts alike.

Texts are compared as sequences of words; a Chinese, Japanese or Korean character is a word of its own. Case, width, punctuation
and spaces do not count. Called by the audit.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from typing import TypeAlias

import regex

from workers.sentences import sentences_of

WINDOW_WEIGHT = 12
"""So much in a row is no chance: 12 characters of Chinese, or 6 words of a language that has spaces."""
SENTENCE_WEIGHT = 8
"""A whole sentence is looked for from this weight on: 8 characters, or 4 words. What is shorter is said by everybody."""

_WORD = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]|[\p{L}\p{M}\p{N}]+")
_WIDE = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]")

Words: TypeAlias = tuple[str, ...]


def words_of(text: str) -> Words:
    """Return the words of a text as they are compared."""
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def pieces_of(text: str) -> set[Words]:
    """Return what of a text would be recognised elsewhere: every window of it, and every sentence that is long enough."""
    found = set(_windows(words_of(text)))
    for line in text.splitlines():
        for sentence in sentences_of(line):
            words = words_of(sentence)
            if _weight(words) >= SENTENCE_WEIGHT:
                found.add(words)
    return found


class Known:
    """What may stand in a text, piece by piece: each is looked up in any of these sources, never across two of them."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._sources = ["\x00".join(("", *words_of(each), "")) for each in sources]

    def holds(self, words: Words) -> bool:
        """Whether these words stand in one of the sources, in a row."""
        wanted = "\x00".join(("", *words, ""))
        return any(wanted in each for each in self._sources)


def leaked(lines: Iterable[str], prose: str, allowed: Known) -> str:
    """Return the first piece of `prose` that stands in one of `lines` and in nothing that is allowed; empty where there is none."""
    pieces = sorted(pieces_of(prose), key=len, reverse=True)
    for line in lines:
        has = Known([line])
        for piece in pieces:
            if has.holds(piece) and not allowed.holds(piece):
                return shown(piece)
    return ""


def shown(words: Words) -> str:
    """Words for a person to read: characters of Chinese stand together."""
    text = ""
    for word in words:
        text += word if not text or (_WIDE.fullmatch(word) and _WIDE.fullmatch(text[-1])) else f" {word}"
    return text


def _windows(words: Words) -> Iterator[Words]:
    for start in range(len(words)):
        weight = 0
        for end in range(start, len(words)):
            weight += _of_word(words[end])
            if weight >= WINDOW_WEIGHT:
                yield words[start : end + 1]
                break


def _weight(words: Words) -> int:
    return sum(map(_of_word, words))


def _of_word(word: str) -> int:
    return 1 if _WIDE.fullmatch(word) else 2

"""Leaking: whether a text holds what another one says, by its words alone. Pure, for Chinese and alphabetic scripts alike.

Texts are compared as sequences of words; a Chinese, Japanese or Korean character is a word of its own. Case, width, punctuation
and spaces do not count. Called by the audit.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
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
    windows, sentences = _pieces(text)
    return set(windows | sentences)


@lru_cache(maxsize=4096)
def _pieces(text: str) -> tuple[frozenset[Words], frozenset[Words]]:
    """What one step wrote is looked for in the brief of every other."""
    sentences = (words_of(sentence) for line in text.splitlines() for sentence in sentences_of(line))
    return frozenset(_windows(words_of(text))), frozenset(words for words in sentences if _weight(words) >= SENTENCE_WEIGHT)


class Known:
    """What may stand in a text, piece by piece: each is looked up in any of these sources, never across two of them."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._sources = ["\x00".join(("", *words_of(each), "")) for each in sources]

    def holds(self, words: Words) -> bool:
        """Whether these words stand in one of the sources, in a row."""
        wanted = "\x00".join(("", *words, ""))
        return any(wanted in each for each in self._sources)


class Lines:
    """The lines of a text, ready to be looked through for many others."""

    def __init__(self, lines: Iterable[str]) -> None:
        every = list(lines)
        self._windows = {window for line in every for window in _windows(words_of(line))}
        self._whole = "\x01".join("\x00".join(("", *words_of(line), "")) for line in every)

    def pieces(self, prose: str) -> list[Words]:
        """Return the pieces of `prose` that stand in one of the lines, the longest first."""
        windows, sentences = _pieces(prose)
        found = set(windows & self._windows)
        found |= {each for each in sentences if "\x00".join(("", *each, "")) in self._whole}
        return sorted(found, key=lambda words: (-len(words), words))


def leaked(lines: Lines, prose: str, allowed: Callable[[], Known]) -> str:
    """Return the longest piece of `prose` that stands in a line and in nothing that is allowed; empty where there is none.

    What is allowed is asked for only where something was found.
    """
    pieces = lines.pieces(prose)
    if not pieces:
        return ""
    known = allowed()
    return next((shown(piece) for piece in pieces if not known.holds(piece)), "")


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

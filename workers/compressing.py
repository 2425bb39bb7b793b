"""Compressing: prose made shorter without a model, so that what is dropped can be named.

Facts, limits, decisions and references never come here: they cross whole. Prose is cut at a sentence end, and a sentence with
a number or date that crosses in no value of its own is dropped: such a figure could be checked against nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from workers import tokens
from workers.sentences import sentences_of

_FIGURE = re.compile(
    r"[0-9０-９]+(?:[.,:/-][0-9０-９]+)*|[零〇一二三四五六七八九十百千万亿]{2,}|[一二三四五六七八九十]+(?=[百千万亿元天日月年号%％])"
)
"""A number, date or time as text writes it, in digits or in Chinese numerals."""


@dataclass(frozen=True, slots=True)
class Compressed:
    """What is left of a text, and what is not."""

    text: str
    unconfirmed: tuple[str, ...] = ()
    """Figures that stood in the prose only; their sentences were dropped."""
    cut: int = 0
    """Sentences dropped for length."""

    @property
    def whole(self) -> bool:
        """Whether nothing was dropped."""
        return not self.unconfirmed and not self.cut


def compress(text: str, known: Iterable[str], *, max_tokens: int | None = None, max_characters: int | None = None) -> Compressed:
    """Return the sentences of `text` that may cross, from its beginning up to a limit.

    `known` are the texts of the values that cross as values: a figure of the prose that stands in none of them takes its
    sentence with it.
    """
    figures = {figure for value in known for figure in figures_of(value)}
    kept: list[str] = []
    unconfirmed: list[str] = []
    cut = 0
    dropped = False
    for sentence in sentences_of(text):
        if dropped and kept and kept[-1][-1].isascii() and not sentence[0].isspace():
            sentence = f" {sentence}"  # the space between the two went with what stood there
        strange = [figure for figure in _FIGURE.findall(sentence) if _plain(figure) not in figures]
        if strange:
            unconfirmed += strange
            dropped = True
        elif cut or not _fits("".join((*kept, sentence)).strip(), max_tokens, max_characters):
            cut += 1
        else:
            kept.append(sentence)
            dropped = False
    return Compressed("".join(kept).strip(), tuple(dict.fromkeys(unconfirmed)), cut)


def figures_of(text: str) -> set[str]:
    """Return the numbers, dates and times of a text, each in its plain form: `2,000` and `2000` are one."""
    return {_plain(figure) for figure in _FIGURE.findall(text)}


def _fits(text: str, max_tokens: int | None, max_characters: int | None) -> bool:
    return (max_characters is None or len(text) <= max_characters) and (max_tokens is None or tokens.estimate(text) <= max_tokens)


def _plain(figure: str) -> str:
    """`2,000` and `2000` are one figure, and so are full-width digits."""
    return figure.replace(",", "").translate(str.maketrans("０１２３４５６７８９", "0123456789"))

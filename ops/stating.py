"""Stating: what a section says of a fact by its key, where it says it as plainly as `key: value`. Pure. Called by the audit."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from schemas.frozen import Scalar
from workers.compressing import figures_of
from workers.quoting import scalar_text

_SAYS = r"[`*_\"”」』]*\s*(?:[:：=＝]|\bis\b|是|为)\s*[`*_\"“「『]*"
_VALUE = r"(?P<value>[^\n；;。！？!?|]{1,120})"


def stated_otherwise(text: str, facts: Mapping[str, Sequence[tuple[str, Scalar]]]) -> Iterator[tuple[str, str, Scalar]]:
    """Yield (key, what the text states, the fact's value) for each statement of a fact's key that is none of its values.

    `facts` are key -> (step, value). A number is compared by its first figure, a text by whether either holds the other, a
    truth value by its first word. Keys shorter than 3 characters are too common to be looked for.
    """
    for key, told in facts.items():
        if len(key) < 3:
            continue
        for match in re.finditer(rf"(?<![\w.]){re.escape(key)}(?!\w){_SAYS}{_VALUE}", text):
            said = match["value"].strip()
            if not any(_agrees(said, value) for _, value in told):
                yield key, said[:60], told[0][1]


def _agrees(said: str, value: Scalar) -> bool:
    if isinstance(value, bool):
        word = re.match(r"\w+", said.casefold())
        return word is None or word[0] not in ({"true", "yes"} if not value else {"false", "no"})
    if isinstance(value, int | float):
        first = re.search(r"-?\d[\d,]*(?:\.\d+)?", unicodedata.normalize("NFKC", said))
        return first is None or float(first[0].replace(",", "")) == float(value)
    ours, theirs = _plain(scalar_text(value)), _plain(said)
    if ours in theirs or (theirs and theirs in ours):
        return True
    return bool(figures_of(value)) and figures_of(value) <= figures_of(said) and ours[:2] == theirs[:2]


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).casefold())

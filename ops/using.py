"""Using: whether a result used or cited a value that its brief carried. Pure, by exact rules, and not a judgement of importance.

*Cited*: a judgement or change names it among its evidence or what it had seen, or an artifact was made from it. *Used*: its text
stands in what the step brought: summary, facts with their source, judgements, changes, further steps. A number is compared as
a number, a text without case, width and spaces. A truth value stands in no text so that one could tell: it counts when cited,
else it is left out of the count. Called by the metrics.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from schemas import fields
from schemas.codec import encode
from schemas.facts import Fact
from schemas.frozen import Scalar
from schemas.packets import Payload
from schemas.results import AgentResult
from workers.compressing import figures_of


def use_of(name: str, value: Payload, result: AgentResult) -> bool | None:
    """Return whether `result` used or cited `name` (`step.key`, or `field/<name>`) with this value; None where nobody can tell."""
    if name in set(_cited(result)) or (isinstance(value, str) and value in _artifacts(result)):
        return True
    texts = list(_texts(result))
    found = [_stands_in(each, texts, result) for each in _scalars(value)]
    if any(found):
        return True
    return False if False in found else None


def _cited(result: AgentResult) -> Iterator[str]:
    for packet in result.packets:
        yield from (each.ref for each in packet.control.evidence)
        yield from packet.control.seen
    for change in result.changes:
        yield from (each.ref for each in change.evidence)
        if change.seen is not None:
            yield fields.shared(change.field)


def _artifacts(result: AgentResult) -> set[str]:
    return {each for artifact in result.artifacts for each in artifact.depends_on}


def _texts(result: AgentResult) -> Iterator[str]:
    """What the step brought, as text."""
    yield result.summary
    for fact in result.facts:
        yield from (str(fact.value), fact.provenance.source_ref or "", *fact.provenance.evidence)
    for packet in result.packets:
        yield from (_flat(packet.payload), packet.control.reason, *map(str, packet.control.evidence))
    for change in result.changes:
        yield from (_flat(change.value), change.reason, change.source)
    for step in result.steps:
        yield step.task


def _stands_in(value: Scalar, texts: list[str], result: AgentResult) -> bool | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        same = any(_is_number(fact, value) for fact in result.facts)
        return same or any(figures_of(f"{value:g}") & figures_of(each) or figures_of(str(value)) & figures_of(each) for each in texts)
    plain = _plain(value)
    return bool(plain) and any(plain in _plain(each) for each in texts) if len(plain) > 1 else None


def _is_number(fact: Fact, value: float) -> bool:
    return isinstance(fact.value, int | float) and not isinstance(fact.value, bool) and fact.value == value


def _scalars(value: Payload) -> Iterator[Scalar]:
    match value:
        case dict():
            for each in value.values():
                yield from _scalars(each)
        case list() | tuple():
            for each in value:
                yield from _scalars(each)
        case None:
            return
        case _:
            yield value


def _flat(value: Payload) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _plain(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())

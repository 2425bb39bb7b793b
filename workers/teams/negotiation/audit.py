"""The audit of an answer: was anything said that was not approved, quoted that nobody said, or recorded otherwise than a tool returned?

Pure, and deterministic; it does not prove that prose is right. Called by this team's acceptance tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.facts import Fact

_AMOUNT = re.compile(r"(\d{2,})\s*元")
_SPEAKS = "协商结果"
"""The title of the one section that may say an amount."""
_RECORDED = (("identity_status", None, "identityStatus"), ("compliance_verdict", "verdict", "ruleVerdict"))
"""Shared field, its member, and the fact that it must repeat."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be. `kind`: `said_elsewhere`, `not_committed`, `never_said` or `against_fact`."""

    kind: str
    where: str
    what: str


def audit(words: str, sections: Mapping[str, str], fields: Mapping[str, Any], facts: Iterable[Fact]) -> tuple[Finding, ...]:
    """Return what is wrong: `words` of the user, `sections` by title, values of the shared fields and facts of the request."""
    return (*_said(sections, fields), *_quoted(words, fields), *_recorded(fields, facts))


def _said(sections: Mapping[str, str], fields: Mapping[str, Any]) -> Iterator[Finding]:
    """Only the session controller's section says an amount, and only one that is committed."""
    committed = fields.get("committed_offers") or {}
    for title, text in sections.items():
        for amount in _AMOUNT.findall(text):
            if title != _SPEAKS:
                yield Finding("said_elsewhere", title, f"{amount} 元")
            elif int(amount) != committed.get("amount"):
                yield Finding("not_committed", title, f"{amount} 元")


def _quoted(words: str, fields: Mapping[str, Any]) -> Iterator[Finding]:
    """A risk flag quotes what the user really wrote."""
    for flag in fields.get("risk_flags") or ():
        if flag["quote"] not in words:
            yield Finding("never_said", "risk_flags", flag["quote"])


def _recorded(fields: Mapping[str, Any], facts: Iterable[Fact]) -> Iterator[Finding]:
    """What was recorded by hand is what the tool returned."""
    known = {fact.key: fact.value for fact in facts}
    for name, member, key in _RECORDED:
        value = fields.get(name)
        value = value.get(member) if member is not None and isinstance(value, Mapping) else value
        if value is not None and key in known and value != known[key]:
            yield Finding("against_fact", name, f"{value!r}, and {key} is {known[key]!r}")

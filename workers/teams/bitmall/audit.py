"""The audit of an answer: does a section say of a status what its fact does not, do two sections contradict each other?

Pure, and deterministic: claims are read from sentences that name a model and a topic. It finds the contradictions that can be
checked without a model; it does not prove that prose is right. Called by this team's acceptance tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from schemas.facts import Fact
from workers.teams.bitmall.data import SPECIFICATIONS

Verdicts = dict[tuple[str, str], "Verdict"]


class Verdict(StrEnum):
    """What is said of a model on a topic."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence's verdict on one topic of one model."""

    section: str
    model: str
    topic: str
    verdict: Verdict
    sentence: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not stand in an answer. `kind`: `unknown_rewritten`, `against_fact` or `sections_conflict`."""

    kind: str
    claim: Claim
    against: str


_TOPICS = {
    "linkage": re.compile(r"联动|音箱|SoundBox|兼容", re.IGNORECASE),
    "app_control": re.compile(r"App|远程操?控", re.IGNORECASE),
    "warranty": re.compile(r"保修"),
}
_NO = re.compile(r"不支持|不能|无法|不可|不兼容|没有|不具备|已过保修")
_UNKNOWN = re.compile(r"未知|UNKNOWN|未测试|不确定|不明", re.IGNORECASE)
_YES = re.compile(r"支持|SUPPORTED|可以|能够|兼容|在保修期内|仍在保", re.IGNORECASE)
_SENTENCE = re.compile(r"[^。！？!?\n；;]+")
_STATUS_VERDICTS = {
    "UNKNOWN": Verdict.UNKNOWN,
    "SUPPORTED": Verdict.YES,
    "IN_WARRANTY": Verdict.YES,
    "OUT_OF_WARRANTY": Verdict.NO,
}
_STATUS_FACTS = (
    ("productName", "warrantyStatus", "warranty"),
    ("candidateA", "candidateAAppControlStatus", "app_control"),
    ("candidateB", "candidateBAppControlStatus", "app_control"),
    ("linkADevice", "linkAStatus", "linkage"),
    ("linkBDevice", "linkBStatus", "linkage"),
)


def audit(sections: Mapping[str, str], facts: Iterable[Fact]) -> tuple[Finding, ...]:
    """Return every contradiction of `sections` (title -> text) with the facts of the request, and with each other."""
    known = _known(facts)
    claims = [claim for title, text in sections.items() for claim in claims_of(title, text)]
    return (*_against_facts(claims, known), *_against_each_other(claims))


def claims_of(section: str, text: str) -> Iterator[Claim]:
    """Yield what the sentences of a section say of a model on a topic."""
    for sentence in _SENTENCE.findall(text):
        verdict = _verdict(sentence)
        models = [name for name in SPECIFICATIONS if name in sentence or _short(name) in sentence]
        for topic, words in _TOPICS.items():
            if verdict is not None and words.search(sentence):
                for model in models:
                    yield Claim(section, model, topic, verdict, sentence.strip())


def _verdict(sentence: str) -> Verdict | None:
    if _NO.search(sentence):
        return Verdict.NO
    if _UNKNOWN.search(sentence):
        return Verdict.UNKNOWN
    return Verdict.YES if _YES.search(sentence) else None


def _short(name: str) -> str:
    """`S10 Lite` of `比特 S10 Lite 扫地机`."""
    return name.removeprefix("比特 ").removesuffix(" 扫地机")


def _known(facts: Iterable[Fact]) -> Verdicts:
    values = {fact.key: str(fact.value) for fact in facts}
    return {
        (values[name], topic): _STATUS_VERDICTS[values[status]]
        for name, status, topic in _STATUS_FACTS
        if name in values and values.get(status) in _STATUS_VERDICTS
    }


def _against_facts(claims: Iterable[Claim], known: Verdicts) -> Iterator[Finding]:
    for claim in claims:
        fact = known.get((claim.model, claim.topic))
        if fact is not None and fact is not claim.verdict:
            yield Finding("unknown_rewritten" if fact is Verdict.UNKNOWN else "against_fact", claim, f"the fact says {fact}")


def _against_each_other(claims: list[Claim]) -> Iterator[Finding]:
    for index, claim in enumerate(claims):
        for other in claims[:index]:
            same = (claim.model, claim.topic) == (other.model, other.topic)
            if same and claim.section != other.section and claim.verdict is not other.verdict:
                yield Finding("sections_conflict", claim, other.sentence)

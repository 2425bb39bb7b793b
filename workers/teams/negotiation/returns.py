"""What this team's tools return, declared: fact rules are checked against these models when the team loads."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Return(BaseModel):
    """Fields are camelCase on the outside."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class FoundDocument(Return):
    """One document, whole."""

    id: str
    title: str
    text: str


class DocumentsReturn(Return):
    """What a search found."""

    documents: tuple[FoundDocument, ...] = ()


class IdentityReturn(Return):
    """Whether the user is who they say."""

    customer: str
    identity_status: str


class AbilityReturn(Return):
    """What the ability table gives, and the artifact that holds rows and arithmetic."""

    tier: str
    limit: int
    rule_table: str
    evidence_table: str
    items: tuple[str, ...]
    data_as_of: datetime


class RulesReturn(Return):
    """The rules that are in force, by their numbers."""

    policy: str
    rules: dict[str, str]


class Fired(Return):
    """One rule that a draft breaks."""

    rule: str
    verdict: str
    why: str


class VerdictReturn(Return):
    """The verdict on a draft, the rules that fired, and the artifact that keeps both."""

    verdict: str
    fired: tuple[Fired, ...]
    policy: str
    verdict_record: str


class FiledReturn(Return):
    """The artifacts of the end of a session."""

    final_offer: str
    session_record: str

"""What this team's tools return, declared: fact rules are checked against these models when the team loads.

A field that is here reaches a model, and what reaches a model will be spoken about. So there is no echo of the query, no
field about another domain, and none that says the same for every product.
"""

from __future__ import annotations

from datetime import date

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Return(BaseModel):
    """Fields are camelCase on the outside; what is not known for a product is absent, not empty."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class OrderReturn(Return):
    """An order, or why there is none."""

    order_id: str | None = None
    product: str | None = None
    price: int | None = None
    sign_time: date | None = None
    status: str | None = None
    error: str | None = None


class WarrantyReturn(Return):
    """The warranty of one order on one day."""

    order_id: str | None = None
    warranty_status: str | None = None
    warranty_end_date: date | None = None
    no_reason_return_status: str | None = None
    as_of: date | None = None
    error: str | None = None


class FoundDocument(Return):
    """One document, whole."""

    id: str
    title: str
    text: str


class DocumentsReturn(Return):
    """What a search found."""

    documents: tuple[FoundDocument, ...] = ()


class Candidate(Return):
    """One model that can be bought."""

    name: str
    price: int
    app_control_status: str


class CatalogueReturn(Return):
    """The catalogue within the budget, whole each time."""

    candidates: tuple[Candidate, ...]
    catalog_scope: str
    catalog_complete: bool
    candidate_count: int


class Bundle(Return):
    """One device with one speaker."""

    device: str
    speaker: str
    status: str


class LinkageReturn(Return):
    """What is known of linkage, and the list that says so."""

    documents: tuple[FoundDocument, ...] = ()
    bundles: tuple[Bundle, ...] = ()


class Compared(Return):
    """One side of a comparison: its place says that it was compared, and nothing else."""

    name: str
    specification: dict[str, str]


class ComparisonReturn(Return):
    """Two models side by side, or which of them nobody knows."""

    product_a: Compared | None = None
    product_b: Compared | None = None
    error: str | None = None

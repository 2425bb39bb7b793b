"""What this team's tools return, declared: fact rules are checked against these models when the team loads.

Raw pages are in none of them: a tool keeps those as one artifact, and returns what is asked for with the place where it stands.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Return(BaseModel):
    """Fields are camelCase on the outside."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class ProfileReturn(Return):
    """What the user fixed."""

    destination: str
    days: int
    budget: int
    traveler: str
    stated_in: str


class FoundSpot(Return):
    """One place of the pages; `at` is where its rule for children stands in the material."""

    name: str
    area: str
    cost: int
    rating: float
    at: str


class SpotsReturn(Return):
    """What the searches found, and the material with every page."""

    spots: tuple[FoundSpot, ...] = ()
    searches: int = 0
    pages: int = 0
    material: str | None = None
    error: str | None = None


class FoundHotel(Return):
    """One hotel of the comparison, for all nights of the trip; `at` is where its own page states the price."""

    name: str
    area: str
    room: str
    nights: int
    total: int
    rating: float
    at: str


class HotelsReturn(Return):
    """What the comparison found, and the material with every page."""

    hotels: tuple[FoundHotel, ...] = ()
    pages: int = 0
    material: str | None = None
    error: str | None = None


class HeldReturn(Return):
    """What is held for the trip, or why it is not."""

    name: str
    cost: int | None = None
    left: int | None = None
    error: str | None = None

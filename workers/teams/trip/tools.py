"""The tools of the specialists, over this team's data. A domain's tools see that domain's data only.

Days, budget and who travels come from the context, never from a model. A search keeps every page that it fetched as one artifact
of the run, and returns the few values that a choice needs, each with its place in that artifact.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.artifacts import JSON
from schemas.facts import Zone
from workers.agents.tools import Tool, ToolContext, ToolFault
from workers.teams.trip import data, pages
from workers.teams.trip.returns import FoundHotel, FoundSpot, HeldReturn, HotelsReturn, ProfileReturn, SpotsReturn

MAX_SEARCHES = 8

Queries = Annotated[list[str], Field(min_length=1, max_length=MAX_SEARCHES, description="每次检索的关键词，最多八条")]
Wanted = Annotated[str, Field(description="要比较的条件，几个关键词")]
Name = Annotated[str, Field(description="返回中的全名")]


def read_profile(context: ToolContext) -> ProfileReturn:
    """读出用户定下的目的地、天数、预算和出行人。"""
    known = context.constraints
    return ProfileReturn(
        destination=str(known["destination"]),
        days=int(known["days"]),
        budget=int(known["budget"]),
        traveler=str(known.get("traveler", "成人")),
        stated_in="用户原话",
    )


async def search_spots(context: ToolContext, queries: Queries) -> SpotsReturn:
    """检索景点并另存全部网页，返回各景点的门票合计（元）、评分，以及儿童规定在资料中的位置。"""
    wanted = " ".join(queries)
    found = [each for each in data.SPOTS if any(keyword in wanted for keyword in each.keywords)]
    if not found:
        return SpotsReturn(searches=len(queries), error="没有检索到景点，换几个关键词再查")
    fetched = [page for each in found for page in pages.spot_pages(each)]
    text = pages.as_text(fetched)
    names = "、".join(each.name for each in found)
    ref = await context.artifacts.put(text, media_type=JSON, summary=f"{len(queries)} 次检索的 {len(fetched)} 页原文：{names}。")
    rows = tuple(
        FoundSpot(name=each.name, area=each.area, cost=each.cost, rating=each.rating, at=_place(text, each.child_rule)) for each in found
    )
    return SpotsReturn(spots=rows, searches=len(queries), pages=len(fetched), material=ref.id)


async def compare_prices(context: ToolContext, wanted: Wanted) -> HotelsReturn:
    """比较各平台的酒店价格并另存全部网页，返回每家全部晚数的合计（元）、评分，以及房价在资料中的位置。"""
    nights = max(1, int(context.constraints["days"]) - 1)
    fetched = [page for each in data.HOTELS for page in pages.hotel_pages(each)]
    text = pages.as_text(fetched)
    names = "、".join(each.name for each in data.HOTELS)
    ref = await context.artifacts.put(text, media_type=JSON, summary=f"{len(fetched)} 页比价原文：{names}。")
    rows = tuple(
        FoundHotel(
            name=each.name,
            area=each.area,
            room=each.room,
            nights=nights,
            total=each.nightly * nights,
            rating=each.rating,
            at=_place(text, f"{each.room}每晚人民币 {each.nightly:,} 元"),
        )
        for each in data.HOTELS
    )
    return HotelsReturn(hotels=rows, pages=len(fetched), material=ref.id)


async def hold_ticket(context: ToolContext, name: Name) -> HeldReturn:
    """为一个景点留出门票预算；不适合出行人的、超出预算的会被拒绝。"""
    spot = data.spot(name)
    if spot is None:
        return HeldReturn(name=name, error="检索结果里没有这个景点")
    if context.constraints.get("traveler") == data.FAMILY and not spot.fits_children:
        return HeldReturn(name=name, error=f"不适合儿童：未满 {spot.min_age} 岁不得入场")
    return await _held(context, spot.name, spot.cost)


async def hold_room(context: ToolContext, name: Name) -> HeldReturn:
    """为一家酒店留出全部晚数的预算；超出预算的会被拒绝。"""
    hotel = data.hotel(name)
    if hotel is None:
        return HeldReturn(name=name, error="比价结果里没有这家酒店")
    return await _held(context, hotel.name, hotel.nightly * max(1, int(context.constraints["days"]) - 1))


async def _held(context: ToolContext, name: str, cost: int) -> HeldReturn:
    """Reserve the cost of the trip's budget: what others hold meanwhile counts."""
    try:
        left = await context.reserve("heldBudget", cost, key=name)
    except ToolFault:
        return HeldReturn(name=name, cost=cost, error=f"超出预算：需要 {cost} 元，全程预算 {context.constraints['budget']} 元已不够")
    return HeldReturn(name=name, cost=cost, left=int(left))


def _place(text: str, sentence: str) -> str:
    """Where a sentence stands in the material, counted in characters."""
    start = text.index(sentence)
    return f"{start}-{start + len(sentence)}"


PROFILE_TOOLS = (Tool("readProfile", read_profile, source="statedIn"),)
SPOT_TOOLS = (
    Tool("searchSpots", search_spots, zone=Zone.EXTERNAL, source="material", whole=True),
    Tool("holdTicket", hold_ticket),
)
HOTEL_TOOLS = (
    Tool("comparePrices", compare_prices, zone=Zone.EXTERNAL, source="material", whole=True),
    Tool("holdRoom", hold_room),
)

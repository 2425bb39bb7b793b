"""The desk and what is said back: `desk list|show|decide`, `retract`, `rules`, on servers."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from ops import rendering
from ops.client import Client
from ops.commands.dead import operator
from ops.commands.exits import DONE
from ops.commands.printing import print_json
from ops.reading import Reader
from ops.settings import Settings
from ops.wiring import board_of, connected
from orchestrator.desk import DeskItem
from schemas.codec import Json
from schemas.errors import InvalidValue, NotFound
from schemas.frozen import validated
from schemas.gate import BoundaryRules


async def list_desk(settings: Settings, *, request: str | None, limit: int, as_json: bool) -> int:
    """List what waits for a person."""
    async with board_of(settings) as board:
        items = await Reader(board, tenant=settings.tenant).desk(request_id=request, limit=limit)
    if as_json:
        print_json([item_json(request_id, item) for request_id, item in items])
    else:
        rendering.console().print(rendering.desk_tree(items))
    return DONE


async def show_item(settings: Settings, request: str, item: str, *, as_json: bool) -> int:
    """Show one item with its evidence and choices.

    Raises:
        NotFound: the request has no such item.
    """
    async with board_of(settings) as board:
        items = await Reader(board, tenant=settings.tenant).desk(request_id=request)
    found = next((each for _, each in items if each.id == item), None)
    if found is None:
        there = ", ".join(each.id for _, each in items)
        raise NotFound(f"there is no {item!r} on the desk of this request; there are: {there or 'none'}", path="item")
    if as_json:
        print_json(item_json(request, found))
    else:
        rendering.console().print(rendering.desk_tree([(request, found)]))
    return DONE


async def decide(settings: Settings, request: str, item: str, choice: str, *, reason: str, seen: str, as_json: bool) -> int:
    """Decide an item; who did, and why, is kept as an event."""
    async with connected(settings) as (board, broker):
        await Client(board, broker, tenant=settings.tenant, name=operator()).decide(request, item, choice, reason, seen=seen)
    return _done(f"{item}: {choice}", {"request_id": request, "item": item, "choice": choice}, as_json=as_json)


async def retract(settings: Settings, request: str, name: str, *, reason: str, recheck: bool, as_json: bool) -> int:
    """Withdraw what a step said."""
    async with connected(settings) as (board, broker):
        await Client(board, broker, tenant=settings.tenant, name=operator()).retract(request, name, reason, recheck=recheck)
    return _done(
        f"{name} is withdrawn; follow it with: briefline show {request}", {"request_id": request, "withdrawn": name}, as_json=as_json
    )


async def change_rules(settings: Settings, request: str, changes: Sequence[str], *, as_json: bool) -> int:
    """Let other boundary rules hold: the team's, with these changes.

    Raises:
        InvalidValue: a rule that there is not, or a value that does not fit it.
    """
    given: dict[str, object] = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals or name not in BoundaryRules.model_fields:
            raise InvalidValue(f"{change!r} is no NAME=VALUE of: {', '.join(BoundaryRules.model_fields)}", path="--set")
        try:
            given[name] = orjson.loads(value)
        except ValueError:
            given[name] = value
    async with connected(settings) as (board, broker):
        client = Client(board, broker, tenant=settings.tenant, name=operator())
        rules = validated(BoundaryRules, {**(await client.rules(request)).model_dump(), **given})
        await client.set_rules(request, rules)
    return _done(f"rules {rules.version} hold from now on", {"request_id": request, "rules": rules.version}, as_json=as_json)


def item_json(request: str, item: DeskItem) -> dict[str, Json]:
    """Return an item as `--json` prints it."""
    return {
        "request_id": request,
        "item": item.id,
        "asks": item.asks.value,
        "title": item.title,
        "question": item.question,
        "choices": list(item.choices),
        "details": list(item.details),
        "version": item.version,
    }


def _done(said: str, shape: dict[str, Json], *, as_json: bool) -> int:
    if as_json:
        print_json(shape)
    else:
        rendering.console().print(said, markup=False, highlight=False)
    return DONE

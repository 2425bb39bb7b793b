"""The boundary: `audit` and `metrics`, on servers. Each returns an exit code; see `ops.commands.exits`."""

from __future__ import annotations

from collections.abc import Sequence

from ops import boundary_tables, rendering
from ops.commands.exits import DONE, NOT_PASSED
from ops.commands.printing import print_json
from ops.commands.requests import team_at_hand
from ops.metrics import Price, together
from ops.reading import Reader
from ops.settings import Settings
from ops.wiring import board_of
from schemas.errors import NotFound


async def audit(settings: Settings, request_id: str, *, team_name: str | None, as_json: bool) -> int:
    """Audit one request; `NOT_PASSED` where anything was found or could not be checked."""
    async with board_of(settings) as board:
        reader = Reader(board, tenant=settings.tenant)
        of_request = (await reader.show(request_id)).request.team
        team = team_at_hand(settings, of_request, team_name)
        if team is None:
            raise NotFound(f"the code of team {of_request!r} is needed to rebuild its briefs; name it with --team", path="team")
        audited = await reader.audit(request_id, team)
    if as_json:
        print_json(audited.as_json())
    else:
        rendering.console().print(boundary_tables.audit_table(audited))
    return DONE if audited.passed else NOT_PASSED


async def metrics(settings: Settings, requests: Sequence[str], *, team: str | None, limit: int, price: Price | None, as_json: bool) -> int:
    """Print the boundary's metrics: a column for each request that is named, else for each team of the recent ones."""
    async with board_of(settings) as board:
        found = await Reader(board, tenant=settings.tenant).metrics(requests, team=team, limit=limit, price=price)
    teams = {name: together(each.metrics for each in found if each.team == name) for name in dict.fromkeys(each.team for each in found)}
    if as_json:
        shown = [{"request_id": each.request_id, "team": each.team, **each.metrics.as_json()} for each in found]
        print_json({"requests": shown, "teams": {name: each.as_json() for name, each in teams.items()}})
    elif not found:
        rendering.console().print("no requests")
    else:
        named = [(each.request_id, each.metrics) for each in found] if requests else list(teams.items())
        rendering.console().print(boundary_tables.metrics_table(named))
    return DONE

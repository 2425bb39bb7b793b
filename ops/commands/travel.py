"""Time travel: `diff` and `fork`, on servers. Each returns an exit code; see `ops.commands.exits`."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from ops import rendering
from ops.client import Client
from ops.commands.exits import DONE
from ops.commands.printing import print_json
from ops.commands.requests import finish, team_at_hand
from ops.reading import Reader
from ops.settings import Settings
from ops.wiring import board_of, connected


async def diff(settings: Settings, a: str, b: str, *, as_json: bool) -> int:
    """Say what differs between two requests or moments."""
    async with board_of(settings) as board:
        compared = await Reader(board, tenant=settings.tenant).diff(a, b)
    if as_json:
        print_json(compared.as_json())
    else:
        rendering.console().print(rendering.comparison(compared))
    return DONE


async def fork(
    settings: Settings,
    request_id: str,
    *,
    at: str,
    constraints: Mapping[str, str],
    key: str | None,
    deadline_seconds: float | None,
    team_name: str | None,
    wait: bool,
    as_json: bool,
) -> int:
    """Open a request that takes up another one from a step on; what its reused steps have seen otherwise goes to standard error."""
    async with connected(settings) as (board, broker):
        client = Client(board, broker, tenant=settings.tenant)
        team = None
        if constraints or wait:
            of_request = "" if team_name else (await client.show(request_id)).request.team
            team = team_at_hand(settings, of_request, team_name)
        accepted = await client.fork(
            request_id, at, team=team, constraints=constraints, idempotency_key=key, deadline_seconds=deadline_seconds
        )
        for line in rendering.origin_lines((await client.show(accepted.request_id)).request):
            print(line, file=sys.stderr)
        return await finish(client, accepted, team, wait=wait, as_json=as_json)

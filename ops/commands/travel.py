"""Time travel: `diff` and `fork`, on servers. Each returns an exit code; see `ops.commands.exits`."""

from __future__ import annotations

from ops import rendering
from ops.commands.exits import DONE, print_json
from ops.reading import Reader
from ops.settings import Settings
from ops.wiring import board_of


async def diff(settings: Settings, a: str, b: str, *, as_json: bool) -> int:
    """Say what differs between two requests or moments."""
    async with board_of(settings) as board:
        compared = await Reader(board, tenant=settings.tenant).diff(a, b)
    if as_json:
        print_json(compared.as_json())
    else:
        rendering.console().print(rendering.comparison(compared))
    return DONE

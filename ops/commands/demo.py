"""The demo: a shipped team on its own request, in this process or on servers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ops import rendering
from ops.client import Client
from ops.commands.exits import DONE, print_json
from ops.commands.requests import follow
from ops.embedded import embedded
from ops.reporting import Report
from ops.settings import Settings
from ops.wiring import connected, team_of
from schemas.errors import NotFound
from workers.team import Team
from workers.teams.bitmall import demo as bitmall

REQUESTS = {"bitmall": bitmall.REQUEST}
"""What each shipped team is asked in its demo."""
_PATIENCE_SECONDS = 300.0


async def demo(settings: Settings, *, team_name: str, servers: bool, as_json: bool) -> int:
    """Run a shipped team on its demo request, and print everything that came of it.

    On servers, one orchestrator and one worker run as processes of their own, with this process's settings.
    """
    if team_name not in REQUESTS:
        raise NotFound(f"there is no demo of team {team_name!r}; there are: {', '.join(REQUESTS)}", path="team")
    team = team_of(settings, team_name)
    text = REQUESTS[team_name]
    async with asyncio.timeout(_PATIENCE_SECONDS):
        report = await (_on_servers(settings, team, text, live=not as_json) if servers else _embedded(team, text, live=not as_json))
    if as_json:
        print_json(report.as_json())
    else:
        _print(report, team, where="RabbitMQ and Redis" if servers else "this process, no server")
    return DONE


async def _embedded(team: Team, text: str, *, live: bool) -> Report:
    async with embedded(team) as runtime:
        accepted = await runtime.submit(team, text)
        return await follow(runtime, accepted.request_id, team, live=live)


async def _on_servers(settings: Settings, team: Team, text: str, *, live: bool) -> Report:
    async with connected(settings) as (board, broker), _process("orchestrator"), _process("worker", "--team", team.name):
        client = Client(board, broker, tenant=settings.tenant)
        accepted = await client.submit(team, text)
        return await follow(client, accepted.request_id, team, live=live)


@asynccontextmanager
async def _process(*arguments: str) -> AsyncIterator[None]:
    """A `briefline` command as a process of its own, told to end (and to finish what it has) when the demo is over."""
    environment = {"BRIEFLINE_LOG_LEVEL": "WARNING", **os.environ}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "ops", *arguments, stdout=sys.stderr.fileno(), env=environment)
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _print(report: Report, team: Team, *, where: str) -> None:
    console = rendering.console()
    today = team.clock().date().isoformat()
    console.print(f"[dim]{report.request.text}[/dim]")
    console.print(f"[dim]team {team.name}, in {where}; the team's clock says {today}[/dim]\n")
    if not console.is_terminal:
        console.print(rendering.plan_table(report))
    console.print(rendering.facts_table(report))
    console.print(rendering.briefs_table(report))
    console.print(rendering.answer_block(report))
    usage = report.usage
    console.print(
        f"[dim]{report.status}: {usage.model_calls} model calls, {usage.input_tokens} tokens in, {usage.output_tokens} out, "
        f"{len(report.events)} events[/dim]"
    )

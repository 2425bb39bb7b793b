"""The demo: a shipped team on its own request, in this process or on servers."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

from ops import rendering
from ops.client import Client
from ops.commands.exits import DONE, ENDED_FAILED, print_json
from ops.commands.requests import follow
from ops.embedded import embedded
from ops.reporting import Report
from ops.settings import Settings
from ops.wiring import connected, team_of
from schemas.errors import NotFound, OutcomeUnknown, Unavailable
from schemas.requests import RequestStatus
from workers.team import Team
from workers.teams.bitmall import demo as bitmall
from workers.teams.trip import demo as trip

REQUESTS = {"bitmall": bitmall.REQUEST, "trip": trip.REQUEST}
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
    work = _on_servers(settings, team, text, live=not as_json) if servers else _embedded(team, text, live=not as_json)
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            report = await work
    except TimeoutError:
        raise OutcomeUnknown(f"the demo was not over within {_PATIENCE_SECONDS:g} s") from None
    if as_json:
        print_json(report.as_json())
    else:
        _print(report, team, where="RabbitMQ and Redis" if servers else "this process, no server")
    return DONE if report.status in (RequestStatus.COMPLETED, RequestStatus.DEGRADED) else ENDED_FAILED


async def _embedded(team: Team, text: str, *, live: bool) -> Report:
    async with embedded(team) as runtime:
        accepted = await runtime.submit(team, text)
        return await follow(runtime, accepted.request_id, team, live=live)


async def _on_servers(settings: Settings, team: Team, text: str, *, live: bool) -> Report:
    async with connected(settings) as (board, broker), _process("orchestrator") as one, _process("worker", "--team", team.name) as other:
        client = Client(board, broker, tenant=settings.tenant)
        accepted = await client.submit(team, text)
        return await _while_they_live(follow(client, accepted.request_id, team, live=live), one, other)


async def _while_they_live(following: Coroutine[None, None, Report], *processes: Process) -> Report:
    """Follow the request as long as the processes that work on it are there; nobody else may ever finish it."""
    follower = asyncio.create_task(following, name="following")
    ends = [asyncio.create_task(process.wait(), name="a process of the demo") for process in processes]
    try:
        await asyncio.wait({follower, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if not follower.done():
            codes = [process.returncode for process in processes if process.returncode is not None]
            raise Unavailable(f"a process of the demo ended before the answer was there (exit code {codes[0]}); see what it said above")
        return follower.result()
    finally:
        for task in (follower, *ends):
            task.cancel()
        await asyncio.wait({follower, *ends})


@asynccontextmanager
async def _process(*arguments: str) -> AsyncIterator[Process]:
    """A `briefline` command as a process of its own, told to end (and to finish what it has) when the demo is over."""
    environment = {"BRIEFLINE_LOG_LEVEL": "WARNING", **os.environ}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "ops", *arguments, stdout=sys.stderr.fileno(), env=environment)
    try:
        yield process
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
    if report.shared:
        console.print(rendering.shared_table(report))
    console.print(rendering.briefs_table(report))
    console.print(rendering.answer_block(report))
    usage = report.usage
    console.print(
        f"[dim]{report.status}: {usage.model_calls} model calls, {usage.input_tokens} tokens in, {usage.output_tokens} out, "
        f"{len(report.events)} events[/dim]"
    )

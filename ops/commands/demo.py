"""The demo: a shipped team on its own request, in this process or on servers."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager

from ops import rendering
from ops.client import Client
from ops.commands.exits import DONE, ENDED_FAILED
from ops.commands.printing import print_json
from ops.commands.requests import follow
from ops.embedded import embedded
from ops.reporting import Report
from ops.sessions import Session
from ops.settings import Settings
from ops.wiring import connected, team_of
from schemas.errors import NotFound, OutcomeUnknown, Unavailable
from schemas.requests import RequestStatus
from workers.team import Team
from workers.teams.bitmall import demo as bitmall
from workers.teams.negotiation import demo as negotiation
from workers.teams.trip import demo as trip

REQUESTS = {"bitmall": bitmall.REQUEST, "trip": trip.REQUEST, "negotiation": negotiation.REQUESTS[0]}
"""What each shipped team is asked in its demo."""
FURTHER = {"negotiation": negotiation.REQUESTS[1:]}
"""What it is asked after that, in the same session."""
_PATIENCE_SECONDS = 300.0


async def demo(settings: Settings, *, team_name: str, servers: bool, as_json: bool) -> int:
    """Run a shipped team on its demo requests, and print everything that came of it.

    On servers, one orchestrator and one worker run as processes of their own, with this process's settings.
    """
    if team_name not in REQUESTS:
        raise NotFound(f"there is no demo of team {team_name!r}; there are: {', '.join(REQUESTS)}", path="team")
    team = team_of(settings, team_name)
    texts = (REQUESTS[team_name], *FURTHER.get(team_name, ()))
    work = _on_servers(settings, team, texts, live=not as_json) if servers else _embedded(team, texts, live=not as_json)
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            reports = await work
    except TimeoutError:
        raise OutcomeUnknown(f"the demo was not over within {_PATIENCE_SECONDS:g} s") from None
    if as_json:
        print_json(reports[0].as_json() if len(reports) == 1 else {"requests": [report.as_json() for report in reports]})
    else:
        for report in reports:
            _print(report, team, where="RabbitMQ and Redis" if servers else "this process, no server")
    ended_well = all(report.status in (RequestStatus.COMPLETED, RequestStatus.DEGRADED) for report in reports)
    return DONE if ended_well else ENDED_FAILED


async def _embedded(team: Team, texts: Sequence[str], *, live: bool) -> list[Report]:
    async with embedded(team) as runtime:
        return await _asked(runtime, team, texts, live=live)


async def _on_servers(settings: Settings, team: Team, texts: Sequence[str], *, live: bool) -> list[Report]:
    async with connected(settings) as (board, broker), _process("orchestrator") as one, _process("worker", "--team", team.name) as other:
        client = Client(board, broker, tenant=settings.tenant)
        return await _while_they_live(_asked(client, team, texts, live=live), one, other)


async def _asked(client: Client, team: Team, texts: Sequence[str], *, live: bool) -> list[Report]:
    """Ask one request after the other; more than one are of one session."""
    session = Session(f"demo-{uuid.uuid4()}") if len(texts) > 1 else None
    reports = []
    for text in texts:
        accepted = await client.submit(team, text, session=session)
        reports.append(await follow(client, accepted.request_id, team, live=live))
    return reports


async def _while_they_live(following: Coroutine[None, None, list[Report]], *processes: Process) -> list[Report]:
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
    if report.judgements:
        console.print(rendering.judgements_table(report))
    if report.shared:
        console.print(rendering.shared_table(report))
    console.print(rendering.briefs_table(report))
    console.print(rendering.answer_block(report))
    if report.desk:
        console.print(rendering.desk_tree([(report.request_id, each) for each in report.desk]))
    usage = report.usage
    console.print(
        f"[dim]{report.status}: {usage.model_calls} model calls, {usage.input_tokens} tokens in, {usage.output_tokens} out, "
        f"{len(report.events)} events[/dim]"
    )

"""Requests: `submit`, `list`, `show` and `cancel`, on servers. Each returns an exit code; see `ops.commands.exits`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace

from rich.live import Live

from ops import boundary_tables, deciding, rendering, trails
from ops.client import Client
from ops.commands.exits import DONE, exit_of
from ops.commands.printing import print_exactly, print_json
from ops.measuring import measure
from ops.opening import Accepted
from ops.private import read_private
from ops.reading import Reader
from ops.reporting import Report, brief_report
from ops.sessions import Session
from ops.settings import Settings
from ops.wiring import artifacts_of, board_of, connected, team_of
from schemas.errors import InvalidTeam, NotFound
from schemas.requests import RequestStatus
from workers.team import Team, shipped_teams


async def submit(
    settings: Settings,
    text: str,
    *,
    constraints: Mapping[str, str],
    key: str | None,
    deadline_seconds: float | None,
    wait: bool,
    as_json: bool,
    session: str | None = None,
    session_wait: bool = False,
) -> int:
    """Submit a request; with `wait`, show the whole plan until it is over, then its answer."""
    team = team_of(settings)
    async with connected(settings) as (board, broker):
        client = Client(board, broker, tenant=settings.tenant)
        part_of = None if session is None else Session(session, session_wait, settings.retention_seconds)
        accepted = await client.submit(
            team,
            text,
            constraints=constraints,
            idempotency_key=key,
            deadline_seconds=deadline_seconds,
            session=part_of,
        )
        return await finish(client, accepted, team, wait=wait, as_json=as_json)


async def finish(client: Client, accepted: Accepted, team: Team | None, *, wait: bool, as_json: bool) -> int:
    """Print the id of an open request; with `wait`, show its whole plan until it is over, then its answer. Returns the exit code."""
    if not wait:
        if as_json:
            print_json({"request_id": accepted.request_id, "new": accepted.new})
        else:
            print(accepted.request_id)
        return DONE
    try:
        report = await follow(client, accepted.request_id, team, live=not as_json)
    except asyncio.CancelledError:
        print(f"request {accepted.request_id} goes on; see: briefline show {accepted.request_id}", file=sys.stderr)
        raise
    if as_json:
        print_json(report.as_json())
    else:
        rendering.console().print(rendering.answer_block(report))
    return exit_of(report.status)


async def follow(client: Client, request_id: str, team: Team | None, *, live: bool) -> Report:
    """Wait until a request is over, with the plan drawn anew at each event on a terminal, and return its report."""
    console = rendering.console()
    if not live:
        await client.wait(request_id)
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as drawing:
            async for report in client.follow(request_id):
                drawing.update(rendering.plan_table(report), refresh=True)
    else:
        print(request_id, flush=True)
        seen: dict[str, str] = {}
        async for report in client.follow(request_id):
            for each in report.steps:
                if seen.get(each.step.id) != each.state:
                    seen[each.step.id] = each.state
                    print(f"{each.step.id}: {each.state}", file=sys.stderr, flush=True)
    return await client.show(request_id, team)


async def list_requests(settings: Settings, *, status: RequestStatus | None, limit: int, as_json: bool) -> int:
    """List the tenant's recent requests."""
    async with board_of(settings) as board:
        listed = await Reader(board, tenant=settings.tenant).recent(limit=limit, status=status)
    if as_json:
        print_json(
            [
                {
                    "request_id": each.request_id,
                    "status": each.status.value,
                    "team": each.team,
                    "age_ms": each.now_ms - each.opened_at_ms,
                    "text": each.text,
                    **({"session": {"name": each.session.name, "turn": each.session.turn}} if each.session else {}),
                }
                for each in listed
            ]
        )
    else:
        rendering.console().print(rendering.list_table(listed))
    return DONE


async def show(
    settings: Settings,
    request_id: str,
    *,
    brief: str | None = None,
    crossings: bool = False,
    at: int | None = None,
    team_name: str | None,
    as_json: bool,
) -> int:
    """Show everything of one request, now or as it was after event `at`; or exactly the brief that one step's model was given; or
    each decision of the gate.

    It is told from the request's events. A field that does not say the same is named on standard error.
    """
    async with board_of(settings) as board:
        client = Reader(board, tenant=settings.tenant)
        damaged = await client.damaged(request_id)
        for name, why in damaged.items():
            print(f"field {name!r} is damaged: {why}", file=sys.stderr)
        report = await client.show(request_id, at=at)
    team = team_at_hand(settings, report.request.team, team_name)
    if team is not None:
        report = replace(report, team=team)
    if brief is not None:
        return _show_brief(report, brief, team, as_json=as_json)
    if crossings:
        return _show_crossings(report, team, as_json=as_json)
    if as_json:
        shape = {**report.as_json(timeline=True), "metrics": measure(report).as_json()}
        print_json({**shape, "damaged": damaged} if damaged else shape)
    else:
        rendering.console().print(rendering.full(report))
    return DONE


async def show_trails(settings: Settings, request_id: str, *, basis: str | None, touched: str | None, at: int | None, as_json: bool) -> int:
    """Show what a value rests on, and what rests on one."""
    async with board_of(settings) as board:
        report = await Reader(board, tenant=settings.tenant).show(request_id, at=at)
    found = {"basis": basis and trails.basis(report, basis), "touched": touched and trails.touched(report, touched)}
    if as_json:
        print_json(
            {"request_id": request_id, **{name: trail.as_json() for name, trail in found.items() if isinstance(trail, trails.Trail)}}
        )
        return DONE
    for name, trail in found.items():
        if isinstance(trail, trails.Trail):
            rendering.console().print(boundary_tables.trail_tree(trail, "rests on" if name == "basis" else "is rested on by"))
    return DONE


async def show_private(settings: Settings, request_id: str, step: str, *, attempt: int | None, as_json: bool) -> int:
    """Show what was said and called in one attempt of a step. Who reads it is noted in the request's events first."""
    async with board_of(settings) as board:
        record = await read_private(board, artifacts_of(settings), request_id, step, attempt=attempt)
    if as_json:
        print_json(record.told)
    else:
        rendering.console().print(rendering.private_record(record))
    return DONE


def team_at_hand(settings: Settings, of_request: str, name: str | None) -> Team | None:
    """The code of a request's team: the one named, or the settings' if it is that, or a shipped one of that name; else none."""
    if name is not None:
        return team_of(settings, name)
    # What stands on the board names no module: only a shipped team is found by it.
    for candidate in (settings.team, *(shipped for shipped in shipped_teams() if shipped == of_request)):
        try:
            team = team_of(settings, candidate)
        except (NotFound, InvalidTeam):
            continue
        if team.name == of_request:
            return team
    return None


def _show_brief(report: Report, step: str, team: Team | None, *, as_json: bool) -> int:
    if team is None:
        raise NotFound(f"the code of team {report.request.team!r} is needed to rebuild a brief; name it with --team", path="team")
    each = brief_report(report, step, team)
    if as_json:
        print_json({**each.brief.model_dump(mode="json"), "sha256": each.brief.sha256, "as_given": each.as_given})
    else:
        print_exactly(each.brief.text)
        if each.as_given is False:
            print("not as it was given: the team's code has changed since (its SHA-256 differs)", file=sys.stderr)
    return DONE


def _show_crossings(report: Report, team: Team | None, *, as_json: bool) -> int:
    decisions = deciding.decisions_of(report, None if team is None else team.card)
    if as_json:
        print_json({"request_id": report.request_id, "decisions": deciding.as_json(decisions)})
    else:
        rendering.console().print(boundary_tables.crossings_tree(decisions))
    return DONE


async def cancel(settings: Settings, request_id: str, *, reason: str, as_json: bool) -> int:
    """Cancel a request, and say so once the board shows it."""
    async with connected(settings) as (board, broker):
        status = await Client(board, broker, tenant=settings.tenant, name="cli").cancel(request_id, reason)
    if as_json:
        print_json({"request_id": request_id, "status": status.value})
    else:
        print(f"{request_id} {status}")
    return DONE

"""Dead letters: `dead list|show|replay|drop`, on servers. The board says what is a dead letter; RabbitMQ's copies are bells."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from contextlib import suppress

from ops import rendering
from ops.client import Client
from ops.commands.exits import DONE, REFUSED, UNREACHABLE
from ops.commands.printing import print_json
from ops.commands.requests import team_at_hand
from ops.dead_letters import DeadLetter, rehearse
from ops.reading import INDEX_LIMIT, Reader
from ops.settings import Settings
from ops.wiring import board_of, connected
from schemas.codec import Json
from schemas.errors import Refused, Unavailable, Unreadable
from schemas.requests import RequestStatus


async def list_dead(
    settings: Settings, *, request: str | None, step: str | None, agent: str | None, reason: str | None, limit: int, as_json: bool
) -> int:
    """List the dead letters that fit."""
    async with board_of(settings) as board:
        client = Reader(board, tenant=settings.tenant)
        letters = await client.dead(request_id=request, step_id=step, agent=agent, reason=reason, limit=limit)
    if as_json:
        print_json([letter_json(each) for each in letters])
    else:
        rendering.console().print(rendering.dead_tree(letters))
    return DONE


async def show_dead(settings: Settings, request: str, step: str, *, as_json: bool) -> int:
    """Show one dead letter whole."""
    async with board_of(settings) as board:
        found = await Reader(board, tenant=settings.tenant).dead_letter(request, step)
    if as_json:
        print_json(letter_json(found))
    else:
        rendering.console().print_json(data=letter_json(found), ensure_ascii=False)
    return DONE


async def replay_dead(
    settings: Settings,
    *,
    request: str | None,
    step: str | None,
    agent: str | None,
    reason: str | None,
    every: bool,
    dry_run: bool,
    team_name: str | None,
    as_json: bool,
) -> int:
    """Replay the dead letters that fit, and say of each what came of it. Without any filter, `--all` has to be given.

    Returns `REFUSED` if any of them was refused, for example because somebody else has replayed it meanwhile, and
    `UNREACHABLE` if of any it is not known: then the rest was not tried. Both may be run again: what was replayed is refused.
    """
    if not (request or agent or reason or every):
        raise Refused("say which: a request, --agent, --reason, or --all")
    async with connected(settings) as (board, broker):
        client = Client(board, broker, tenant=settings.tenant, name=operator())
        if request and step:
            letters = [await client.dead_letter(request, step)]
            letters = [each for each in letters if agent in (None, each.record.agent) and reason in (None, each.reason)]
        else:
            letters = await client.dead(request_id=request, agent=agent, reason=reason, limit=INDEX_LIMIT)
        outcomes = await (_rehearsed(client, letters, settings, team_name) if dry_run else _replayed(client, letters))
    if as_json:
        print_json(outcomes)
    else:
        for outcome in outcomes:
            print(_said(outcome))
        if not outcomes:
            print("no dead letters fit")
    came = {outcome["outcome"] for outcome in outcomes}
    if "unknown" in came:
        return UNREACHABLE
    return REFUSED if "refused" in came else DONE


async def _replayed(client: Client, letters: Sequence[DeadLetter]) -> list[dict[str, Json]]:
    """Replay one after the other. Where nobody answers, nobody will answer the next one either: the rest is left alone."""
    outcomes: list[dict[str, Json]] = []
    unanswered = False
    for letter in letters:
        shape: dict[str, Json] = {"request_id": letter.request_id, "step": letter.step_id}
        if unanswered:
            outcomes.append({**shape, "outcome": "not tried"})
            continue
        try:
            epoch = await client.replay(letter.request_id, letter.step_id, letter.record.epoch)
            outcomes.append({**shape, "outcome": "replayed", "epoch": epoch})
        except (Refused, Unreadable) as error:
            outcomes.append({**shape, "outcome": "refused", "reason": str(error)})
        except Unavailable as error:
            unanswered = True
            outcomes.append({**shape, "outcome": "unknown", "reason": str(error)})
    return outcomes


async def _rehearsed(client: Client, letters: Sequence[DeadLetter], settings: Settings, team_name: str | None) -> list[dict[str, Json]]:
    """Say of each what a replay of all of them would do. Nothing is written."""
    outcomes: list[dict[str, Json]] = []
    together: dict[str, set[str]] = {}
    for letter in letters:
        together.setdefault(letter.request_id, set()).add(letter.step_id)
    for letter in letters:
        shape: dict[str, Json] = {"request_id": letter.request_id, "step": letter.step_id}
        try:
            if letter.request_status is RequestStatus.CANCELLED:
                raise Refused("the request was cancelled, for good")
            report = await client.show(letter.request_id)
            team = team_at_hand(settings, report.request.team, team_name)
            rehearsal = rehearse(letter.request_id, report.events, letter.step_id, team, together[letter.request_id])
            outcomes.append({**shape, "outcome": "would be replayed", **rehearsal.as_json()})
        except (Refused, Unreadable) as error:
            outcomes.append({**shape, "outcome": "would be refused", "reason": str(error)})
    return outcomes


def _said(outcome: dict[str, Json]) -> str:
    """An outcome for people: request, step, what came of it, and the details behind a colon; a rehearsal has more lines."""
    start = f"{outcome['request_id']} {outcome['step']} {outcome['outcome']}"
    if "epoch" in outcome:
        return f"{start}: epoch {outcome['epoch']}"
    if "reason" in outcome:
        return f"{start}: {outcome['reason']}"
    if "runs_again" not in outcome:
        return start
    lines = [f"{start}: {', '.join(outcome['runs_again'])}"]
    if outcome["still_stopped"]:
        lines.append(f"still stopped by another failure: {', '.join(outcome['still_stopped'])}")
    lines.append(f"brief: {outcome['brief']}")
    changes = outcome["facts_changed"]
    if changes is None:
        lines.append("facts: unknown")
    elif not changes:
        lines.append("facts: same")
    else:
        lines += [f"fact {each['fact']}: {_value(each['before'])} → {_value(each['now'])}" for each in changes]
    lines.append("; ".join(f"{name}: {comparison}" for name, comparison in outcome["made_with"].items()))
    return "\n    ".join([*lines, *outcome["notes"]])


def _value(value: Json) -> str:
    return "not there" if value is None else str(value)


def operator() -> str:
    """Who gives a command, for the record: user and machine, as far as this machine says."""
    with suppress(Exception):  # a container may have no name for its user
        return f"cli/{getpass.getuser()}@{socket.gethostname()}"
    return "cli"


async def drop_dead(settings: Settings, request: str, step: str, *, reason: str, as_json: bool) -> int:
    """Take a dead letter out of the list, with a reason that is kept as an event."""
    async with connected(settings) as (board, broker):
        await Client(board, broker, tenant=settings.tenant, name=operator()).drop(request, step, reason)
    if as_json:
        print_json({"request_id": request, "step": step, "outcome": "dropped"})
    else:
        print(f"{request} {step} dropped")
    return DONE


def letter_json(letter: DeadLetter) -> dict[str, Json]:
    """Return a dead letter as a JSON object."""
    failure = letter.record.failure
    return {
        "request_id": letter.request_id,
        "step": letter.step_id,
        "title": letter.title,
        "agent": letter.record.agent,
        "epoch": letter.record.epoch,
        "reason": letter.reason,
        "attempts": letter.record.attempt,
        "max_attempts": letter.record.max_attempts,
        "first_error": letter.record.first_error,
        "last_error": failure.description if failure else None,
        "request_status": letter.request_status.value,
        "failed_at": rendering.moment(letter.failed_at_ms),
        "age_ms": letter.now_ms - letter.failed_at_ms,
    }

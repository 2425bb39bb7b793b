"""Dead letters: `dead list|show|replay|drop`, on servers. The board says what is a dead letter; RabbitMQ's copies are bells."""

from __future__ import annotations

from ops import rendering
from ops.client import Client, DeadLetter
from ops.commands.exits import DONE, REFUSED, print_json
from ops.settings import Settings
from ops.wiring import connected
from schemas.codec import Json
from schemas.errors import NotFound, Refused


async def list_dead(settings: Settings, *, request: str | None, agent: str | None, reason: str | None, as_json: bool) -> int:
    """List the dead letters that fit."""
    async with connected(settings) as (board, broker):
        letters = await Client(board, broker, tenant=settings.tenant).dead(request_id=request, agent=agent, reason=reason)
    if as_json:
        print_json([letter_json(each) for each in letters])
    else:
        rendering.console().print(rendering.dead_tree(letters))
    return DONE


async def show_dead(settings: Settings, request: str, step: str, *, as_json: bool) -> int:
    """Show one dead letter whole."""
    async with connected(settings) as (board, broker):
        letters = await Client(board, broker, tenant=settings.tenant).dead(request_id=request)
    found = next((each for each in letters if each.step_id == step), None)
    if found is None:
        raise NotFound(f"request {request} has no dead letter of step {step!r}", path="step")
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
    as_json: bool,
) -> int:
    """Replay the dead letters that fit, and say of each what came of it. Without any filter, `--all` has to be given.

    Returns `REFUSED` if any of them was refused, for example because somebody else has replayed it meanwhile.
    """
    if not (request or agent or reason or every):
        raise Refused("say which: a request, --agent, --reason, or --all")
    async with connected(settings) as (board, broker):
        client = Client(board, broker, tenant=settings.tenant, name="cli")
        letters = [each for each in await client.dead(request_id=request, agent=agent, reason=reason) if step in (None, each.step_id)]
        if not letters and request and step:
            raise NotFound(f"request {request} has no dead letter of step {step!r}", path="step")
        outcomes = [await _replayed(client, each, dry_run=dry_run) for each in letters]
    if as_json:
        print_json(outcomes)
    else:
        for outcome in outcomes:
            print(_said(outcome))
        if not outcomes:
            print("no dead letters fit")
    return REFUSED if any(outcome["outcome"] == "refused" for outcome in outcomes) else DONE


async def _replayed(client: Client, letter: DeadLetter, *, dry_run: bool) -> dict[str, Json]:
    shape: dict[str, Json] = {"request_id": letter.request_id, "step": letter.step_id}
    if dry_run:
        report = await client.show(letter.request_id)
        stopped = next((gap.stopped for gap in report.gaps if gap.step == letter.step_id), ())
        return {**shape, "outcome": "would be replayed", "runs_again": [letter.step_id, *stopped]}
    try:
        epoch = await client.replay(letter.request_id, letter.step_id, letter.record.epoch)
    except Refused as error:
        return {**shape, "outcome": "refused", "reason": str(error)}
    return {**shape, "outcome": "replayed", "epoch": epoch}


def _said(outcome: dict[str, Json]) -> str:
    """An outcome as one line: request, step, what came of it, and the details behind a colon."""
    request, step, came, *details = outcome.values()
    if "epoch" in outcome:
        details = [f"epoch {outcome['epoch']}"]
    return f"{request} {step} {came}: {', '.join(', '.join(map(str, each)) if isinstance(each, list) else str(each) for each in details)}"


async def drop_dead(settings: Settings, request: str, step: str, *, reason: str, as_json: bool) -> int:
    """Take a dead letter out of the list, with a reason that is kept as an event."""
    async with connected(settings) as (board, broker):
        await Client(board, broker, tenant=settings.tenant, name="cli").drop(request, step, reason)
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

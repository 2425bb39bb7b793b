"""The producer: submits a request, and is a script to read, copy and change.

    python -m ops.producer "订单 88231 的扫地机老掉线……"

It validates everything first (what it refuses opens nothing), opens the request on the blackboard, then rings SUBMIT.
Accepted means opened: should the bell be lost, the sweeper finds the request by its mark.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from ops.settings import load_settings
from ops.wiring import connected, team_of
from schemas import codec, fields
from schemas.blackboard import ABSENT, Blackboard, Conflict, Snapshot, Write
from schemas.broker import COMMANDS, Broker
from schemas.errors import BrieflineError, InvalidValue, KeyReused, Unavailable, Undeliverable
from schemas.limits import MAX_REQUEST_TEXT_BYTES, within
from schemas.messages import ORCHESTRATOR, MessageType, message
from schemas.requests import ConstraintRecord, RequestRecord, RequestStatus, Role, StatusRecord, request_id
from schemas.teams import TeamCard
from workers.team import Team

OPENING_MS = 60_000
"""How long an opening may take before the sweeper forgets a request that was announced and never opened."""
FIRST_LOOK_MS = 5_000
"""When the sweeper looks at a request whose SUBMIT nobody has answered."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Accepted:
    """An open request. `new` is False where the same idempotency key and content had opened it before."""

    request_id: str
    new: bool


@dataclass(frozen=True, slots=True)
class Opening:
    """What the write that opens a request puts."""

    record: RequestRecord
    card: TeamCard
    constraints: tuple[ConstraintRecord, ...]
    deadline_ms: int
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further details of the event."""


def check_deadline(seconds: float | None) -> None:
    """Refuse a deadline that is none.

    Raises:
        InvalidValue: not above 0, or longer than ten years.
    """
    if seconds is not None and not 0 < seconds < 10 * 365 * 86_400:
        raise InvalidValue("a deadline is a length in seconds above 0", path="deadline_seconds")


async def submit(
    board: Blackboard,
    broker: Broker,
    team: Team,
    text: str,
    *,
    tenant: str = "default",
    constraints: Mapping[str, object] | None = None,
    idempotency_key: str | None = None,
    deadline_seconds: float | None = None,
    trace: str | None = None,
) -> Accepted:
    """Open a request and ring SUBMIT.

    `constraints` given here win over what the team extracts from `text`. Without `idempotency_key` each call is a new
    request; with one, the same content again is the same request. `deadline_seconds` defaults to the team's.
    `trace` is a W3C `traceparent`, carried by every message of the request.

    Raises:
        InvalidValue: the text is empty or no Unicode, a constraint is unknown or of another type.
        LimitExceeded: the text is too long.
        MissingConstraint: a required constraint is neither given nor in the text.
        KeyReused: the key already stands for a request with other content.
        Unavailable: the board is not there. Submitting again with the same key is safe.
    """
    codec.refuse_unsafe(text, "text")
    if not text.strip():
        raise InvalidValue("a request has at least one word", path="text")
    within(len(text.encode()), MAX_REQUEST_TEXT_BYTES, "the request", path="text")
    check_deadline(deadline_seconds)
    records = team.resolve(text, constraints)
    key = idempotency_key or uuid.uuid4().hex
    codec.refuse_unsafe(key, "idempotency_key")
    codec.refuse_unsafe(trace, "trace")
    record = RequestRecord(
        id=request_id(tenant, key),
        tenant=tenant,
        team=team.name,
        text=text,
        constraints=tuple(each.name for each in records),
        idempotency_key=key,
        content_sha256=_content(team.name, text, records),
        trace=trace,
    )
    deadline_ms = int((deadline_seconds or team.card.deadline_seconds) * 1000)
    return await open_request(board, broker, Opening(record, team.card, records, deadline_ms))


async def open_request(board: Blackboard, broker: Broker, opening: Opening) -> Accepted:
    """Open a request, and ring SUBMIT.

    Raises:
        KeyReused: its key already stands for a request with other content.
        Unavailable: the board is not there.
    """
    new = await _open(board, opening)
    await announce(broker, opening.record.id, opening.record.trace)
    return Accepted(opening.record.id, new)


async def _open(board: Blackboard, opening: Opening) -> bool:
    """Write the opening; False if the same request was open already.

    The mark comes first, so that an open request without a mark cannot be. It is set again afterwards, sooner: a sweeper
    that looked in between, and found nothing, may have taken the first one away.
    """
    record = opening.record
    status = StatusRecord(status=RequestStatus.ACCEPTED, deadline_ms=opening.deadline_ms)
    puts = {
        fields.REQUEST: record.to_json(),
        fields.CARD: opening.card.to_json(),
        fields.STATUS: status.to_json(),
        **{fields.constraint(each.name): each.to_json() for each in opening.constraints},
    }
    write = Write(
        role=Role.PRODUCER,
        writer=f"producer/{record.tenant}",
        operation_id=uuid.uuid4().hex,
        expect=dict.fromkeys(puts, ABSENT),
        put=puts,
        labels={"event": "request_opened", "team": record.team, **opening.labels},
        cause="submit",
        returning=(fields.REQUEST,),
    )
    await board.enter(record.id, OPENING_MS)
    outcome, _ = await asyncio.gather(board.write(record.id, write), board.recent_add(record.tenant, record.id))
    await board.enter(record.id, min(FIRST_LOOK_MS, status.deadline_ms))
    if not isinstance(outcome, Conflict):
        return True
    _refuse_other(outcome.returned, record.idempotency_key, record.content_sha256)
    return False


async def known(board: Blackboard, request: str, key: str, content_sha256: str) -> bool:
    """Return whether a request of this key is open already.

    Raises:
        KeyReused: it is, with other content.
    """
    snapshot = await board.read(request, (fields.REQUEST,))
    if not snapshot.position:
        return False
    _refuse_other(snapshot, key, content_sha256)
    return True


def _refuse_other(snapshot: Snapshot, key: str, content_sha256: str) -> None:
    there = snapshot.value(fields.REQUEST)
    if there is None or RequestRecord.from_json(there).content_sha256 != content_sha256:
        raise KeyReused(f"key {key!r} stands for request {snapshot.request_id} with other content", path="idempotency_key")


async def announce(broker: Broker, request: str, trace: str | None) -> None:
    """Ring SUBMIT. The request is accepted already: should nobody hear it, the sweeper looks."""
    try:
        await broker.publish(COMMANDS, message(MessageType.SUBMIT, request, sender="producer", recipient=ORCHESTRATOR, trace=trace))
    except (Unavailable, Undeliverable) as error:
        log.warning("submit_not_rung", request=request, reason=str(error))


def _content(team: str, text: str, constraints: tuple[ConstraintRecord, ...]) -> str:
    """What makes two submissions the same: team, words, and the constraints they come to."""
    values = [[each.name, each.value] for each in constraints]
    return hashlib.sha256(codec.encode([team, text, values])).hexdigest()


async def main(text: str) -> None:
    """Submit one request to the servers and team of the settings, and print its id."""
    settings = load_settings()
    async with connected(settings) as (board, broker):
        accepted = await submit(board, broker, team_of(settings), text, tenant=settings.tenant)
        print(accepted.request_id)


if __name__ == "__main__":
    try:
        asyncio.run(main(" ".join(sys.argv[1:]) or sys.stdin.read()))
    except BrieflineError as refused:
        sys.exit(f"not submitted: {refused}")

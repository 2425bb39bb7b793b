"""Opening: the one write that makes a request, and the bell after it. Accepted means opened.

Should the bell be lost, the sweeper finds the request by its mark. Called by whoever makes requests: `ops.producer`, `ops.forking`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from schemas import fields
from schemas.blackboard import ABSENT, Blackboard, Conflict, Snapshot, Write
from schemas.broker import COMMANDS, Broker
from schemas.errors import InvalidValue, KeyReused, Unavailable, Undeliverable
from schemas.ids import new_id
from schemas.messages import ORCHESTRATOR, MessageType, message
from schemas.requests import ConstraintRecord, RequestRecord, RequestStatus, Role, StatusRecord

OPENING_MS = 60_000
"""How long an opening may take before its session forgets a request that was announced and never opened."""
FIRST_LOOK_MS = 30_000
"""When the sweeper looks at a request for the first time, and forgets one that was never opened: after two calls of the longest length."""
UNHEARD_LOOK_MS = 5_000
"""When it looks at a request whose SUBMIT could not be rung."""

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
    card: bytes
    """The team's card as it is stored."""
    constraints: tuple[ConstraintRecord, ...]
    deadline_ms: int
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further details of the event."""
    shared: Mapping[str, bytes] = field(default_factory=dict)
    """Shared fields (`field/<name>`) that the request starts with."""


def check_deadline(seconds: float | None) -> None:
    """Refuse a deadline that is none.

    Raises:
        InvalidValue: not above 0, or longer than ten years.
    """
    if seconds is not None and not 0 < seconds < 10 * 365 * 86_400:
        raise InvalidValue("a deadline is a length in seconds above 0", path="deadline_seconds")


async def open_request(board: Blackboard, broker: Broker, opening: Opening) -> Accepted:
    """Open a request, and ring SUBMIT.

    Raises:
        KeyReused: its key already stands for a request with other content.
        Unavailable: the board is not there.
    """
    new = await _open(board, opening)
    await announce(board, broker, opening.record.id, opening.record.trace)
    return Accepted(opening.record.id, new)


async def _open(board: Blackboard, opening: Opening) -> bool:
    """Write the opening; False if the same request was open already.

    The mark comes first, so that an open request without a mark cannot be. It is set again where the write took so long that
    a sweeper may have looked in between, found nothing, and taken the mark away, and sooner where the deadline is sooner.
    """
    record = opening.record
    status = StatusRecord(status=RequestStatus.ACCEPTED, deadline_ms=opening.deadline_ms)
    puts = {
        fields.REQUEST: record.to_json(),
        fields.CARD: opening.card,
        fields.STATUS: status.to_json(),
        **{fields.constraint(each.name): each.to_json() for each in opening.constraints},
        **opening.shared,
    }
    write = Write(
        role=Role.PRODUCER,
        writer=f"producer/{record.tenant}",
        operation_id=new_id(),
        expect=dict.fromkeys(puts, ABSENT),
        put=puts,
        labels={"event": "request_opened", "team": record.team, **opening.labels},
        cause="submit",
        returning=(fields.REQUEST,),
    )
    began = time.monotonic()
    await board.enter(record.id, FIRST_LOOK_MS)
    outcome, _ = await asyncio.gather(board.write(record.id, write), board.recent_add(record.tenant, record.id))
    if status.deadline_ms < FIRST_LOOK_MS or time.monotonic() - began > FIRST_LOOK_MS / 2000:
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


async def announce(board: Blackboard, broker: Broker, request: str, trace: str | None) -> None:
    """Ring SUBMIT. The request is accepted already: should nobody hear it, the sweeper looks, and soon where that is known."""
    try:
        await broker.publish(COMMANDS, message(MessageType.SUBMIT, request, sender="producer", recipient=ORCHESTRATOR, trace=trace))
    except (Unavailable, Undeliverable) as error:
        log.warning("submit_not_rung", request=request, reason=str(error))
        with suppress(Unavailable):  # its mark stands
            await board.enter(request, UNHEARD_LOOK_MS)

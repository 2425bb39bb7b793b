"""The producer: submits a request, and is a script to read, copy and change.

    python -m ops.producer "订单 88231 的扫地机老掉线……"

It validates everything first (what it refuses opens nothing), opens the request on the blackboard, then rings SUBMIT.
Accepted means opened: should the bell be lost, the sweeper finds the request by its mark.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Mapping

from ops.opening import Accepted, Opening, announce, check_deadline, known, open_request
from ops.sessions import Session, take_turn
from ops.settings import load_settings
from ops.wiring import connected, team_of
from schemas import codec
from schemas.blackboard import Blackboard
from schemas.broker import Broker
from schemas.errors import BrieflineError, InvalidValue
from schemas.ids import new_id
from schemas.limits import MAX_REQUEST_TEXT_BYTES, within
from schemas.requests import ConstraintRecord, RequestRecord, request_id
from workers.team import Team


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
    session: Session | None = None,
) -> Accepted:
    """Open a request and ring SUBMIT.

    `constraints` given here win over what the team extracts from `text`. Without `idempotency_key` each call is a new
    request; with one, the same content again is the same request. `deadline_seconds` defaults to the team's.
    `trace` is a W3C `traceparent`, carried by every message of the request. With a `session` it is the next request of it.

    Raises:
        InvalidValue: the text is empty or no Unicode, a constraint is unknown or of another type.
        LimitExceeded: the text is too long.
        MissingConstraint: a required constraint is neither given nor in the text.
        SessionBusy: the session's last request is not over.
        KeyReused: the key already stands for a request with other content.
        Unavailable: the board is not there. Submitting again with the same key is safe.
    """
    codec.refuse_unsafe(text, "text")
    if not text.strip():
        raise InvalidValue("a request has at least one word", path="text")
    within(len(text.encode()), MAX_REQUEST_TEXT_BYTES, "the request", path="text")
    check_deadline(deadline_seconds)
    records = team.resolve(text, constraints)
    key = idempotency_key or new_id()
    codec.refuse_unsafe(key, "idempotency_key")
    codec.refuse_unsafe(trace, "trace")
    record = RequestRecord(
        id=request_id(tenant, key),
        tenant=tenant,
        team=team.name,
        text=text,
        constraints=tuple(each.name for each in records),
        idempotency_key=key,
        content_sha256=_content(team.name, text, records, session),
        trace=trace,
    )
    deadline_ms = int((deadline_seconds or team.card.deadline_seconds) * 1000)
    if session is not None:
        if await known(board, record.id, key, record.content_sha256):  # whatever the session says meanwhile
            await announce(board, broker, record.id, trace)
            return Accepted(record.id, new=False)
        turn, carried = await take_turn(board, session, team.card, tenant=tenant, request_id=record.id, deadline_ms=deadline_ms)
        record = record.model_copy(update={"session": turn})
        labels = {"session": session.name, "turn": str(turn.turn), **carried.labels}
        return await open_request(board, broker, Opening(record, team.card_json, records, deadline_ms, labels, carried.fields))
    return await open_request(board, broker, Opening(record, team.card_json, records, deadline_ms))


def _content(team: str, text: str, constraints: tuple[ConstraintRecord, ...], session: Session | None) -> str:
    """What makes two submissions the same: team, words, the constraints they come to, and the session by name."""
    values = [[each.name, each.value] for each in constraints]
    return hashlib.sha256(codec.encode([team, text, values, *([] if session is None else [session.name])])).hexdigest()


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

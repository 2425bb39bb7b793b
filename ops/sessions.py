"""Sessions: requests of one conversation, one after the other. Called by `ops.producer` before it opens a request.

A session is a record under an id of its own that names its newest request; who may speak next is decided by its version
(compare-and-set). The record is written just before the request is opened: a request that it names and the board does not
have is taken for one that is about to be opened, for as long as an opening may take, and afterwards for none.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

from ops.following import LOOK_SECONDS
from ops.opening import OPENING_MS
from schemas import codec, fields
from schemas.blackboard import Blackboard, Snapshot, Write, Written
from schemas.errors import InvalidValue, SessionBusy, Unreadable
from schemas.ids import new_id
from schemas.requests import RequestRecord, Role, SessionRecord, SessionTurn, StatusRecord, session_id
from schemas.shared import FieldRecord, check_value
from schemas.teams import TeamCard

RETENTION_SECONDS = 7 * 24 * 3600
MAX_NAME_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Session:
    """The session that a request is to be part of, and what to do where its last request is not over: wait, or be refused."""

    name: str
    wait: bool = False
    retention_seconds: int = RETENTION_SECONDS
    """How long it is remembered after the time of its last request is over."""
    look_seconds: float = LOOK_SECONDS
    """How long silence is trusted while waiting."""

    def __post_init__(self) -> None:
        """Refuse a name that is none.

        Raises:
            InvalidValue: it is blank, too long, or no Unicode.
        """
        codec.refuse_unsafe(self.name, "session")
        if not self.name.strip() or len(self.name) > MAX_NAME_CHARACTERS:
            raise InvalidValue(f"a session has a name of at most {MAX_NAME_CHARACTERS} characters", path="session")


@dataclass(frozen=True, slots=True)
class Busy:
    """The session's last request is not over; it is `gone_at_ms` (board clock) at the earliest if it was never opened."""

    last: str
    gone_at_ms: int


@dataclass(frozen=True, slots=True)
class Carried:
    """Fields of an opening write that come from the request before, and the names of those that could not come along."""

    fields: Mapping[str, bytes]
    dropped: tuple[str, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        """What the opening event says of it."""
        return {"not_carried": ", ".join(self.dropped)} if self.dropped else {}


def next_turn(name: str, known: Snapshot, last: Snapshot | None, request_id: str) -> SessionTurn | Busy:
    """Return a request's turn in a session, or that another one has it. Pure.

    `known` is the session's record as it was read, `last` the status of the request that it names. A request that the record
    names already has its turn, also where its opening has not been seen.
    """
    stored = known.fields.get(fields.SESSION)
    if stored is None:
        return SessionTurn(name=name, turn=1)
    record = SessionRecord.from_json(stored.value)
    if record.last == request_id:
        return SessionTurn(name=name, turn=record.turn, previous=record.previous)
    status = None if last is None else last.value(fields.STATUS)
    gone_at_ms = stored.at_ms + OPENING_MS
    if known.now_ms < gone_at_ms if status is None else not StatusRecord.from_json(status).status.over:
        return Busy(record.last, gone_at_ms)
    previous = record.previous if status is None else record.last
    return SessionTurn(name=name, turn=record.turn + 1, previous=previous)


def carried(card: TeamCard, previous: Snapshot) -> Carried:
    """Return the shared fields that the request after `previous` starts with: those that its team declares `carry`. Pure.

    A field keeps its value, source and time, and says which request it comes from. What was only proposed, or reserved and not
    confirmed, is left behind. Contributions and reservations keep their step's name with the request's beside it, so that a step of
    that name does its own. What cannot
    be read, or is no value that the field can have today, is left behind and named; so is all of another team's request.
    """
    stored = previous.fields.get(fields.REQUEST)
    if stored is None or RequestRecord.from_json(stored.value).team != card.name:
        return Carried({})
    found: dict[str, bytes] = {}
    dropped: list[str] = []
    for name, declared in card.fields.items():
        there = previous.fields.get(fields.shared(name))
        if not declared.carry or there is None:
            continue
        try:
            record = FieldRecord.from_json(there.value)
            if record.value is not None:
                check_value(declared, record.value)
        except (Unreadable, InvalidValue):
            dropped.append(name)
            continue
        written_there = there.position > stored.position or not record.carried_from
        source = previous.request_id if written_there else record.carried_from
        found[fields.shared(name)] = _kept(record, source).to_json()
    return Carried(found, tuple(dropped))


def _kept(record: FieldRecord, source: str) -> FieldRecord:
    """A shared field's record as it goes on in the next request of the session."""

    def named(step: str) -> str:
        return step if "@" in step else f"{step}@{source}"

    return record.model_copy(
        update={
            "carried_from": source,
            "claims": tuple(each.model_copy(update={"step": named(each.step)}) for each in record.claims),
            "reservations": {
                named(name): each.model_copy(update={"step": named(each.step)})
                for name, each in record.reservations.items()
                if each.confirmed
            },
            "proposals": (),
            "seen": {},
        }
    )


async def take_turn(
    board: Blackboard, session: Session, card: TeamCard, *, tenant: str, request_id: str, deadline_ms: int
) -> tuple[SessionTurn, Carried]:
    """Make a request the newest of its session; return its turn, and what it starts with. It has to be opened at once.

    Raises:
        SessionBusy: the last request of the session is not over, or another one was faster.
    """
    record_id = session_id(tenant, session.name)
    while True:
        known = await board.read(record_id, (fields.SESSION,))
        turn = next_turn(session.name, known, await _last(board, known), request_id)
        if isinstance(turn, Busy):
            if not session.wait:
                raise SessionBusy(f"session {session.name!r} is busy: its request {turn.last} is not over", path="session")
            await _over(board, turn, session.look_seconds)
            continue
        starts_with = await _carried(board, card, turn.previous)
        wanted = SessionRecord(name=session.name, turn=turn.turn, last=request_id, previous=turn.previous)
        stored = known.value(fields.SESSION)
        if stored is not None and SessionRecord.from_json(stored) == wanted:
            return turn, starts_with
        write = Write(
            role=Role.PRODUCER,
            writer=f"producer/{tenant}",
            operation_id=new_id(),
            expect={fields.SESSION: known.version(fields.SESSION)},
            put={fields.SESSION: wanted.to_json()},
            labels={"event": "session_continued", "turn": str(turn.turn)},
            cause="submit",
            expire_after_seconds=session.retention_seconds + deadline_ms // 1000,
        )
        if isinstance(await board.write(record_id, write), Written):
            return turn, starts_with


async def _carried(board: Blackboard, card: TeamCard, previous: str | None) -> Carried:
    names = [fields.shared(name) for name, declared in card.fields.items() if declared.carry]
    if previous is None or not names:
        return Carried({})
    return carried(card, await board.read(previous, (fields.REQUEST, *names)))


async def _last(board: Blackboard, known: Snapshot) -> Snapshot | None:
    stored = known.value(fields.SESSION)
    return None if stored is None else await board.read(SessionRecord.from_json(stored).last, (fields.STATUS,))


async def _over(board: Blackboard, busy: Busy, look_seconds: float) -> None:
    """Wait until a request is over, or known never to have been opened."""
    async with aclosing(board.watch_field(busy.last, fields.STATUS, look_seconds=look_seconds)) as snapshots:
        async for snapshot in snapshots:
            status = snapshot.value(fields.STATUS)
            if snapshot.now_ms >= busy.gone_at_ms if status is None else StatusRecord.from_json(status).status.over:
                return

"""Reading: what can be said of requests by looking at the board alone: status, waiting, reports, lists, dead letters.

It changes nothing and needs no broker. Called by the command line, and by the client that adds what changes something.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import structlog

from ops.auditing import Audit, audit
from ops.comparing import Comparison, compare, moment_of
from ops.dead_letters import DeadLetter, letter_fields, letter_of
from ops.following import LOOK_SECONDS, events_of, gone
from ops.measuring import measure
from ops.metrics import Metrics, Price
from ops.records import damaged
from ops.reporting import Report, report
from orchestrator.desk import DeskItem, desk_of, fields_of_desk
from orchestrator.views import outline_fields, outlined, view_of
from schemas import fields
from schemas.blackboard import Blackboard, DeadEntry, Event, Snapshot, fold
from schemas.errors import NotFound, Refused, Unreadable
from schemas.gate import BoundaryRules
from schemas.requests import AnswerRecord, Gap, RequestRecord, RequestStatus, SessionTurn, StatusRecord, StepRecord
from workers.team import Team

INDEX_LIMIT = 100_000
"""How many entries of the index of dead letters are looked at, the newest first."""
INDEX_BATCH = 200

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Listed:
    """One request in a list."""

    request_id: str
    team: str
    status: RequestStatus
    text: str
    opened_at_ms: int
    now_ms: int
    session: SessionTurn | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request: how it ended, the text for the user, and what the text does not have."""

    status: RequestStatus
    text: str
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """The metrics of one request."""

    request_id: str
    team: str
    metrics: Metrics


class Reader:
    """Everything a user can learn of requests of one tenant. `look_seconds`: how long silence is trusted while waiting."""

    def __init__(self, board: Blackboard, *, tenant: str = "default", look_seconds: float = LOOK_SECONDS) -> None:
        self._board = board
        self._tenant = tenant
        self._look_seconds = look_seconds

    async def status(self, request_id: str) -> RequestStatus:
        """Return a request's status.

        Raises:
            NotFound: the board has no such request.
        """
        return (await self.status_record(request_id)).status

    async def status_record(self, request_id: str) -> StatusRecord:
        """Return a request's status with its deadline and how often it was replayed.

        Raises:
            NotFound: the board has no such request.
        """
        return _status_record(await self._board.read(request_id, (fields.STATUS,)))

    async def wait(self, request_id: str) -> RequestStatus:
        """Return the status once the request is over; nothing is polled. Bound it with `asyncio.timeout`.

        Raises:
            NotFound: the board has no such request, or no longer has it.
        """
        return (await self._over(request_id))[0]

    async def answer(self, request_id: str) -> Answer:
        """Return the answer once the request is over, and nothing else of it: far cheaper than a report. Waits as `wait` does.

        Raises:
            NotFound: the board has no such request, or no longer has it.
        """
        return _answer(*await self._over(request_id))

    async def _over(self, request_id: str) -> tuple[RequestStatus, Snapshot]:
        """The status of a request that is over, and the answer. Both are written at once, so the answer's write alone is waited for."""
        seen = False
        watch = self._board.watch_field(request_id, fields.ANSWER, also=(fields.STATUS,), look_seconds=self._look_seconds)
        async with aclosing(watch) as snapshots:
            async for snapshot in snapshots:
                if seen and not snapshot.position:
                    raise gone(request_id)
                status, seen = _status(snapshot), True
                if status.over:
                    return status, snapshot
        raise AssertionError("a watch has no end of its own")

    async def follow(self, request_id: str, team: Team | None = None) -> AsyncIterator[Report]:
        """Yield a report now and after each event, until the request is over.

        Raises:
            NotFound: the board has no such request, or no longer has it.
        """
        seen = False
        while True:
            events = await self._board.events(request_id)
            if seen and not events:
                raise gone(request_id)
            current, seen = report(request_id, events, team), True
            yield current
            if current.status.over:
                return
            async with aclosing(events_of(self._board, request_id, events[-1].position, look_seconds=self._look_seconds)) as more:
                async for event in more:
                    events.append(event)
                    current = report(request_id, events, team)
                    yield current
                    if current.status.over:
                        return

    async def show(self, request_id: str, team: Team | None = None, *, at: int | None = None) -> Report:
        """Return everything that can be said of a request; with its team's code, briefs too.

        `at` is an event position: the report is of the board as it was after that event.

        Raises:
            NotFound: the board has no such request, or the request no such event.
        """
        return report(request_id, await self._board.events(request_id), team, at=at)

    async def audit(self, request_id: str, team: Team) -> Audit:
        """Return what an acceptance audit finds of a request; `team` is the code that briefs are rebuilt with.

        Raises:
            NotFound: the board has no such request.
        """
        return audit(await self.show(request_id), team)

    async def metrics(
        self, request_ids: Sequence[str] = (), *, team: str | None = None, limit: int = 50, price: Price | None = None
    ) -> list[Measured]:
        """Return the boundary's metrics of these requests, else of the tenant's newest `limit`; of one team only where it is named.

        A request that cannot be read is logged and left out, unless it was named.

        Raises:
            NotFound: the board has no such request.
        """
        found: list[Measured] = []
        for request_id in request_ids or await self._board.recent(self._tenant, limit):
            try:
                shown = await self.show(request_id)
            except (NotFound, Unreadable) as error:
                if request_ids:
                    raise
                log.warning("request_unreadable", request=request_id, reason=str(error))
                continue
            if team in (None, shown.request.team):
                found.append(Measured(request_id, shown.request.team, measure(shown, price)))
        return found

    async def diff(self, a: str, b: str) -> Comparison:
        """Return what differs between two requests, each named by its id, or as `REQUEST@N`: as it was after event N.

        Raises:
            NotFound: the board has no such request, or the request no such event.
        """
        (first, at), (second, then) = moment_of(a), moment_of(b)
        return compare(*await asyncio.gather(self.show(first, at=at), self.show(second, at=then)))

    async def damaged(self, request_id: str) -> dict[str, str]:
        """Return the fields of a request that are not as its events say, or that cannot be read, each with the reason.

        It is empty as long as only Briefline has written there.
        """
        folded = fold(await self._board.events(request_id))
        snapshot = await self._board.read(request_id, tuple(folded))
        later = fold(await self._board.events(request_id))  # what was written meanwhile is no damage
        expected = {name: stored for name, stored in later.items() if folded.get(name) == stored}
        return damaged({name: snapshot.fields[name] for name in expected if name in snapshot.fields}, expected)

    async def events(self, request_id: str) -> list[Event]:
        """Return a request's events, oldest first."""
        return await self._board.events(request_id)

    async def recent(self, *, limit: int = 50, status: RequestStatus | None = None) -> list[Listed]:
        """Return the tenant's newest requests that the board still has, newest first."""
        ids = await self._board.recent(self._tenant, limit)
        names = (fields.REQUEST, fields.STATUS)
        snapshots = await asyncio.gather(*(self._board.read(each, names) for each in ids))
        listed = [_listed(snapshot) for snapshot in snapshots if snapshot.position]
        return [each for each in listed if each is not None and status in (None, each.status)]

    async def dead(
        self,
        *,
        request_id: str | None = None,
        step_id: str | None = None,
        agent: str | None = None,
        reason: str | None = None,
        limit: int = 1000,
    ) -> list[DeadLetter]:
        """Return up to `limit` dead letters that fit, newest first; each is checked against the board.

        One whose request cannot be read is logged and left out: it keeps nobody from the others.
        """
        entries = [
            entry
            for entry in await self._board.dead_list(INDEX_LIMIT)
            if request_id in (None, entry.request_id) and step_id in (None, entry.step_id)
        ]
        found: list[DeadLetter] = []
        for start in range(0, len(entries), INDEX_BATCH):
            letters = await asyncio.gather(*map(self._letter, entries[start : start + INDEX_BATCH]))
            found += [each for each in letters if each and agent in (None, each.record.agent) and reason in (None, each.reason)]
            if len(found) >= limit:
                break
        return found[:limit]

    async def desk(self, *, request_id: str | None = None, limit: int = 1000) -> list[tuple[str, DeskItem]]:
        """Return what waits for a person, with the request it is of, newest request first; each is read off the board."""
        wanted = [request_id] if request_id else dict.fromkeys(entry.request_id for entry in await self._board.dead_list(INDEX_LIMIT))
        found: list[tuple[str, DeskItem]] = []
        for each in wanted:
            found += [(each, item) for item in await self._desk_of(each)]
            if len(found) >= limit:
                break
        return found[:limit]

    async def rules(self, request_id: str) -> BoundaryRules:
        """Return the boundary rules that hold for a request now.

        Raises:
            NotFound: the board has no such request.
        """
        view = view_of(await self._board.read(request_id, (fields.CARD, fields.BOUNDARY)))
        if not view.exists or view.card is None:
            raise NotFound(f"the board has no request {request_id!r}: never opened, or past its retention", path="request")
        return view.boundary.rules or view.card.rules

    async def _desk_of(self, request_id: str) -> tuple[DeskItem, ...]:
        """The items of one request; one that cannot be read, is gone or was cancelled has none."""
        try:
            view = view_of(await self._board.read(request_id, (fields.STATUS, fields.PLAN, fields.REQUEST)))
            if not view.exists or view.plan is None or view.status.status is RequestStatus.CANCELLED:
                return ()
            view = outlined(view.joined(await self._board.read(request_id, (*outline_fields(view), fields.CARD))))
            outline = view.outline
            if outline is None:
                return ()
            view = view.joined(await self._board.read(request_id, fields_of_desk(view, outline)))
            return desk_of(view, outline)
        except Unreadable as error:
            log.warning("request_unreadable", request=request_id, reason=str(error))
            return ()

    async def dead_letter(self, request_id: str, step_id: str) -> DeadLetter:
        """Return one dead letter, whatever the index says.

        Raises:
            NotFound: the board has no such request or step.
            Refused: the step is no dead letter: it is not FAILED, was dropped, or its request was cancelled.
        """
        try:
            record = await self._step(request_id, step_id)
        except NotFound as error:
            raise NotFound(f"no dead letter of step {step_id!r}: {error}") from error
        letter = await self._letter(DeadEntry(request_id, step_id, record.epoch))
        if letter is None:
            raise Refused(f"step {step_id!r} is {record.state} in epoch {record.epoch}, so it is no dead letter", path="step")
        if letter.request_status is RequestStatus.CANCELLED:
            raise Refused("the request was cancelled, for good, so its steps are no dead letters", path="request")
        dropped = {"event": "dead_letter_dropped", "step": step_id, "epoch": str(record.epoch)}
        for event in await self._board.events(request_id):
            if dropped.items() <= event.labels.items():
                raise Refused(f"the dead letter of step {step_id!r} was dropped: {event.labels.get('reason', '')}", path="step")
        return letter

    async def _letter(self, entry: DeadEntry) -> DeadLetter | None:
        try:
            return letter_of(entry, await self._board.read(entry.request_id, letter_fields(entry.step_id)))
        except Unreadable as error:
            log.warning("dead_letter_unreadable", request=entry.request_id, step=entry.step_id, reason=str(error))
            return None

    async def _step(self, request_id: str, step_id: str) -> StepRecord:
        snapshot = await self._board.read(request_id, (fields.STATUS, fields.step(step_id)))
        _status(snapshot)
        value = snapshot.value(fields.step(step_id))
        if value is None:
            raise NotFound(f"request {request_id} has no step {step_id!r}", path="step")
        return StepRecord.from_json(value)


def _status(snapshot: Snapshot) -> RequestStatus:
    return _status_record(snapshot).status


def _status_record(snapshot: Snapshot) -> StatusRecord:
    value = snapshot.value(fields.STATUS)
    if value is None:
        raise NotFound(f"the board has no request {snapshot.request_id!r}: never opened, or past its retention", path="request")
    return StatusRecord.from_json(value)


def _answer(status: RequestStatus, snapshot: Snapshot) -> Answer:
    value = snapshot.value(fields.ANSWER)
    if value is None:
        raise Unreadable(f"request {snapshot.request_id!r} is over, and the board has no answer of it")
    record = AnswerRecord.from_json(value)
    return Answer(status, record.text, record.gaps)


def _listed(snapshot: Snapshot) -> Listed | None:
    """A request as it is listed; one that cannot be read is logged and left out: it keeps nobody from the others."""
    try:
        stored = snapshot.fields[fields.REQUEST]
        record = RequestRecord.from_json(stored.value)
        return Listed(record.id, record.team, _status(snapshot), record.text, stored.at_ms, snapshot.now_ms, record.session)
    except (Unreadable, NotFound, KeyError) as error:
        log.warning("request_unreadable", request=snapshot.request_id, reason=str(error))
        return None

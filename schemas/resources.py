"""Resources: how steps reserve parts of what there is only so much of (seats, a budget), confirm them, and give them back. Pure.

A reservation is held until a time and counts until then; confirmed, it counts for good. What is over its time and was not confirmed
counts for nothing, so that a step that died blocks nobody. Times are the board's, in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from schemas.errors import InvalidValue, NotPermitted
from schemas.shared import FieldRecord, Reservation


def taken(record: FieldRecord, now_ms: int, *, but: Collection[str] = ()) -> float:
    """Return what is reserved now, confirmed or not yet over; without the reservations of these ids."""
    return math.fsum(each.amount for id, each in record.reservations.items() if id not in but and _counts(each, now_ms))


def available(record: FieldRecord, capacity: float, now_ms: int) -> float:
    """Return what is left to reserve, never less than 0."""
    return max(0.0, capacity - taken(record, now_ms))


def reserve(record: FieldRecord, capacity: float, step: str, id: str, amount: float, now_ms: int, lease_ms: int) -> FieldRecord:
    """Return the record with `amount` reserved for `step` under `id` for `lease_ms` from now.

    The same id again is one reservation: of the new amount, from now on.

    Raises:
        InvalidValue: an amount or a time that is none.
        NotPermitted: the id is another step's, or not that much is left; with what is left.
    """
    if not (math.isfinite(amount) and amount > 0 and lease_ms > 0):
        raise InvalidValue("a reservation is of more than 0, and for longer than 0 ms")
    known = record.reservations.get(id)
    if known is not None and known.step != step:
        raise NotPermitted(f"{id!r} is reserved by another step")
    left = capacity - taken(record, now_ms, but=(id,))
    if amount > left:
        raise NotPermitted(f"{amount:g} cannot be reserved: {max(0.0, left):g} of {capacity:g} is left")
    reservation = Reservation(step=step, amount=amount, until_ms=now_ms + lease_ms)
    return _with(record, {**_without_lapsed(record, now_ms), id: reservation})


def confirm(record: FieldRecord, capacity: float, step: str, ids: Collection[str], now_ms: int) -> FieldRecord:
    """Return the record with these reservations of `step` confirmed, and any other of that step given back.

    One that is over its time is confirmed all the same where nobody has taken its part meanwhile.

    Raises:
        NotPermitted: one of them is gone, or its part was taken.
    """
    mine: dict[str, Reservation] = {}
    for id in ids:
        known = record.reservations.get(id)
        if known is None or known.step != step:
            raise NotPermitted(f"the reservation {id!r} is gone")
        mine[id] = known.model_copy(update={"confirmed": True})
    others = {id: each for id, each in _without_lapsed(record, now_ms).items() if each.step != step}
    left = capacity - taken(_with(record, others), now_ms)
    wanted = math.fsum(each.amount for each in mine.values())
    if any(not _counts(record.reservations[id], now_ms) for id in mine) and wanted > left:
        raise NotPermitted(f"a reservation was over its time, and its part is taken: {max(0.0, left):g} of {capacity:g} is left")
    return _with(record, {**others, **mine})


def release(record: FieldRecord, step: str) -> FieldRecord:
    """Return the record without anything of `step`, confirmed or not."""
    return _with(record, {id: each for id, each in record.reservations.items() if each.step != step})


def _counts(reservation: Reservation, now_ms: int) -> bool:
    return reservation.confirmed or reservation.until_ms > now_ms


def _without_lapsed(record: FieldRecord, now_ms: int) -> dict[str, Reservation]:
    return {id: each for id, each in record.reservations.items() if _counts(each, now_ms)}


def _with(record: FieldRecord, reservations: dict[str, Reservation]) -> FieldRecord:
    return record.model_copy(update={"reservations": reservations})

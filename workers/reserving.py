"""Reserving: a step takes its part of a resource while it runs, keeps it when it completes, and gives it back otherwise.

Each is one short compare-and-set under the step's fence, tried again when somebody else was first; no lock is held, and no model is
called in between. A worker that dies leaves reservations that lapse. Called by tools (through their context) and the worker line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from schemas import fields, resources
from schemas.blackboard import Blackboard, Snapshot, Write, Written
from schemas.errors import NotPermitted
from schemas.frozen import Scalar
from schemas.ids import new_id
from schemas.plans import Step
from schemas.requests import Role
from schemas.shared import FieldCard, FieldRecord

log = structlog.get_logger()

_Change = Callable[[FieldCard, FieldRecord, int], FieldRecord]
"""From a resource, its record and the board's time to what it shall be."""


class FenceLost(NotPermitted):
    """Somebody else has the step meanwhile, so that it reserves nothing any more."""


@dataclass(slots=True, eq=False)
class Reservations:
    """What one attempt of a step reserves. Without a board there is nothing to reserve from."""

    step: Step | None = None
    board: Blackboard | None = None
    request_id: str = ""
    fence: str = ""
    """Version of the step's record that the claim gave it."""
    writer: str = ""
    cards: Mapping[str, FieldCard] = field(default_factory=dict)
    constraints: Mapping[str, Scalar] = field(default_factory=dict)
    lease_ms: int = 0
    made: dict[str, set[str]] = field(default_factory=dict)
    """Resource -> ids of what this attempt reserved."""

    @property
    def resources(self) -> tuple[str, ...]:
        """What the step may reserve from."""
        if self.step is None:
            return ()
        return tuple(name for name in self.step.writes if name in self.cards and self.cards[name].is_resource)

    def capacity(self, card: FieldCard) -> float:
        """Return how much there is of a resource: by itself, or as the request's constraint says; nothing where that was not given."""
        if card.capacity is not None:
            return card.capacity
        value = self.constraints.get(card.capacity_of or "")
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0

    async def reserve(self, name: str, amount: float, key: str = "") -> float:
        """Reserve `amount` of a resource until the step ends, and return what is left. The same `key` again is the same reservation.

        Raises:
            NotPermitted: nothing that this step reserves from, not that much is left, or the step is not held any more.
            InvalidValue: an amount that is none.
            Unavailable: the board is not there.
        """
        if self.step is None or name not in self.resources:
            raise NotPermitted(f"nothing is reserved from {name!r} here; there is: {', '.join(self.resources) or 'nothing'}")
        step, id = self.step.id, f"{self.step.id}:{key or name}"
        left = 0.0

        def change(card: FieldCard, record: FieldRecord, now_ms: int) -> FieldRecord:
            nonlocal left
            reserved = resources.reserve(record, self.capacity(card), step, id, amount, now_ms, self.lease_ms)
            left = resources.available(reserved, self.capacity(card), now_ms)
            return reserved

        await self._change([name], change, "reserved")
        self.made.setdefault(name, set()).add(id)
        return left

    async def confirm(self) -> None:
        """Keep what this attempt reserved, and give back what an earlier one of the step left behind.

        Raises:
            NotPermitted: a reservation lapsed and its part was taken, or the step is not held any more.
            Unavailable: the board is not there.
        """

        def change(card: FieldCard, record: FieldRecord, now_ms: int) -> FieldRecord:
            assert self.step is not None
            return resources.confirm(record, self.capacity(card), self.step.id, self.made.get(card.name, set()), now_ms)

        await self._change(self.resources, change, "reservations_confirmed")

    async def release(self) -> None:
        """Give back all that the step reserved; where the step is not held any more, it lapses by itself.

        Raises:
            Unavailable: the board is not there.
        """
        if not self.resources:
            return
        try:
            await self._change(
                self.resources, lambda card, record, now_ms: resources.release(record, self.step_id), "reservations_released"
            )
        except FenceLost:
            log.info("reservations_left_to_lapse", request=self.request_id, step=self.step_id)

    @property
    def step_id(self) -> str:
        """Whose they are."""
        return "" if self.step is None else self.step.id

    async def _change(self, names: Sequence[str], change: _Change, event: str) -> None:
        """Read, decide, write; again where somebody else wrote meanwhile, since one of two always gets through."""
        if self.board is None or not names:
            return
        stored = [fields.shared(name) for name in names]
        now = await self.board.read(self.request_id, (fields.step(self.step_id), *stored))
        while True:
            if now.version(fields.step(self.step_id)) != self.fence:
                raise FenceLost(f"step {self.step_id!r} is not held any more")
            records = {name: _record(now, name) for name in names}
            wanted = {name: change(self.cards[name], record, now.now_ms) for name, record in records.items()}
            puts = {fields.shared(name): record.to_json() for name, record in wanted.items() if record != records[name]}
            if not puts:
                return
            write = Write(
                role=Role.WORKER,
                writer=self.writer,
                operation_id=new_id(),
                expect={fields.step(self.step_id): self.fence, **{name: now.version(name) for name in puts}},
                put=puts,
                labels={"event": event, "step": self.step_id},
                returning=(fields.step(self.step_id), *stored),
            )
            outcome = await self.board.write(self.request_id, write)
            if isinstance(outcome, Written):
                return
            now = outcome.returned


def _record(snapshot: Snapshot, name: str) -> FieldRecord:
    value = snapshot.value(fields.shared(name))
    return FieldRecord() if value is None else FieldRecord.from_json(value)


NO_RESERVATIONS = Reservations()
"""Those of a run without a board."""

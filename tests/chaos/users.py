"""What users do meanwhile: they submit, wait, replay and cancel, and try again where nobody can tell them what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import TypeAlias, TypeVar

from ops.client import Client
from schemas.errors import BrieflineError, Refused, Unavailable
from schemas.requests import RequestStatus, request_id
from tests.chaos.history import History
from tests.crash import teams
from tests.crash.checking import Expected
from workers.team import Team

AGAIN_SECONDS = 0.5
OVERDUE_SECONDS = 4.0

_COMPLETED = frozenset({RequestStatus.COMPLETED})
_NOT_WHOLE = frozenset({RequestStatus.FAILED, RequestStatus.DEGRADED})
_T = TypeVar("_T")


class User:
    """One user with one request. `expected` is what it must have come to, where it was accepted."""

    def __init__(self, client: Client, history: History, number: int, seed: int, folder: Path) -> None:
        self._client = client
        self._history = history
        self._random = Random(f"{seed}-{number}")
        self._key = f"chaos-{number}"
        self._folder = folder
        self.request_id = request_id("default", self._key)
        self.wish = self._random.choices([wish for wish, _ in WISHES], [weight for _, weight in WISHES])[0]
        self.expected: Expected | None = None

    async def live(self) -> None:
        """Do what this user wants, until it has come to its end."""
        self.expected = await self.wish(self)

    async def chain(self) -> Expected:
        """Three steps in a row."""
        await self._over(teams.chain)
        return Expected(self.request_id, _COMPLETED, ("First", "Second", "Third"))

    async def diamond(self) -> Expected:
        """Two branches that meet."""
        await self._over(teams.diamond)
        return Expected(self.request_id, _COMPLETED, ("Top", "Left", "Right", "Bottom"), any_order=True)

    async def planned(self) -> Expected:
        """A step plans further ones."""
        await self._over(teams.planned)
        return Expected(self.request_id, _COMPLETED, ("Plan", "More", "Most"), any_order=True)

    async def slow(self) -> Expected:
        """A step that outlasts the time of its ack."""
        await self._over(teams.slow)
        return Expected(self.request_id, _COMPLETED, ("Slow",))

    async def failing(self) -> Expected:
        """A step that fails, and that nobody replays."""
        await self._over(teams.alone, mended=self._folder / "never")
        return Expected(self.request_id, frozenset({RequestStatus.FAILED}), (), dead=frozenset({"broken"}))

    async def replayed(self) -> Expected:
        """A step that fails and is replayed until it has been."""
        mended = self._folder / self._key
        await self._over(teams.broken, mended=mended)
        await asyncio.to_thread(mended.touch)
        await self._until_done("replay", lambda: self._client.replay(self.request_id, "broken", 0))
        await self._observe()
        return Expected(self.request_id, _COMPLETED, ("First", "Second", "Third"))

    async def cancelled(self) -> Expected:
        """A request that would never end is cancelled."""
        await self._submit(teams.endless)
        await asyncio.sleep(self._random.uniform(0, 3))
        await self._until_done("cancel", lambda: self._client.cancel(self.request_id))
        await self._observe()
        return Expected(self.request_id, frozenset({RequestStatus.CANCELLED}))

    async def overdue(self) -> Expected:
        """A request that would never end has a deadline."""
        await self._over(teams.endless, deadline_seconds=OVERDUE_SECONDS)
        return Expected(self.request_id, _NOT_WHOLE, dead=None)

    async def _over(self, team: Team, *, mended: Path | None = None, deadline_seconds: float | None = None) -> None:
        await self._submit(team, mended=mended, deadline_seconds=deadline_seconds)
        await self._observe()

    async def _submit(self, team: Team, *, mended: Path | None = None, deadline_seconds: float | None = None) -> None:
        constraints = {"mended": str(mended)} if mended else {}
        await self._until_done(
            "submit",
            lambda: self._client.submit(
                team, f"Request {self._key}.", constraints=constraints, idempotency_key=self._key, deadline_seconds=deadline_seconds
            ),
        )

    async def _observe(self) -> None:
        """Wait until the request is over, and write down what was seen."""
        await self._until_done("observe", lambda: self._client.wait(self.request_id))

    async def _until_done(self, what: str, call: Callable[[], Awaitable[object]]) -> None:
        """Do something until it is known to be done. A replay that is refused was done by an earlier try of which nobody knew."""
        refusals = 0
        while True:
            self._history.note(what, "invoke", self.request_id)
            try:
                done = await call()
            except Unavailable as error:
                self._history.note(what, "unknown", self.request_id, why=str(error))
            except Refused as error:
                refusals += 1
                self._history.note(what, "fail", self.request_id, why=str(error))
                if what == "replay":
                    return
                if refusals > 3:
                    raise
            except BrieflineError as error:
                self._history.note(what, "fail", self.request_id, why=f"{type(error).__name__}: {error}")
                raise
            else:
                self._history.note(what, "ok", self.request_id, status=str(done) if what == "observe" else None)
                return
            await asyncio.sleep(self._random.uniform(0.2, 1.0) * AGAIN_SECONDS)


Wish: TypeAlias = Callable[[User], Awaitable[Expected]]

WISHES: tuple[tuple[Wish, int], ...] = (
    (User.chain, 30),
    (User.diamond, 25),
    (User.planned, 10),
    (User.slow, 10),
    (User.failing, 5),
    (User.replayed, 10),
    (User.cancelled, 5),
    (User.overdue, 5),
)
"""What users want, and how often."""

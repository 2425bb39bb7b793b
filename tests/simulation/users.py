"""The users of a run: one submits requests (and submits again what it has no answer for), one cancels, replays and drops.

Their memory of what they want survives a crash of their program, as a person's does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from ops.client import Client
from ops.dead_letters import DeadLetter
from schemas import fields
from schemas.errors import BrieflineError, KeyReused, NotFound, OutcomeUnknown, Refused, Unavailable
from schemas.requests import RequestRecord, request_id
from tests.simulation.ledger import Told
from tests.simulation.ports import SimulatedBoard, SimulatedBroker
from tests.simulation.processes import Life
from workers.team import Team

if TYPE_CHECKING:
    from tests.simulation.worlds import World


@dataclass
class Wish:
    """One thing that a user wants, at a time; `done` once it was told an outcome that it takes for final."""

    at_seconds: float
    key: str
    text: str = ""
    team: Team | None = None
    deadline_seconds: float | None = None
    gives_up: bool = False
    """Whether a crash of the user's program ends the wish."""
    tries: int = 0
    done: bool = False


class Producer:
    """Submits."""

    def __init__(self, world: World, wishes: list[Wish]) -> None:
        self._world = world
        self.wishes = wishes

    @property
    def done(self) -> bool:
        """Whether every request was submitted."""
        return all(wish.done for wish in self.wishes)

    async def live(self, life: Life) -> None:
        """Submit what is not submitted yet, one after the other, and again where no answer came."""
        client = Client(SimulatedBoard(life), SimulatedBroker(life), name=life.name)
        for wish in self.wishes:
            wish.done = wish.done or (wish.gives_up and wish.tries > 0)
            while not wish.done:
                await asyncio.sleep(max(0.0, wish.at_seconds - life.now))
                wish.tries += 1
                await self._submit(client, wish)
                if not wish.done:
                    await asyncio.sleep(life.random.uniform(0.5, 3))

    async def _submit(self, client: Client, wish: Wish) -> None:
        assert wish.team is not None
        told = Told("submit", request_id("default", wish.key), "")
        try:
            accepted = await client.submit(wish.team, wish.text, idempotency_key=wish.key, deadline_seconds=wish.deadline_seconds)
            told.outcome = "new" if accepted.new else "known"
        except KeyReused:
            told.outcome = "key_reused"
        except Unavailable as error:
            told.outcome, told.detail = "unknown", str(error)
        wish.done = told.outcome != "unknown"
        if told.outcome in ("new", "known") and not self._world.set_back:
            opened = RequestRecord.from_json(self._world.state(told.request_id).stored[fields.REQUEST].value)
            if opened.text != wish.text:
                self._world.ledger.broken(9, f"key {wish.key} was taken for other content")
        self._world.ledger.told.append(told)


class Operator:
    """Looks at requests and dead letters now and then, and cancels, replays or drops."""

    def __init__(self, world: World, random: Random, keys: list[str]) -> None:
        self._world = world
        self._random = random
        self._requests = [request_id("default", key) for key in keys]
        self._cancel = {each: random.uniform(1, 60) for each in self._requests if random.random() < 0.15}
        self._looks = random.randint(2, 8)
        self._replays = dict.fromkeys(self._requests, random.choice((0, 1, 2, 3)))
        self._drops = random.random() < 0.2
        if world.wanted.replays:
            self._looks, self._replays, self._cancel = 15, dict.fromkeys(self._requests, 10), {}

    @property
    def done(self) -> bool:
        """Whether it wants nothing more."""
        return self._looks <= 0 and not self._cancel

    async def live(self, life: Life) -> None:
        """Look, act, wait, until nothing more is wanted."""
        client = Client(SimulatedBoard(life), SimulatedBroker(life), name=life.name)
        while not self.done:
            with suppress(Unavailable):
                if life.random.random() < 0.4:
                    await self._end_of_one(client, life)
                else:
                    await asyncio.sleep(life.random.uniform(1, 60 if self._world.wanted.replays else 12))
                await self._act(client, life)
            self._looks -= 1  # only now: the world is not at rest as long as a look may still lead to something

    async def _end_of_one(self, client: Client, life: Life) -> None:
        """Wait for the end of a request, to act the moment it comes."""
        with suppress(TimeoutError, NotFound):
            async with asyncio.timeout(20):
                await client.wait(life.random.choice(self._requests))
                return
        await asyncio.sleep(1)

    async def _act(self, client: Client, life: Life) -> None:
        for each in [request for request, at in self._cancel.items() if at <= life.now]:
            del self._cancel[each]
            await command(self._world, life, "cancel", each, lambda each=each: client.cancel(each, "changed my mind"))  # type: ignore[misc]
        letters = await client.dead()
        for letter in letters:
            await self._answer(client, life, letter)

    async def _answer(self, client: Client, life: Life, letter: DeadLetter) -> None:
        request, step, epoch = letter.request_id, letter.step_id, letter.record.epoch
        if self._replays.get(request, 0) > 0:
            self._replays[request] -= 1
            wrong = -1 if epoch and life.random.random() < 0.1 else 0
            if life.random.random() < 0.3:  # two operators at once
                asking = (client.replay(request, step, epoch), client.replay(request, step, epoch + wrong))
                await command(self._world, life, f"replay {step} {epoch}", request, lambda: both(*asking))
            else:
                await command(self._world, life, f"replay {step} {epoch}", request, lambda: client.replay(request, step, epoch))
        elif self._drops and life.random.random() < 0.3:
            await command(self._world, life, f"drop {step} {epoch}", request, lambda: client.drop(request, step, "not worth it"))


async def command(world: World, life: Life, what: str, request: str, call: Callable[[], Awaitable[object]]) -> None:
    """Let a user send a command, and write down what the user was told."""
    before = len(world.ledger.commands_sent[life.name])
    told = Told(what, request, "", detail=life.name)
    try:
        told.detail = str(await call())
        told.outcome = "done"
    except OutcomeUnknown as error:
        told.outcome, told.detail = "unknown", str(error)
    except (NotFound, Refused) as error:
        told.outcome, told.detail = "refused", str(error)
    except Unavailable as error:
        told.outcome, told.detail = "unavailable", str(error)
    told.bells = tuple(world.ledger.commands_sent[life.name][before:])
    world.happened[f"told_{what.partition(' ')[0]}_{told.outcome}"] += 1
    world.trace(life, f"told {what}: {told.outcome}", request, told.detail)
    world.ledger.told.append(told)


async def both(*calls: Awaitable[object]) -> list[object]:
    """Wait for all; a refusal of one of them is no error where the other was first."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, Refused)):  # what may still have been done comes first
        if len(errors) == len(outcomes) or not isinstance(error, BrieflineError):
            raise error
    return [str(outcome) for outcome in outcomes]

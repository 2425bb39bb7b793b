"""Running: the agent in a task of its own, with the step's timeout, the lease renewed meanwhile, and every end caught as a value.

A lost line to a server stops no agent; a lost hold does. Whatever an agent raises, `SystemExit` included, ends this attempt
and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import structlog

from schemas.errors import AgentFailed, BrieflineError, Unavailable
from schemas.plans import Step
from schemas.results import AgentResult, Failure, FailureCode, Termination
from workers.accepting import keepable
from workers.agents.agent import Agent, AgentBrief
from workers.artifacts import by_reference

AGENT_TASK = "agent "
"""What the name of a task begins with in which an agent runs; the agent's name follows."""
_LET_GO_SECONDS = 2.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Returned:
    """The agent returned; what it says is not judged yet."""

    result: AgentResult


@dataclass(frozen=True, slots=True)
class Raised:
    """The attempt ended without a result."""

    failure: Failure
    termination: Termination = Termination.ERROR


@dataclass(frozen=True, slots=True)
class HoldLost:
    """Somebody else has the step, or it was ended: the agent was stopped, and nothing is to be written."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """This worker is going away: the agent was stopped, and the step is to be handed back."""


Ran: TypeAlias = Returned | Raised | HoldLost | Interrupted
Renew: TypeAlias = Callable[[], Awaitable[bool]]


class Interrupt:
    """What says to every running attempt of a worker that there is no time left."""

    def __init__(self) -> None:
        self._hearing: set[asyncio.Future[None]] = set()
        self._set = False

    def set(self) -> None:
        """Say it, to those that run now and to those that begin later."""
        self._set = True
        for heard in self._hearing:
            if not heard.done():
                heard.set_result(None)

    @contextmanager
    def heard(self) -> Iterator[asyncio.Future[None]]:
        """A future that is done once it was said."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hearing.add(future)
        if self._set:
            future.set_result(None)
        try:
            yield future
        finally:
            self._hearing.discard(future)
            future.cancel()


async def run_agent(agent: Agent, brief: AgentBrief, *, renew: Renew, renew_seconds: float, interrupt: Interrupt) -> Ran:
    """Run one attempt to its end, whatever that is.

    `renew` prolongs the lease and says whether the step is still ours; it is called every `renew_seconds`. `interrupt` is
    set when the process has no time left.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    run = asyncio.create_task(_caught(agent, brief), name=f"{AGENT_TASK}{agent.name}")
    try:
        await asyncio.sleep(0)
        if run.done():  # it waited for nothing, so there is nothing to guard
            return run.result()
        async with kept(renew, renew_seconds, since=began) as lost:
            with interrupt.heard() as interrupted:
                ends: set[asyncio.Future[Any]] = {run, lost, interrupted}
                left = brief.step.timeout_seconds - (loop.time() - began)
                await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if run.done():
                    return run.result()
                await _stop(run, agent.name)
                if run.done() and not run.cancelled() and isinstance(ended := run.result(), Returned) and not lost.done():
                    return ended
                if lost.done():
                    return HoldLost()
                return Interrupted() if interrupted.done() else _timed_out(brief.step)
    finally:
        run.cancel()


class kept:
    """Keep the lease for as long as the block takes; the future is done once the step is not ours any more.

    Also around the write that ends an attempt: a board that refuses it for want of memory still prolongs leases. Without
    that the step would be taken over, and the work done again, while its result is held. `since`, by the loop's clock, is when
    it was renewed last, where that is not now.
    """

    def __init__(self, renew: Renew, renew_seconds: float, *, since: float | None = None) -> None:
        self._renew = renew
        self._renew_seconds = renew_seconds
        self._since = since
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] = loop.create_future()
        since = loop.time() if self._since is None else self._since
        self._timer = loop.call_at(since + self._renew_seconds, self._begin)  # no task where the block takes less
        return self._lost

    async def __aexit__(self, *_: object) -> None:
        self._timer.cancel()
        self._lost.cancel()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})

    def _begin(self) -> None:
        self._renewing = asyncio.create_task(_renew_until_lost(self._renew, self._renew_seconds, self._lost), name="lease")


async def _caught(agent: Agent, brief: AgentBrief) -> Ran:
    try:
        result: Any = await agent.run(brief)  # a box may return anything
        # Within the attempt: its timeout, its lease and its retries hold for this too.
        return Returned(await by_reference(result, brief.artifacts) if isinstance(result, AgentResult) else result)
    except AgentFailed as error:
        return Raised(keepable(str(error.code), str(error.description), retryable=bool(error.retryable)))
    except (Unavailable, ConnectionError, TimeoutError) as error:
        return _raised(error, retryable=True)
    except BrieflineError as error:
        return _raised(error, retryable=error.retryable)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Raised(Failure(code=FailureCode.AGENT_ERROR, description="the agent raised CancelledError though nobody cancelled it"))
    except BaseException as error:  # an agent's SystemExit or KeyboardInterrupt must not end the worker
        log.warning("agent_raised", agent=agent.name, exc_info=error)
        return _raised(error)


def _raised(error: BaseException, *, retryable: bool = False) -> Raised:
    try:
        told = str(error)
    except Exception:  # an error of an agent's own may fail even at this
        told = "it cannot be told"
    return Raised(keepable(FailureCode.AGENT_ERROR, f"{type(error).__name__}: {told}", retryable=retryable))


async def _renew_until_lost(renew: Renew, renew_seconds: float, lost: asyncio.Future[None]) -> None:
    """Renew now and then, until the step is not ours any more. A board that does not answer is no such sign."""
    while True:
        try:
            if not await renew():
                if not lost.done():
                    lost.set_result(None)
                return
        except Unavailable as error:
            log.warning("lease_not_renewed", reason=str(error))
        await asyncio.sleep(renew_seconds)


async def _stop(run: asyncio.Task[Ran], name: str) -> None:
    """Cancel the agent and wait a little; one that will not let go is left behind, and its place is free."""
    run.cancel()
    await asyncio.wait({run}, timeout=_LET_GO_SECONDS)
    if not run.done():
        log.error("agent_ignores_cancel", agent=name)


def _timed_out(step: Step) -> Raised:
    failure = Failure(code=FailureCode.TIMEOUT, description=f"no answer within {step.timeout_seconds:g} s")
    return Raised(failure, Termination.TIMEOUT)

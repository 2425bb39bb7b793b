"""Loads: one request at a time, then as many as fill the machine; one load for each kind of client, all alike otherwise.

Each warms up first: every lane has its connection before anything is counted. Figures come back for the full load, with
the times of the single requests.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from ops.bench.figures import Figures, percentile
from ops.bench.metering import Meter
from ops.bench.peers.peer import Payload, payload

Handle = TypeVar("Handle")


@dataclass(frozen=True)
class Load:
    """How much: `singles` requests one after the other, then `requests` with `window` of them under way.

    Who is fast gets more of the latter, so that they take `least_seconds`: figures of a moment are chance.
    """

    singles: int
    requests: int
    window: int
    meter: Meter
    least_seconds: float = 1.0

    async def lanes(self, ask: Callable[[Payload], Awaitable[Payload]]) -> Figures:
        """For clients with a loop: `ask` returns the last payload once the client has it."""

        async def rush(count: int) -> list[Payload]:
            numbers = iter(range(count))  # each lane takes the next that nobody has

            async def lane() -> list[Payload]:
                return [await ask(payload(number)) for number in numbers]

            return [each for lane in await asyncio.gather(*(lane() for _ in range(self.window))) for each in lane]

        await rush(self.window)
        began = time.perf_counter()
        await rush(self.window)
        count = self._count(time.perf_counter() - began)
        singles = []
        for number in range(self.singles):
            began = time.perf_counter()
            await ask(payload(number))
            singles.append(time.perf_counter() - began)
        self.meter.start()
        began = time.perf_counter()
        done = await rush(count)
        return self._figures(singles, done, count, time.perf_counter() - began)

    def threads(self, submit: Callable[[Payload], Handle], wait: Callable[[Handle], Payload]) -> Figures:
        """For clients whose `submit` blocks until the broker has confirmed: a thread for each request under way."""
        with ThreadPoolExecutor(self.window) as threads:
            return self._blocking(
                lambda number: wait(submit(payload(number))),
                lambda count: list(threads.map(lambda number: wait(submit(payload(number))), range(count))),
            )

    def in_order(self, submit: Callable[[Payload], Handle], wait: Callable[[Handle], Payload]) -> Figures:
        """For clients of one thread: the oldest of those under way is waited for."""

        def rush(count: int) -> list[Payload]:
            under_way: deque[Handle] = deque()
            done = []
            for number in range(count):
                if len(under_way) == self.window:
                    done.append(wait(under_way.popleft()))
                under_way.append(submit(payload(number)))
            return done + [wait(each) for each in under_way]

        return self._blocking(lambda number: wait(submit(payload(number))), rush)

    def _blocking(self, ask: Callable[[int], Payload], rush: Callable[[int], list[Payload]]) -> Figures:
        rush(self.window)
        began = time.perf_counter()
        rush(self.window)
        count = self._count(time.perf_counter() - began)
        singles = []
        for number in range(self.singles):
            began = time.perf_counter()
            ask(number)
            singles.append(time.perf_counter() - began)
        self.meter.start()
        began = time.perf_counter()
        done = rush(count)
        return self._figures(singles, done, count, time.perf_counter() - began)

    def _count(self, seconds: float) -> int:
        """How many requests the full load has, where as many as the window holds took so long."""
        return max(self.requests, round(self.least_seconds * self.window / seconds))

    def _figures(self, singles: list[float], done: list[Payload], count: int, seconds: float) -> Figures:
        cpu, foreign = self.meter.stop()
        if sorted(each["id"] for each in done) != list(range(count)):
            raise AssertionError(f"{count} requests came back as {len(done)}, or some twice")
        loaded = [each["ts"][-1] - each["t0"] for each in done]
        return Figures(
            requests=count,
            seconds=seconds,
            single_p50_ms=1000 * percentile(singles, 50),
            single_p99_ms=1000 * percentile(singles, 99),
            loaded_p50_ms=1000 * percentile(loaded, 50),
            loaded_p99_ms=1000 * percentile(loaded, 99),
            cpu_seconds=cpu,
            worker_rss_mib=self.meter.worker_rss_mib(),
            all_rss_mib=self.meter.all_rss_mib(),
            foreign_cores=foreign,
        )

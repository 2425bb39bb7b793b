"""The virtual clock: hours pass in no time, in order, and who waits for nothing is told."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.simulation import clock


def test_an_hour_passes_in_no_time_and_timers_fire_in_order() -> None:
    fired: list[tuple[str, float]] = []

    async def main(loop: clock.VirtualLoop) -> float:
        async def after(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            fired.append((name, loop.time()))

        await asyncio.gather(after("late", 3600), after("early", 0.5), after("middle", 59.25))
        return loop.board_clock()

    began = time.perf_counter()
    assert clock.run(main) == clock.EPOCH_SECONDS + 3600
    assert fired == [("early", 0.5), ("middle", 59.25), ("late", 3600.0)]
    assert time.perf_counter() - began < 2


def test_a_timeout_is_virtual_too() -> None:
    async def main(loop: clock.VirtualLoop) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                await asyncio.Event().wait()
        return loop.time()

    assert clock.run(main) == 1000


def test_waiting_for_what_can_never_come_is_an_error_and_no_hang() -> None:
    async def main(loop: clock.VirtualLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(clock.Stuck):
        clock.run(main)


def test_what_a_run_leaves_behind_is_cancelled() -> None:
    ended: list[str] = []

    async def main(loop: clock.VirtualLoop) -> None:
        async def forgotten() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        tasks.append(asyncio.create_task(forgotten()))
        await asyncio.sleep(1)

    tasks: list[asyncio.Task[None]] = []
    clock.run(main)
    assert ended == ["cancelled"]

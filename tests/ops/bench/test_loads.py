"""Loads: every request is asked for once, as many at a time as was said, and one that is lost is noticed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from ops.bench.loads import Load
from ops.bench.metering import Meter
from ops.bench.peers.peer import Payload, stamped
from ops.bench.processes import cpu_seconds, machine_cpu_seconds, peak_rss_mib, tree

LOAD = Load(singles=3, requests=20, window=4, meter=Meter({}), least_seconds=0.0)


async def test_lanes_keep_as_many_under_way_as_the_window_holds() -> None:
    under_way, most = 0, 0

    async def ask(given: Payload) -> Payload:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return stamped(given)

    found = await LOAD.lanes(ask)
    assert found.requests == 20
    assert most == 4
    assert found.single_p50_ms <= found.single_p99_ms


def test_a_client_of_one_thread_waits_for_the_oldest() -> None:
    under_way: list[Payload] = []
    most = 0

    def submit(given: Payload) -> Payload:
        nonlocal most
        under_way.append(stamped(given))
        most = max(most, len(under_way))
        return under_way[-1]

    def wait(handle: Payload) -> Payload:
        assert under_way.pop(0) is handle
        return handle

    assert LOAD.in_order(submit, wait).requests == 20
    assert most == 4


def test_who_is_fast_is_asked_for_longer() -> None:
    fast = Load(singles=1, requests=20, window=4, meter=Meter({}), least_seconds=0.05)
    assert fast.in_order(stamped, lambda handle: handle).requests > 100


def test_threads_ask_for_each_request_once() -> None:
    asked: list[int] = []

    def submit(given: Payload) -> Payload:
        asked.append(given["id"])
        return stamped(given)

    assert LOAD.threads(submit, lambda handle: handle).requests == 20
    assert sorted(asked[-20:]) == list(range(20))


def test_a_request_that_comes_back_twice_for_another_that_is_lost_is_noticed() -> None:
    first = stamped({"id": 0, "t0": 0.0, "ts": []})
    with pytest.raises(AssertionError, match="came back"):
        LOAD.in_order(lambda given: given, lambda handle: first)


def test_cpu_and_memory_are_read_of_a_process_and_its_descendants() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(sum(range(3_000_000)), flush=True); input()'])"
    before = machine_cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        family = tree([process.pid])
        assert len(family) == 2
        assert family[-1] == process.pid
        assert 0 < cpu_seconds(family) <= machine_cpu_seconds() - before + 0.1
        assert all(5 < peak_rss_mib(pid) < 200 for pid in family)
        process.communicate(b"\n")
    assert tree([process.pid]) == []
    assert cpu_seconds([process.pid]) == peak_rss_mib(process.pid) == 0


def test_a_meter_counts_the_client_without_its_descendants() -> None:
    meter = Meter({"workers": [os.getpid()]})
    meter.start()
    sum(range(2_000_000))
    cpu, foreign = meter.stop()
    assert cpu["client"] > 0
    assert foreign >= 0
    assert meter.worker_rss_mib() > 10

"""Redis against memory, command by command: whatever is asked of both in whatever order, both say the same.

Clocks differ, so lengths of time are either over at once or never, and times are compared by what they mean.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from ops.blackboard.memory import MemoryBlackboard
from ops.blackboard.redis import RedisBlackboard
from schemas.blackboard import ABSENT, After, DeadEntry, Event, Held, Lease, Outcome, Snapshot, Write, fold
from schemas.errors import BrieflineError
from schemas.requests import Role

T = TypeVar("T")

HOUR_MS = 3_600_000
STEPS = ["a", "b"]
FIELDS = [
    "request",
    "card",
    "status",
    "plan",
    "plan/a",
    "answer",
    "session",
    "constraint/c",
    "step/a",
    "step/b",
    "result/a",
    "result/b",
    "field/x",
    "boundary",
    "odd",
]
OPERATIONS = [f"operation-{n:06d}" for n in range(12)]
MEMBERS = ["r1", "r2", "r1#a", "请求#b"]
some_fields = st.lists(st.sampled_from(FIELDS), max_size=4)
values = st.sampled_from([b"", b"[]", b"1.10", "值".encode(), b"\xff\x00"])
texts = st.sampled_from(["", "x", "计划"])


def plain_snapshot(seen: Snapshot) -> Any:
    """A snapshot without its times."""
    fields = {name: (stored.value, stored.version, stored.position) for name, stored in seen.fields.items()}
    return fields, seen.position, {step: end > seen.now_ms for step, end in seen.leases.items()}, seen.asked


def plain_outcome(outcome: Outcome) -> Any:
    """An outcome without its times."""
    returned = plain_snapshot(outcome.returned)
    if isinstance(outcome, Held):
        return "held", outcome.step, outcome.until_ms > outcome.returned.now_ms, returned
    told = {name: getattr(outcome, name) for name in outcome.__slots__ if name not in ("returned", "at_ms")}
    return type(outcome).__name__, told, returned


def plain_event(event: Event) -> Any:
    """An event without its time."""
    return (event.position, event.role, event.writer, event.operation_id, event.cause, dict(event.labels), dict(event.put))


async def told(call: Awaitable[T]) -> T | tuple[type[BrieflineError], str]:
    """What a call returns, or the kind and text of its error."""
    try:
        return await call
    except BrieflineError as error:
        return type(error), str(error)


class TwoBoards(RuleBasedStateMachine):
    """The same commands to both boards."""

    runner: asyncio.Runner
    redis: RedisBlackboard

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryBlackboard()
        self.request = f"r-{secrets.token_hex(8)}"
        self.member_end = f"-{secrets.token_hex(4)}"
        self.seen: dict[str, str] = {}
        self.looks: list[tuple[Any, Any]] = []
        self.tenant = self.request

    def both(self, call: Any) -> tuple[Any, Any]:
        async def ask() -> tuple[Any, Any]:
            return await told(call(self.memory)), await told(call(self.redis))

        return self.runner.run(ask())

    def same(self, call: Any, plain: Any = lambda answer: answer) -> Any:
        ours, theirs = (answer if isinstance(answer, tuple) else plain(answer) for answer in self.both(call))
        assert ours == theirs
        return ours

    def member(self, name: str) -> str:
        return name.replace("#", self.member_end + "#") if "#" in name else name + self.member_end

    @rule(names=some_fields)
    def read(self, names: list[str]) -> None:
        self.runner.run(asyncio.sleep(0.003))  # a lease of 1 ms is over on both clocks
        ours, theirs = self.both(lambda board: board.read(self.request, names))
        assert plain_snapshot(ours) == plain_snapshot(theirs)
        self.seen.update((name, ours.version(name)) for name in names)

    @rule(
        role=st.sampled_from(Role),
        operation_id=st.sampled_from(OPERATIONS),
        put=st.dictionaries(st.sampled_from(FIELDS), values, max_size=3),
        expect=some_fields,
        fresh=st.sampled_from([True, True, False]),
        stale=st.sampled_from([None, None, None, None, ABSENT, "1.000001"]),
        lease=st.sampled_from([None, "a", "b"]),
        lease_ms=st.sampled_from([1, HOUR_MS]),
        unheld=st.lists(st.sampled_from(STEPS), max_size=2),
        after=st.sampled_from([None, None, ("status", 0), ("step/a", HOUR_MS), ("plan", 0)]),
        expire=st.sampled_from([None, None, 0, 3600]),
        returning=some_fields,
        label=texts,
    )
    def write(self, **parts: Any) -> None:
        if parts["fresh"]:
            self.look_at(parts["expect"])
        versions = {name: parts["stale"] or self.seen.get(name, ABSENT) for name in parts["expect"]}
        after, lease = parts["after"], parts["lease"]
        write = Write(
            role=parts["role"],
            writer=f"{parts['role'].value} 1",
            operation_id=parts["operation_id"],
            expect=versions,
            put=parts["put"],
            labels={"event": parts["label"]},
            cause=parts["label"],
            lease=Lease(lease, parts["lease_ms"]) if lease and f"step/{lease}" in parts["put"] else None,
            unheld=tuple(parts["unheld"]),
            after=After(*after) if after and versions.get(after[0], ABSENT) != ABSENT else None,
            expire_after_seconds=parts["expire"],
            returning=tuple(parts["returning"]),
        )
        self.write_to_both(write)

    @rule(
        step=st.sampled_from(STEPS),
        operation_id=st.sampled_from(OPERATIONS),
        role=st.sampled_from([Role.WORKER, Role.ORCHESTRATOR]),
        lease_ms=st.sampled_from([None, 1, HOUR_MS, HOUR_MS]),
        unheld=st.booleans(),
        after_ms=st.sampled_from([None, None, 0, HOUR_MS]),
        result=st.booleans(),
    )
    def move_step(self, **parts: Any) -> None:
        """What workers do all the time, with the version that the step has: claim, take over, commit."""
        name = f"step/{parts['step']}"
        self.look_at([name])
        expect = {name: self.seen[name]}
        put = {name: b"1", f"result/{parts['step']}": b"{}"} if parts["result"] else {name: b"1"}
        after = None if parts["after_ms"] is None or expect[name] == ABSENT else After(name, parts["after_ms"])
        lease = Lease(parts["step"], parts["lease_ms"]) if parts["lease_ms"] else None
        unheld = (parts["step"],) if parts["unheld"] else ()
        self.write_to_both(
            Write(parts["role"], "w", parts["operation_id"], expect, put, lease=lease, unheld=unheld, after=after, returning=(name,))
        )

    def look_at(self, names: list[str]) -> None:
        seen = self.runner.run(self.memory.read(self.request, names))
        self.seen.update((name, seen.version(name)) for name in names)

    def write_to_both(self, write: Write) -> None:
        self.runner.run(asyncio.sleep(0.003))  # a lease of 1 ms from an earlier write is over on both clocks
        ours, theirs = self.both(lambda board: board.write(self.request, write))
        if isinstance(ours, tuple) or isinstance(theirs, tuple):
            assert ours == theirs
        else:
            assert plain_outcome(ours) == plain_outcome(theirs)
            self.seen.update((name, ours.returned.version(name)) for name in write.returning)

    @rule(step=st.sampled_from(STEPS), stale=st.booleans(), milliseconds=st.sampled_from([1, HOUR_MS, 0]))
    def renew(self, step: str, stale: bool, milliseconds: int) -> None:
        version = "1.000001" if stale else self.seen.get(f"step/{step}", ABSENT)
        self.same(lambda board: board.renew(self.request, step, version, milliseconds))

    @rule(after=st.integers(0, 12))
    def events(self, after: int) -> None:
        self.same(lambda board: board.events(self.request, after), lambda events: list(map(plain_event, events)))

    @rule(name=st.sampled_from(MEMBERS), delay=st.sampled_from([0, HOUR_MS]), verb=st.sampled_from(["enter", "mark"]))
    def set_mark(self, name: str, delay: int, verb: str) -> None:
        self.same(lambda board: getattr(board, verb)(self.member(name), delay))

    @rule(name=st.sampled_from(MEMBERS))
    def leave(self, name: str) -> None:
        self.same(lambda board: board.leave(self.member(name)))

    @rule(forward=st.sampled_from([1, HOUR_MS]))
    def due(self, forward: int) -> None:
        self.runner.run(asyncio.sleep(0.003))
        ours, theirs = self.both(lambda board: board.due(1000, forward))
        mine = [due for due in theirs if due.member.partition("#")[0].endswith(self.member_end)]
        assert sorted(due.member for due in ours) == sorted(due.member for due in mine)
        by_member = {due.member: due for due in mine}
        self.looks += [(due, by_member[due.member]) for due in ours]

    @rule(name=st.sampled_from(MEMBERS), later=st.booleans())
    def look_while_somebody_enters(self, name: str, later: bool) -> None:
        """The race that a settle must lose."""
        self.set_mark(name, 0, "enter")
        self.due(1)
        self.set_mark(name, HOUR_MS, "enter")
        for _ in self.looks[-4:]:
            self.settle(len(self.looks) - 1, None)
        if later:
            self.due(HOUR_MS)

    @rule(which=st.integers(0, 20), delay=st.sampled_from([None, 0, HOUR_MS]))
    def settle(self, which: int, delay: int | None) -> None:
        if self.looks:
            ours, theirs = self.looks[which % len(self.looks)]
            self.both(lambda board: board.settle(ours if board is self.memory else theirs, delay))

    @rule(step=st.sampled_from(STEPS), epoch=st.integers(0, 1), verb=st.sampled_from(["dead_add", "dead_add", "dead_remove"]))
    def dead(self, step: str, epoch: int, verb: str) -> None:
        self.same(lambda board: getattr(board, verb)(DeadEntry(self.request, step, epoch)))

    @rule()
    def dead_list(self) -> None:
        self.same(lambda board: board.dead_list(), lambda found: [entry for entry in found if entry.request_id == self.request])

    @rule(name=st.sampled_from(["r1", "r2", "r3"]))
    def recent(self, name: str) -> None:
        self.same(lambda board: board.recent_add(self.tenant, name))
        self.same(lambda board: board.recent(self.tenant, 2))

    @invariant()
    def invariant_11_the_fold_is_the_state_on_both(self) -> None:
        async def look(board: Any) -> tuple[list[Event], Snapshot]:
            return await board.events(self.request), await board.read(self.request, FIELDS)

        for events, seen in self.both(look):
            assert fold(events) == seen.fields
            assert seen.position == len(events)


@pytest.mark.servers
def test_redis_and_memory_answer_every_command_alike(redis_url: str, key_prefix: str) -> None:
    with asyncio.Runner() as runner:
        board = runner.run(RedisBlackboard(redis_url, prefix=key_prefix).__aenter__())
        # The loop stands still while Hypothesis thinks. That is no absence of the board, after which nobody takes over.
        board._grace.lease_ms, board._grace.calm_until_ms = HOUR_MS, 0
        try:
            machine = type("Machine", (TwoBoards,), {"runner": runner, "redis": board})
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=100, stateful_step_count=30, deadline=None, database=None, suppress_health_check=list(HealthCheck)
                ),
            )
        finally:
            runner.run(board.__aexit__(None, None, None))

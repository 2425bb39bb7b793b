"""What every blackboard promises. Invariants carry their number in the test's name."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from schemas.blackboard import ABSENT, After, Conflict, DeadEntry, Due, Event, Held, Lease, Written, fold
from schemas.errors import InvalidValue, LimitExceeded, NotPermitted
from schemas.limits import MAX_VALUE_BYTES, MAX_WRITE_FIELDS
from schemas.requests import Role
from tests.support.boards import Bench, claim, opening, operation, orchestrator

FIELDS = ("request", "status", "plan", "answer", "step/a", "step/b", "result/a", "field/x")
HOUR_MS = 3_600_000


async def unchanged(bench: Bench, before: list[Event]) -> None:
    """Nothing happened since `before`: no event, and the state is still what the events add up to."""
    after = await bench.board.events(bench.request_id)
    assert after == before
    assert (await bench.read(*FIELDS)).fields == fold(after)


class TestReading:
    async def test_an_unknown_request_reads_as_nothing_at_position_zero(self, bench: Bench) -> None:
        seen = await bench.read("request", "step/a")
        assert (seen.fields, seen.position, seen.leases) == ({}, 0, {})
        assert seen.asked == {"request", "step/a"}
        assert seen.version("request") == ABSENT
        assert await bench.board.events(bench.request_id) == []

    async def test_a_read_gives_value_version_position_and_time(self, bench: Bench) -> None:
        written = await bench.put(opening(b'"\xe4\xbd\xa0\xe5\xa5\xbd"'))
        seen = await bench.read("request", "status", "plan")
        assert seen.value("request") == '"你好"'.encode()
        assert seen.version("request") == written.versions["request"]
        assert seen.fields["request"].position == seen.position == written.position == 1
        assert seen.fields["request"].at_ms == written.at_ms <= seen.now_ms
        assert "plan" not in seen.fields

    async def test_thousands_of_fields_are_read_in_one_call(self, bench: Bench) -> None:
        await bench.put(orchestrator({f"plan/s{n}": b"%d" % n for n in range(1500)}))
        seen = await bench.read(*(f"plan/s{n}" for n in range(9000)))
        assert len(seen.fields) == 1500
        assert seen.value("plan/s1499") == b"1499"

    @pytest.mark.parametrize("request_id", ["", "a{b", "a}b", "a#b", "a\x00b", "x" * 201])
    async def test_an_id_that_keys_cannot_carry_is_refused(self, bench: Bench, request_id: str) -> None:
        with pytest.raises(InvalidValue):
            await bench.board.read(request_id, ["status"])
        with pytest.raises(InvalidValue):
            await bench.board.write(request_id, opening())


class TestVersions:
    async def test_a_version_is_a_count_and_the_end_of_the_operation_id(self, bench: Bench) -> None:
        first = await bench.put(orchestrator({"plan": b"1"}, id="abcdef123456"))
        second = await bench.put(orchestrator({"plan": b"2"}, id="zzzzzz654321"))
        assert first.versions == {"plan": "1.123456"}
        assert second.versions == {"plan": "2.654321"}

    async def test_versions_belong_to_fields_so_that_two_fields_never_conflict(self, bench: Bench) -> None:
        plan = await bench.put(orchestrator({"plan": b"1"}))
        await bench.put(orchestrator({"answer": b"1"}))
        assert isinstance(await bench.write(orchestrator({"plan": b"2"}, plan.versions)), Written)

    async def test_invariant_10_an_old_version_never_overwrites_a_newer_one(self, bench: Bench) -> None:
        old = await bench.put(orchestrator({"plan": b"old"}))
        new = await bench.put(orchestrator({"plan": b"new"}, old.versions))
        before = await bench.board.events(bench.request_id)
        outcome = await bench.refused(orchestrator({"plan": b"late"}, old.versions))
        assert isinstance(outcome, Conflict)
        assert (outcome.field, outcome.expected, outcome.actual) == ("plan", old.versions["plan"], new.versions["plan"])
        await unchanged(bench, before)

    async def test_the_same_count_of_another_operation_does_not_fit(self, bench: Bench) -> None:
        await bench.put(orchestrator({"plan": b"1"}, id="operation-aaaaaa"))
        outcome = await bench.refused(orchestrator({"plan": b"2"}, {"plan": "1.bbbbbb"}))
        assert isinstance(outcome, Conflict)
        assert outcome.actual == "1.aaaaaa"

    async def test_a_conflict_names_the_first_field_in_the_order_of_expect(self, bench: Bench) -> None:
        await bench.put(orchestrator({"plan": b"1", "answer": b"1", "step/a": b"1"}))
        fits = (await bench.read("step/a")).version("step/a")
        outcome = await bench.refused(orchestrator({}, {"step/a": fits, "answer": "9.nobody", "plan": "8.nobody"}))
        assert isinstance(outcome, Conflict)
        assert (outcome.field, outcome.expected) == ("answer", "9.nobody")

    async def test_expecting_absence_refuses_what_exists_and_takes_what_does_not(self, bench: Bench) -> None:
        await bench.put(orchestrator({"plan": b"1"}, {"plan": ABSENT}))
        outcome = await bench.refused(orchestrator({"plan": b"2"}, {"plan": ABSENT}))
        assert isinstance(outcome, Conflict)
        assert outcome.expected == ABSENT

    async def test_expecting_a_field_that_does_not_exist_says_absent(self, bench: Bench) -> None:
        outcome = await bench.refused(orchestrator({"plan": b"1"}, {"step/a": "3.abcdef"}))
        assert isinstance(outcome, Conflict)
        assert (outcome.field, outcome.actual) == ("step/a", ABSENT)

    async def test_a_field_that_is_expected_and_not_put_still_refuses(self, bench: Bench) -> None:
        status = (await bench.put(opening())).versions["status"]
        await bench.put(orchestrator({"status": b'"CANCELLED"'}))
        before = await bench.board.events(bench.request_id)
        outcome = await bench.refused(orchestrator({"answer": b'"late"'}, {"status": status}))
        assert isinstance(outcome, Conflict)
        await unchanged(bench, before)

    async def test_of_many_writers_that_saw_the_same_one_wins(self, bench: Bench) -> None:
        version = (await bench.put(orchestrator({"step/a": b'"PENDING"'}))).versions["step/a"]
        outcomes = await asyncio.gather(*(bench.write(claim("a", version)) for _ in range(25)))
        assert sum(isinstance(outcome, Written) for outcome in outcomes) == 1
        assert len(await bench.board.events(bench.request_id)) == 2

    async def test_no_update_is_lost_between_parallel_writers(self, bench: Bench) -> None:
        async def add_one(times: int) -> None:
            for _ in range(times):
                while True:
                    seen = await bench.read("plan")
                    count = int(seen.value("plan") or b"0") + 1
                    if isinstance(await bench.write(orchestrator({"plan": b"%d" % count}, {"plan": seen.version("plan")})), Written):
                        break

        await asyncio.gather(*(add_one(20) for _ in range(5)))
        assert (await bench.read("plan")).value("plan") == b"100"


class TestOwnership:
    @pytest.mark.parametrize(
        ("role", "name"),
        [
            (Role.WORKER, "request"),
            (Role.WORKER, "card"),
            (Role.WORKER, "constraint/budget"),
            (Role.WORKER, "status"),
            (Role.WORKER, "plan"),
            (Role.WORKER, "plan/a"),
            (Role.WORKER, "answer"),
            (Role.WORKER, "step/a"),
            (Role.WORKER, "result/a"),
            (Role.ORCHESTRATOR, "request"),
            (Role.ORCHESTRATOR, "card"),
            (Role.ORCHESTRATOR, "constraint/budget"),
            (Role.ORCHESTRATOR, "result/a"),
            (Role.WORKER, "field/x"),
            (Role.WORKER, "boundary"),
            (Role.WORKER, "absorbed"),
            (Role.PRODUCER, "boundary"),
            (Role.PRODUCER, "plan"),
            (Role.PRODUCER, "plan/a"),
            (Role.PRODUCER, "step/a"),
            (Role.PRODUCER, "result/a"),
            (Role.PRODUCER, "answer"),
            (Role.PRODUCER, "session"),
            (Role.ORCHESTRATOR, "session"),
            (Role.WORKER, "session"),
            (Role.ORCHESTRATOR, "unheard-of"),
            (Role.WORKER, "unheard/of"),
        ],
    )
    async def test_invariant_12_a_field_is_written_by_its_owner_only(self, bench: Bench, role: Role, name: str) -> None:
        with pytest.raises(NotPermitted, match=name):
            await bench.write(orchestrator({name: b"1"}, role=role))
        assert await bench.board.events(bench.request_id) == []

    async def test_the_orchestrator_puts_a_result_once_and_only_under_the_fence_of_its_step(self, bench: Bench) -> None:
        pending = await bench.put(orchestrator({"step/a": b"1"}))
        taken = await bench.put(orchestrator({"step/a": b"2", "result/a": b"reused"}, pending.versions))
        before = await bench.board.events(bench.request_id)
        for versions in (taken.versions, {"step/a": taken.versions["step/a"]}):
            with pytest.raises(NotPermitted, match="result/a"):
                await bench.write(orchestrator({"result/a": b"another"}, versions))
        await unchanged(bench, before)

    async def test_a_producer_moves_a_session_on_by_compare_and_set(self, bench: Bench) -> None:
        first = await bench.put(orchestrator({"session": b"1"}, {"session": ABSENT}, role=Role.PRODUCER))
        second = await bench.put(orchestrator({"session": b"2"}, first.versions, role=Role.PRODUCER))
        assert isinstance(await bench.refused(orchestrator({"session": b"3"}, first.versions, role=Role.PRODUCER)), Conflict)
        assert (await bench.read("session")).version("session") == second.versions["session"]

    async def test_a_producer_writes_only_what_is_absent(self, bench: Bench) -> None:
        await bench.put(opening())
        before = await bench.board.events(bench.request_id)
        for name in ("request", "status"):
            with pytest.raises(NotPermitted, match=name):
                await bench.write(orchestrator({name: b"1"}, role=Role.PRODUCER))
        await unchanged(bench, before)

    async def test_opening_twice_is_a_conflict_and_no_breach(self, bench: Bench) -> None:
        await bench.put(opening())
        assert isinstance(await bench.refused(opening()), Conflict)

    async def test_a_refused_field_refuses_the_whole_write(self, bench: Bench) -> None:
        await bench.put(opening())
        before = await bench.board.events(bench.request_id)
        with pytest.raises(NotPermitted):
            await bench.write(orchestrator({"card": b"1", "request": b"2"}, role=Role.PRODUCER))
        await unchanged(bench, before)

    async def test_a_worker_writes_step_and_result_under_the_fence(self, bench: Bench) -> None:
        step = (await bench.put(orchestrator({"step/a": b'"PENDING"'}))).versions["step/a"]
        fence = (await bench.put(claim("a", step))).versions["step/a"]
        put = {"result/a": b"{}", "step/a": b'"COMPLETED"'}
        assert set((await bench.put(orchestrator(put, {"step/a": fence}, role=Role.WORKER))).versions) == set(put)

    async def test_a_result_needs_the_fence_of_its_own_step(self, bench: Bench) -> None:
        steps = await bench.put(orchestrator({"step/a": b"1", "step/b": b"1"}))
        with pytest.raises(NotPermitted, match="without expecting its step"):
            await bench.write(orchestrator({"result/a": b"{}"}, {"step/b": steps.versions["step/b"]}, role=Role.WORKER))

    async def test_invariant_2_a_late_result_cannot_land_after_the_step_was_lost(self, bench: Bench) -> None:
        step = (await bench.put(orchestrator({"step/a": b'"PENDING"'}))).versions["step/a"]
        first = (await bench.put(claim("a", step, lease_ms=1))).versions["step/a"]
        await bench.pass_time(20)
        second = (await bench.put(claim("a", first))).versions["step/a"]
        done = orchestrator({"result/a": b'"second"', "step/a": b'"COMPLETED"'}, {"step/a": second}, role=Role.WORKER)
        late = orchestrator({"result/a": b'"first"', "step/a": b'"COMPLETED"'}, {"step/a": first}, role=Role.WORKER)
        await bench.put(done)
        assert isinstance(await bench.refused(late), Conflict)
        assert (await bench.read("result/a")).value("result/a") == b'"second"'


class TestOperationIds:
    async def test_the_same_id_returns_the_stored_outcome_and_does_nothing(self, bench: Bench) -> None:
        write = orchestrator({"plan": b"1", "answer": b"1"}, {"plan": ABSENT}, returning=["plan"])
        first = await bench.put(write)
        before = await bench.board.events(bench.request_id)
        again = await bench.put(write)
        assert again.replayed
        assert not first.replayed
        assert (again.versions, again.position, again.at_ms) == (first.versions, first.position, first.at_ms)
        await unchanged(bench, before)

    async def test_a_replayed_outcome_returns_the_fields_as_they_are_now(self, bench: Bench) -> None:
        write = orchestrator({"plan": b"1"}, returning=["plan"])
        await bench.put(write)
        await bench.put(orchestrator({"plan": b"2"}))
        again = await bench.put(write)
        assert again.versions["plan"].startswith("1.")
        assert again.returned.value("plan") == b"2"

    async def test_only_successes_are_remembered(self, bench: Bench) -> None:
        plan = await bench.put(orchestrator({"plan": b"1"}))
        write = orchestrator({"answer": b"1"}, {"plan": "2.abcdef"}, id="same-operation")
        assert isinstance(await bench.refused(write), Conflict)
        corrected = orchestrator({"answer": b"1"}, plan.versions, id="same-operation")
        assert not (await bench.put(corrected)).replayed

    async def test_ids_belong_to_a_request(self, bench: Bench) -> None:
        write = orchestrator({"plan": b"1"})
        await bench.put(write)
        other = Bench(bench.board, bench.clock)
        assert not (await other.put(write)).replayed

    async def test_a_note_is_replayed_too(self, bench: Bench) -> None:
        note = orchestrator(labels={"event": "late_result"})
        await bench.put(note)
        again = await bench.put(note)
        assert (again.replayed, again.versions, again.position) == (True, {}, 1)


class TestLeases:
    async def test_a_claim_is_held_while_a_lease_lives(self, bench: Bench) -> None:
        step = (await bench.put(orchestrator({"step/a": b'"PENDING"'}))).versions["step/a"]
        held = (await bench.put(claim("a", step))).versions["step/a"]
        before = await bench.board.events(bench.request_id)
        outcome = await bench.refused(claim("a", held, returning=["step/a"]))
        assert isinstance(outcome, Held)
        assert outcome.step == "a"
        assert outcome.until_ms == outcome.returned.leases["a"] > outcome.returned.now_ms
        await unchanged(bench, before)

    async def test_a_lease_is_no_state_and_no_event(self, bench: Bench) -> None:
        step = (await bench.put(orchestrator({"step/a": b'"PENDING"'}))).versions["step/a"]
        fence = (await bench.put(claim("a", step))).versions["step/a"]
        before = await bench.board.events(bench.request_id)
        assert await bench.board.renew(bench.request_id, "a", fence, 60_000)
        await unchanged(bench, before)

    async def test_a_step_is_taken_over_when_its_lease_has_ended(self, bench: Bench) -> None:
        step = (await bench.put(orchestrator({"step/a": b'"PENDING"'}))).versions["step/a"]
        fence = (await bench.put(claim("a", step, lease_ms=100))).versions["step/a"]
        assert isinstance(await bench.write(claim("a", fence)), Held)
        await bench.pass_time(150)
        await bench.put(claim("a", fence))

    async def test_an_ended_lease_is_still_shown_as_long_as_it_fits(self, bench: Bench) -> None:
        step = (await bench.put(orchestrator({"step/a": b'"PENDING"'}))).versions["step/a"]
        await bench.put(claim("a", step, lease_ms=1))
        await bench.pass_time(20)
        seen = await bench.read("step/a")
        assert seen.leases["a"] < seen.now_ms

    async def test_a_commit_ends_the_lease(self, bench: Bench) -> None:
        step = (await bench.put(orchestrator({"step/a": b'"PENDING"'}))).versions["step/a"]
        fence = (await bench.put(claim("a", step))).versions["step/a"]
        free = (await bench.put(orchestrator({"step/a": b'"PENDING"'}, {"step/a": fence}, role=Role.WORKER))).versions["step/a"]
        assert (await bench.read("step/a")).leases == {}
        await bench.put(claim("a", free))

    async def test_a_cancel_ends_the_lease_and_the_holder_learns_of_it(self, bench: Bench) -> None:
        step = (await bench.put(orchestrator({"step/a": b'"PENDING"'}))).versions["step/a"]
        fence = (await bench.put(claim("a", step))).versions["step/a"]
        await bench.put(orchestrator({"status": b'"CANCELLED"', "step/a": b'"FAILED"'}, {"step/a": fence}))
        assert not await bench.board.renew(bench.request_id, "a", fence, 60_000)

    async def test_a_renewal_prolongs_and_succeeds_after_the_end_while_the_fence_fits(self, bench: Bench) -> None:
        step = (await bench.put(orchestrator({"step/a": b'"PENDING"'}))).versions["step/a"]
        fence = (await bench.put(claim("a", step, lease_ms=1))).versions["step/a"]
        await bench.pass_time(20)
        assert await bench.board.renew(bench.request_id, "a", fence, 60_000)
        outcome = await bench.refused(claim("a", fence))
        assert isinstance(outcome, Held)
        assert outcome.until_ms > outcome.returned.now_ms + 50_000

    @pytest.mark.parametrize("version", [ABSENT, "1.nobody", "", "nonsense"])
    async def test_a_renewal_with_another_version_is_lost(self, bench: Bench, version: str) -> None:
        await bench.put(orchestrator({"step/a": b'"PENDING"'}))
        assert not await bench.board.renew(bench.request_id, "a", version, 1000)
        assert not await bench.board.renew(bench.request_id, "unknown", version, 1000)
        assert (await bench.read("step/a")).leases == {}

    async def test_unheld_looks_at_every_step_and_takes_steps_without_a_lease(self, bench: Bench) -> None:
        steps = (await bench.put(orchestrator({"step/a": b"1", "step/b": b"1"}))).versions
        await bench.put(claim("b", steps["step/b"]))
        outcome = await bench.refused(orchestrator({"status": b"1"}, unheld=["a", "b", "never"]))
        assert isinstance(outcome, Held)
        assert outcome.step == "b"
        await bench.put(orchestrator({"status": b"1"}, unheld=["a", "never"]))

    async def test_a_version_that_does_not_fit_is_named_before_a_lease(self, bench: Bench) -> None:
        step = (await bench.put(orchestrator({"step/a": b"1"}))).versions["step/a"]
        await bench.put(claim("a", step))
        assert isinstance(await bench.refused(claim("a", step)), Conflict)

    async def test_a_lease_belongs_to_the_write_of_its_step(self, bench: Bench) -> None:
        with pytest.raises(InvalidValue, match="lease"):
            await bench.write(orchestrator({"plan": b"1"}, lease=Lease("a", 1000)))
        with pytest.raises(InvalidValue, match="lease"):
            await bench.write(orchestrator({"step/a": b"1"}, lease=Lease("a", 0)))
        with pytest.raises(InvalidValue):
            await bench.board.renew(bench.request_id, "a", "1.abcdef", 0)


class TestAfter:
    async def test_a_write_waits_until_its_time_has_come(self, bench: Bench) -> None:
        status = await bench.put(orchestrator({"status": b'"RUNNING"'}))
        write = orchestrator({"answer": b"1"}, status.versions, after=After("status", 100))
        before = await bench.board.events(bench.request_id)
        outcome = await bench.refused(write)
        assert isinstance(outcome, Held)
        assert (outcome.step, outcome.until_ms) == ("status", status.at_ms + 100)
        await unchanged(bench, before)
        await bench.pass_time(150)
        await bench.put(write)

    async def test_the_time_counts_from_the_last_write_of_the_field(self, bench: Bench) -> None:
        first = await bench.put(orchestrator({"step/a": b"1"}))
        await bench.pass_time(30)
        second = await bench.put(orchestrator({"step/a": b"2"}))
        assert second.at_ms > first.at_ms
        outcome = await bench.refused(orchestrator({"step/a": b"3"}, second.versions, after=After("step/a", HOUR_MS)))
        assert isinstance(outcome, Held)
        assert (outcome.step, outcome.until_ms) == ("a", second.at_ms + HOUR_MS)

    async def test_a_waiting_time_counts_from_a_field_that_was_read(self, bench: Bench) -> None:
        for expect in ({}, {"status": ABSENT}):
            with pytest.raises(InvalidValue, match="after"):
                await bench.write(orchestrator({"answer": b"1"}, expect, after=After("status", 1)))


class TestReturning:
    async def test_a_claim_returns_what_the_brief_needs_as_it_is_after_the_claim(self, bench: Bench) -> None:
        await bench.put(opening(b'"text"'))
        step = (await bench.put(orchestrator({"step/a": b"1", "plan/a": b"def"}))).versions["step/a"]
        names = ["step/a", "plan/a", "request", "result/none"]
        outcome = await bench.put(claim("a", step, returning=names))
        returned = outcome.returned
        assert {name: returned.value(name) for name in names} == {
            "step/a": b'"RUNNING"',
            "plan/a": b"def",
            "request": b'"text"',
            "result/none": None,
        }
        assert returned.version("step/a") == outcome.versions["step/a"]
        assert returned.leases["a"] == outcome.at_ms + 60_000
        assert returned.position == outcome.position == 3
        assert returned.asked == set(names)

    async def test_a_conflict_returns_the_fields_too(self, bench: Bench) -> None:
        await bench.put(orchestrator({"plan": b"1"}))
        outcome = await bench.refused(orchestrator({"plan": b"2"}, {"plan": ABSENT}, returning=["plan"]))
        assert outcome.returned.value("plan") == b"1"
        assert outcome.returned.position == 1


class TestExpiry:
    async def test_a_finished_request_goes_whole_and_a_new_one_starts_from_nothing(self, bench: Bench) -> None:
        step = (await bench.put(orchestrator({"step/a": b"1"}))).versions["step/a"]
        await bench.put(claim("a", step))
        await bench.put(orchestrator({"answer": b"1"}, expire=1, id="the-last-write"))
        await bench.pass_time(1100)
        assert (await bench.read(*FIELDS)).fields == {}
        assert await bench.board.events(bench.request_id) == []
        again = await bench.put(orchestrator({"answer": b"2"}, {"answer": ABSENT}, id="the-last-write"))
        assert (again.position, again.replayed) == (1, False)

    async def test_a_write_that_does_not_mention_it_leaves_the_expiry(self, bench: Bench) -> None:
        await bench.put(orchestrator({"answer": b"1"}, expire=1))
        step = (await bench.put(orchestrator({"step/a": b"1"}))).versions["step/a"]
        fence = (await bench.put(claim("a", step))).versions["step/a"]
        assert await bench.board.renew(bench.request_id, "a", fence, 60_000)
        await bench.pass_time(1100)
        assert (await bench.read(*FIELDS)).fields == {}

    async def test_a_reopening_write_takes_the_expiry_away(self, bench: Bench) -> None:
        await bench.put(orchestrator({"answer": b"1"}, expire=1))
        await bench.put(orchestrator({"status": b'"RUNNING"'}, expire=0))
        await bench.pass_time(1100)
        assert (await bench.read("answer")).value("answer") == b"1"


class TestEvents:
    async def test_every_write_leaves_one_event_that_says_what_who_and_why(self, bench: Bench) -> None:
        labels = {"event": "计划", "step": "a"}
        write = orchestrator({"plan": b"1", "step/a": b"2"}, labels=labels, cause="message-7")
        written = await bench.put(write)
        [event] = await bench.board.events(bench.request_id)
        assert event == Event(
            position=1,
            at_ms=written.at_ms,
            role="orchestrator",
            writer="orchestrator 1",
            operation_id=write.operation_id,
            cause="message-7",
            labels=labels,
            put={"plan": (written.versions["plan"], b"1"), "step/a": (written.versions["step/a"], b"2")},
        )

    async def test_a_note_puts_nothing_and_is_recorded(self, bench: Bench) -> None:
        plan = await bench.put(orchestrator({"plan": b"1"}))
        note = await bench.put(orchestrator(expect=plan.versions, labels={"event": "late_result"}))
        assert (note.versions, note.position) == ({}, 2)
        events = await bench.board.events(bench.request_id, 1)
        assert [(event.labels, event.put) for event in events] == [({"event": "late_result"}, {})]
        assert (await bench.read("plan")).version("plan") == plan.versions["plan"]

    async def test_events_come_in_order_and_after_a_position(self, bench: Bench) -> None:
        for n in range(450):
            await bench.put(orchestrator({"plan": b"%d" % n}))
        assert [event.position for event in await bench.board.events(bench.request_id)] == list(range(1, 451))
        assert [event.position for event in await bench.board.events(bench.request_id, 448)] == [449, 450]
        assert await bench.board.events(bench.request_id, 450) == []

    async def test_invariant_11_the_fold_of_the_events_is_the_state(self, bench: Bench) -> None:
        await bench.put(opening())
        step = (await bench.put(orchestrator({"step/a": b"1", "plan": b"[]"}))).versions["step/a"]
        fence = (await bench.put(claim("a", step))).versions["step/a"]
        await bench.write(claim("a", step))
        await bench.put(orchestrator(labels={"event": "note"}))
        await bench.put(orchestrator({"result/a": b"{}", "step/a": b"2"}, {"step/a": fence}, role=Role.WORKER))
        events = await bench.board.events(bench.request_id)
        assert fold(events) == (await bench.read(*FIELDS)).fields
        earlier = fold(events[:2])
        assert earlier["step/a"].version == step
        assert "result/a" not in earlier

    async def test_commit_order_is_the_order_of_positions(self, bench: Bench) -> None:
        names = [f"plan/{n}" for n in range(20)]
        await asyncio.gather(*(bench.put(orchestrator({name: b"1"})) for name in names))
        seen = await bench.read(*names)
        assert sorted(stored.position for stored in seen.fields.values()) == list(range(1, 21))
        by_event = [next(iter(event.put)) for event in await bench.board.events(bench.request_id)]
        assert by_event == sorted(names, key=lambda name: seen.fields[name].position)

    @pytest.mark.parametrize(
        "value", [b"", b"[]", b"{}", b"9007199254740993", b"1.00000000000000000001", b"\xff\x00\xfe", b"NaN", b'{"a":1,"a":2}']
    )
    async def test_bytes_are_kept_identical(self, bench: Bench, value: bytes) -> None:
        await bench.put(orchestrator({"plan": value, "answer": b"x"}))
        await bench.put(orchestrator({"answer": b"y"}))
        assert (await bench.read("plan")).value("plan") == value
        assert (await bench.board.events(bench.request_id))[0].put["plan"][1] == value

    async def test_what_a_caller_does_to_its_own_mappings_later_changes_nothing(self, bench: Bench) -> None:
        put, labels = {"plan": b"1"}, {"event": "x"}
        await bench.put(orchestrator(put, labels=labels))
        put["answer"] = b"2"
        labels["event"] = "y"
        [event] = await bench.board.events(bench.request_id)
        assert (dict(event.labels), set(event.put)) == ({"event": "x"}, {"plan"})

    async def test_field_names_that_look_like_the_boards_own_stay_apart(self, bench: Bench) -> None:
        names = ["plan/at", "plan/role", "plan/counts", "plan/operation", "plan/计划", "plan/ "]
        written = await bench.put(orchestrator({name: name.encode() for name in names}))
        [event] = await bench.board.events(bench.request_id)
        assert {name: value.decode() for name, (_, value) in event.put.items()} == {name: name for name in names}
        assert list(written.versions) == names


class TestLimits:
    async def test_a_value_over_its_limit_is_refused_by_name(self, bench: Bench) -> None:
        await bench.put(orchestrator({"plan": b"x" * MAX_VALUE_BYTES}))
        before = await bench.board.events(bench.request_id)
        with pytest.raises(LimitExceeded, match="plan/big: the value has 262,145 bytes, the limit is 262,144"):
            await bench.write(orchestrator({"plan": b"1", "plan/big": b"x" * (MAX_VALUE_BYTES + 1)}))
        await unchanged(bench, before)

    async def test_a_write_over_its_limit_is_refused(self, bench: Bench) -> None:
        with pytest.raises(LimitExceeded, match="the write"):
            await bench.write(orchestrator({f"plan/{n}": b"x" * MAX_VALUE_BYTES for n in range(5)}))
        with pytest.raises(LimitExceeded, match="fields"):
            await bench.write(orchestrator({f"plan/{n}": b"" for n in range(MAX_WRITE_FIELDS + 1)}))
        assert await bench.board.events(bench.request_id) == []

    async def test_as_many_fields_as_are_allowed_fit_into_one_write(self, bench: Bench) -> None:
        put = {f"plan/{n}": b"%d" % n for n in range(MAX_WRITE_FIELDS)}
        written = await bench.put(orchestrator(put, dict.fromkeys(put, ABSENT), returning=list(put)))
        assert len(written.returned.fields) == MAX_WRITE_FIELDS
        assert fold(await bench.board.events(bench.request_id)) == written.returned.fields

    async def test_what_cannot_be_a_write_is_refused_before_anything(self, bench: Bench) -> None:
        bad = [
            orchestrator({"": b"1"}),
            orchestrator({"plan\x00": b"1"}),
            orchestrator({"plan": b"1"}, id="short"),
            orchestrator({"plan": b"1"}, {"plan": "seven"}),
            orchestrator({"plan": b"1"}, {"plan": ""}),
            orchestrator({"plan": b"1"}, {"plan": "7"}),
            orchestrator({"plan": b"1"}, expire=-1),
            orchestrator({"plan/\ud800": b"1"}),
            orchestrator({"plan": b"1"}, labels={"event": "\udfff"}),
            orchestrator({"plan": b"1"}, labels={"event": 1}),  # type: ignore[dict-item]
            orchestrator({"plan": "text"}),  # type: ignore[dict-item]
            orchestrator({"plan": b"1"}, returning=["\ud800"]),
            orchestrator({"plan": b"1"}, cause="\ud800"),
        ]
        for write in bad:
            with pytest.raises(InvalidValue):
                await bench.write(write)
        with pytest.raises(InvalidValue):
            await bench.read("step/\ud800")
        assert await bench.board.events(bench.request_id) == []


class TestWatching:
    async def test_a_watcher_gets_what_was_and_what_comes_in_order(self, bench: Bench) -> None:
        await bench.put(orchestrator({"plan": b"0"}))
        watcher = bench.board.watch(bench.request_id)
        async with asyncio.timeout(5):
            assert (await anext(watcher)).position == 1
            next_one = asyncio.ensure_future(anext(watcher))
            for n in range(1, 20):
                await bench.put(orchestrator({"plan": b"%d" % n}))
            assert (await next_one).position == 2
            assert [(await anext(watcher)).position for _ in range(18)] == list(range(3, 21))
        await watcher.aclose()

    async def test_a_watcher_begins_after_a_position_also_of_a_request_that_comes_later(self, bench: Bench) -> None:
        watcher = bench.board.watch(bench.request_id, 1)
        first = asyncio.ensure_future(anext(watcher))
        await asyncio.sleep(0)
        await bench.put(orchestrator({"plan": b"1"}))
        await bench.put(orchestrator({"plan": b"2"}))
        async with asyncio.timeout(5):
            assert (await first).position == 2
        await watcher.aclose()

    async def test_a_hundred_watchers_of_ten_requests_all_see_the_end(self, bench: Bench) -> None:
        benches = [Bench(bench.board, bench.clock) for _ in range(10)]

        async def until_the_answer(request_id: str) -> list[int]:
            positions: list[int] = []
            watcher = bench.board.watch(request_id)
            async for event in watcher:
                positions.append(event.position)
                if "answer" in event.put:
                    await watcher.aclose()
                    break
            return positions

        async with asyncio.timeout(8):
            watchers = [asyncio.ensure_future(until_the_answer(one.request_id)) for one in benches for _ in range(10)]
            await asyncio.sleep(0)
            for name in ("plan", "plan", "answer"):
                await asyncio.gather(*(one.put(orchestrator({name: b"1"})) for one in benches))
            assert await asyncio.gather(*watchers) == [[1, 2, 3]] * 100

    async def test_a_watcher_of_one_field_sees_it_now_and_is_woken_by_writes_of_it_alone(self, bench: Bench) -> None:
        async with asyncio.timeout(5), aclosing(bench.board.watch_field(bench.request_id, "answer")) as snapshots:
            assert (await anext(snapshots)).position == 0
            await bench.put(orchestrator({"answer": b"1"}))
            while (seen := await anext(snapshots)).position < 1:  # a look may come before the write that follows it
                pass
            assert seen.value("answer") == b"1"
            waiting = asyncio.ensure_future(anext(snapshots))
            await bench.put(orchestrator({"plan": b"1"}))
            await bench.put(orchestrator({f"plan/{n}": b"1" for n in range(9)}))
            await bench.put(orchestrator({"answer": b"2", "plan": b"2"}))
            assert (await waiting).value("answer") == b"2"
            waiting = asyncio.ensure_future(anext(snapshots))
            await bench.put(orchestrator({"answer": b"3", **{f"plan/{n}": b"2" for n in range(19)}}))
            assert (await waiting).value("answer") == b"3"

    async def test_a_watcher_of_one_field_may_ask_for_others_beside_it_which_wake_nobody(self, bench: Bench) -> None:
        async with asyncio.timeout(5), aclosing(bench.board.watch_field(bench.request_id, "answer", also=("plan",))) as snapshots:
            assert (await anext(snapshots)).asked == {"answer", "plan"}
            await bench.put(orchestrator({"plan": b"1"}))
            await bench.put(orchestrator({"answer": b"1", "plan": b"2"}))
            while (seen := await anext(snapshots)).value("answer") is None:  # a look may come before the write that follows it
                pass
            assert seen.value("plan") == b"2"

    async def test_closing_one_watcher_leaves_the_others(self, bench: Bench) -> None:
        first, second = bench.board.watch(bench.request_id), bench.board.watch(bench.request_id)
        waiting = [asyncio.ensure_future(anext(first)), asyncio.ensure_future(anext(second))]
        await bench.put(orchestrator({"plan": b"1"}))
        async with asyncio.timeout(5):
            await asyncio.gather(*waiting)
            await first.aclose()
            later = asyncio.ensure_future(anext(second))
            await bench.put(orchestrator({"plan": b"2"}))
            assert (await later).position == 2
            await second.aclose()


class TestDueIndex:
    async def test_a_member_is_due_when_its_time_has_come(self, bench: Bench) -> None:
        await bench.board.enter("now", 0)
        await bench.board.enter("later", HOUR_MS)
        assert [due.member for due in await bench.board.due(10, 1000)] == ["now"]

    async def test_what_is_returned_is_moved_on_before_anybody_else_reads_it(self, bench: Bench) -> None:
        for n in range(40):
            await bench.board.enter(f"r{n}", 0)
        looks = await asyncio.gather(*(bench.board.due(15, HOUR_MS) for _ in range(6)))
        members = [due.member for look in looks for due in look]
        assert sorted(members) == sorted(f"r{n}" for n in range(40))
        assert all(len(look) <= 15 for look in looks)

    async def test_a_member_comes_back_after_the_way_forward(self, bench: Bench) -> None:
        await bench.board.enter("r", 0)
        assert len(await bench.board.due(10, 100)) == 1
        assert await bench.board.due(10, 100) == []
        await bench.pass_time(150)
        assert len(await bench.board.due(10, 100)) == 1

    async def test_the_earlier_mark_wins(self, bench: Bench) -> None:
        await bench.board.enter("r", HOUR_MS)
        await bench.board.enter("r", 0)
        await bench.board.enter("r", HOUR_MS)
        assert len(await bench.board.due(10, 1000)) == 1

    async def test_a_look_begun_before_an_enter_cannot_settle_it(self, bench: Bench) -> None:
        await bench.board.enter("r", 0)
        [look] = await bench.board.due(10, 200)
        await bench.board.enter("r", HOUR_MS)  # the look's mark is earlier and wins, and yet it changes
        await bench.board.settle(look, None)
        await bench.pass_time(250)
        assert [due.member for due in await bench.board.due(10, HOUR_MS)] == ["r"]

    async def test_an_enter_after_a_look_survives_it_whatever_the_look_decides(self, bench: Bench) -> None:
        for delay in (None, HOUR_MS):
            await bench.board.enter("r", 0)
            [look] = await bench.board.due(10, HOUR_MS)
            await bench.board.enter("r", 0)
            await bench.board.settle(look, delay)
            assert [due.member for due in await bench.board.due(10, 1)] == ["r"]

    async def test_settling_sets_the_next_look_or_none(self, bench: Bench) -> None:
        await bench.board.enter("r", 0)
        [look] = await bench.board.due(10, HOUR_MS)
        await bench.board.settle(look, 0)
        [look] = await bench.board.due(10, HOUR_MS)
        await bench.board.settle(look, None)
        await bench.board.settle(look, 0)
        assert await bench.board.due(10, 1) == []

    async def test_settling_a_look_that_nobody_began_changes_nothing(self, bench: Bench) -> None:
        await bench.board.settle(Due("never", 5), 0)
        await bench.board.settle(Due("never", 5), None)
        assert await bench.board.due(10, 1) == []

    async def test_the_holder_moves_its_mark_both_ways_and_takes_it_away(self, bench: Bench) -> None:
        await bench.board.mark("r#a", 0)
        await bench.board.mark("r#a", HOUR_MS)
        assert await bench.board.due(10, 1) == []
        await bench.board.mark("r#a", 0)
        [look] = await bench.board.due(10, 1)
        assert look.member == "r#a"
        await bench.board.leave("r#a")
        await bench.board.leave("r#a")
        await bench.pass_time(5)
        assert await bench.board.due(10, 1) == []

    async def test_lengths_that_make_no_sense_are_refused(self, bench: Bench) -> None:
        for call in (bench.board.enter("r", -1), bench.board.mark("r", -1), bench.board.due(1, 0), bench.board.settle(Due("r", 1), -1)):
            with pytest.raises(InvalidValue):
                await call
        assert await bench.board.due(0, 1) == []


class TestIndexesForPeople:
    async def test_failed_steps_are_listed_newest_first_and_once(self, bench: Bench) -> None:
        entries = [DeadEntry(bench.request_id, f"step-{n}", n) for n in range(5)]
        for entry in [*entries, entries[0]]:
            await bench.board.dead_add(entry)
        assert await bench.board.dead_list() == entries[::-1]
        assert await bench.board.dead_list(2) == [entries[4], entries[3]]
        assert await bench.board.dead_list(0) == []

    async def test_a_dead_entry_is_removed_and_may_come_back(self, bench: Bench) -> None:
        entry = DeadEntry(bench.request_id, "a", 0)
        await bench.board.dead_add(entry)
        await bench.board.dead_remove(entry)
        await bench.board.dead_remove(entry)
        assert await bench.board.dead_list() == []
        await bench.board.dead_add(entry)
        assert await bench.board.dead_list() == [entry]

    async def test_recent_requests_are_kept_by_tenant_newest_first(self, bench: Bench) -> None:
        for n in range(4):
            await bench.board.recent_add("租户", f"r{n}")
        await bench.board.recent_add("租户", "r0")
        await bench.board.recent_add("other", "x")
        assert await bench.board.recent("租户") == ["r3", "r2", "r1", "r0"]
        assert await bench.board.recent("租户", 2) == ["r3", "r2"]
        assert await bench.board.recent("nobody") == []

    async def test_of_recent_requests_the_newest_ten_thousand_stay(self, bench: Bench) -> None:
        for start in range(0, 10_010, 1001):
            await asyncio.gather(*(bench.board.recent_add("t", f"r{n}") for n in range(start, start + 1001)))
        assert len(await bench.board.recent("t", 20_000)) == 10_000


async def test_operation_ids_of_the_tests_are_never_drawn_twice() -> None:
    assert len({operation() for _ in range(1000)}) == 1000

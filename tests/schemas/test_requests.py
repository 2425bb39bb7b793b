"""The two state machines, each as one table: what is in it is allowed, and nothing else is."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import IllegalTransition
from schemas.requests import (
    RequestStatus,
    Role,
    StepState,
    check_request_transition,
    check_step_transition,
    request_id,
)

STEP_TABLE = """
    absent    -> PENDING    orchestrator
    FAILED    -> PENDING    orchestrator
    RUNNING   -> PENDING    worker
    PENDING   -> RUNNING    worker
    PENDING   -> COMPLETED  orchestrator
    RUNNING   -> RUNNING    worker
    RUNNING   -> COMPLETED  worker
    RUNNING   -> FAILED     worker
    RUNNING   -> FAILED     orchestrator
    RUNNING   -> PENDING    orchestrator
    FAILED    -> FAILED     orchestrator
    COMPLETED -> PENDING    orchestrator
    COMPLETED -> FAILED     orchestrator
    PENDING   -> FAILED     worker
    PENDING   -> FAILED     orchestrator
"""

REQUEST_TABLE = """
    absent    -> ACCEPTED   producer
    ACCEPTED  -> RUNNING    orchestrator
    ACCEPTED  -> COMPLETED  orchestrator
    ACCEPTED  -> DEGRADED   orchestrator
    ACCEPTED  -> FAILED     orchestrator
    ACCEPTED  -> CANCELLED  orchestrator
    RUNNING   -> RUNNING    orchestrator
    RUNNING   -> COMPLETED  orchestrator
    RUNNING   -> DEGRADED   orchestrator
    RUNNING   -> FAILED     orchestrator
    RUNNING   -> CANCELLED  orchestrator
    COMPLETED -> RUNNING    orchestrator
    DEGRADED  -> RUNNING    orchestrator
    FAILED    -> RUNNING    orchestrator
"""


def rows(table: str) -> set[tuple[str, str, str]]:
    """(before, after, role) of each line."""
    lines = (line.replace("->", "").split() for line in table.strip().splitlines())
    return {(before, after, role) for before, after, role in lines}


@pytest.mark.parametrize(("before", "after", "role"), [*product([None, *StepState], StepState, Role)])
def test_a_step_changes_as_its_table_says_and_in_no_other_way(before: StepState | None, after: StepState, role: Role) -> None:
    if (before or "absent", after, role) in rows(STEP_TABLE):
        check_step_transition(before, after, role)
        return
    with pytest.raises(IllegalTransition) as refused:
        check_step_transition(before, after, role)
    assert str(refused.value) == f"a step does not go from {before or 'absent'} to {after} by {role}"


@pytest.mark.parametrize(("before", "after", "role"), [*product([None, *RequestStatus], RequestStatus, Role)])
def test_a_request_changes_as_its_table_says_and_in_no_other_way(before: RequestStatus | None, after: RequestStatus, role: Role) -> None:
    if (before or "absent", after, role) in rows(REQUEST_TABLE):
        check_request_transition(before, after, role)
        return
    with pytest.raises(IllegalTransition) as refused:
        check_request_transition(before, after, role)
    assert str(refused.value) == f"a request does not go from {before or 'absent'} to {after} by {role}"


def test_every_row_of_the_tables_names_states_and_roles_that_exist() -> None:
    for table, states in ((STEP_TABLE, StepState), (REQUEST_TABLE, RequestStatus)):
        assert len(rows(table)) == len(table.strip().splitlines())
        for before, after, role in rows(table):
            assert {before, after} <= {"absent", *states}
            assert role in set(Role)


def test_a_cancelled_request_is_over_for_good_and_only_a_retraction_moves_what_completed() -> None:
    assert {row[2] for row in rows(STEP_TABLE) if row[0] == "COMPLETED"} == {"orchestrator"}
    assert not [row for row in rows(REQUEST_TABLE) if row[0] == "CANCELLED"]


def test_over_means_that_nothing_more_happens_unless_a_person_replays() -> None:
    assert {state for state in StepState if state.over} == {StepState.COMPLETED, StepState.FAILED}
    assert {status for status in RequestStatus if not status.over} == {RequestStatus.ACCEPTED, RequestStatus.RUNNING}


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)


@given(TEXT, TEXT, TEXT, TEXT)
def test_a_request_id_follows_from_tenant_and_key_alone(tenant: str, key: str, other_tenant: str, other_key: str) -> None:
    assert request_id(tenant, key) == request_id(tenant, key)
    assert (request_id(tenant, key) == request_id(other_tenant, other_key)) == ((tenant, key) == (other_tenant, other_key))


def test_a_request_id_stays_what_it_was_over_versions() -> None:
    assert request_id("default", "order-1") == "5a784dc3-55a6-52a5-98fa-92712e462e11"

"""Names of fields, and who may write them."""

from __future__ import annotations

from itertools import product

import pytest

from schemas import fields
from schemas.errors import NotPermitted
from schemas.fields import check_owner
from schemas.requests import Role

PRODUCER, ORCHESTRATOR, WORKER = Role.PRODUCER, Role.ORCHESTRATOR, Role.WORKER
ALWAYS = ("new", "new, fenced", "there", "there, fenced")
NEW = ("new", "new, fenced")
FENCED = ("new, fenced", "there, fenced")

ALLOWED: dict[str, dict[Role, tuple[str, ...]]] = {
    "request": {PRODUCER: NEW},
    "card": {PRODUCER: NEW},
    "constraint/budget": {PRODUCER: NEW},
    "status": {PRODUCER: NEW, ORCHESTRATOR: ALWAYS},
    "plan": {ORCHESTRATOR: ALWAYS},
    "plan/iot": {ORCHESTRATOR: ALWAYS},
    "answer": {ORCHESTRATOR: ALWAYS},
    "step/iot": {ORCHESTRATOR: ALWAYS, WORKER: FENCED},
    "result/iot": {ORCHESTRATOR: ("new, fenced",), WORKER: FENCED},
    "session": {PRODUCER: FENCED},
    "boundary": {ORCHESTRATOR: ALWAYS},
    "absorbed": {ORCHESTRATOR: ALWAYS},
    "field/stock": {PRODUCER: NEW, ORCHESTRATOR: ALWAYS, WORKER: FENCED},
    # What is no field of ours has no owner.
    "": {},
    "step": {},
    "result": {},
    "constraint": {},
    "requests": {},
    "request/x": {},
    "status/x": {},
    "session/x": {},
    "Status": {},
    "/": {},
    "/step/iot": {},
    "lease/iot": {},
}


@pytest.mark.parametrize(("field", "role", "case"), [*product(ALLOWED, Role, ALWAYS)])
def test_invariant_12_a_field_is_written_by_its_owner_only(field: str, role: Role, case: str) -> None:
    absent, fenced = case.startswith("new"), case.endswith("fenced")
    if case in ALLOWED[field].get(role, ()):
        check_owner(role, field, absent=absent, fenced=fenced)
        return
    with pytest.raises(NotPermitted) as refused:
        check_owner(role, field, absent=absent, fenced=fenced)
    assert str(refused.value).startswith(f"{role} may not write field {field!r}")


def test_invariant_12_a_worker_without_its_fence_is_told_so() -> None:
    for field in ("step/iot", "result/iot", "field/stock"):
        with pytest.raises(NotPermitted, match="without expecting its step"):
            check_owner(WORKER, field, absent=False, fenced=False)


def test_invariant_12_a_name_with_more_slashes_belongs_to_its_first_part() -> None:
    check_owner(WORKER, "field/a/b", absent=True, fenced=True)
    with pytest.raises(NotPermitted):
        check_owner(WORKER, "plan/step/iot", absent=True, fenced=True)


def test_each_field_of_a_step_has_a_namespace_of_its_own() -> None:
    names = [fields.step("a"), fields.result("a"), fields.definition("a"), fields.constraint("a")]
    assert names == ["step/a", "result/a", "plan/a", "constraint/a"]

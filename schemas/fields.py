"""Names of the blackboard's fields, and who owns which namespace."""

from __future__ import annotations

from functools import lru_cache

from schemas.errors import NotPermitted
from schemas.requests import Role

REQUEST = "request"
CARD = "card"
STATUS = "status"
PLAN = "plan"
ANSWER = "answer"
SESSION = "session"
"""Of a session, under an id of its own: its newest request."""
BOUNDARY = "boundary"
"""What was withdrawn, confirmed, approved, and which rules hold; every brief is built with it."""
ABSORBED = "absorbed"
"""Whose changes to shared fields, confirmations and action requests were taken in."""

STEP_PREFIX = "step/"
RESULT_PREFIX = "result/"
PLAN_PREFIX = "plan/"
CONSTRAINT_PREFIX = "constraint/"
SHARED_PREFIX = "field/"


def step(step_id: str) -> str:
    """Field of a step's record."""
    return STEP_PREFIX + step_id


def result(step_id: str) -> str:
    """Field of a step's result."""
    return RESULT_PREFIX + step_id


def definition(step_id: str) -> str:
    """Field of a step's definition, its part of the plan."""
    return PLAN_PREFIX + step_id


def constraint(name: str) -> str:
    """Field of a shared constraint."""
    return CONSTRAINT_PREFIX + name


def shared(name: str) -> str:
    """Field of a team's shared field."""
    return SHARED_PREFIX + name


@lru_cache(maxsize=4096)
def of_brief(step_id: str, inputs: tuple[str, ...] = (), constraints: tuple[str, ...] = (), reads: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the fields that a step's brief is built from, as far as its input steps, reads and the request's constraints are known.

    Request, definition, boundary, constraints, shared fields, and of each input its definition, record and result; `plan` where
    inputs have an order.
    """
    return (
        REQUEST,
        definition(step_id),
        BOUNDARY,
        *map(shared, reads),
        *map(constraint, constraints),
        *((PLAN,) if len(inputs) > 1 else ()),
        *(name for step in inputs for name in (definition(step), STEP_PREFIX + step, result(step))),
    )


_OWNERS: dict[str, Role] = {
    REQUEST: Role.PRODUCER,
    CARD: Role.PRODUCER,
    CONSTRAINT_PREFIX: Role.PRODUCER,
    PLAN: Role.ORCHESTRATOR,
    PLAN_PREFIX: Role.ORCHESTRATOR,
    ANSWER: Role.ORCHESTRATOR,
    BOUNDARY: Role.ORCHESTRATOR,
    ABSORBED: Role.ORCHESTRATOR,
}


def check_owner(role: Role, field: str, *, absent: bool, fenced: bool) -> None:
    """Refuse a put by a role that does not own the field's namespace. The Redis script holds the same table.

    `absent`: the field does not exist yet (a producer writes only what is absent). `fenced`: the write expects the
    `step/<id>` that belongs to a `step/` or `result/` put (which worker may write is decided by that fence alone), for a
    `field/` put the step of whoever writes, or the `session` that it puts.

    Raises:
        NotPermitted: naming role and field.
    """
    namespace = field[: field.index("/") + 1] if "/" in field else field
    if namespace == STEP_PREFIX:
        allowed = role is Role.ORCHESTRATOR or (role is Role.WORKER and fenced)
    elif namespace == RESULT_PREFIX:  # the orchestrator puts what a fork reuses, once
        allowed = fenced and (role is Role.WORKER or (role is Role.ORCHESTRATOR and absent))
    elif namespace == SESSION:
        allowed = role is Role.PRODUCER and fenced
    elif namespace == SHARED_PREFIX:
        allowed = role is Role.ORCHESTRATOR or (role is Role.WORKER and fenced) or (role is Role.PRODUCER and absent)
    elif namespace == STATUS:
        allowed = (role is Role.PRODUCER and absent) or role is Role.ORCHESTRATOR
    else:
        owner = _OWNERS.get(namespace)
        allowed = role is owner and (owner is not Role.PRODUCER or absent)
    if not allowed:
        unfenced = role is Role.WORKER and namespace in (STEP_PREFIX, RESULT_PREFIX, SHARED_PREFIX) and not fenced
        raise NotPermitted(f"{role} may not write field {field!r}{' without expecting its step' if unfenced else ''}")

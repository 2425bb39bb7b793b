"""Actions: the only way in which a model changes a team's shared fields. Each is named, typed, and about one field.

An action is a pure function from what it is called with to the field's new value: there is none that takes the name of a field
or a value of any shape. Declared by a team; bound to one run by `agents.acting`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args, get_origin, get_type_hints

from schemas.codec import digest
from schemas.errors import InvalidTeam
from schemas.plans import Step
from schemas.shared import FieldCard, Operation
from workers.agents.tools import CONTRADICTION_TOOL, READ_TOOL, Tool

CONCLUDE = "conclude_"
"""What the names of the tools begin with by which a model gives a step's outputs."""

_BY_ID = frozenset({Operation.SETTLE, Operation.TAKE_UP, Operation.REFUSE})
_GIVEN_BY_US = ("evidence", "reason")


def by_id(id: str) -> str:
    """Name one of the values that stand beside the field, by the id that it is shown with."""
    return id


@dataclass(frozen=True)
class Action:
    """What a model may do to one shared field.

    `change` gets the checked arguments and returns the value (`set`), one contribution (`add`) or a wish (`propose`); to settle,
    take up or refuse it returns the id of what is meant, and may be left out. `description` falls back to its docstring. Every action also
    takes `evidence` (keys of facts, ids of material) and `reason`. `channel` and `approval` are for what is said to a user:
    by which way, and on what approval.
    """

    name: str
    field: str
    change: Callable[..., Any] = by_id
    description: str = ""
    operation: Operation = Operation.SET
    channel: str = ""
    approval: str = ""
    needs_evidence: bool = False

    def __post_init__(self) -> None:
        path = f"actions.{self.name}"
        if self.change is by_id and self.operation not in _BY_ID:
            raise InvalidTeam("needs a function that gives the value", path=f"{path}.change")
        if inspect.iscoroutinefunction(self.change) or self._tool.takes_context:
            raise InvalidTeam("its function is pure: it takes what it is called with, waits for nothing and knows nothing else", path=path)
        hints = get_type_hints(self.change)
        for parameter in self.signature.parameters:
            if parameter in _GIVEN_BY_US:
                raise InvalidTeam(f"every action has a parameter {parameter!r} already", path=f"{path}.{parameter}")
            if parameter not in hints or _is_free(hints[parameter]):
                raise InvalidTeam("takes a value of any shape; name its type", path=f"{path}.{parameter}")

    @cached_property
    def _tool(self) -> Tool:
        tool = Tool(self.name, self.change, self.description)
        _ = tool.json_schema
        return tool

    @property
    def signature(self) -> inspect.Signature:
        """Parameters of the change, without `evidence` and `reason`."""
        return inspect.signature(self.change)

    @property
    def says(self) -> str:
        """What a model reads of it."""
        return self._tool.description

    @property
    def asks_reason(self) -> bool:
        """Whether it cannot be done without saying why."""
        return self.operation in (Operation.PROPOSE, Operation.SETTLE, Operation.REFUSE)

    @cached_property
    def version(self) -> str:
        """Short hash of what a model sees of it, and of what it does."""
        operation = [self.operation.value, self.channel, self.approval, self.needs_evidence]
        return digest([self.name, self.field, self.says, self._tool.json_schema, operation])


def _is_free(annotation: Any) -> bool:
    """Whether a type says nothing of what a value looks like."""
    if annotation in (Any, object, dict, list, tuple, set, Mapping) or get_origin(annotation) in (dict, Mapping):
        return True
    return any(_is_free(each) for each in get_args(annotation) if isinstance(each, type) or each is Any or get_origin(each))


def check_actions(actions: Iterable[Action], cards: Mapping[str, FieldCard], tools: Mapping[str, Iterable[str]]) -> None:
    """Refuse actions that do not fit the team's fields; `tools` are the names that each agent's tools have.

    Raises:
        InvalidTeam: with the action's path.
    """
    seen: set[str] = set()
    for action in actions:
        path = f"actions.{action.name}"
        taken = [agent for agent, names in tools.items() if action.name in names]
        if action.name in seen or taken or action.name in (CONTRADICTION_TOOL, READ_TOOL) or action.name.startswith(CONCLUDE):
            raise InvalidTeam(f"the name is taken{f' by a tool of agent {taken[0]!r}' if taken else ''}", path=f"{path}.name")
        seen.add(action.name)
        card = cards.get(action.field)
        if card is None:
            raise InvalidTeam(f"there is no field {action.field!r}; there are: {', '.join(cards) or 'none'}", path=f"{path}.field")
        if problem := _misfit(action, card):
            raise InvalidTeam(f"field {card.name!r} {problem}", path=f"{path}.operation")


def _misfit(action: Action, card: FieldCard) -> str:
    if card.is_resource:
        return "is reserved from by tools, and changed by no action"
    if action.operation is Operation.MOVE and not card.transitions:
        return "has no states to move between"
    if action.operation is Operation.ADD and not card.merged:
        return "has an owner, so nobody adds to it"
    if action.operation in (Operation.SET, Operation.TAKE_UP, Operation.REFUSE, Operation.PROPOSE) and card.merged:
        return "is merged, so it is added to"
    if action.operation is Operation.SETTLE and card.arbiter is None:
        return "has no arbiter: a person settles it"
    return ""


def actions_of(step: Step, actions: Iterable[Action], cards: Mapping[str, FieldCard]) -> tuple[Action, ...]:
    """Return the actions that a step's agent has: on fields that the step writes or settles; a wish on what it reads and another owns."""
    return tuple(each for each in actions if each.field in cards and _has(step, each.operation, cards[each.field]))


def _has(step: Step, operation: Operation, card: FieldCard) -> bool:
    match operation:
        case Operation.PROPOSE:
            return card.name in step.reads and card.owner != step.id
        case Operation.SETTLE:
            return card.arbiter == step.id
        case Operation.ADD:
            return card.name in step.writes
        case Operation.MOVE:
            return step.id in card.movers and card.name in step.writes
        case _:
            return card.owner == step.id and card.name in step.writes

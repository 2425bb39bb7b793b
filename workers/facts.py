"""Fact rules: how values are copied out of tool returns, and never out of prose.

Pure: a run's observations and the rules give the facts, the replaced ones, or a failure. Called by the specialist after its
loop has ended; a team's rules are checked against the tools' declared outputs when the team loads.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel

from schemas.codec import Json, digest
from schemas.errors import InvalidTeam
from schemas.facts import Fact, Provenance, Sensitivity
from schemas.frozen import Scalar
from schemas.results import Failure, FailureCode
from workers.agents.tools import Tool, ToolObservation

Keep: TypeAlias = Literal["last", "first", "same"]
"""Which of several calls counts: the last (a corrected call replaces), the first, or all of them, which then must agree."""


@dataclass(frozen=True, slots=True)
class FactRule:
    """Copy what stands at `path` in a return of `tool` into fact `key`. `path` is dotted; a number is a place in a list."""

    tool: str
    path: str
    key: str
    keep: Keep = "last"
    unit: str | None = None
    sensitivity: Sensitivity = Sensitivity.INTERNAL
    basis: str | None = None
    """What the value counts: per night, with tax, of last month."""
    ttl_seconds: float | None = None
    """How long it holds after it was looked up."""
    confidence: float = 1.0
    allowed_use: tuple[str, ...] = ()
    """Empty: any use that is not forbidden."""
    forbidden_use: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtractedFacts:
    """Facts in the order of their rules, and what later or earlier calls of the same run had said instead."""

    facts: tuple[Fact, ...] = ()
    superseded: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class FactRules:
    """The rule table of one agent; keys are unique, and facts come in the order of the rules."""

    rules: tuple[FactRule, ...] = ()
    version: str = field(init=False, default="")

    def __post_init__(self) -> None:
        for index, rule in enumerate(self.rules):
            if not (rule.tool and rule.key.strip()) or not all(rule.path.split(".")):
                raise InvalidTeam("a rule names a tool, a dotted path and a key", path=f"rules.{index}")
            if any(rule.key == other.key for other in self.rules[:index]):
                raise InvalidTeam(f"fact {rule.key!r} has two rules", path=f"rules.{index}.key")
            if not 0 <= rule.confidence <= 1:
                raise InvalidTeam("a confidence is between 0 and 1", path=f"rules.{index}.confidence")
            if rule.ttl_seconds is not None and rule.ttl_seconds <= 0:
                raise InvalidTeam("a fact holds for longer than 0 seconds", path=f"rules.{index}.ttl_seconds")
        rows = [list(astuple(rule)) for rule in self.rules]
        object.__setattr__(self, "version", digest(rows) if rows else "")

    @classmethod
    def of(cls, *rules: tuple[str, str, str] | FactRule) -> FactRules:
        """Build a table of `(tool, path, key)` rows; a `FactRule` where a row needs more."""
        return cls(tuple(rule if isinstance(rule, FactRule) else FactRule(*rule) for rule in rules))

    def __iter__(self) -> Iterator[FactRule]:
        return iter(self.rules)

    def by_key(self) -> dict[str, tuple[str, ...]]:
        """Return fact key -> the tools that can give it, as an agent card states it."""
        return {rule.key: (rule.tool,) for rule in self.rules}

    def check(self, tools: Mapping[str, Tool], *, path: str = "rules") -> None:
        """Refuse a rule for a tool that is not there, or for a path that the tool's declared output cannot have.

        Raises:
            InvalidTeam: with the rule's path.
        """
        for index, rule in enumerate(self.rules):
            where = f"{path}.{index}"
            tool = tools.get(rule.tool)
            if tool is None:
                raise InvalidTeam(f"there is no tool {rule.tool!r}; there are: {', '.join(tools) or 'none'}", path=f"{where}.tool")
            if tool.output is not None:
                problem = _path_problem(tool.output, rule.path.split("."))
                if problem:
                    raise InvalidTeam(f"{rule.path!r} cannot stand in a return of {rule.tool!r}: {problem}", path=f"{where}.path")

    def extract(
        self,
        observations: Iterable[ToolObservation],
        *,
        step: str,
        tools: Mapping[str, Tool],
        now: Callable[[], datetime] | None = None,
    ) -> ExtractedFacts | Failure:
        """Copy the facts out of a run's returns, in the order the calls were asked for.

        A failed call, a return with a non-null `error`, and a blank value give nothing. Returns a `FACTS_DIFFER` failure where a
        rule with `keep="same"` saw two values.
        """
        observed_at = None if now is None else now()
        found: dict[str, list[Fact]] = {}
        for observation in observations:
            returned = observation.returned
            if observation.error is not None or (isinstance(returned, Mapping) and returned.get("error") is not None):
                continue
            for rule in self.rules:
                if rule.tool != observation.tool:
                    continue
                value = value_at(returned, rule.path)
                if isinstance(value, str | int | float) and not (isinstance(value, str) and not value.strip()):
                    fact = _fact(rule, value, observation, step, tools.get(rule.tool), self.version, observed_at)
                    found.setdefault(rule.key, []).append(fact)
        return _choose(self.rules, found)


def value_at(value: Json, path: str) -> Json:
    """Return what stands at a dotted path of a JSON value, or None where there is nothing."""
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, Sequence) and not isinstance(value, str) and part.isascii() and part.isdecimal():
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value


def _fact(
    rule: FactRule, value: Scalar, observation: ToolObservation, step: str, tool: Tool | None, version: str, now: datetime | None
) -> Fact:
    origin = value_at(observation.returned, tool.source) if tool is not None and tool.source else None
    provenance = Provenance(
        step=step,
        tool=rule.tool,
        call_id=observation.call_id,
        path=rule.path,
        source_ref=None if origin is None else str(origin),
        observed_at=now,
        rules_version=version,
        **({} if tool is None else {"zone": tool.zone}),
    )
    return Fact(
        key=rule.key,
        value=value,
        provenance=provenance,
        confidence=rule.confidence,
        unit=rule.unit,
        basis=rule.basis,
        expires_at=None if rule.ttl_seconds is None or now is None else now + timedelta(seconds=rule.ttl_seconds),
        sensitivity=rule.sensitivity,
        allowed_use=rule.allowed_use,
        forbidden_use=rule.forbidden_use,
    )


def _choose(rules: Sequence[FactRule], found: Mapping[str, Sequence[Fact]]) -> ExtractedFacts | Failure:
    facts: list[Fact] = []
    superseded: list[Fact] = []
    for rule in rules:
        values = found.get(rule.key, ())
        if not values:
            continue
        if rule.keep == "same" and any(_differ(values[0].value, other.value) for other in values[1:]):
            return Failure(
                code=FailureCode.FACTS_DIFFER,
                description=f"{rule.key} must be the same in every call, but was {values[0].value!r} and then another value",
            )
        kept = len(values) - 1 if rule.keep == "last" else 0
        facts.append(values[kept])
        superseded += [fact for index, fact in enumerate(values) if index != kept and _differ(fact.value, values[kept].value)]
    return ExtractedFacts(tuple(facts), tuple(superseded))


def _differ(one: Scalar, other: Scalar) -> bool:
    """`True == 1` and `1 == 1.0` in Python, but they are different JSON values here."""
    return type(one) is not type(other) or one != other


def _path_problem(declared: Any, parts: Sequence[str]) -> str | None:
    """Say why a type cannot have a scalar at a path, or None where it can."""
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is Annotated:
        return _path_problem(arguments[0], parts)
    if origin in (Union, types.UnionType):
        problems = [_path_problem(each, parts) for each in arguments if each is not type(None)]
        return None if None in problems else problems[0]
    if declared is Any or declared is object or not isinstance(origin or declared, type):
        return None  # nothing is declared about it
    if not parts:
        return _end_problem(origin or declared)
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        return _field_problem(declared, parts)
    container = origin or declared
    if issubclass(container, Mapping):
        return _path_problem(arguments[1] if len(arguments) == 2 else Any, parts[1:])
    if container in (list, tuple, set, frozenset) or (issubclass(container, Sequence) and not issubclass(container, str | bytes)):
        if not (parts[0].isascii() and parts[0].isdecimal()):
            return f"{parts[0]!r} is no place in a list"
        return _element_problem(container, arguments, parts)
    return f"{container.__name__} has no {parts[0]!r}"


def _end_problem(container: type) -> str | None:
    is_scalar = not issubclass(container, BaseModel | Mapping | list | tuple | set | frozenset)
    return None if is_scalar else f"it ends at a {container.__name__}, not at a single value"


def _element_problem(container: type, arguments: tuple[Any, ...], parts: Sequence[str]) -> str | None:
    if container is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis) and arguments:
        if int(parts[0]) >= len(arguments):
            return f"it has {len(arguments)} places only"
        return _path_problem(arguments[int(parts[0])], parts[1:])
    return _path_problem(arguments[0] if arguments else Any, parts[1:])


def _field_problem(model: type[BaseModel], parts: Sequence[str]) -> str | None:
    names: dict[str, Any] = {}
    for name, declared in model.model_fields.items():
        names[declared.serialization_alias or declared.alias or name] = declared.annotation
    for name, computed in model.model_computed_fields.items():
        names[computed.alias or name] = computed.return_type
    if parts[0] in names:
        return _path_problem(names[parts[0]], parts[1:])
    if model.model_config.get("extra") == "allow":
        return None
    return f"{model.__name__} has no {parts[0]!r}; it has: {', '.join(names)}"

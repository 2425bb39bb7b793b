"""The shape all stored and sent models share: immutable, tolerant of unknown fields, strict about values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Self, TypeAlias, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from schemas.errors import InvalidValue, Unreadable, UnsupportedVersion
from schemas.limits import MAX_NAME_LENGTH

Name: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=MAX_NAME_LENGTH)]
"""Name of a step, agent, team, constraint or field: letters, digits, `_` and `-`; queue and field names are built from it."""


def _scalar(value: object) -> object:
    # Before the union, because that would make a float of an integer beyond 64 bits, and complain once for each branch.
    match value:
        case bool() | str():
            return value
        case int() if -(2**63) <= value < 2**63:
            return value
        case float() if math.isfinite(value):
            return value
    raise ValueError("must be text, true or false, a finite number, or an integer of at most 64 bits")


Scalar: TypeAlias = Annotated[
    Annotated[bool, Field(strict=True)]
    | Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
    | Annotated[float, Field(strict=True, allow_inf_nan=False)]
    | Annotated[str, Field(strict=True)],
    BeforeValidator(_scalar),
]
"""A JSON scalar that keeps its type: `True` stays a boolean, `1999` an integer."""


SCHEMA_MAJOR = 1
"""What this code reads. Records of major 1 do not say so; those of any other must, in `schema_version`."""
_VERSION_KEY = "schema_version"
_VERSION_MARK = b'"schema_version"'


def refuse_other_major(version: object, what: str) -> None:
    """Refuse what says that it is of another major version.

    Raises:
        UnsupportedVersion: naming both.
    """
    named = str(version)
    if named.partition(".")[0] != str(SCHEMA_MAJOR):
        raise UnsupportedVersion(
            f"{what} (schema version {named[:20]}) is of another major version than {SCHEMA_MAJOR}.0, which is what is read here"
        )


class Frozen(BaseModel):
    """A value that never changes. Unknown fields are ignored, so that a newer minor version can be read.

    A newer major version is refused: its `schema_version` may say that known fields mean something else.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    def to_json(self) -> bytes:
        """Return the value as compact UTF-8 JSON.

        Raises:
            InvalidValue: it holds what JSON cannot (a lone surrogate).
        """
        try:
            return self.__pydantic_serializer__.to_json(self, exclude_none=True)
        except ValueError as error:
            raise InvalidValue(f"{type(self).__name__} cannot be written as JSON: {error}") from error

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a value back.

        Raises:
            Unreadable: with the path of the first bad value.
            UnsupportedVersion: of another major schema version.
        """
        if _VERSION_MARK in data:  # rare: the words stand in no record of ours, and perhaps in a text
            _refuse_by_mark(cls.__name__, data)
        try:
            return cls.__pydantic_validator__.validate_json(data)  # type: ignore[no-any-return]
        except ValidationError as error:
            raise Unreadable(f"{cls.__name__}: {first_problem(error)}") from error


def _refuse_by_mark(name: str, data: bytes) -> None:
    try:
        value = orjson.loads(data)
    except ValueError:
        return  # which reading it will say better
    if isinstance(value, dict) and _VERSION_KEY in value:
        refuse_other_major(value[_VERSION_KEY], name)


FrozenModel = TypeVar("FrozenModel", bound=Frozen)

_LONGEST_PATH = 200
"""Keys in a path are the sender's, and may be as long as a message."""


_PLAIN = {
    "string_pattern_mismatch": "a name is made of letters, digits, '_' and '-', and begins with a letter or digit",
    "tuple_type": "this is a list, also where it has one entry only",
}
"""What pydantic would say in terms of regular expressions and Python types."""


def first_problem(error: ValidationError) -> str:
    """Return the first complaint of pydantic as `path: what is wrong`, no longer than a line of a log."""
    detail: Any = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(part) for part in detail["loc"])[:_LONGEST_PATH]
    told = _PLAIN.get(detail["type"], str(detail["msg"]))
    return f"{path}: {told}" if path else told


def deep_frozen(value: Any) -> Any:
    """Return a JSON value that nobody can change in place: objects as read-only mappings, lists as tuples, all the way down."""
    match value:
        case str() | int() | float() | None:  # as most are: asking whether it is a mapping costs more
            return value
        case Mapping():
            return MappingProxyType({key: deep_frozen(each) for key, each in value.items()})
        case list() | tuple():
            return tuple(deep_frozen(each) for each in value)
    return value


def thawed(value: Any) -> Any:
    """Return a frozen JSON value as dicts and lists of its own, as it is written and sent."""
    match value:
        case Mapping():
            return {key: thawed(each) for key, each in value.items()}
        case list() | tuple():
            return [thawed(each) for each in value]
    return value


def validated(cls: type[FrozenModel], data: Any) -> FrozenModel:
    """Build a model from a caller's values, refusing bad ones by path.

    Raises:
        InvalidValue: with the dotted path of the first bad value.
    """
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        detail: Any = error.errors(include_url=False, include_input=False)[0]
        raise InvalidValue(str(detail["msg"]), path=".".join(str(part) for part in detail["loc"])) from error

"""The one JSON codec: what passes here can be stored, sent and read again without loss.

orjson does the work; this room adds the refusals that no JSON library agrees on: NaN and infinities, lone
surrogates, integers beyond 64 bits, invalid UTF-8, nesting beyond the limit, each with the path of the bad value
where it was a value and not yet bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import orjson

from schemas.errors import InvalidValue
from schemas.limits import MAX_JSON_DEPTH

Json: TypeAlias = Any
"""Whatever JSON can hold: scalars, lists, and mappings with text keys."""

_MAX_INTEGER = 2**63 - 1
_ZEROS_FOR_DIGITS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
"""orjson would write dates and dataclasses, which come back as something else."""


def encode(value: Json) -> bytes:
    """Return compact UTF-8 JSON of `value`, keys in the order given.

    Raises:
        InvalidValue: with the path of the first value that JSON cannot hold.
    """
    return _encode(value, _OPTIONS)


def decode(data: bytes | str) -> Json:
    """Return the value that the JSON text `data` stands for.

    Raises:
        InvalidValue: not UTF-8, not JSON, nested beyond the limit, or with a number beyond 64 bits.
    """
    try:
        value = orjson.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"not JSON: {error}") from error
    if _brackets(data) > MAX_JSON_DEPTH:
        _refuse_depth(value)
    if _may_hold_long_integer(data):  # orjson would make a float of it, without a word
        json.loads(data, parse_int=_integer)
    return value


def digest(value: Json) -> str:
    """Return the first 12 hex digits of the SHA-256 of `value` as JSON with sorted keys: a short version of content.

    Raises:
        InvalidValue: with the path of the first value that JSON cannot hold.
    """
    return hashlib.sha256(_encode(value, _OPTIONS | orjson.OPT_SORT_KEYS)).hexdigest()[:12]


def refuse_unsafe(value: Json, path: str = "", depth: int = 0) -> None:
    """Walk `value` and refuse the first thing that would not come back the same.

    Raises:
        InvalidValue: with its dotted path.
    """
    if depth > MAX_JSON_DEPTH:
        raise InvalidValue(f"nested deeper than {MAX_JSON_DEPTH} levels", path=path)
    match value:
        case None | bool():
            return
        case str():
            _refuse_surrogates(value, path)
        case int():
            if not -_MAX_INTEGER - 1 <= value <= _MAX_INTEGER:
                raise InvalidValue("an integer beyond 64 bits would not come back the same; send it as text", path=path)
        case float():
            if not math.isfinite(value):
                raise InvalidValue(f"{value} is not a JSON number", path=path)
        case Mapping():
            for key, item in value.items():
                if type(key) is not str:
                    raise InvalidValue(f"a key must be text, not {type(key).__name__}", path=path)
                _refuse_surrogates(key, path)
                refuse_unsafe(item, f"{path}.{key}" if path else key, depth + 1)
        case bytes() | bytearray():
            raise InvalidValue("bytes are not JSON; send text, or an artifact reference", path=path)
        case Sequence():
            for index, item in enumerate(value):
                refuse_unsafe(item, f"{path}.{index}" if path else str(index), depth + 1)
        case _:
            raise InvalidValue(f"{type(value).__name__} is not JSON", path=path)


def _encode(value: Json, options: int) -> bytes:
    try:
        data = orjson.dumps(value, option=options)
    except (TypeError, ValueError, RecursionError) as error:
        refuse_unsafe(value)
        raise InvalidValue(str(error)) from error
    if _may_be_unsafe(data):
        refuse_unsafe(value)
    return data


def _refuse_surrogates(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"a lone surrogate at character {error.start} cannot be stored as UTF-8", path=path) from error


def _may_be_unsafe(data: bytes) -> bool:
    """orjson writes NaN as null, nests up to 254 levels and has unsigned integers: only such output needs the slow walk."""
    return b"null" in data or _brackets(data) > MAX_JSON_DEPTH or _may_hold_long_integer(data)


def _may_hold_long_integer(data: bytes | str) -> bool:
    """Whether 19 digits stand in a row, as they do in every integer beyond 64 bits (and in few texts)."""
    return b"0" * 19 in (data.encode() if isinstance(data, str) else data).translate(_ZEROS_FOR_DIGITS)


def _integer(digits: str) -> None:
    if not -_MAX_INTEGER - 1 <= int(digits) <= _MAX_INTEGER:
        raise InvalidValue(f"the integer {digits[:24]} is beyond 64 bits and would not come back the same; send it as text")


def _brackets(data: bytes | str) -> int:
    """An upper bound of the nesting, cheap enough for every message."""
    return data.count("[") + data.count("{") if isinstance(data, str) else data.count(b"[") + data.count(b"{")


def _refuse_depth(value: Json, depth: int = 0) -> None:
    if depth > MAX_JSON_DEPTH:
        raise InvalidValue(f"nested deeper than {MAX_JSON_DEPTH} levels")
    if isinstance(value, dict):
        for item in value.values():
            _refuse_depth(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _refuse_depth(item, depth + 1)

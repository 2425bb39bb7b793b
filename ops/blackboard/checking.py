"""What both implementations refuse before any I/O, so that they refuse the same. Called by them alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schemas.blackboard import ABSENT, Write, check_write
from schemas.errors import InvalidValue, NotPermitted
from schemas.fields import RESULT_PREFIX, SHARED_PREFIX, STEP_PREFIX, check_owner, step

MAX_REQUEST_ID_LENGTH = 200
_NOT_IN_REQUEST_IDS = frozenset("{}#\x00")


def check(write: Write) -> None:
    """Refuse a write that no state of the board could make right.

    Raises:
        LimitExceeded: too large.
        InvalidValue: a version, name, length or text that is none.
        NotPermitted: the role never owns the field in such a write.
    """
    named = (*write.expect, *write.put, *write.unheld, *write.returning)
    encodable((write.operation_id, write.writer, write.cause, *write.labels, *write.labels.values(), *named))
    check_write(write)
    for version in write.expect.values():
        if version != ABSENT and not is_version(version):
            raise InvalidValue(f"{version!r} is no version", path="expect")
    for name, value in write.put.items():
        if not isinstance(value, bytes):
            raise InvalidValue(f"a value is bytes, not {type(value).__name__}", path=name)
        check_owner(write.role, name, absent=write.expect.get(name, ABSENT) == ABSENT, fenced=is_fenced(name, write.expect))


def is_version(text: str) -> bool:
    """Whether a field could have this version."""
    count, dot, origin = text.partition(".")
    return bool(dot and origin) and count.isascii() and count.isdecimal()


def is_fenced(name: str, expect: Mapping[str, str]) -> bool:
    """Whether a write that expects `expect` carries the fence of the step that `name` belongs to; a shared field: of some step."""
    if name.startswith(RESULT_PREFIX):
        return step(name[len(RESULT_PREFIX) :]) in expect
    if name.startswith(SHARED_PREFIX):
        return any(each.startswith(STEP_PREFIX) for each in expect)
    return name in expect


def forbid(write: Write, name: str) -> NotPermitted:
    """Return the error of a put that the board's present state does not permit."""
    try:
        check_owner(write.role, name, absent=False, fenced=is_fenced(name, write.expect))
    except NotPermitted as error:
        return error
    return NotPermitted(f"{write.role} may not write field {name!r}")


def waits_for(name: str) -> str:
    """What a `Held` names as its step where the time after a field's write has not come: the step, else the field itself."""
    return name.removeprefix(STEP_PREFIX)


def check_request_id(request_id: str) -> None:
    """Refuse an id that keys and index members cannot carry.

    Raises:
        InvalidValue: empty, longer than 200 characters, or holding a brace, `#` or NUL.
    """
    if not request_id or len(request_id) > MAX_REQUEST_ID_LENGTH or not _NOT_IN_REQUEST_IDS.isdisjoint(request_id):
        raise InvalidValue(f"{request_id[:40]!r} is no request id", path="request_id")


def check_length(milliseconds: int, least: int, what: str) -> None:
    """Refuse a length of time that makes no sense.

    Raises:
        InvalidValue: shorter than `least`.
    """
    if milliseconds < least:
        raise InvalidValue(f"{what} is at least {least} ms, not {milliseconds}")


def encodable(texts: Iterable[object]) -> None:
    """Refuse what is no text, or text that UTF-8 cannot hold.

    Raises:
        InvalidValue: a lone surrogate, or no text at all.
    """
    texts = tuple(texts)
    try:
        if "".join(texts).isascii():  # type: ignore[arg-type]  # what is no text is told below
            return
    except TypeError:
        pass
    for text in texts:
        if not isinstance(text, str):
            raise InvalidValue(f"{text!r} is no text")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise InvalidValue(f"a lone surrogate at character {error.start} cannot be stored as UTF-8") from error

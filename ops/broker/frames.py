"""The AMQP frames of a message's way, read and written as bytes: publish, deliver, return, confirm, acknowledge.

The driver makes objects, futures and tasks of each of them, and that costs more than the message itself. Everything else
(opening, declaring, consuming, closing, heartbeats) is the driver's, and passes here as it is. Pure: no I/O. Called by
`ops.broker.streams`, which sits between the driver and its socket, and by publisher and consumer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from pamqp import commands as spec
from pamqp.header import ContentHeader

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = b"\xce"
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"
PERSISTENT = 2
OVERHEAD = 8
"""Bytes of a frame beside its payload."""

_FRAME = struct.Struct(">BHI")
_TAG = struct.Struct(">QB")
_SIZE = struct.Struct(">Q")
_ACK = struct.Struct(">BHI4sQBc")
_CONTENT = struct.Struct(">HHQ")

_BASIC = 60
_PUBLISH, _RETURN, _DELIVER = b"\x00\x3c\x00\x28", b"\x00\x3c\x00\x32", b"\x00\x3c\x00\x3c"
_ACKED, _NACKED = b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"
_BLOCKED, _UNBLOCKED = b"\x00\x0a\x00\x3c", b"\x00\x0a\x00\x3d"
_MULTIPLE, _REQUEUE, _MANDATORY = 1, 2, 1
# Which properties a header has: content type, delivery mode and message id.
_USUAL = struct.pack(">H", 1 << 15 | 1 << 12 | 1 << 7)


@dataclass(slots=True)
class Delivered:
    """A message that came in, or (without a tag) one that came back because no queue takes it."""

    tag: int
    redelivered: bool
    consumption: str
    header: bytes = b""
    body: bytes = b""

    def properties(self) -> spec.Basic.Properties:
        """Return its properties; those that cannot be read are left out, all of them."""
        header = ContentHeader()
        try:
            header.unmarshal(self.header)
        except Exception:  # bytes of anybody's: what pamqp raises over them is not said anywhere
            return spec.Basic.Properties()
        return header.properties


class Listener(Protocol):
    """Who takes the messages and confirms of one channel. It raises nothing."""

    def delivered(self, message: Delivered) -> None:
        """Take a message."""
        ...

    def returned(self, message: Delivered) -> None:
        """Take back a message that no queue takes; its confirm comes too."""
        ...

    def confirmed(self, tag: int, *, multiple: bool, kept: bool) -> None:
        """Hear what became of what was published; `multiple`: of all up to `tag`."""
        ...


class _Content:
    """A message of which not all has come yet."""

    __slots__ = ("left", "message", "parts", "returned")

    def __init__(self, message: Delivered, *, returned: bool) -> None:
        self.message = message
        self.returned = returned
        self.left = 0
        self.parts: list[bytes] = []


class Sorter:
    """Sorts the bytes of one connection: what listeners take is handed to them, the rest is the driver's."""

    def __init__(self) -> None:
        self.listeners: dict[int, Listener] = {}
        """By channel number."""
        self.blocked = False
        """Whether the broker has said that it takes nothing for now."""
        self._rest = b""
        self._coming: dict[int, _Content] = {}
        self._foreign = False

    def forget(self, number: int) -> None:
        """End the listening on a channel whose number may be given to another one."""
        self.listeners.pop(number, None)
        self._coming.pop(number, None)

    def sort(self, data: bytes) -> bytes:
        """Take what came and return what the driver is to read. What is no frame of AMQP is the driver's, and all after it."""
        if self._foreign:
            return data
        data = self._rest + data if self._rest else data
        begin, end = 0, len(data)
        passed: list[bytes] = []
        while end - begin >= OVERHEAD:
            kind, number, size = _FRAME.unpack_from(data, begin)
            stop = begin + OVERHEAD + size
            if kind not in (METHOD, HEADER, BODY, HEARTBEAT) or (stop <= end and data[stop - 1] != END[0]):
                self._foreign = True
                stop = end
                passed.append(data[begin:])
            elif stop > end:
                break
            elif not self._takes(kind, number, data[begin + 7 : stop - 1]):
                passed.append(data[begin:stop])
            begin = stop
        self._rest = data[begin:]
        return b"".join(passed)

    def _takes(self, kind: int, number: int, payload: bytes) -> bool:
        listener = self.listeners.get(number)
        if listener is None:
            if not number and kind == METHOD:
                self._note(payload[:4])
            return False
        try:
            if kind == METHOD:
                return self._method(number, listener, payload)
            return self._content(number, listener, kind, payload)
        except (struct.error, IndexError, UnicodeDecodeError):  # no frame that we can read: let the driver say so
            return False

    def _note(self, method: bytes) -> None:
        if method in (_BLOCKED, _UNBLOCKED):
            self.blocked = method == _BLOCKED

    def _method(self, number: int, listener: Listener, payload: bytes) -> bool:
        method = payload[:4]
        if method == _DELIVER:
            at = 5 + payload[4]
            tag, redelivered = _TAG.unpack_from(payload, at)
            self._coming[number] = _Content(Delivered(tag, bool(redelivered & 1), payload[5:at].decode()), returned=False)
        elif method in (_ACKED, _NACKED):
            tag, bits = _TAG.unpack_from(payload, 4)
            listener.confirmed(tag, multiple=bool(bits & _MULTIPLE), kept=method == _ACKED)
        elif method == _RETURN:
            self._coming[number] = _Content(Delivered(0, redelivered=False, consumption=""), returned=True)
        else:
            return False
        return True

    def _content(self, number: int, listener: Listener, kind: int, payload: bytes) -> bool:
        coming = self._coming.get(number)
        if coming is None:
            return False
        if kind == HEADER:
            coming.message.header = payload
            (coming.left,) = _SIZE.unpack_from(payload, 4)
        else:
            coming.parts.append(payload)
            coming.left -= len(payload)
        if coming.left <= 0:
            del self._coming[number]
            coming.message.body = b"".join(coming.parts)
            (listener.returned if coming.returned else listener.delivered)(coming.message)
        return True


def acknowledgement(number: int, tag: int, *, multiple: bool = False) -> bytes:
    """Return the frame that settles a delivery, or all up to it."""
    return _ACK.pack(METHOD, number, 13, _ACKED, tag, _MULTIPLE if multiple else 0, END)


def refusal(number: int, tag: int) -> bytes:
    """Return the frame that hands a delivery back to its queue."""
    return _ACK.pack(METHOD, number, 13, _NACKED, tag, _REQUEUE, END)


def usual_properties(content_type: str, message_id: str) -> bytes:
    """Return the properties of a persistent message."""
    return _USUAL + _short(content_type) + bytes((PERSISTENT,)) + _short(message_id)


def other_properties(message_id: str, properties: dict[str, Any]) -> bytes:
    """Return the properties of a persistent message that has any others.

    Raises:
        TypeError, ValueError: one that cannot be sent.
    """
    marshalled: bytes = spec.Basic.Properties(delivery_mode=PERSISTENT, message_id=message_id, **properties).marshal()
    return marshalled


def publication(number: int, exchange: str, key: str, properties: bytes, body: bytes, *, mandatory: bool, frame_max: int) -> bytes:
    """Return the frames of one publish.

    Raises:
        ValueError: a name longer than 255 bytes.
    """
    method = b"%b\x00\x00%b%b%c" % (_PUBLISH, _short(exchange), _short(key), _MANDATORY if mandatory else 0)
    header = _CONTENT.pack(_BASIC, 0, len(body)) + properties
    return b"".join((*_frame(METHOD, number, method), *_frame(HEADER, number, header), *_bodies(number, body, frame_max - OVERHEAD)))


def _bodies(number: int, body: bytes, most: int) -> Iterator[bytes]:
    for begin in range(0, len(body), most):
        yield from _frame(BODY, number, body[begin : begin + most])


def _frame(kind: int, number: int, payload: bytes) -> tuple[bytes, bytes, bytes]:
    return _FRAME.pack(kind, number, len(payload)), payload, END


def _short(text: str) -> bytes:
    data = text.encode()
    if len(data) > 255:
        raise ValueError(f"a name of {len(data)} bytes is too long: {text[:40]!r}")
    return bytes((len(data),)) + data

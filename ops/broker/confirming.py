"""Publishes in flight on one channel, and what became of each: confirmed, returned, refused, or unknown.

One timer watches the deadlines of all of them. Called by `ops.broker.publishing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiormq import Channel

from ops.broker.frames import Delivered, publication
from ops.broker.line import Line
from schemas.errors import OutcomeUnknown, Unavailable, Undeliverable


class _Open:
    """One publish whose end is not known yet."""

    __slots__ = ("address", "end", "message_id", "sent_at", "until")

    def __init__(self, address: str, message_id: str, sent_at: float, until: float, end: asyncio.Future[None]) -> None:
        self.address = address
        self.message_id = message_id
        self.sent_at = sent_at
        self.until = until
        self.end = end


class Confirms:
    """The confirming channel of one line (`ops.broker.frames.Listener`).

    `silent` is called when a publish has waited for as long as it may, with the time at which it was sent.
    """

    def __init__(self, line: Line, channel: Channel, *, silent: Callable[[float], Any]) -> None:
        self._line = line
        self._channel = channel
        self._silent = silent
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, _Open] = {}  # by delivery tag, so that the oldest comes first
        self._tag = 0
        self._timer: asyncio.TimerHandle | None = None
        self._frame_max = line.connection_tune.frame_max
        self.heard_at = self._loop.time()
        """When something was confirmed last, on the loop's clock."""
        line.listen(channel, self)
        channel.closing.add_done_callback(lambda _: self._lost())

    def publish(self, exchange: str, key: str, message_id: str, properties: bytes, body: bytes, *, until: float) -> asyncio.Future[None]:
        """Send a message; the future ends as the publish does (`schemas.broker.Broker.publish`), `until` (loop's clock) at the latest.

        Raises:
            Unavailable: the line is lost already, and nothing was sent.
            ValueError: it cannot be sent at all.
        """
        address = f"{exchange} {key}"
        if self._channel.is_closed or self._line.is_closed:
            raise Unavailable(f"the connection was lost before a message to {address} was sent")
        frames = publication(self._channel.number, exchange, key, properties, body, mandatory=True, frame_max=self._frame_max)
        self._tag += 1
        end: asyncio.Future[None] = self._loop.create_future()
        self._open[self._tag] = _Open(address, message_id, self._loop.time(), until, end)
        self._line.send(frames)
        if self._timer is None or until < self._timer.when():
            self._watch(until)
        return end

    def delivered(self, message: Delivered) -> None:
        """Nothing is consumed here."""

    def returned(self, message: Delivered) -> None:
        """Take back a message that no queue takes, known by its id; its confirm, which comes after it, says nothing more."""
        message_id = message.properties().message_id
        for publish in self._open.values():
            if publish.message_id == message_id:
                self.heard_at = self._loop.time()
                _fail(publish, Undeliverable(f"no queue takes a message to {publish.address}"))

    def confirmed(self, tag: int, *, multiple: bool, kept: bool) -> None:
        """Hear what became of a publish, or of all up to it."""
        self.heard_at = self._loop.time()
        tags = [each for each in self._open if each <= tag] if multiple else [tag]
        for each in tags:
            publish = self._open.pop(each, None)
            if publish is None:
                continue
            if not kept:
                _fail(publish, Unavailable(f"RabbitMQ refuses a message to {publish.address}: its queue is full or not available"))
            elif not publish.end.done():
                publish.end.set_result(None)

    def _lost(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for publish in self._open.values():
            _fail(publish, OutcomeUnknown(f"the connection was lost before the confirm of a message to {publish.address}"))
        self._open.clear()

    def _watch(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(until, self._expire)

    def _expire(self) -> None:
        """End the waiting of those whose time is over, and look again when the next one's is."""
        self._timer = None
        now = self._loop.time()
        waiting = [publish for publish in self._open.values() if not publish.end.done()]
        over = [publish for publish in waiting if publish.until <= now]
        for publish in over:
            _fail(publish, OutcomeUnknown(f"no confirm of a message to {publish.address} came in time"))
        if len(over) < len(waiting):
            self._watch(min(publish.until for publish in waiting if publish.until > now))
        if over:
            self._silent(over[0].sent_at)


def _fail(publish: _Open, error: Exception) -> None:
    if not publish.end.done():
        publish.end.set_exception(error)

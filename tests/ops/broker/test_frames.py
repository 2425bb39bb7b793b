"""What passes beside the driver is read byte for byte as the driver's own library writes it, wherever the socket cuts it."""

from __future__ import annotations

import pamqp.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands as spec
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from ops.broker.frames import Delivered, Sorter, acknowledgement, other_properties, publication, refusal, usual_properties

CHANNEL, OTHER = 3, 4


class Heard:
    """A listener that notes what it hears."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, bool, str, bytes]] = []
        self.returns: list[tuple[str | None, bytes]] = []
        self.confirms: list[tuple[int, bool, bool]] = []

    def delivered(self, message: Delivered) -> None:
        self.messages.append((message.tag, message.redelivered, message.consumption, message.body))

    def returned(self, message: Delivered) -> None:
        self.returns.append((message.properties().message_id, message.body))

    def confirmed(self, tag: int, *, multiple: bool, kept: bool) -> None:
        self.confirms.append((tag, multiple, kept))


def content(method: spec.Basic.Deliver | spec.Basic.Return, body: bytes, channel: int = CHANNEL, size: int = 5) -> bytes:
    """A message as a broker sends it, its body in frames of at most `size`."""
    header = ContentHeader(body_size=len(body), properties=spec.Basic.Properties(message_id="m7", content_type="x"))
    bodies = [ContentBody(body[at : at + size]) for at in range(0, len(body), size)]
    return b"".join(pamqp.frame.marshal(frame, channel) for frame in (method, header, *bodies))


def deliver(tag: int, redelivered: bool = False) -> spec.Basic.Deliver:
    return spec.Basic.Deliver(consumer_tag="我.1", delivery_tag=tag, redelivered=redelivered, exchange="e", routing_key="k")


@given(st.lists(st.integers(1, 40), max_size=30))
def test_wherever_the_socket_cuts_what_comes_each_part_reaches_whom_it_is_for(cuts: list[int]) -> None:
    declared = pamqp.frame.marshal(spec.Queue.DeclareOk(queue="q", message_count=0, consumer_count=0), CHANNEL)
    foreign = content(deliver(9), b"not ours", OTHER)
    parts = [
        content(deliver(1), b"hello world"),
        declared,
        Heartbeat().marshal(),
        content(deliver(2, redelivered=True), b""),
        foreign,
        content(spec.Basic.Return(reply_code=312, reply_text="NO_ROUTE", exchange="e", routing_key="k"), b"came back"),
        pamqp.frame.marshal(spec.Basic.Ack(delivery_tag=5, multiple=True), CHANNEL),
        pamqp.frame.marshal(spec.Basic.Nack(delivery_tag=6), CHANNEL),
    ]
    stream, heard, sorter, passed = b"".join(parts), Heard(), Sorter(), b""
    sorter.listeners[CHANNEL] = heard
    for cut in (*cuts, len(stream)):
        passed += sorter.sort(stream[:cut])
        stream = stream[cut:]
    assert heard.messages == [(1, False, "我.1", b"hello world"), (2, True, "我.1", b"")]
    assert heard.returns == [("m7", b"came back")]
    assert heard.confirms == [(5, True, True), (6, False, False)]
    assert passed == declared + Heartbeat().marshal() + foreign


def test_what_is_no_frame_is_the_drivers_and_all_after_it() -> None:
    sorter, heard = Sorter(), Heard()
    sorter.listeners[CHANNEL] = heard
    broken = content(deliver(1), b"x")[:-1] + b"\x00"
    assert sorter.sort(b"AMQP\x00\x00\x09\x01") == b"AMQP\x00\x00\x09\x01"
    assert sorter.sort(content(deliver(1), b"x")) == content(deliver(1), b"x")
    assert heard.messages == []
    sorter = Sorter()
    sorter.listeners[CHANNEL] = heard
    assert sorter.sort(broken) == broken[-9:], "the frame without its end, and not the two before it"


def test_that_the_broker_takes_nothing_is_noted_and_passed_on() -> None:
    sorter = Sorter()
    blocked, unblocked = (
        pamqp.frame.marshal(spec.Connection.Blocked(reason="memory"), 0),
        pamqp.frame.marshal(spec.Connection.Unblocked(), 0),
    )
    assert sorter.sort(blocked) == blocked
    assert sorter.blocked
    assert sorter.sort(unblocked) == unblocked
    assert not sorter.blocked


def test_a_listener_is_forgotten_with_its_channel_and_half_a_message_with_it() -> None:
    sorter, heard = Sorter(), Heard()
    sorter.listeners[CHANNEL] = heard
    message = content(deliver(1), b"hello")
    assert sorter.sort(message[:40]) == b""
    sorter.forget(CHANNEL)
    sorter.sort(message[40:])
    assert heard.messages == []


@pytest.mark.parametrize("size", [0, 1, 100, 5000])
def test_a_publish_is_written_as_the_drivers_library_writes_it(size: int) -> None:
    body = b"x" * size
    header = ContentHeader(
        body_size=size, properties=spec.Basic.Properties(content_type="application/json", delivery_mode=2, message_id="a.1")
    )
    bodies = [ContentBody(body[at : at + 1016]) for at in range(0, size, 1016)]
    method = spec.Basic.Publish(exchange="e", routing_key="键", mandatory=True)
    frames: list[pamqp.frame.FrameTypes] = [method, header, *bodies]
    expected = b"".join(pamqp.frame.marshal(frame, CHANNEL) for frame in frames)
    properties = usual_properties("application/json", "a.1")
    assert properties == other_properties("a.1", {"content_type": "application/json"})
    assert publication(CHANNEL, "e", "键", properties, body, mandatory=True, frame_max=1024) == expected


def test_a_name_that_is_too_long_is_refused_before_it_breaks_the_line() -> None:
    with pytest.raises(ValueError, match="too long"):
        publication(1, "e", "k" * 256, usual_properties("t", "1"), b"", mandatory=True, frame_max=1024)


def test_settling_is_written_as_the_drivers_library_writes_it() -> None:
    assert acknowledgement(7, 2**40, multiple=True) == pamqp.frame.marshal(spec.Basic.Ack(delivery_tag=2**40, multiple=True), 7)
    assert acknowledgement(7, 1) == pamqp.frame.marshal(spec.Basic.Ack(delivery_tag=1), 7)
    assert refusal(7, 3) == pamqp.frame.marshal(spec.Basic.Nack(delivery_tag=3, requeue=True), 7)


def test_properties_that_nobody_can_read_are_none() -> None:
    assert Delivered(1, redelivered=False, consumption="c", header=b"\x00\x3c" + b"\xff" * 20).properties().headers is None

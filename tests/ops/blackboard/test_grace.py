"""When a client concludes that the board was away, by the board's own clock."""

from __future__ import annotations

from ops.blackboard.grace import Grace

NOW = 1_800_000_000_000


def met(uptime_ms: int = 10**9, server: str = "one") -> Grace:
    """The grace of a client with a lease of 5 s that has just connected."""
    grace = Grace(5.0)
    grace.met(server, uptime_ms, NOW)
    return grace


def test_an_old_server_at_the_first_connection_gives_no_grace() -> None:
    assert met().calm_until_ms == 0


def test_a_server_younger_than_a_lease_begins_with_a_grace_of_one_lease() -> None:
    assert met(uptime_ms=4999).calm_until_ms == NOW + 5000


def test_the_same_server_over_a_new_connection_gives_no_grace() -> None:
    grace = met()
    grace.met("one", 10**9, NOW + 4999)
    assert grace.calm_until_ms == 0


def test_another_server_gives_a_grace_however_old_it_is() -> None:
    grace = met()
    grace.met("two", 10**9, NOW + 10)
    assert grace.calm_until_ms == NOW + 5010


def test_answers_less_than_a_lease_apart_give_no_grace() -> None:
    grace = met()
    for after in range(0, 60_000, 4999):
        grace.heard(NOW + after)
    assert grace.calm_until_ms == 0


def test_a_silence_as_long_as_a_lease_gives_a_grace_from_its_end() -> None:
    grace = met()
    grace.heard(NOW + 5000)
    assert grace.calm_until_ms == NOW + 10_000
    grace.heard(NOW + 5100)
    assert grace.calm_until_ms == NOW + 10_000


def test_a_clock_that_is_set_back_gives_no_grace() -> None:
    grace = met()
    grace.heard(NOW - 3_600_000)
    assert (grace.calm_until_ms, grace.heard_ms) == (0, NOW - 3_600_000)

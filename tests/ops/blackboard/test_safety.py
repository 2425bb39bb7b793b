"""What is said of a server's settings."""

from __future__ import annotations

import pytest

from ops.blackboard.safety import findings, refuse_unsafe
from ops.findings import Finding
from schemas.errors import UnsafeServer

GOOD = {"redis_version": "7.0.15", "role": "master", "maxmemory": "1073741824", "maxmemory_policy": "noeviction", "aof_enabled": "1"}


def found(*, fsync: str | None = "everysec", **info: str) -> list[Finding]:
    """What is found of a good server with these differences; without `fsync`, CONFIG is forbidden."""
    return findings(GOOD | info, None if fsync is None else {"appendfsync": fsync})


def levels(all_of_them: list[Finding]) -> set[str]:
    """The levels that occur."""
    return {finding.level for finding in all_of_them}


def test_a_good_server_gives_nothing_to_do() -> None:
    assert levels(found()) == levels(found(fsync="always")) == {"ok"}
    assert not any(finding.advice for finding in found())
    refuse_unsafe(found())


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-ttl", "volatile-random"])
def test_every_policy_that_drops_state_is_refused_and_the_right_one_named(policy: str) -> None:
    with pytest.raises(UnsafeServer, match=rf"{policy}.*maxmemory-policy noeviction.*redis-cli CONFIG SET"):
        refuse_unsafe(found(maxmemory_policy=policy))


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"redis_version": "6.2.14"}, "7.0 or newer"),
        ({"redis_version": ""}, "7.0 or newer"),
        ({"role": "slave"}, "primary"),
        ({"aof_last_write_status": "err"}, "disk"),
    ],
)
def test_a_server_that_cannot_keep_anything_is_refused(info: dict[str, str], said: str) -> None:
    with pytest.raises(UnsafeServer, match=said):
        refuse_unsafe(found(**info))


@pytest.mark.parametrize(
    ("fsync", "info", "said"),
    [
        ("everysec", {"aof_enabled": "0"}, "appendonly no"),
        ("no", {}, "appendfsync no"),
        (None, {}, "could not be read"),
        ("everysec", {"maxmemory": "0"}, "maxmemory is not set"),
    ],
)
def test_what_can_be_lost_is_a_warning_with_something_to_do(fsync: str | None, info: dict[str, str], said: str) -> None:
    all_of_them = found(fsync=fsync, **info)
    [warning] = [finding for finding in all_of_them if finding.level == "warn"]
    assert said in warning.what
    assert warning.advice
    refuse_unsafe(all_of_them)


def test_a_policy_that_cannot_be_read_is_said() -> None:
    info = {name: value for name, value in GOOD.items() if name != "maxmemory_policy"}
    assert any("maxmemory-policy could not be read" in finding.what for finding in findings(info, None))

"""Whether a Redis keeps what it is given: what its settings can lose, and what to set.

This room judges and reports; it changes no setting. Called by `ops.blackboard.redis`, at start and for `briefline check`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ops.findings import Finding, Level
from schemas.errors import UnsafeServer

OLDEST = (7, 0)
"""The first Redis with functions."""


def findings(info: Mapping[str, str], config: Mapping[str, str] | None) -> list[Finding]:
    """Judge a server by what INFO and CONFIG GET say; `config` is None where CONFIG is forbidden."""
    return [_version(info), _role(info), _eviction(info, config), _memory(info), *_persistence(info, config)]


def refuse_unsafe(found: Iterable[Finding]) -> None:
    """Refuse a server on which state could vanish.

    Raises:
        UnsafeServer: with everything that must be changed.
    """
    failed = [f"{finding.what}. {finding.advice}" for finding in found if finding.level is Level.FAIL]
    if failed:
        raise UnsafeServer("this Redis cannot hold the blackboard: " + "; ".join(failed))


def _version(info: Mapping[str, str]) -> Finding:
    version = info.get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < OLDEST:
        return Finding(Level.FAIL, f"Redis {version or 'of unknown version'}", "Redis 7.0 or newer is needed (functions)")
    return Finding(Level.OK, f"Redis {version}")


def _role(info: Mapping[str, str]) -> Finding:
    role = info.get("role", "could not be read")
    if role == "slave":
        return Finding(Level.FAIL, "the server is a replica", "Name the primary in the URL: reads go to it too")
    return Finding(Level.OK, f"role: {role}")


def _eviction(info: Mapping[str, str], config: Mapping[str, str] | None) -> Finding:
    policy = info.get("maxmemory_policy") or (config or {}).get("maxmemory-policy")
    if policy is None:
        return Finding(Level.WARN, "maxmemory-policy could not be read", "See to it that it is `noeviction`")
    if policy != "noeviction":
        return Finding(
            Level.FAIL,
            f"maxmemory-policy {policy} drops state when memory is short",
            "Set `maxmemory-policy noeviction` in redis.conf, or now: redis-cli CONFIG SET maxmemory-policy noeviction",
        )
    return Finding(Level.OK, "maxmemory-policy noeviction")


def _memory(info: Mapping[str, str]) -> Finding:
    limit = info.get("maxmemory", "")
    if limit == "0":
        return Finding(Level.WARN, "maxmemory is not set: a full machine ends the server", "Set `maxmemory` below the machine's memory")
    return Finding(Level.OK, f"maxmemory {info.get('maxmemory_human', 'could not be read')}")


def _persistence(info: Mapping[str, str], config: Mapping[str, str] | None) -> Iterator[Finding]:
    if info.get("aof_enabled") != "1":
        yield Finding(
            Level.WARN,
            "appendonly no: a crash of the server loses everything since its last snapshot, or everything",
            "Set `appendonly yes` and `appendfsync everysec` in redis.conf",
        )
        return
    fsync = (config or {}).get("appendfsync")
    match fsync:
        case "always":
            yield Finding(Level.OK, "appendonly yes, appendfsync always: an answered write is on disk")
        case "everysec":
            # While an fsync is under way, Redis answers writes that it has not handed to the system yet, for up to two seconds.
            yield Finding(
                Level.OK,
                "appendonly yes, appendfsync everysec: a power cut can lose the last second, "
                "and a crash of the server up to two where the disk is slow; a step lost so runs again, a request opened then is gone",
            )
        case "no":
            yield Finding(Level.WARN, "appendfsync no: a power cut can lose half a minute", "Set `appendfsync everysec`")
        case _:
            yield Finding(Level.WARN, "appendfsync could not be read (CONFIG is forbidden)", "See to it that it is `everysec` or `always`")
    if info.get("aof_last_write_status", "ok") != "ok":
        yield Finding(Level.FAIL, "the last write to the append-only file failed", "Look at its disk: until then it refuses writes")

"""What each user may do at Redis, as the lines of an access list. Pure.

A user gets the blackboard's functions, the commands that those send in its name, the keys of one prefix, and the marks of its
role and agents (see `ops/blackboard/functions.lua`). With a sealed library the commands reach nothing but through the
functions, and the functions ask for the marks. Called by `ops.access`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from ops.blackboard.keys import board_key, dead_key
from ops.users import ADMIN, Duty, User

# Connecting (with the look at the server's settings), the functions, what they send, and the hints.
LOOKING = ("ping", "info", "time", "get", "fcall_ro", "hget", "hmget", "xrange", "zrevrange", "subscribe", "unsubscribe", "cluster|slots")
# Every command that a function may come to, also one of an older version beside this one (`xlen`): Redis does not roll back
# what it did before one is refused.
WRITING = ("fcall", "hset", "hlen", "xlen", "xadd", "pexpiretime", "pexpireat", "publish", "zadd", "zscore")
COMMANDS: Mapping[Duty, tuple[str, ...]] = {
    Duty.PRODUCER: (*LOOKING, *WRITING, "zremrangebyrank"),
    Duty.ORCHESTRATOR: (*LOOKING, *WRITING, "persist", "zrem", "zrangebyscore"),
    Duty.WORKER: (*LOOKING, *WRITING, "zrem"),
    Duty.OPERATOR: LOOKING,
}


def acl_file(users: Iterable[User], passwords: Mapping[str, str], *, prefix: str) -> str:
    """Return an access list as a file: the users, the administrator if it has a password, and nobody without one."""
    lines = ["user default off resetkeys resetchannels -@all"]
    if ADMIN in passwords:
        lines.append(f"user {ADMIN} on {_hashed(passwords[ADMIN])} ~* &* +@all")
    lines += [f"user {user.name} on {_hashed(passwords[user.name])} {' '.join(rules_of(user, prefix))}" for user in users]
    return "\n".join(lines) + "\n"


def rules_of(user: User, prefix: str) -> list[str]:
    """Return the rules of a user for the keys below a prefix, as ACL SETUSER takes them after the password."""
    start, dead = _literal(f"{prefix}:"), _literal(dead_key(prefix))
    indexes = [f"{start}due:*", dead, f"{dead}:*"]
    marks = [f"role:{user.duty}", *(f"agent:{_literal(agent)}" for agent in user.agents)]
    writes: list[str] = []
    reads = [_literal(board_key(prefix)), f"{start}board:*"]
    match user.duty:
        case Duty.ORCHESTRATOR | Duty.WORKER:
            writes = [f"{start}{{*", *indexes]
        case Duty.PRODUCER:
            writes = [f"{start}{{*", f"{start}due:*", f"{start}recent:*"]
            reads += [dead, f"{dead}:*"]
        case Duty.OPERATOR:
            reads += [f"{start}{{*", f"{start}recent:*", *indexes]
    rules = ["resetkeys", "resetchannels", f"&{start}{{*", "-@all"]
    rules += [f"~{key}" for key in writes] + [f"%R~{key}" for key in (*reads, *(f"{start}{mark}" for mark in marks))]
    rules += [f"+{command}" for command in COMMANDS[user.duty]]
    # The board's id is written by whoever comes first.
    return [*rules, f"(+set ~{_literal(board_key(prefix))} ~{start}board:*)"] if user.duty is Duty.ORCHESTRATOR else rules


def _literal(text: str) -> str:
    """The pattern that matches this text alone."""
    return re.sub(r"([*?\[\]\\^])", r"\\\1", text)


def _hashed(password: str) -> str:
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"

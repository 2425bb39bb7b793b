"""Least rights: the users that a team's processes log in as, and what an administrator gives the two servers for them.

    python -m ops.access rabbitmq --team bitmall > access.json    # then: rabbitmqctl import_definitions access.json
    python -m ops.access redis --team bitmall > users.acl         # then: `aclfile` in redis.conf, or ACL LOAD
    python -m ops.access library | redis-cli -x FUNCTION LOAD     # the blackboard's functions, sealed

Passwords and the seal are kept in one file (`--secrets`), which is made with drawn ones and extended where something is
missing; nothing that stands in it is ever changed. This room connects to nothing, and prints no password: RabbitMQ and Redis
get hashes. Called by a person; the rights themselves stand in `ops.rabbitmq.permissions` and `ops.redis.rules`.
"""

from __future__ import annotations

import json
import secrets
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ops.blackboard.functions import load_library
from ops.rabbitmq.permissions import definitions
from ops.redis.rules import acl_file
from ops.settings import load_settings
from ops.users import ADMIN, users_of
from ops.wiring import team_of
from schemas.errors import BrieflineError, InvalidSettings

SEAL = "seal"


class What(StrEnum):
    """What can be printed."""

    RABBITMQ = "rabbitmq"
    REDIS = "redis"
    LIBRARY = "library"


@dataclass(frozen=True)
class Secrets:
    """The seal of the functions and a password for each user; never part of a `repr`."""

    seal: str = field(repr=False)
    passwords: dict[str, str] = field(repr=False)


def keep_secrets(path: Path, users: Iterable[str]) -> Secrets:
    """Return the secrets of a file, after drawing those that it lacks; only its owner may read it.

    Raises:
        InvalidSettings: it is there and no such file.
    """
    try:
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError:
        known = None
    if not isinstance(known, dict) or not all(isinstance(value, str) for value in known.values()):
        raise InvalidSettings(f"{path} is no file of secrets: a JSON object of texts")
    drawn = {SEAL: secrets.token_hex(16), **{user: secrets.token_urlsafe(24) for user in users}}
    if missing := {name: value for name, value in drawn.items() if name not in known}:
        known |= missing
        path.touch(mode=0o600)
        path.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return Secrets(known[SEAL], {name: value for name, value in known.items() if name != SEAL})


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    parser = ArgumentParser(prog="python -m ops.access", description="Prints what gives each role of a team its own user and least rights.")
    parser.add_argument("what", choices=list(What), type=What)
    parser.add_argument("--team", help="the team whose agents get a user each (else that of the settings)")
    parser.add_argument("--secrets", type=Path, default=Path("briefline-secrets.json"), help="file of the passwords and the seal")
    parser.add_argument("--vhost", default="/", help="RabbitMQ's virtual host")
    given = parser.parse_args(arguments)
    try:
        settings = load_settings()
        users = users_of(team_of(settings, given.team).agents)
        kept = keep_secrets(given.secrets, [*(user.name for user in users), ADMIN])
        match given.what:
            case What.RABBITMQ:
                print(json.dumps(definitions(users, kept.passwords, prefix=settings.topology_prefix, vhost=given.vhost), indent=1))
            case What.REDIS:
                print(acl_file(users, kept.passwords, prefix=settings.key_prefix), end="")
            case What.LIBRARY:
                sys.stdout.write(load_library(kept.seal).source.decode())
    except (BrieflineError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

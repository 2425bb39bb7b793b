"""Passwords and keys stand in no log line, error, `repr`, event or field, whatever fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.function import FunctionModel

from ops.access import Secrets, keep_secrets, main
from ops.blackboard.cluster import ClusterBlackboard
from ops.blackboard.redis import RedisBlackboard
from ops.broker.rabbitmq import RabbitMQBroker
from ops.own_servers import free_port
from ops.settings import load_settings
from ops.wiring import board_of, broker_of
from schemas.broker import COMMANDS
from schemas.errors import BrieflineError, InvalidSettings
from schemas.messages import MessageType, message
from tests.security.guarded import KEYS, TOPOLOGY, Guarded
from tests.workers.agents.runs import brief_of
from workers.agents import loop
from workers.agents.models import OpenAICompatible
from workers.agents.specialist import Specialist

ROOT = Path(__file__).parents[2]
REDIS_PASSWORD, RABBITMQ_PASSWORD, API_KEY = "r3dis/s:e@cret", "r4bbit?s#ecret", "sk-m0del-secret"
SECRETS = {form for secret in (REDIS_PASSWORD, RABBITMQ_PASSWORD, API_KEY) for form in (secret, quote(secret, safe=""), repr(secret)[1:-1])}


def leaks(text: str) -> list[str]:
    """Which secrets stand in a text."""
    return [secret for secret in SECRETS if secret in text]


def environment(redis_at: str, rabbitmq_at: str, **settings: object) -> dict[str, str]:
    """The environment of a process that logs in at both places with a wrong password each."""
    given = {
        "redis_url": f"redis://briefline-producer:{quote(REDIS_PASSWORD, safe='')}@{redis_at}/0",
        "rabbitmq_url": f"amqp://briefline-producer:{quote(RABBITMQ_PASSWORD, safe='')}@{rabbitmq_at}/",
        "model_base_url": "",
        "model_api_key": API_KEY,
        "model_name": "m",
        "key_prefix": KEYS,
        "topology_prefix": TOPOLOGY,
        "log_level": "DEBUG",
        "call_timeout_seconds": 1,
        "call_deadline_seconds": 1.5,
        "sweep_seconds": 0.2,
        **settings,
    }
    variables = {f"BRIEFLINE_{name.upper()}": str(value) for name, value in given.items()}
    return {**os.environ, "NO_COLOR": "1", "COLUMNS": "400", "PYTHONASYNCIODEBUG": "1", **variables}


def run(env: dict[str, str], *arguments: str, seconds: float = 30) -> str:
    """Run a command to its end, or for some seconds where it serves; return all it said."""
    command = [sys.executable, "-X", "dev", "-W", "ignore", "-m", "ops", *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=30)
    return said


FAILING: list[tuple[str, ...]] = [
    ("check",),
    ("check", "--json"),
    ("submit", "Please."),
    ("worker",),
    ("orchestrator",),
    ("dead", "list"),
]


def places(servers: Guarded) -> tuple[str, str]:
    """Host and port of Redis and of RabbitMQ."""
    redis_at, rabbitmq_at = (urlsplit(url).netloc.rpartition("@")[2] for url in (servers.redis_at, servers.rabbitmq_at))
    return redis_at, rabbitmq_at


@pytest.mark.own_server
@pytest.mark.parametrize("log_format", ["console", "json"])
@pytest.mark.parametrize("arguments", FAILING, ids=" ".join)
def test_no_secret_is_said_by_a_command_whose_servers_refuse_its_password(
    servers: Guarded, arguments: tuple[str, ...], log_format: str
) -> None:
    said = run(environment(*places(servers), log_format=log_format), *arguments)
    assert "invalid username-password pair" in said and leaks(said) == []


@pytest.mark.own_server
@pytest.mark.parametrize("log_format", ["console", "json"])
def test_no_secret_is_said_by_a_process_that_one_server_takes_and_the_other_refuses(servers: Guarded, log_format: str) -> None:
    user = "briefline-orchestrator"
    env = environment(*places(servers), log_format=log_format, redis_url=servers.redis_url(user))
    said = run(env, "orchestrator", seconds=6)
    assert "publishing_line_lost" in said and "ACCESS_REFUSED" in said
    assert leaks(said) == [] and servers.secrets.passwords[user] not in said


@pytest.mark.own_server
@pytest.mark.parametrize("user", ["briefline-operator", "briefline-orchestrator", "briefline-worker-ann"])
def test_a_check_under_least_rights_finds_what_it_may_see_and_says_no_password(servers: Guarded, user: str) -> None:
    settings: dict[str, Any] = {"call_timeout_seconds": 5, "call_deadline_seconds": 10, "agents": "ann"}
    settings |= {"redis_url": servers.redis_url(user), "rabbitmq_url": servers.rabbitmq_url(user)}
    said = run(environment(*places(servers), **settings), "check", "--json")
    levels = {found["found"]: found["level"] for found in json.loads(said[said.index("[\n") :])}
    assert "fail" not in levels.values() and any("tasks.ann is declared" in found for found in levels)
    assert servers.secrets.passwords[user] not in said


@pytest.mark.parametrize("arguments", [("check",), ("submit", "Please.")], ids=" ".join)
def test_no_secret_is_said_by_a_command_whose_servers_are_not_there(arguments: tuple[str, ...]) -> None:
    said = run(environment(f"127.0.0.1:{free_port()}", "no-such-host.invalid:5672", log_format="json"), *arguments)
    assert said.strip() and leaks(said) == []


def test_no_secret_is_said_where_a_setting_is_wrong() -> None:
    wrong = {"redis_url": f"http://u:{REDIS_PASSWORD}@h", "rabbitmq_url": f"amqp://u:{RABBITMQ_PASSWORD}@h:port/", "model_api_key": API_KEY}
    with pytest.raises(InvalidSettings) as refused:
        load_settings({**wrong, "model_base_url": f"ftp://u:{REDIS_PASSWORD}@h"}, env_file=None)
    assert leaks("".join(traceback.format_exception(refused.value))) == []


@pytest.mark.own_server
async def test_no_object_shows_a_secret_and_no_error_does_whole_trace_included(
    servers: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    start = len("BRIEFLINE_")
    variables = environment(*places(servers)).items()
    given = {name[start:].lower(): value for name, value in variables if name.startswith("BRIEFLINE_")}
    settings = load_settings({name: value for name, value in given.items() if value}, env_file=None)
    board, broker = board_of(settings), broker_of(settings)
    model = OpenAICompatible("http://127.0.0.1:1/v1", "m", API_KEY)
    shown = [
        repr(settings),
        str(settings),
        repr(model),
        repr(Specialist("a", "p", model=model)),
        everything_of(board),
        everything_of(broker),
    ]
    with pytest.raises(BrieflineError) as no_board:
        async with board:
            pass
    async with broker:
        with pytest.raises(BrieflineError) as no_broker:
            await broker.publish(COMMANDS, message(MessageType.SUBMIT, "r", sender="producer", recipient="orchestrator"))
    shown += ["".join(traceback.format_exception(error.value)) for error in (no_board, no_broker)]
    assert leaks("\n".join([*shown, *capsys.readouterr()])) == []


def everything_of(part: RedisBlackboard | ClusterBlackboard | RabbitMQBroker) -> str:
    """The `repr` of a part and of each thing of ours in it, which is what a debugger or a log of locals would show."""
    ours = [value for value in vars(part).values() if type(value).__module__.startswith("ops.")]
    return "\n".join(map(repr, [part, *ours]))


async def test_a_model_server_that_repeats_the_key_leaves_it_in_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any) -> Any:
        raise ModelHTTPError(401, "m", {"message": f"Incorrect API key provided: {API_KEY}"})

    @asynccontextmanager
    async def opened(_: object) -> AsyncIterator[FunctionModel]:
        yield FunctionModel(refuse)

    monkeypatch.setattr(loop, "opened", opened)
    model = OpenAICompatible("http://127.0.0.1:1/v1", "m", API_KEY)
    result = await Specialist("looker", "You look.", model=model).run(brief_of())
    assert result.failure is not None and "Incorrect API key provided: ***" in result.failure.description
    assert leaks(result.to_json().decode()) == []


def test_the_file_of_secrets_is_its_owners_alone_grows_and_never_changes(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    first = keep_secrets(path, ["a"])
    assert path.stat().st_mode & 0o777 == 0o600
    second = keep_secrets(path, ["a", "b"])
    assert (second.seal, second.passwords["a"], set(second.passwords)) == (first.seal, first.passwords["a"], {"a", "b"})
    assert path.stat().st_mode & 0o777 == 0o600
    assert repr(second) == repr(Secrets("", {})) == "Secrets()"
    path.write_text("[1]")
    with pytest.raises(InvalidSettings, match="no file of secrets"):
        keep_secrets(path, ["a"])


@pytest.mark.parametrize("what", ["rabbitmq", "redis"])
def test_what_the_servers_are_given_holds_hashes_and_no_password(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "secrets.json"
    assert main([what, "--team", "bitmall", "--secrets", str(path)]) == 0
    said = capsys.readouterr()
    kept = keep_secrets(path, [])
    assert "briefline-worker-aftersales" in said.out and not said.err
    assert not [secret for secret in (kept.seal, *kept.passwords.values()) if secret in said.out]


def test_the_sealed_library_is_printed_as_redis_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "secrets.json"
    assert main(["library", "--secrets", str(path)]) == 0
    source = capsys.readouterr().out
    assert source.startswith("#!lua name=briefline_") and f"local SEAL = '{keep_secrets(path, []).seal}'" in source

"""The command line by itself: help, settings, output, and what each command says when its servers are not there, or not safe."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ops.commands.exits import EXIT_CODES, exit_of, exit_of_error
from ops.own_servers import free_port
from schemas.errors import AgentFailed, InvalidPlan, NotFound, OutcomeUnknown, ProtocolViolation, Unavailable, UnsafeServer
from schemas.requests import RequestStatus
from tests.end_to_end.processes import ROOT, Commands, Done, System
from tests.support.servers import OwnRedis

pytestmark = pytest.mark.xdist_group("command line")

DEADLINE_SECONDS = 0.4
START_SECONDS = 5.0
"""How long a process may take to start on a machine where others run too."""
NOWHERE = {
    "BRIEFLINE_REDIS_URL": f"redis://:hunter2@127.0.0.1:{free_port()}/0",
    "BRIEFLINE_RABBITMQ_URL": f"amqp://someone:hunter2@127.0.0.1:{free_port()}/",
    "BRIEFLINE_CALL_DEADLINE_SECONDS": str(DEADLINE_SECONDS),
    "BRIEFLINE_CALL_TIMEOUT_SECONDS": "0.3",
}
NEEDS_SERVERS = {
    "submit": ["submit", "订单 88231"],
    "submit and wait": ["submit", "订单 88231", "--wait", "--json"],
    "list": ["list", "--json"],
    "show": ["show", "some-request"],
    "show a moment": ["show", "some-request", "--at", "3"],
    "show decisions": ["show", "some-request", "--crossings"],
    "show a trail": ["show", "some-request", "--basis", "some-field"],
    "audit": ["audit", "some-request", "--json"],
    "metrics": ["metrics", "--json"],
    "diff": ["diff", "some-request@3", "another-request"],
    "fork": ["fork", "some-request", "--at", "iot"],
    "cancel": ["cancel", "some-request"],
    "dead list": ["dead", "list"],
    "dead show": ["dead", "show", "some-request", "product"],
    "dead replay": ["dead", "replay", "--all", "--json"],
    "dead drop": ["dead", "drop", "some-request", "product", "--reason", "none"],
    "orchestrator": ["orchestrator"],
    "worker": ["worker"],
}


Alone = Callable[..., Done]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Runs commands to their end."""
    with Commands(tmp_path_factory.mktemp("commands")) as made:
        yield made


@pytest.fixture(scope="module")
def alone(commands: Commands) -> Alone:
    """Runs a command with some variables added to the environment."""

    def run(*arguments: str, **variables: str) -> Done:
        return commands.run(*arguments, environment={**os.environ, "NO_COLOR": "1", "COLUMNS": "160", **variables})

    return run


@pytest.mark.parametrize("command", NEEDS_SERVERS)
def test_a_command_without_its_servers_says_so_within_the_deadline(command: str, alone: Alone) -> None:
    begun = time.monotonic()
    done = alone(*NEEDS_SERVERS[command], **NOWHERE)
    seconds = time.monotonic() - begun
    assert (done.code, done.stdout) == (5, "")
    said = [line for line in done.stderr.splitlines() if "publishing_line_lost" not in line]
    assert said[0].startswith("error: Redis")
    assert "127.0.0.1" in said[0]
    assert "briefline check" in said[1]
    assert len(said) == 2
    assert "hunter2" not in done.stderr, "no password in what is said"
    assert seconds < DEADLINE_SECONDS + START_SECONDS


def test_check_without_servers_says_of_each_what_to_do(alone: Alone) -> None:
    away = "s3://bucket?endpoint=http://127.0.0.1:9"
    done = alone("check", "--json", **NOWHERE, BRIEFLINE_ARTIFACTS_URL=away, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="hunter2")
    assert done.code == 5
    found = {each["server"]: each for each in done.json}
    assert {name: each["level"] for name, each in found.items()} == {"redis": "fail", "rabbitmq": "fail", "artifacts": "fail"}
    assert "BRIEFLINE_ARTIFACTS_URL" in found["artifacts"]["what_to_do"]
    assert "BRIEFLINE_REDIS_URL" in found["redis"]["what_to_do"]
    assert "BRIEFLINE_RABBITMQ_URL" in found["rabbitmq"]["what_to_do"]
    assert "hunter2" not in done.stdout + done.stderr


@pytest.fixture
def evicting_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    """A Redis that drops keys when its memory is short."""
    with OwnRedis(tmp_path / "redis", options={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        yield server


@pytest.mark.own_server
def test_a_redis_that_could_drop_state_is_refused_by_every_command_with_what_to_set(
    commands: Commands, evicting_redis: OwnRedis, rabbitmq_url: str
) -> None:
    with System(commands, evicting_redis.url, rabbitmq_url) as system:
        checked = system.run("check", "--json")
        assert checked.code == 5
        (bad,) = [each for each in checked.json if each["level"] == "fail"]
        assert "allkeys-lru" in bad["found"]
        assert "maxmemory-policy noeviction" in bad["what_to_do"]
        for command in (["orchestrator"], ["worker"], ["submit", "订单 88231"]):
            refused = system.run(*command)
            assert (refused.code, refused.stdout) == (5, "")
            assert "noeviction" in refused.stderr
            assert "Traceback" not in refused.stderr


def test_help_names_every_command_and_exit_code(alone: Alone) -> None:
    done = alone("--help")
    assert done.code == 0
    said = " ".join(done.stdout.split())
    for command in ("demo", "orchestrator", "worker", "submit", "list", "show", "cancel", "check", "dead", "schemas"):
        assert f" {command} " in said
    for code, meaning in EXIT_CODES.items():
        assert f"{code}: {meaning}" in said


def test_exit_codes_follow_statuses_and_errors() -> None:
    assert {status: exit_of(status) for status in RequestStatus if status.over} == {
        RequestStatus.COMPLETED: 0,
        RequestStatus.DEGRADED: 3,
        RequestStatus.FAILED: 4,
        RequestStatus.CANCELLED: 4,
    }
    errors = (
        InvalidPlan(""),
        NotFound(""),
        Unavailable(""),
        OutcomeUnknown(""),
        UnsafeServer(""),
        ProtocolViolation(""),
        AgentFailed("", ""),
    )
    assert [exit_of_error(error) for error in errors] == [2, 2, 5, 5, 5, 1, 1]


def test_the_help_waits_for_no_library_but_the_one_that_writes_it() -> None:
    heavy = ("pydantic_ai", "openai", "aio_pika", "redis", "pydantic", "pydantic_settings", "structlog", "orjson", "asyncio")
    code = f"""
import sys, ops.cli
sys.argv = ["briefline", "--help"]
try:
    ops.cli.main()
finally:
    print([name for name in {heavy} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Usage: briefline" in done.stdout
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("BRIEFLINE_CONCURRENCY", "0", "BRIEFLINE_CONCURRENCY: input should be greater than or equal to 1"),
        ("BRIEFLINE_LEASE_SECONDS", "soon", "BRIEFLINE_LEASE_SECONDS"),
        ("BRIEFLINE_REDIS_URL", "http://hunter2@nowhere", "BRIEFLINE_REDIS_URL: must begin with redis:// or rediss:// or "),
        ("BRIEFLINE_TEAM", "nobody", "team: there is no team 'nobody'; shipped are: bitmall"),
        ("BRIEFLINE_TEAM", "no.such.module:team", "team: there is no module 'no' (of team 'no.such.module:team')"),
        ("BRIEFLINE_SCENARIO", "no-such", "scenario: there is no scenario 'no-such'; there are: happy, product-stuck"),
    ],
)
def test_a_bad_setting_is_named_with_what_would_be_right(alone: Alone, variable: str, value: str, said: str) -> None:
    done = alone("worker", **{**NOWHERE, variable: value})
    assert (done.code, done.stdout) == (2, "")
    assert said in done.stderr
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


def test_text_that_the_terminal_cannot_show_is_escaped_and_json_is_utf_8_all_the_same() -> None:
    command, environment = [sys.executable, "-m", "ops", "demo"], {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    assert b"Traceback" not in shown.stderr
    assert b"\\u4fdd\\u4fee" in shown.stdout
    as_json = subprocess.run([*command, "--json"], cwd=ROOT, env=environment, capture_output=True, check=True)
    assert "## 保修与掉线处理" in as_json.stdout.decode()


def test_a_reader_that_goes_away_gets_no_trace() -> None:
    command = [sys.executable, "-m", "ops", "demo", "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        demo.stdout.close()
        said = demo.stderr.read()
        assert demo.wait(60) == 1
    assert said == b""


def test_schemas_are_exported_and_checked(alone: Alone, tmp_path: Path) -> None:
    folder = tmp_path / "schemas"
    missing = alone("schemas", "export", str(folder), "--check")
    assert missing.code == 1
    assert f"run: briefline schemas export {folder}" in missing.stderr
    written = alone("schemas", "export", str(folder)).stdout.split()
    assert sorted(written) == sorted(map(str, folder.iterdir()))
    assert alone("schemas", "export", str(folder), "--check") == Done(0, "", "")
    (folder / "fact.json").write_text("{}")
    stale = alone("schemas", "export", str(folder), "--check")
    assert stale.code == 1
    assert [line.partition(" is not current")[0] for line in stale.stderr.splitlines()] == ["fact.json"]
    refused = alone("schemas", "export", str(folder / "fact.json"))
    assert (refused.code, refused.stdout) == (2, "")
    assert "cannot write to" in refused.stderr

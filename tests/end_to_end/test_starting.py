"""Starting: a team of the user's own from the user's folder, and processes that are there before their servers are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.gates import Gate
from tests.end_to_end.processes import PATIENCE_SECONDS, Commands, System
from tests.support.servers import OwnRabbitMQ, OwnRedis

GATED = "tests.end_to_end.teams:gated"
OWN_TEAM = """
from workers.agents.blackbox import BlackBox
from workers.team import Team

async def greet(brief):
    return "Grüße, " + brief.text.splitlines()[1].removeprefix("> ") + " 👋"

team = Team("greeters", [BlackBox("greeter", greet)], [{"agent": "greeter", "title": "Greeting", "task": "Greet."}])
"""


def briefline() -> str:
    """The installed command, which unlike `python -m` does not see the current folder by itself."""
    return str(Path(sys.executable).parent / "briefline")


def test_a_users_own_team_file_is_found_in_the_folder_that_the_command_is_called_from(system: System, tmp_path: Path) -> None:
    (tmp_path / "myteam.py").write_text(OWN_TEAM, encoding="utf-8")
    (tmp_path / "schemas.py").write_text("raise RuntimeError('a file of the user must not take the place of ours')")
    system.orchestrator()
    environment = system.environment()
    with subprocess.Popen(
        [briefline(), "worker", "--team", "myteam:team"], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as worker:
        try:
            submit = [briefline(), "submit", "张三", "--team", "myteam:team", "--wait", "--json"]
            done = subprocess.run(submit, cwd=tmp_path, env=environment, capture_output=True, timeout=PATIENCE_SECONDS, check=False)
        finally:
            worker.terminate()
            assert worker.wait(PATIENCE_SECONDS) == 0
    assert done.returncode == 0, done.stderr.decode()
    assert "Grüße, 张三 👋" in done.stdout.decode()


@pytest.fixture
def redis_later(tmp_path: Path) -> Iterator[OwnRedis]:
    """A Redis that the test starts when it likes."""
    server = OwnRedis(tmp_path / "redis")
    yield server
    server.kill()


@pytest.fixture
def rabbitmq_later(tmp_path: Path) -> Iterator[OwnRabbitMQ]:
    """A RabbitMQ that the test starts when it likes."""
    server = OwnRabbitMQ(tmp_path / "rabbitmq")
    yield server
    server.kill()


@pytest.mark.own_server
def test_processes_that_start_before_rabbitmq_wait_for_it(
    commands: Commands, redis_url: str, rabbitmq_later: OwnRabbitMQ, gate: Gate
) -> None:
    with System(commands, redis_url, rabbitmq_later.url) as system:
        worker, leaving, orchestrator = system.worker("--team", GATED), system.worker("--team", GATED), system.orchestrator()
        for process in (worker, leaving, orchestrator):
            process.wait_for("consuming_line_lost")
        leaving.wait_until_started()
        assert leaving.end() == 0, "a process that waits can be told to end"
        early = system.run("submit", "before", "--team", GATED, *gate.constraint, call_timeout_seconds=0.5)
        assert early.code == 0, "accepted means opened, on the board"
        assert "submit_not_rung" in early.stderr
        unknown = system.run("cancel", early.stdout.strip(), call_timeout_seconds=0.5)
        assert unknown.code == 5
        assert "RabbitMQ" in unknown.stderr
        assert "it may still take effect" in unknown.stderr
        rabbitmq_later.start()
        for step in ("first", "second"):
            visitor = gate.visitor()
            assert visitor.step == step
            visitor.let_in("came late")
        assert system.wait(early.stdout.strip()) == "COMPLETED"


@pytest.mark.own_server
def test_processes_that_start_before_redis_wait_as_long_as_a_call_may_take(
    commands: Commands, redis_later: OwnRedis, rabbitmq_url: str, gate: Gate
) -> None:
    with System(commands, redis_later.url, rabbitmq_url) as system:
        worker, orchestrator = system.worker("--team", GATED), system.orchestrator()
        hasty = system.worker("--team", GATED, call_deadline_seconds=0.5, call_timeout_seconds=0.5)
        assert hasty.wait() == 5
        said, what_to_do = hasty.lines
        assert said.startswith("error: ")
        assert "briefline check" in what_to_do
        assert str(redis_later.port) in said
        redis_later.start()
        for process in (worker, orchestrator):
            process.wait_until_started()
        request = system.run("submit", "after", "--team", GATED, *gate.constraint).stdout.strip()
        for _ in range(2):
            gate.visitor().let_in("came late")
        assert system.wait(request) == "COMPLETED"

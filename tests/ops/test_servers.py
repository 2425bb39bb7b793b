"""Starting and stopping servers: what is found is used, what is started is stopped, and nothing else is touched."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from ops import own_servers, servers
from schemas.errors import Unavailable
from tests.support.servers import OwnRabbitMQ, OwnRedis

NAMED = {"BRIEFLINE_REDIS_URL": "redis://named:1/0", "BRIEFLINE_RABBITMQ_URL": "amqp://named:2/"}


def _processes_of(folder: Path) -> list[str]:
    """The command lines of living processes that work in this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if folder in (cwd := (process / "cwd").resolve(), *cwd.parents):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it has ended, or is somebody else's
    return [command for command in found if command]


def test_a_server_named_by_url_is_used_as_it_is(tmp_path: Path) -> None:
    with servers.borrowed(NAMED, tmp_path / ".servers") as urls:
        assert urls == NAMED
    assert not (tmp_path / ".servers").exists()


def test_a_server_of_our_own_is_found_before_the_one_on_the_default_port(tmp_path: Path) -> None:
    own = servers.REDIS.at(tmp_path)
    own.start()
    try:
        assert servers.find(servers.REDIS, {}, tmp_path) == own.url != servers.REDIS.default_url
        assert servers.find(servers.REDIS, NAMED, tmp_path) == NAMED["BRIEFLINE_REDIS_URL"]
    finally:
        own.stop()
    assert servers.find(servers.REDIS, {}, tmp_path) != own.url


@pytest.mark.own_server
def test_both_servers_start_answer_and_leave_nothing_behind(tmp_path: Path) -> None:
    started = [OwnRedis(tmp_path / "redis-server"), OwnRabbitMQ(tmp_path / "rabbitmq-server")]
    for server in started:
        server.start()
        assert server.answers() and server.pid is not None
    assert len(_processes_of(tmp_path)) >= 3
    control = servers.controller(started[1].url, tmp_path)
    assert control is not None and control("--quiet", "list_vhosts", "--no-table-headers").split() == ["/"]
    # Another process knows them by their folders alone.
    later = [OwnRedis(tmp_path / "redis-server"), OwnRabbitMQ(tmp_path / "rabbitmq-server")]
    assert [server.pid for server in later] == [server.pid for server in started]
    for server in later:
        server.stop()
        assert not server.answers()
    for server in started:
        server.stop()  # what has gone already is no error
    assert _processes_of(tmp_path) == []


@pytest.mark.own_server
async def test_a_killed_redis_comes_back_on_its_port_with_its_data(tmp_path: Path) -> None:
    async with OwnRedis(tmp_path, options={"appendfsync": "always"}) as server:
        with redis.Redis(port=server.port) as client:
            client.set("kept", "值")
            await asyncio.to_thread(server.kill)
            with pytest.raises(redis.ConnectionError):
                client.get("kept")
            await asyncio.to_thread(server.start)
            assert client.get("kept") == "值".encode()
    assert _processes_of(tmp_path) == []


@pytest.mark.own_server
def test_a_paused_redis_takes_connections_and_answers_only_when_resumed(tmp_path: Path) -> None:
    with OwnRedis(tmp_path) as server:
        server.pause()
        socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
        assert not server.answers()
        server.resume()
        assert server.answers()


@pytest.mark.own_server
def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"(?s)did not start.*nonsense"):
        OwnRedis(tmp_path, options={"nonsense": "yes"}).start()
    assert _processes_of(tmp_path) == []


def test_a_pid_that_another_program_has_got_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text(f'{{"pid": {os.getpid()}, "born": 1, "port": 1}}')
    server = OwnRedis(tmp_path)
    assert server.pid is None
    server.stop()
    server.kill()


def test_free_ports_are_below_those_of_outgoing_connections() -> None:
    port = own_servers.free_port()
    assert 20_000 <= port < 32_768
    with socket.create_server(("127.0.0.1", port)):
        assert not own_servers.is_free(port)


def test_something_that_is_no_server_of_the_kind_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert not own_servers.redis_answers("127.0.0.1", port)
        assert not own_servers.rabbitmq_answers("127.0.0.1", port)


def test_a_missing_server_without_root_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise Unavailable("redis-server is not installed")

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    kind = servers.Kind(**{**vars(servers.REDIS), "program": missing})
    with pytest.raises(Unavailable, match=r"apt-get install redis-server.*brew install redis\b.*BRIEFLINE_REDIS_URL=redis://"):
        servers.install(kind)


def test_a_missing_server_is_installed_by_apt_when_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise Unavailable("redis-server is not installed")

    apt = tmp_path / "apt-get"
    apt.write_text(f'#!/bin/sh\necho "$RUNLEVEL $@" >> {tmp_path}/calls\n')
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    servers.install(servers.Kind(**{**vars(servers.REDIS), "program": missing}))
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[1] for call in calls] == ["update", "install"]
    assert calls[1].startswith("1 ") and calls[1].endswith(" redis-server")


def test_a_server_behind_another_host_has_no_controller_here(tmp_path: Path) -> None:
    assert servers.controller("amqp://guest:guest@rabbitmq.internal:5672/", tmp_path) is None


def test_run_gives_the_urls_to_the_command_and_returns_its_exit_code() -> None:
    program = "import os; print(os.environ['BRIEFLINE_REDIS_URL'], os.environ['BRIEFLINE_RABBITMQ_URL']); raise SystemExit(7)"
    done = subprocess.run(
        [sys.executable, "-m", "ops.servers", "run", "--", sys.executable, "-c", program],
        env={**os.environ, **NAMED},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (7, list(NAMED.values()))


@pytest.mark.own_server
def test_a_cluster_is_joined_serves_one_command_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with servers.clustered(tmp_path) as urls:
        with redis.Redis.from_url(urls["BRIEFLINE_REDIS_URL"]) as client:
            assert client.info("cluster")["cluster_enabled"] == 1
        control = servers.controller(urls["BRIEFLINE_RABBITMQ_URL"], tmp_path)
        assert control is not None
        status = json.loads(control("--quiet", "--formatter", "json", "cluster_status"))
        assert len(status["running_nodes"]) == 3
    assert _processes_of(tmp_path) == []


@pytest.mark.parametrize("arguments", [[], ["begin"], ["run"], ["run", "--"], ["cluster"], ["cluster", "--"], ["start", "now"]])
def test_a_wrong_call_shows_how_to_call_it(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert servers.main(arguments) == 2
    assert "start | stop | run -- COMMAND" in capsys.readouterr().err

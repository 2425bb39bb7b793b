"""The deployment files hold what the code has: commands, variables, ports, paths, and settings the servers accept."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import typer
from ruamel.yaml import YAML

from ops.own_servers import RABBITMQ_CONF, REDIS_CONF
from ops.settings import Settings, load_settings, variable
from tests.support.servers import OwnRabbitMQ, OwnRedis

ROOT = Path(__file__).parents[2]
DEFINITIONS = ROOT / "ops" / "rabbitmq" / "definitions.json"
VARIABLES = {variable(name) for name in Settings.model_fields}
FLOORS = ("schemas", "orchestrator", "workers", "ops")


def _compose() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(ROOT / "docker-compose.yml")
    return loaded


def _dockerfile() -> list[list[str]]:
    lines = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8")).splitlines()
    return [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]


def _service(name: str) -> dict[str, Any]:
    service: dict[str, Any] = _compose()["services"][name]
    return service


def _briefline_calls() -> Iterator[list[str]]:
    """Every call of `briefline` in compose and Dockerfile, as arguments behind the program."""
    for service in _compose()["services"].values():
        if service.get("image") == "briefline":
            yield service["command"]
            yield service["healthcheck"]["test"][2:]
    yield from (json.loads(rest) for word, rest in _dockerfile() if word == "CMD")
    comments = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    yield from (re.sub(r'"[^"]*"', "TEXT", call).split() for call in re.findall(r"^#.* briefline (.*)$", comments, re.MULTILINE))


def test_compose_fits_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(ROOT / "docker-compose.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_command_and_option_in_the_deployment_files_exists() -> None:
    from ops.cli import app

    group = typer.main.get_command(app)
    commands: dict[str, Any] = group.commands  # type: ignore[attr-defined]  # an app with several commands is a group
    calls = list(_briefline_calls())
    assert ["orchestrator"] in calls and ["worker"] in calls and ["check"] in calls
    for name, *arguments in calls:
        if name == "--help":
            continue
        assert name in commands, f"briefline {name}"
        known = {option for parameter in commands[name].params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {argument for argument in arguments if argument.startswith("-")} <= known, f"briefline {name}"


def test_every_variable_in_the_deployment_files_is_a_setting() -> None:
    for name in ("docker-compose.yml", "Dockerfile", ".env.example", "ops/rabbitmq/rabbitmq.conf", "ops/redis/redis.conf"):
        named = set(re.findall(r"\bBRIEFLINE_[A-Z_]+\b", (ROOT / name).read_text(encoding="utf-8")))
        assert named <= VARIABLES, name


def test_the_values_in_compose_are_accepted_as_settings() -> None:
    for name in ("orchestrator", "worker"):
        environment = _service(name)["environment"]
        given = {key.removeprefix("BRIEFLINE_").lower(): re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for key, value in environment.items()}
        settings = load_settings(given)
        assert (settings.redis_url, settings.rabbitmq_url) == ("redis://redis:6379/0", "amqp://briefline:briefline@rabbitmq:5672/")


def test_processes_are_given_more_time_to_end_than_they_take() -> None:
    for name in ("orchestrator", "worker"):
        service = _service(name)
        allowed = float(service["stop_grace_period"].removesuffix("s"))
        assert allowed > float(service["environment"]["BRIEFLINE_GRACE_SECONDS"]) + 5


def test_workers_scale_and_wait_for_healthy_servers() -> None:
    worker = _service("worker")
    assert not {"container_name", "ports", "hostname"} & set(worker)
    assert worker["depends_on"] == {name: {"condition": "service_healthy"} for name in ("rabbitmq", "redis")}
    assert all("healthcheck" in service for service in _compose()["services"].values())


def test_every_published_port_is_one_the_server_listens_on_and_stays_on_this_machine() -> None:
    listened = {
        "redis": re.findall(r"^port (\d+)$", REDIS_CONF.read_text(), re.MULTILINE),
        "rabbitmq": re.findall(r"^(?:listeners\.tcp\.default|management\.tcp\.port) = (\d+)$", RABBITMQ_CONF.read_text(), re.MULTILINE),
    }
    published = {name: service["ports"] for name, service in _compose()["services"].items() if "ports" in service}
    assert published == {name: [f"127.0.0.1:{port}:{port}" for port in ports] for name, ports in listened.items()}


def test_every_mounted_and_copied_path_exists() -> None:
    mounts = [mount.split(":") for service in _compose()["services"].values() for mount in service.get("volumes", ())]
    for source, *_ in mounts:
        assert (ROOT / source).is_file() if source.startswith("./") else source in _compose()["volumes"], source
    copied = [rest.split()[:-1] for word, rest in _dockerfile() if word == "COPY" and not rest.startswith("--from")]
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists(), source
        assert source.split("/")[0] in kept, f".dockerignore leaves {source} out"


def test_what_the_server_commands_name_inside_their_containers_is_mounted_there() -> None:
    for name in ("redis", "rabbitmq"):
        service = _service(name)
        targets = {mount.split(":")[1] for mount in service["volumes"]}
        words = " ".join([*service.get("command", ()), *(" ".join(hook["command"]) for hook in service.get("post_start", ()))]).split()
        assert {word for word in words if re.search(r"\.(conf|json)$", word)} <= targets


def test_the_image_runs_as_nobody_special_and_python_gets_the_signals() -> None:
    instructions = _dockerfile()
    final = instructions[max(at for at, (word, _) in enumerate(instructions) if word == "FROM") :]
    assert [rest for word, rest in final if word == "USER"] == ["briefline"]
    assert [json.loads(rest) for word, rest in final if word == "ENTRYPOINT"] == [["briefline"]]
    installs = [rest for word, rest in instructions if word == "RUN" and "pip install" in rest]
    assert installs and all("--require-hashes" in rest or "--no-deps" in rest for rest in installs)


def test_the_locks_hold_every_package_by_hash_and_name_no_registry() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        text = lock.read_text()
        assert not re.search(r"://|index-url|find-links", text), lock.name
        pinned = re.findall(r"^[a-z0-9][^\s=]*==\S+.*\\\n    --hash=sha256:", text, re.MULTILINE)
        assert len(pinned) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE)) > 20, lock.name


def test_a_built_package_holds_every_file_of_the_floors(tmp_path: Path) -> None:
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    source = tmp_path / "source"
    for floor in FLOORS:
        shutil.copytree(ROOT / floor, source / floor, ignore=unwanted)
    files = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), "."]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert files <= held


@pytest.mark.own_server
def test_redis_accepts_the_shipped_configuration_and_never_evicts(tmp_path: Path) -> None:
    with OwnRedis(tmp_path) as server, redis.Redis(port=server.port, decode_responses=True) as client:
        config = client.config_get("append*", "maxmemory*", "save", "timeout", "tcp-keepalive")
    assert (config["appendonly"], config["appendfsync"], config["save"]) == ("yes", "everysec", "")
    assert (config["maxmemory-policy"], config["maxmemory"]) == ("noeviction", str(1024**3))
    assert (config["timeout"], config["tcp-keepalive"]) == ("0", "60")


@pytest.mark.own_server
def test_rabbitmq_accepts_the_shipped_configuration_and_policies(tmp_path: Path) -> None:
    keys = "consumer_timeout, max_message_size"
    with OwnRabbitMQ(tmp_path) as server:
        server.control("import_definitions", str(DEFINITIONS))
        policies = json.loads(server.control("--quiet", "--formatter", "json", "list_policies"))
        effective = server.control("--quiet", "eval", f"[element(2, application:get_env(rabbit, Key)) || Key <- [{keys}]].")
    assert {policy["name"] for policy in policies} == {"briefline-work", "briefline-dead"}
    timeout_ms, message_bytes = map(int, re.findall(r"\d+", effective))
    assert timeout_ms > 2 * 1000 * load_settings().ack_after_seconds
    assert message_bytes == 1024**2


@pytest.mark.parametrize(
    ("queue", "policy"),
    [
        ("briefline.v1.dead.product", "briefline-dead"),
        ("briefline.v1.dead.unreadable", "briefline-dead"),
        ("briefline.v1.tasks.product", "briefline-work"),
        ("briefline.v1.results", "briefline-work"),
        ("briefline.v1.commands", "briefline-work"),
        ("briefline.v2.dead.product", None),
        ("briefline.v1.tasks", None),
    ],
)
def test_each_queue_falls_under_at_most_one_policy(queue: str, policy: str | None) -> None:
    policies = json.loads(DEFINITIONS.read_text())["policies"]
    assert [known["name"] for known in policies if re.search(known["pattern"], queue)] == ([policy] if policy else [])

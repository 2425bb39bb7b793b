"""The settings: what is read, what is refused, and that no password is ever shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from ops.settings import Settings, load_settings, settings_table, variable, without_password
from schemas.errors import InvalidSettings

ROOT = Path(__file__).parents[2]
PASSWORD = "geheim-密码"


def test_defaults_are_the_documented_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDIS_URL", "RABBITMQ_URL"):  # the tests' own servers are named by them
        monkeypatch.delenv(f"BRIEFLINE_{name}", raising=False)
    settings = load_settings()
    assert (settings.redis_url, settings.rabbitmq_url) == ("redis://127.0.0.1:6379/0", "amqp://guest:guest@127.0.0.1:5672/")
    assert (settings.lease_seconds, settings.ack_after_seconds, settings.retention_seconds) == (5.0, 600.0, 604800)
    assert settings.agents == ()


def test_given_values_win_over_the_environment_and_that_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("POOL_SIZE", "TENANT", "TEAM")
    (tmp_path / ".env").write_text("".join(f"BRIEFLINE_{name}={3 if name == 'POOL_SIZE' else 'file'}\n" for name in names))
    monkeypatch.chdir(tmp_path)
    for name in names:
        monkeypatch.delenv(f"BRIEFLINE_{name}")
    assert (load_settings().pool_size, load_settings().tenant) == (3, "file")
    monkeypatch.setenv("BRIEFLINE_TENANT", "环境")
    monkeypatch.setenv("BRIEFLINE_TEAM", "environment")
    settings = load_settings({"team": "given"})
    assert (settings.pool_size, settings.tenant, settings.team) == (3, "环境", "given")


def test_an_empty_variable_means_the_default_even_when_the_file_has_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("BRIEFLINE_MODEL_BASE_URL=http://model\nBRIEFLINE_MODEL_NAME=m\nBRIEFLINE_LEASE_SECONDS=9\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIEFLINE_MODEL_BASE_URL", "")
    monkeypatch.setenv("BRIEFLINE_LEASE_SECONDS", "")
    settings = load_settings()
    assert (settings.model_base_url, settings.lease_seconds) == ("", 5.0)


def test_agents_are_a_list_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIEFLINE_AGENTS", " aftersales, iot ,")
    assert load_settings().agents == ("aftersales", "iot")
    assert load_settings({"agents": ("product",)}).agents == ("product",)


@pytest.mark.parametrize(
    ("field", "bad", "said"),
    [
        ("redis_url", "http://127.0.0.1/", "must begin with redis:// or rediss:// or redis+cluster:// or rediss+cluster:// or unix://"),
        ("rabbitmq_url", "amqp://", "names no host"),
        ("rabbitmq_url", "amqp://a:b@host:99999/", "is not a URL"),
        ("tenant", "a{b}", "without blanks and braces"),
        ("topology_prefix", "主题", "letters, digits"),
        ("concurrency", "0", "greater than or equal to 1"),
        ("concurrency", "many", "valid integer"),
        ("lease_seconds", "nan", "finite number"),
        ("lease_seconds", "-1", "greater than 0"),
        ("log_level", "LOUD", "'DEBUG'"),
        ("model_base_url", "model.internal", "must begin with http://"),
    ],
)
def test_a_bad_value_is_refused_with_its_variable_what_is_wrong_and_an_example(
    field: str, bad: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable(field), bad)
    with pytest.raises(InvalidSettings) as refusal:
        load_settings()
    message = str(refusal.value)
    assert message.startswith(f"{variable(field)}: ") and message.count("\n") == 0
    assert said in message
    assert f"example: {variable(field)}=" in message


def test_every_bad_value_is_named_at_once() -> None:
    with pytest.raises(InvalidSettings) as refusal:
        load_settings({"pool_size": 0, "grace_seconds": "soon"})
    assert [line.split(":")[0] for line in str(refusal.value).splitlines()] == ["BRIEFLINE_GRACE_SECONDS", "BRIEFLINE_POOL_SIZE"]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"call_timeout_seconds": 20}, ("CALL_TIMEOUT_SECONDS", "CALL_DEADLINE_SECONDS")),
        ({"sweep_seconds": 6}, ("SWEEP_SECONDS", "LEASE_SECONDS")),
        ({"model_base_url": "http://127.0.0.1:8080/v1"}, ("MODEL_NAME", "MODEL_BASE_URL")),
    ],
)
def test_settings_that_do_not_fit_together_are_refused_with_both_names(given: dict[str, object], names: tuple[str, str]) -> None:
    with pytest.raises(InvalidSettings) as refusal:
        load_settings(given)
    assert all(f"BRIEFLINE_{name}" in str(refusal.value) for name in names)


def test_a_setting_that_does_not_exist_cannot_be_given() -> None:
    with pytest.raises(InvalidSettings, match="concurency"):
        load_settings({"concurency": 3})


def test_the_examples_in_the_messages_are_accepted() -> None:
    for name, field in Settings.model_fields.items():
        assert field.examples, name
        beside = {"model_name": "m"} if name == "model_base_url" else {}
        load_settings({name: field.examples[0], **beside})


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load_settings().tenant = "other"  # type: ignore[misc]  # that it is refused is the point


def test_no_password_is_shown_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(
        {
            "redis_url": f"redis://:{PASSWORD}@host/0",
            "rabbitmq_url": f"amqp://user:{PASSWORD}@host/",
            "model_api_key": PASSWORD,
        }
    )
    for shown in (repr(settings), str(settings), str(settings.redacted())):
        assert PASSWORD not in shown
    assert settings.redacted()["redis_url"] == "redis://:***@host/0"
    assert settings.redacted()["model_api_key"] == "***"
    assert settings.model_api_key.get_secret_value() == PASSWORD
    with pytest.raises(InvalidSettings) as refusal:
        load_settings({"redis_url": f"http://:{PASSWORD}@host/0", "rabbitmq_url": f"amqp://user:{PASSWORD}#x@host"})
    assert PASSWORD not in str(refusal.value)
    assert refusal.value.__suppress_context__


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("amqp://guest:a:b@c@host:5672/vhost", "amqp://guest:***@host:5672/vhost"),
        ("redis://u:12/secret@host", "redis://u:***@host"),
        ("redis://host/0?password=secret&db=1", "redis://host/0?password=***&db=1"),
        ("unix:///run/redis.sock?password=secret", "unix:///run/redis.sock?password=***"),
        ("rediss://host/0?ssl_password=secret&db=1", "rediss://host/0?ssl_password=***&db=1"),
    ],
)
def test_a_password_is_taken_out_of_a_url_wherever_it_stands(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_the_table_has_a_row_for_every_setting_with_its_default() -> None:
    header, rule, *rows = settings_table().splitlines()
    assert (header, rule) == ("| variable | default | meaning |", "| --- | --- | --- |")
    assert [re.findall(r"`(BRIEFLINE_\w+)`", row)[0] for row in rows] == [variable(name) for name in Settings.model_fields]
    assert all(row.count(" | ") == 2 and not row.endswith("None |") for row in rows)
    assert "| `BRIEFLINE_LEASE_SECONDS` | `5` |" in settings_table()


def test_the_example_file_is_all_comments_and_each_of_its_blocks_is_accepted(tmp_path: Path) -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert all(line.startswith("#") for line in text.splitlines() if line)
    blocks = [re.findall(r"^#(BRIEFLINE_\w+=.*)$", block, re.MULTILINE) for block in text.split("\n\n")]
    blocks = [block for block in blocks if block]
    assert len(blocks) == 3
    for block in blocks:
        names = {line.partition("=")[0] for line in block}
        assert names <= {variable(name) for name in Settings.model_fields}
        given = {line.partition("=")[0].removeprefix("BRIEFLINE_").lower(): line.partition("=")[2] for line in block}
        assert load_settings(given).model_base_url == given["model_base_url"]

"""Every setting of a Briefline process, read once from the environment and `.env`, checked, and then frozen.

Variables are the field names in capitals behind `BRIEFLINE_`. This room knows no server and opens no connection, and it
shows no password: neither in errors nor in `repr`. Called by the command line and the wiring, once, at start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from schemas.errors import InvalidSettings

PREFIX = "BRIEFLINE_"
DAY_SECONDS = 24 * 60 * 60


def _url(*schemes: str) -> AfterValidator:
    def check(value: str) -> str:
        if not value:  # only where the default is empty: elsewhere an empty variable means the default
            return value
        try:
            parts = urlsplit(value)
            _ = parts.port  # reading it checks it
        except ValueError:
            raise ValueError("is not a URL (special characters in a password are written as %XX)") from None
        if parts.scheme not in schemes:
            raise ValueError(f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
        if not parts.hostname and not (parts.scheme == "unix" and parts.path):
            raise ValueError("names no host")
        return value

    return AfterValidator(check)


def _artifact_place(value: str) -> str:
    scheme, colon, rest = value.partition(":")
    if scheme == "s3":
        if not re.fullmatch(r"//[a-z0-9][a-z0-9.-]{1,62}(/[^?]*)?(\?.*)?", rest):
            raise ValueError("is not of the form s3://bucket/prefix?endpoint=https://host")
    elif scheme == "file" and colon:
        if not rest.startswith("///"):
            raise ValueError("a file URL has three slashes, and then the path")
    elif colon and value != "memory:":
        raise ValueError("is a folder, file:///folder, s3://bucket/prefix or memory:")
    return value


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _capitals(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _matches(pattern: str, wrong: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(wrong)
        return value

    return AfterValidator(check)


Seconds = Annotated[float, Field(gt=0, le=365 * DAY_SECONDS, allow_inf_nan=False)]
# Any script, but no brace: it would move the hash tag that keeps the keys of a request together.
KeyName = Annotated[str, _matches(r"[^\s{}]{1,64}", "must be 1 to 64 characters without blanks and braces")]
QueueName = Annotated[str, _matches(r"[A-Za-z0-9_.-]{1,64}", "must be 1 to 64 letters, digits, dots, hyphens or underscores")]


class Settings(BaseSettings):
    """The settings of one process; every length of time is in seconds."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        env_file_encoding="utf-8",
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    redis_url: Annotated[str, _url("redis", "rediss", "redis+cluster", "rediss+cluster", "unix")] = Field(
        "redis://127.0.0.1:6379/0",
        description="Redis of the blackboard; redis+cluster:// names any node of a cluster of several",
        examples=["redis://:password@redis.internal:6379/0"],
    )
    rabbitmq_url: Annotated[str, _url("amqp", "amqps")] = Field(
        "amqp://guest:guest@127.0.0.1:5672/",
        description="RabbitMQ of the broker; the path names the virtual host",
        examples=["amqp://briefline:password@rabbitmq.internal:5672/"],
    )
    key_prefix: KeyName = Field("briefline", description="What every key in Redis begins with", examples=["briefline"])
    topology_prefix: QueueName = Field(
        "briefline.v1",
        description="What every exchange and queue begins with; the shipped policies match the default only",
        examples=["briefline.v1"],
    )
    tenant: KeyName = Field("default", description="Whose requests these are; lists and keys are per tenant", examples=["default"])
    team: str = Field(
        "bitmall",
        min_length=1,
        description="The team: a shipped one by name, or `package.module:attribute`",
        examples=["mycompany.teams:support"],
    )
    agents: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)] = Field(
        (), description="The agents that a worker serves, separated by commas; empty means all of the team", examples=["aftersales,iot"]
    )
    concurrency: int = Field(8, ge=1, le=1000, description="Steps at a time that a worker runs of each agent", examples=[8])
    lease_seconds: Seconds = Field(
        5.0, description="How long a step stays with a worker that no longer renews; shorter finds a dead worker sooner", examples=[5]
    )
    ack_after_seconds: Seconds = Field(
        600.0,
        description="When a worker acknowledges a task that still runs; well below RabbitMQ's `consumer_timeout` (30 minutes)",
        examples=[600],
    )
    grace_seconds: Seconds = Field(
        25.0, description="How long a process that is told to end waits for running steps; then it hands them back", examples=[25]
    )
    sweep_seconds: Seconds = Field(0.5, description="How often an orchestrator looks for requests that are due", examples=[0.5])
    retention_seconds: int = Field(
        7 * DAY_SECONDS, ge=1, le=3650 * DAY_SECONDS, description="How long a finished request is kept", examples=[7 * DAY_SECONDS]
    )
    artifacts_url: Annotated[str, AfterValidator(_artifact_place)] = Field(
        "~/.local/share/briefline/artifacts",
        description="Where artifacts are kept: a folder for all workers, `s3://bucket/prefix?endpoint=...`, or `memory:` for one process",
        examples=["s3://artifacts/briefline?endpoint=https://minio.internal:9000"],
    )
    artifact_seconds: int = Field(
        30 * DAY_SECONDS, ge=1, le=3650 * DAY_SECONDS, description="How long an artifact is kept", examples=[30 * DAY_SECONDS]
    )
    private_seconds: int = Field(
        3 * DAY_SECONDS,
        ge=1,
        le=3650 * DAY_SECONDS,
        description="How long a run's messages and tool calls are kept, for `briefline show REQUEST --private STEP`",
        examples=[3 * DAY_SECONDS],
    )
    call_timeout_seconds: Seconds = Field(5.0, description="How long one attempt of a call to a server may take", examples=[5])
    call_deadline_seconds: Seconds = Field(
        15.0, description="How long an operation on a server may take with all its attempts", examples=[15]
    )
    pool_size: int = Field(32, ge=2, le=10_000, description="Connections to Redis that one process may hold", examples=[32])
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_capitals)] = Field(
        "INFO", description="The least important log lines that are written", examples=["INFO"]
    )
    log_format: Literal["console", "json"] = Field("console", description="Log lines for people or for machines", examples=["json"])
    scenario: str = Field("", description="A demo scenario of the scripted model", examples=["product-stuck"])
    model_base_url: Annotated[str, _url("http", "https")] = Field(
        "",
        description="An OpenAI-compatible endpoint; empty means the scripted model: no key, no network",
        examples=["http://127.0.0.1:8080/v1"],
    )
    model_name: str = Field("", description="The model at that endpoint", examples=["qwen-plus"])
    model_api_key: SecretStr = Field(SecretStr(""), description="Its key; a local server may need none", examples=["sk-..."])
    model_timeout_seconds: Seconds = Field(60.0, description="How long one call of the model may take", examples=[60])

    @model_validator(mode="before")
    @classmethod
    def _empty_means_default(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value != ""}

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.call_timeout_seconds > self.call_deadline_seconds:
            raise ValueError(_together("call_timeout_seconds", "is longer than the whole operation may take", "call_deadline_seconds"))
        if self.sweep_seconds > self.lease_seconds:
            raise ValueError(_together("sweep_seconds", "is longer than a lease, and a dead worker's step waits for it", "lease_seconds"))
        if self.artifact_seconds < self.retention_seconds:
            wrong = "is shorter than a finished request is kept, and its references would lead nowhere"
            raise ValueError(_together("artifact_seconds", wrong, "retention_seconds"))
        if self.model_base_url and not self.model_name:
            raise ValueError(_together("model_name", "is empty, but an endpoint is named", "model_base_url"))
        return self

    def redacted(self) -> dict[str, Any]:
        """The settings by field name, fit to be shown: passwords in URLs and the model's key read `***`."""
        shown = {name: getattr(self, name) for name in type(self).model_fields}
        for name, value in shown.items():
            if isinstance(value, SecretStr):
                shown[name] = "***" if value.get_secret_value() else ""
            elif name.endswith("_url"):
                shown[name] = without_password(value)
        return shown

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        return list(self.redacted().items())


def load_settings(given: Mapping[str, Any] | None = None, *, env_file: str | None = ".env") -> Settings:
    """The settings of this process; `given` (by field name, such as flags of a command) wins over environment over `.env`.

    Raises `InvalidSettings` that says for every bad value which variable it is, what is wrong and what a right one looks
    like. The values themselves are not repeated: one of them may be a password.
    """
    unknown = sorted(set(given or {}) - set(Settings.model_fields))
    if unknown:
        raise InvalidSettings(f"no such setting: {', '.join(unknown)}")
    try:
        return Settings(_env_file=env_file, **(given or {}))
    except ValidationError as error:
        complaints = [_complaint(detail["loc"], detail["msg"]) for detail in error.errors(include_input=False, include_url=False)]
        raise InvalidSettings("\n".join(dict.fromkeys(complaints))) from None
    except UnicodeDecodeError:
        raise InvalidSettings(f"{env_file} is not UTF-8 text") from None


def variable(field: str) -> str:
    """The name of a setting's environment variable."""
    return PREFIX + field.upper()


def settings_table() -> str:
    """All settings as a Markdown table: variable, default, meaning."""
    rows = ["| variable | default | meaning |", "| --- | --- | --- |"]
    rows += [f"| `{variable(name)}` | {_default(field)} | {field.description} |" for name, field in Settings.model_fields.items()]
    return "\n".join(rows)


def without_password(url: str) -> str:
    """The URL with its password, if it has one, replaced by `***`."""
    # Greedy up to the last @, so that nothing of a password with unescaped characters stands.
    url = re.sub(r"(?<=://)([^:/@]*):.*@", r"\1:***@", url)
    return re.sub(r"(?<=password=)[^&]*", "***", url)


def _default(field: FieldInfo) -> str:
    value = field.default
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value in ("", ()):
        return "(empty)"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _together(field: str, wrong: str, other: str) -> str:
    return f"{variable(field)}: {wrong} ({variable(other)}); {_example(field)}"


def _example(field: str) -> str:
    examples = Settings.model_fields[field].examples or [""]
    return f"example: {variable(field)}={examples[0]}"


def _complaint(place: tuple[int | str, ...], wrong: str) -> str:
    wrong = wrong.removeprefix("Value error, ")
    if not place:  # two settings that do not fit together: the message names both
        return wrong
    return f"{variable(str(place[0]))}: {wrong[:1].lower()}{wrong[1:]}; {_example(str(place[0]))}"

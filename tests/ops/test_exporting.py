"""The exported contracts: current, valid, and true of what a real run sends and stores."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from jsonschema.protocols import Validator

from ops import asyncapi, exporting
from ops.blackboard.memory import MemoryBlackboard
from ops.broker.memory import MemoryBroker
from ops.broker.topology import Topology
from ops.embedded import serving
from schemas import fields
from schemas.blackboard import Event
from schemas.briefs import LeftOut, LineOrigin, Manifest, ManifestLine
from schemas.broker import Address
from schemas.messages import SCHEMA_URI, AgentMessage, MessageType, from_wire, to_wire
from workers.teams.bitmall.demo import REQUEST
from workers.teams.bitmall.team import make_team

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "schemas"
SCHEMAS = sorted((*exporting.RECORDS, exporting.EVENT, exporting.DATA))
SCENARIOS = ("happy", "product-stuck")

NAMESPACES = {
    fields.REQUEST: "request-record",
    fields.CARD: "team-card",
    fields.STATUS: "status-record",
    fields.PLAN: "plan-record",
    fields.ANSWER: "answer-record",
    fields.CONSTRAINT_PREFIX: "constraint-record",
    fields.PLAN_PREFIX: "step",
    fields.STEP_PREFIX: "step-record",
    fields.RESULT_PREFIX: "agent-result",
}


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_bytes())
    return loaded


def validator(name: str) -> Validator:
    return jsonschema.Draft202012Validator(schema(name))


# --- current and valid -----------------------------------------------------------------------------------------------


def test_the_exported_contracts_are_current(tmp_path: Path) -> None:
    stale = exporting.outdated(FOLDER)
    assert not stale, f"not current: {', '.join(stale)}; run `briefline schemas export` and commit docs/schemas"
    exporting.export(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {path.name: path.read_bytes() for path in FOLDER.iterdir()}


def test_what_is_missing_changed_or_too_many_is_outdated_until_it_is_exported_again(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "schemas"
    names = [path.name for path in exporting.export(folder)]
    assert exporting.outdated(folder) == ()
    (folder / "fact.json").unlink()
    (folder / "step.json").write_text("{}")
    (folder / "gone-record.json").write_text("{}")
    (folder / "notes.txt").write_text("kept")
    assert exporting.outdated(folder) == ("step.json", "fact.json", "gone-record.json")
    exporting.export(folder)
    assert exporting.outdated(folder) == ()
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names, "notes.txt"])


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_is_a_json_schema_of_2020_12_with_a_stable_id(name: str) -> None:
    loaded = schema(name)
    assert loaded["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert loaded["$id"] == f"urn:briefline:schema:{name}:1"
    jsonschema.Draft202012Validator.check_schema(loaded)


def test_no_two_schemas_share_an_id_and_messages_name_that_of_their_data() -> None:
    ids = [schema(name)["$id"] for name in SCHEMAS]
    assert len(set(ids)) == len(ids)
    assert schema(exporting.DATA)["$id"] == SCHEMA_URI


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_is_whole_in_itself_and_forbids_no_field_of_a_newer_minor_version(name: str) -> None:
    def parts(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict):
            yield value
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from parts(part)

    loaded = schema(name)
    for part in parts(loaded):
        assert part.get("additionalProperties") is not False
        if isinstance(reference := part.get("$ref"), str):
            start, _, defined = reference.rpartition("/")
            assert start == "#/$defs"
            assert defined in loaded["$defs"]


def test_fields_carry_the_words_that_stand_beside_them_in_the_code() -> None:
    properties = schema("step-record")["properties"]
    assert properties["epoch"]["description"] == "How many times the step has been reopened."
    assert "title" not in properties["epoch"]


# --- true of what is sent and stored ---------------------------------------------------------------------------------


class Overheard(MemoryBroker):
    """Remembers what is published."""

    def __init__(self) -> None:
        super().__init__(seed=1)
        self.heard: list[tuple[Address, AgentMessage]] = []

    async def publish(self, address: Address, bell: AgentMessage, *, confirm: bool = True) -> None:
        """Publish as ever, and remember."""
        self.heard.append((address, bell))
        await super().publish(address, bell, confirm=confirm)


async def run(scenario: str) -> tuple[list[tuple[Address, AgentMessage]], list[Event]]:
    """Everything that a request of the shipped team sends and stores."""
    async with (
        MemoryBlackboard() as board,
        Overheard() as broker,
        serving(board, broker, make_team(scenario=scenario)) as runtime,
    ):
        report = await runtime.ask(REQUEST)
        return broker.heard, await board.events(report.request_id)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_all_that_a_run_sends_and_stores_fits_the_exported_schemas(scenario: str) -> None:
    heard, events = await run(scenario)
    whole, data = validator(exporting.EVENT), validator(exporting.DATA)
    for _, bell in heard:
        event = json.loads(to_wire(bell))
        whole.validate(event)
        data.validate(event["data"])
    seen = set()
    for stored in events:
        for name, (_, value) in stored.put.items():
            namespace = name[: name.index("/") + 1] if "/" in name else name
            seen.add(namespace)
            validator(NAMESPACES[namespace]).validate(json.loads(value))
    assert seen == set(NAMESPACES)
    kinds = {bell.type for _, bell in heard}
    assert {MessageType.SUBMIT, MessageType.TASK, MessageType.REQUEST} <= kinds
    assert kinds & {MessageType.RESULT_READY, MessageType.RESULT_FAILED}, "the last step is told, whatever became of it"
    assert (MessageType.RESULT_FAILED in kinds) == (scenario != "happy")


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_every_message_of_a_run_goes_where_the_asyncapi_document_says(scenario: str) -> None:
    heard, _ = await run(scenario)
    for address, bell in heard:
        agent = bell.sender if bell.type is MessageType.RESULT_FAILED else bell.recipient
        places = {
            (traffic.address.exchange, traffic.address.key.format(agent=agent, status=bell.content.lower()))
            for traffic in asyncapi.TRAFFIC
            if bell.type in traffic.kinds
        }
        assert (address.exchange, address.key) in places


@pytest.mark.parametrize("kind", MessageType)
def test_the_example_of_every_type_fits_and_is_read_back(kind: MessageType) -> None:
    event = json.loads(to_wire(asyncapi.example(kind)))
    validator(exporting.EVENT).validate(event)
    assert from_wire(to_wire(asyncapi.example(kind))) == asyncapi.example(kind)


def broken() -> Iterator[tuple[MessageType, tuple[str, ...], Any]]:
    """(type, path, a wrong value, or ... for leaving it out)."""
    for name in ("specversion", "id", "source", "type", "time", "data"):
        yield MessageType.TASK, (name,), ...
    yield MessageType.TASK, ("specversion",), "0.3"
    yield MessageType.TASK, ("type",), "briefline.task.v2"
    yield MessageType.TASK, ("dataschema",), "urn:other"
    yield MessageType.TASK, ("data", "request_id"), ...
    yield MessageType.TASK, ("data", "epoch"), "1"
    yield MessageType.TASK, ("data", "seen"), {"step/a": 1}
    for name in ("step_id", "task", "seen"):
        yield MessageType.TASK, ("data", name), ...
    yield MessageType.TASK, ("data", "task", "record", "state"), "SLEEPING"
    for kind in (MessageType.RESULT_READY, MessageType.RESULT_FAILED):
        yield kind, ("data", "state"), ...
        yield kind, ("data", "step_id"), ...
    yield MessageType.REPLAY, ("data", "step_id"), ...
    yield MessageType.DROP, ("data", "step_id"), ...
    yield MessageType.RETRACT, ("data", "about"), ...
    yield MessageType.DECIDE, ("data", "choice"), ...
    yield MessageType.RULES, ("data", "content"), ...


@pytest.mark.parametrize(("kind", "path", "value"), [*broken()])
def test_a_broken_message_does_not_fit(kind: MessageType, path: tuple[str, ...], value: Any) -> None:
    event = json.loads(to_wire(asyncapi.example(kind)))
    *above, last = path
    part = event
    for key in above:
        part = part[key]
    if value is ...:
        del part[last]
    else:
        part[last] = value
    assert not validator(exporting.EVENT).is_valid(event)


@pytest.mark.parametrize("value", [True, 1, 1.5, "text"])
def test_a_fact_of_any_scalar_fits_and_of_anything_else_does_not(value: Any) -> None:
    provenance = {"step": "a", "tool": "t", "call_id": "c", "path": "p"}
    fact = {"key": "k", "value": value, "provenance": provenance, "of_a_newer_minor": 1}
    check = validator("fact")
    check.validate(fact)
    for wrong in ([value], {"v": value}, None):
        assert not check.is_valid({**fact, "value": wrong})
    assert not check.is_valid({**fact, "provenance": {**provenance, "zone": "moon"}})


def test_a_manifest_fits() -> None:
    manifest = Manifest(
        lines=(ManifestLine(line=1, origin=LineOrigin.FACT, step="a", key="k", version="1.abcdef"),),
        left_out=(LeftOut(step="a", key="k", reason="not_needed"),),
        characters=1,
        tokens=1,
        tokenizer="t",
        limit_characters=2,
        limit_tokens=2,
    )
    validator("manifest").validate(json.loads(manifest.to_json()))


# --- the AsyncAPI document -------------------------------------------------------------------------------------------


def document() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / exporting.ASYNCAPI).read_bytes())
    return loaded


@pytest.fixture(scope="module")
def official() -> Validator:
    """The schema that AsyncAPI itself publishes for its documents."""
    return jsonschema.Draft7Validator(json.loads((ROOT / "tests" / "data" / "asyncapi" / "3.0.0.json").read_bytes()))


def test_the_asyncapi_document_is_one_by_the_official_schema(official: Validator) -> None:
    assert [f"{list(error.absolute_path)}: {error.message[:200]}" for error in official.iter_errors(document())] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("operations", "send.tasks", "action"), "publish"),
        (("channels", "to.tasks", "bindings", "amqp", "is"), "exchange"),
        (("channels", "to.tasks", "exchange"), "tasks"),
        (("components", "messages", "TASK", "contentType"), 5),
        (("info",), {}),
    ],
)
def test_the_official_schema_finds_a_fault_in_it(official: Validator, path: tuple[str, ...], value: Any) -> None:
    faulty = copy.deepcopy(document())
    part = faulty
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    assert not official.is_valid(faulty)


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    whole = document()

    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for part in value.values():
                yield from references(part)
        elif isinstance(value, list):
            for part in value:
                yield from references(part)

    found = set(references(whole))
    assert any(reference.startswith("#/components/schemas/") for reference in found)
    for reference in found:
        part = whole
        for key in reference.removeprefix("#/").split("/"):
            part = part[key]


def test_every_queue_of_the_topology_has_a_channel_somebody_who_takes_and_its_declaration() -> None:
    topology, whole = Topology(), document()
    channels = {channel["address"]: channel for channel in whole["channels"].values() if channel["bindings"]["amqp"]["is"] == "queue"}
    queues = {topology.full(queue.name): queue for queue in (*topology.of_agent(asyncapi.AGENT), *topology.fixed)}
    assert set(channels) == set(queues)
    taken = {whole["operations"][name]["channel"]["$ref"] for name in whole["operations"] if name.startswith("take.")}
    assert len(taken) == len(queues)
    for name, queue in queues.items():
        assert channels[name]["x-arguments"] == queue.arguments
        bound = [(each["exchange"], each["routingKey"]) for each in channels[name]["x-bindings"]]
        assert bound == [(topology.full(binding.exchange), binding.key) for binding in queue.bindings]


def test_what_comes_to_a_queue_follows_from_bindings_and_dead_lettering() -> None:
    topology = Topology()
    queues = {queue.name: queue for queue in (*topology.of_agent(asyncapi.AGENT), *topology.fixed)}
    found = {name: set(asyncapi.kinds_in(queue, queues.values())) for name, queue in queues.items()}
    results = {MessageType.RESULT_READY, MessageType.RESULT_FAILED}
    commands = {MessageType.SUBMIT, MessageType.CANCEL, MessageType.REPLAY, MessageType.DROP}
    commands |= {MessageType.RETRACT, MessageType.DECIDE, MessageType.RULES}
    assert found == {
        "tasks.{agent}": {MessageType.TASK},
        "results": results,
        "commands": commands,
        "dead.{agent}": {MessageType.RESULT_FAILED},
        "dead.broker": {MessageType.TASK} | results | commands,
        "dead.unreadable": set(MessageType),
    }
    assert set(asyncapi.TAKERS) == set(queues)


def test_every_type_of_message_is_described_and_sent_by_somebody() -> None:
    whole = document()
    assert set(whole["components"]["messages"]) == set(MessageType)
    assert all(message["summary"] for message in whole["components"]["messages"].values())
    assert {kind for traffic in asyncapi.TRAFFIC for kind in traffic.kinds} == set(MessageType)

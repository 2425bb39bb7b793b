"""Packets: what crosses from one step to another, typed, with the payload apart from what says how it may be used.

A `Fact` is the packet of kind `fact`; what a model judges by itself is a finding, suggestion or decision, and never a fact.
The kind decides what happens to it unless something says otherwise (`admission`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, AwareDatetime, Field

from schemas.codec import digest
from schemas.facts import Fact, Provenance, Sensitivity
from schemas.frozen import Frozen, Name, Scalar
from schemas.limits import MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH


class Kind(StrEnum):
    """What a packet is, and so how a consumer may take it."""

    FACT = "fact"
    """Copied from a tool return by a rule."""
    FINDING = "finding"
    """What a model concludes, with the evidence it names."""
    SUGGESTION = "suggestion"
    """What a model proposes; a candidate, nothing to rely on."""
    DECISION = "decision"
    """What a model was asked to decide, with its reason."""
    ACTION_REQUEST = "action_request"
    """Something to be done outside; it waits for a person, and nothing is ever executed."""
    ARTIFACT_REF = "artifact_ref"
    """Where something large lies."""
    ERROR = "error"
    """Why there is nothing."""
    RETRACTION = "retraction"
    """What was said is withdrawn."""


class Admission(StrEnum):
    """Where a packet may go by its kind alone."""

    STATE = "state"
    """Into shared state, and into briefs as confirmed."""
    BRIEF = "brief"
    """Into briefs as somebody's judgement, named as such; into shared state by a field's owner only."""
    CANDIDATES = "candidates"
    """Among what a field's owner may take up or refuse."""
    DESK = "desk"
    """To a person."""
    GAP = "gap"
    """Into briefs and answers as something missing."""
    STALE = "stale"
    """Nowhere; what rests on it turns stale."""


_ADMISSIONS = {
    Kind.FACT: Admission.STATE,
    Kind.ARTIFACT_REF: Admission.STATE,
    Kind.FINDING: Admission.BRIEF,
    Kind.DECISION: Admission.BRIEF,
    Kind.SUGGESTION: Admission.CANDIDATES,
    Kind.ACTION_REQUEST: Admission.DESK,
    Kind.ERROR: Admission.GAP,
    Kind.RETRACTION: Admission.STALE,
}


def admission(kind: Kind) -> Admission:
    """Return where a packet of this kind may go."""
    return _ADMISSIONS[kind]


class OnFailure(StrEnum):
    """What happens where a crossing that a step needs is blocked."""

    FAIL = "fail"
    """The step fails, as a dead letter."""
    GAP = "gap"
    """The step runs with the gap named in its brief."""
    RECHECK = "recheck"
    """The producer runs once more, then the step."""
    PERSON = "person"
    """The step waits for a person (`briefline desk`)."""


def _is_small(value: object) -> object:
    """A small JSON value: of scalars, lists and objects with text keys."""
    if isinstance(value, int | float) or (isinstance(value, str) and len(value) <= MAX_PAYLOAD_BYTES // 4):
        return value  # UTF-8 has at most four bytes a character

    def walk(part: object, depth: int) -> int:
        if depth > MAX_PAYLOAD_DEPTH:
            raise ValueError(f"is nested more than {MAX_PAYLOAD_DEPTH} deep")
        match part:
            case dict():
                return sum(len(str(key).encode()) + walk(each, depth + 1) for key, each in part.items()) + 2
            case list() | tuple():
                return sum(walk(each, depth + 1) for each in part) + 2
            case str():
                return len(part.encode("utf-8", "surrogatepass"))
            case _:
                return 8

    if (size := walk(value, 0)) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"has about {size:,} bytes, the limit is {MAX_PAYLOAD_BYTES:,}; what is larger is an artifact")
    return value


Payload: TypeAlias = Annotated[Scalar | list[Any] | dict[str, Any], AfterValidator(_is_small)]
"""A scalar, or a small list or object of JSON."""


class Evidence(Frozen):
    """What a judgement rests on: a fact of the brief or of the run (`step.key`), or an artifact, and where in it."""

    ref: Annotated[str, Field(min_length=1, max_length=200)]
    items: tuple[str, ...] = ()
    """Places in the artifact: rows, ranges, item ids."""
    version: str | None = None
    """Version of the result that the fact was read from."""

    def __str__(self) -> str:
        return f"{self.ref}#{','.join(self.items)}" if self.items else self.ref


class Control(Frozen):
    """How a packet may be used; never part of what it says."""

    producer: str
    """Step id."""
    consumer: str | None = None
    """Step id; None: whoever declares the need."""
    provenance: Provenance | None = None
    """Of a fact: the tool call that it was copied from."""
    evidence: tuple[Evidence, ...] = ()
    confidence: Annotated[float, Field(ge=0, le=1)] = 1.0
    created_at: AwareDatetime | None = None
    expires_at: AwareDatetime | None = None
    policy_version: str = ""
    """Version of the boundary rules under which it was made."""
    model_version: str = ""
    rules_version: str = ""
    sensitivity: Sensitivity = Sensitivity.INTERNAL
    allowed_use: tuple[str, ...] = ()
    """Empty: any use that is not forbidden."""
    forbidden_use: tuple[str, ...] = ()
    seen: dict[str, str] = {}
    """Versions of what its producer had read."""
    idempotency_key: str = ""
    on_failure: OnFailure = OnFailure.FAIL
    reason: str = ""
    """Of a decision, suggestion or action request: why."""


class Packet(Frozen):
    """One thing that may cross: `payload` is what it says, `control` how it may be used."""

    kind: Kind
    key: str
    payload: Payload
    control: Control
    unit: str | None = None
    basis: str | None = None

    @property
    def name(self) -> str:
        """`step.key`."""
        return f"{self.control.producer}.{self.key}"


def packet_of(fact: Fact, *, policy_version: str = "") -> Packet:
    """Return the packet that a fact is."""
    return Packet(
        kind=Kind.FACT,
        key=fact.key,
        payload=fact.value,
        unit=fact.unit,
        basis=fact.basis,
        control=Control(
            producer=fact.provenance.step,
            provenance=fact.provenance,
            confidence=fact.confidence,
            created_at=fact.provenance.observed_at,
            expires_at=fact.expires_at,
            policy_version=policy_version,
            rules_version=fact.provenance.rules_version or "",
            sensitivity=fact.sensitivity,
            allowed_use=fact.allowed_use,
            forbidden_use=fact.forbidden_use,
            seen={},  # a default that can be changed would be copied each time, at a fifth of the cost of all this
        ),
    )


def fingerprint(value: object) -> str:
    """Return a short hash of a value, to tell later whether another one says the same."""
    return digest(value)


class Output(Frozen):
    """A judgement that a step may or must bring, as the step declares it. A model gives it through a tool of its own."""

    key: Name
    kind: Kind = Kind.FINDING
    type: str = "text"
    """`text`, `integer`, `number`, `boolean`, `list` or `object`."""
    choices: tuple[Scalar, ...] = ()
    required: bool = True
    description: str = ""
    """What a model reads of it."""
    unit: str | None = None
    ttl_seconds: Annotated[float, Field(gt=0)] | None = None
    sensitivity: Sensitivity = Sensitivity.INTERNAL
    allowed_use: tuple[str, ...] = ()
    forbidden_use: tuple[str, ...] = ()
    needs_evidence: bool = True
    on_failure: OnFailure = OnFailure.FAIL


OUTPUT_TYPES = ("text", "integer", "number", "boolean", "list", "object")
"""What a judgement's value may be."""

_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "list": (list,),
    "object": (dict,),
}


def output_problem(output: Output, value: object) -> str:
    """Say why a value is not what the output declares, or nothing where it is."""
    if not isinstance(value, _TYPES[output.type]) or isinstance(value, bool) != (output.type == "boolean"):
        return f"must be {output.type}"
    if output.choices and not any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in output.choices):
        return f"must be one of: {', '.join(map(str, output.choices))}"
    try:
        _is_small(value)
    except ValueError as error:
        return str(error)
    return ""

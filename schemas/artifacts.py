"""Artifacts: what is too big for a field or a message, kept by its content and passed on as a reference.

The words, the pure functions over them, and the port; `ops.artifacts` keeps them. A reference is what crosses between steps
and what stands on the board. An id is made of the content's hash, so that the same content is the same artifact and nothing
that was changed or cut off passes for it. A *private* artifact has ids of its own kind: no step's brief ever carries one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, Self, TypeAlias

from pydantic import Field, StringConstraints, model_validator

from schemas.errors import InvalidValue, Unreadable, UnreadableArtifact
from schemas.frozen import Frozen
from schemas.limits import MAX_ARTIFACT_BYTES, MAX_ARTIFACT_SUMMARY_CHARACTERS, within

TEXT = "text/plain"
JSON = "application/json"
"""Both in UTF-8."""

_SHARED = "art_"
_PRIVATE = "prv_"
_DIGITS = 32
"""Of the hash in an id: short enough for a model to copy, and nobody finds another content for it."""
_ID = re.compile(rf"(?:{_SHARED}|{_PRIVATE})[0-9a-f]{{{_DIGITS}}}")
_LONGEST_HEADER = 16 * 1024

ArtifactId: TypeAlias = Annotated[str, StringConstraints(pattern=rf"^{_ID.pattern}$")]
"""`art_` or `prv_` and the first 32 hexadecimal digits of the content's SHA-256: no path, and no name that was chosen."""


class ArtifactRef(Frozen):
    """What stands for an artifact wherever it is passed on."""

    id: ArtifactId
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    media_type: Annotated[str, StringConstraints(pattern=r"^[ -~]{1,100}$")]
    size: Annotated[int, Field(ge=0)]
    """Bytes."""
    producer: str
    """The step that made it."""
    summary: Annotated[str, StringConstraints(max_length=MAX_ARTIFACT_SUMMARY_CHARACTERS)] = ""
    depends_on: Annotated[tuple[ArtifactId, ...], Field(max_length=32)] = ()
    """The artifacts that its maker had read."""

    @model_validator(mode="after")
    def _is_of_its_content(self) -> Self:
        if self.id[len(_SHARED) :] != self.sha256[:_DIGITS]:
            raise ValueError("the id is not made of the hash")
        return self

    @property
    def private(self) -> bool:
        """Whether it is a run's own record, which no agent is ever given."""
        return is_private(self.id)


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact whole: its reference and its content."""

    ref: ArtifactRef
    content: bytes

    @property
    def text(self) -> str:
        """The content as text.

        Raises:
            InvalidValue: it is not UTF-8.
        """
        try:
            return self.content.decode()
        except UnicodeDecodeError as error:
            raise InvalidValue(f"artifact {self.ref.id} ({self.ref.media_type}) is no text") from error


class ArtifactStore(Protocol):
    """The port: a few calls over opaque contents. Nothing is ever changed: other content is another artifact."""

    async def put(self, artifact: Artifact) -> None:
        """Keep an artifact. One that is there already is written again: its time begins anew, and damage to it is healed.

        Raises:
            Unavailable: the store is not there, or full.
        """
        ...

    async def read(self, artifact_id: str) -> Artifact:
        """Return an artifact whose content was compared with its id. The reference in it is that of whoever put it last.

        Raises:
            UnreadableArtifact: it is not there (any more), or not what was put.
            NotFound: that is no id.
            Unavailable: the store is not there.
        """
        ...

    async def delete(self, artifact_id: str) -> None:
        """Take an artifact away; one that is not there is no error.

        Raises:
            NotFound: that is no id.
            Unavailable: the store is not there.
        """
        ...

    async def sweep(self, limit: int = 1000) -> int:
        """Take away up to `limit` artifacts of each kind that are past their time, and return how many it were.

        Raises:
            Unavailable: the store is not there.
        """
        ...


def artifact_of(
    content: bytes, *, producer: str, media_type: str = TEXT, summary: str = "", depends_on: Sequence[str] = (), private: bool = False
) -> Artifact:
    """Return content as an artifact. `summary` is cut; the last 32 of `depends_on` count.

    Raises:
        LimitExceeded: the content is larger than an artifact may be.
    """
    within(len(content), MAX_ARTIFACT_BYTES, "an artifact")
    sha256 = hashlib.sha256(content).hexdigest()
    ref = ArtifactRef(
        id=(_PRIVATE if private else _SHARED) + sha256[:_DIGITS],
        sha256=sha256,
        media_type=media_type,
        size=len(content),
        producer=producer,
        summary=summary[:MAX_ARTIFACT_SUMMARY_CHARACTERS],
        depends_on=tuple(depends_on)[-32:],
    )
    return Artifact(ref, content)


def is_artifact_id(text: object) -> bool:
    """Whether that is an artifact's id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def is_private(artifact_id: str) -> bool:
    """Whether that is the id of a private artifact."""
    return artifact_id.startswith(_PRIVATE)


def pack(artifact: Artifact) -> bytes:
    """Return an artifact as it is kept: its reference as one line of JSON, then its content, so that neither is without the other."""
    return artifact.ref.to_json() + b"\n" + artifact.content


def unpack(artifact_id: str, data: bytes) -> Artifact:
    """Read a kept artifact back, and compare its content with its id.

    Raises:
        UnreadableArtifact: it was cut off or changed.
    """
    header, newline, content = data.partition(b"\n")
    try:
        if not newline or len(header) > _LONGEST_HEADER:
            raise Unreadable("its first line is no reference")
        ref = ArtifactRef.from_json(header)
    except Unreadable as error:
        raise UnreadableArtifact(artifact_id, f"what is kept under this id is no artifact: {error}") from error
    if len(content) != ref.size:
        raise UnreadableArtifact(artifact_id, f"it has {len(content):,} bytes, and had {ref.size:,}")
    if ref.id != artifact_id or hashlib.sha256(content).hexdigest() != ref.sha256:
        raise UnreadableArtifact(artifact_id, "its content is not what was put there")
    return Artifact(ref, content)

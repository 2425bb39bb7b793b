"""Artifacts in one run: what a step's agent may read, what it makes, and how a value that is too big becomes a reference.

A run reads what its brief carries and what it made itself, by id and in parts; anything else is refused, and a private artifact
never comes in here at all. Made by the worker line for each attempt; used by tools, by the specialist's loop and by black boxes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import regex
import structlog

from schemas.artifacts import TEXT, ArtifactRef, ArtifactStore, artifact_of, is_artifact_id
from schemas.errors import InvalidValue, LimitExceeded, NotPermitted, Unavailable, UnreadableArtifact
from schemas.facts import Fact
from schemas.limits import MAX_ARTIFACT_SUMMARY_CHARACTERS
from schemas.results import AgentResult
from workers import tokens
from workers.sentences import cut

VALUE_TOKENS = 2_000
"""What one value, and one part of an artifact that is read, may have; see `workers.tokens`."""
MAX_MADE = 100
"""Artifacts of one run: their references stand in its result."""
MAX_SOURCE_CHARACTERS = 500
"""What a fact says of its source's name."""
_CHARACTERS_A_TOKEN = 4

log = structlog.get_logger()

_CLUSTER = regex.compile(r"\X")


@dataclass(frozen=True, slots=True)
class Part:
    """Characters `start` to `end` of an artifact that has `total`."""

    ref: ArtifactRef
    text: str
    start: int
    end: int
    total: int


class RunArtifacts:
    """One run's artifacts. Without a store nothing is made, read or turned into a reference."""

    def __init__(
        self,
        store: ArtifactStore | None = None,
        *,
        producer: str = "",
        given: Iterable[ArtifactRef] = (),
        value_tokens: int = VALUE_TOKENS,
    ) -> None:
        self._store = store
        self._producer = producer
        self._known = {ref.id: ref for ref in given if not ref.private}
        self._made: dict[str, ArtifactRef] = {}
        self._read: dict[str, None] = {}
        self._last: tuple[ArtifactRef, str] | None = None
        self.value_tokens = value_tokens
        self.trouble: UnreadableArtifact | Unavailable | None = None
        """Why the store gave or took nothing the last time; a run that could not read what it was given has failed."""
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = None

    @property
    def open(self) -> bool:
        """Whether there is a store."""
        return self._store is not None

    @property
    def made(self) -> tuple[ArtifactRef, ...]:
        """What this run has made, in that order."""
        return tuple(self._made.values())

    @property
    def readable(self) -> bool:
        """Whether there is anything to read."""
        return self.open and bool(self._known or self._made)

    def ref(self, artifact_id: object) -> ArtifactRef | None:
        """Return the reference of an artifact that this run may read."""
        if not isinstance(artifact_id, str):
            return None
        return self._made.get(artifact_id) or self._known.get(artifact_id)

    def too_big(self, text: str) -> bool:
        """Whether a text is over the limit of a value."""
        longest = self.value_tokens * _CHARACTERS_A_TOKEN
        return self.open and (len(text) > longest or (len(text) > self.value_tokens and tokens.estimate(text) > self.value_tokens))

    async def put(
        self, content: str | bytes, *, media_type: str = TEXT, summary: str = "", depends_on: Sequence[str] | None = None
    ) -> ArtifactRef:
        """Keep content and return its reference.

        Without a `summary` a text's beginning is it; without `depends_on` it is what this run has read so far.

        Raises:
            LimitExceeded: too large, or too many of one run.
            InvalidValue: a text that is no Unicode.
            Unavailable: the store is not there, or there is none.
        """
        if self._store is None:
            raise Unavailable("this run has no artifact store")
        data = content if isinstance(content, bytes) else _encoded(content)
        told = summary if summary or isinstance(content, bytes) else content[: 4 * MAX_ARTIFACT_SUMMARY_CHARACTERS]
        artifact = artifact_of(
            data,
            producer=self._producer,
            media_type=media_type,
            summary=_encoded(cut(told, MAX_ARTIFACT_SUMMARY_CHARACTERS)).decode(),
            depends_on=tuple(self._read) if depends_on is None else depends_on,
        )
        if artifact.ref.id not in self._made and len(self._made) >= MAX_MADE:
            raise LimitExceeded(f"a run makes at most {MAX_MADE} artifacts")
        try:
            await self._store.put(artifact)
        except Unavailable as error:
            self.trouble = error
            raise
        return self._made.setdefault(artifact.ref.id, artifact.ref)

    def put_from_thread(self, content: str | bytes, *, media_type: str = TEXT, summary: str = "") -> ArtifactRef:
        """Do what `put` does, for a tool that is a plain function: those run in a thread of their own. Raises what `put` raises."""
        if self._loop is None:
            raise Unavailable("this run has no artifact store")
        return asyncio.run_coroutine_threadsafe(self.put(content, media_type=media_type, summary=summary), self._loop).result()

    async def read(self, artifact_id: str, start: int = 0, length: int | None = None) -> Part:
        """Return characters of an artifact from `start`: `length` of them, or as many as a value may have.

        It ends where the artifact ends or the limit is reached, never inside what a reader sees as one character. A start past
        the end gives no text.

        Raises:
            NotPermitted: neither the brief carries it nor this run made it.
            UnreadableArtifact: it is gone, or damaged.
            InvalidValue: it is no text.
            Unavailable: the store is not there.
        """
        ref = self.ref(artifact_id)
        if ref is None or self._store is None:
            raise NotPermitted(f"no artifact {artifact_id[:100]!r} was given to this task")
        text = await self._text(ref)
        start = min(max(0, start), len(text))
        end = _end(text, start, length, self.value_tokens)
        self._read[ref.id] = None
        return Part(ref, text[start:end], start, end, len(text))

    async def _text(self, ref: ArtifactRef) -> str:
        if self._last is not None and self._last[0].id == ref.id:  # a model reads on where it stopped
            return self._last[1]
        assert self._store is not None
        try:
            artifact = await self._store.read(ref.id)
            if artifact.ref.sha256 != ref.sha256:
                raise UnreadableArtifact(ref.id, "its content is not what the reference says")
        except (UnreadableArtifact, Unavailable) as error:
            self.trouble = error
            raise
        self._last = ref, artifact.text
        return self._last[1]


NO_ARTIFACTS = RunArtifacts()
"""Those of a run without a store."""


async def unreadable_among(store: ArtifactStore | None, refs: Iterable[ArtifactRef]) -> frozenset[str]:
    """Return the ids of those that the store does not have (any more), or has damaged. Each is read whole, so that its hash counts.

    Raises:
        Unavailable: the store is not there.
    """
    found: set[str] = set()
    for ref in refs:
        try:
            whole = None if store is None else await store.read(ref.id)
        except UnreadableArtifact as error:
            log.warning("artifact_unreadable", artifact=ref.id, reason=error.why)
            found.add(ref.id)
        else:
            if whole is not None and whole.ref.sha256 != ref.sha256:
                found.add(ref.id)
    return frozenset(found)


async def by_reference(result: AgentResult, run: RunArtifacts) -> AgentResult:
    """Return a result that holds nothing big: a text over the limit is kept as an artifact, and the fact says which.

    A fact whose value is the id of an artifact that this run may read gets its reference; what an agent itself wrote as
    reference counts for nothing. Without a store the result stays as it is, but for such references.

    Raises:
        LimitExceeded: a value that is too large even for an artifact, or too many of them.
        InvalidValue: a text that is no Unicode.
        Unavailable: the store is not there.
    """
    if run.made == result.artifacts and all(_stays(fact, run) for fact in (*result.facts, *result.superseded)):
        return result
    facts = tuple([await _by_reference(fact, run) for fact in result.facts])
    superseded = tuple([await _by_reference(fact, run) for fact in result.superseded])
    return result.model_copy(update={"facts": facts, "superseded": superseded, "artifacts": run.made})


def _stays(fact: Fact, run: RunArtifacts) -> bool:
    """Whether there is nothing to do about a fact, which is the usual case."""
    value, source = fact.value, fact.provenance.source_ref
    short = not isinstance(value, str) or (len(value) <= run.value_tokens and not is_artifact_id(value))
    return short and fact.artifact is None and (source is None or len(source) <= MAX_SOURCE_CHARACTERS)


async def _by_reference(fact: Fact, run: RunArtifacts) -> Fact:
    value, ref = fact.value, run.ref(fact.value)
    if isinstance(value, str) and run.too_big(value):
        ref = await run.put(value)
        value = ref.id
    changes: dict[str, object] = {} if ref == fact.artifact else {"value": value, "artifact": ref}
    source = fact.provenance.source_ref
    if source is not None and len(source) > MAX_SOURCE_CHARACTERS:  # a name of a source, not the source
        changes["provenance"] = fact.provenance.model_copy(update={"source_ref": cut(source, MAX_SOURCE_CHARACTERS)})
    return fact.model_copy(update=changes) if changes else fact


def _end(text: str, start: int, length: int | None, limit: int) -> int:
    """Where a part ends: within length and limit, and between two characters as a reader sees them."""
    longest = limit * _CHARACTERS_A_TOKEN
    low, high = start, min(len(text), start + (longest if length is None else max(0, min(length, longest))))
    while low < high:  # the estimate grows with the text
        middle = (low + high + 1) // 2
        if tokens.estimate(text[start:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return _between_clusters(text, start, low)


def _between_clusters(text: str, start: int, end: int) -> int:
    if not start < end < len(text):
        return end
    near = max(start, end - 64)
    last = near
    for match in _CLUSTER.finditer(text, near):
        if match.end() > end:
            break
        last = match.end()
    return last if last > start else end  # one that is longer than the part is cut all the same: else nobody gets past it


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValue(f"the text is no Unicode (character {error.start})") from error

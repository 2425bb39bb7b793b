"""Evidence: what a judgement or a change may say that it rests on, and how a name of it becomes a reference that resolves. Pure.

A model names what it sees: keys of facts and judgements, labels of shared fields, ids of material. What comes out says whose
it is and of which version. Called while an agent runs, and again when its result is accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from schemas import fields
from schemas.artifacts import is_artifact_id, is_private
from schemas.errors import InvalidValue
from schemas.facts import Fact
from schemas.packets import Evidence
from schemas.results import AgentResult
from workers.agents.agent import AgentBrief

MAX_EVIDENCE = 50
"""References of one judgement or change."""


@dataclass(frozen=True, slots=True)
class Grounds:
    """What evidence may name in one run: what stands in its brief, and the facts and artifacts that it made itself."""

    brief: AgentBrief
    own: Mapping[str, Fact] = field(default_factory=dict)
    """Key -> fact that was copied from a tool return of this run."""
    made: frozenset[str] = frozenset()
    """Ids of artifacts that this run made."""

    def resolve(self, texts: Iterable[str]) -> tuple[Evidence, ...]:
        """Return what these names refer to; a key that several steps gave stands for all of them.

        Raises:
            InvalidValue: naming the first that refers to nothing here, or more than there may be.
        """
        found = dict.fromkeys(each for text in texts for each in self._resolved(text))
        if len(found) > MAX_EVIDENCE:
            raise InvalidValue(f"names {len(found)} pieces of evidence, the limit is {MAX_EVIDENCE}")
        return tuple(found)

    def again(self, evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
        """Return references that an agent gave as they are here: of the versions that its brief carried.

        Raises:
            InvalidValue: as `resolve`.
        """
        return self.resolve(str(each) if is_artifact_id(each.ref) else each.ref for each in evidence)

    def named(self, text: str) -> tuple[str, ...]:
        """Return the facts and judgements of the brief that a key, or `step.key`, stands for."""
        names = (*self.brief.facts, *self.brief.packets)
        return tuple(dict.fromkeys(name for name in names if text in (name, name.partition(".")[2])))

    def is_readable(self, artifact_id: object) -> bool:
        """Whether the run was given that artifact, or made it."""
        if not (isinstance(artifact_id, str) and is_artifact_id(artifact_id)) or is_private(artifact_id):
            return False
        given = {fact.artifact.id for fact in self.brief.facts.values() if fact.artifact is not None}
        given |= {each.payload for each in self.brief.packets.values() if isinstance(each.payload, str)}
        return artifact_id in given or artifact_id in self.made or self.brief.artifacts.ref(artifact_id) is not None

    def source(self, evidence: Iterable[Evidence]) -> str:
        """Return where a value with this evidence comes from: the origin that the first of it names, else itself."""
        for each in evidence:
            step, _, key = each.ref.partition(".")
            fact = self.brief.facts.get(each.ref) or (self.own.get(key) if step == self.brief.step_id else None)
            return fact.provenance.source_ref or each.ref if fact is not None else each.ref
        return ""

    @property
    def names(self) -> tuple[str, ...]:
        """What a model may name, as it sees it."""
        keys = [name.partition(".")[2] for name in (*self.brief.facts, *self.brief.packets)]
        return tuple(dict.fromkeys([*keys, *self.own, *(self._label(name) for name in self.brief.shared)]))

    def _label(self, shared: str) -> str:
        card = self.brief.cards.get(shared)
        return shared if card is None else card.title

    def _resolved(self, text: str) -> list[Evidence]:
        text = text.strip()
        artifact, _, items = text.partition("#")
        if is_artifact_id(artifact):
            if not self.is_readable(artifact):
                raise InvalidValue(f"no material {artifact!r} was given to this task")
            return [Evidence(ref=artifact, items=tuple(each.strip() for each in items.split(",") if each.strip()))]
        found = [Evidence(ref=name, version=self._version(name)) for name in self.named(text)]
        shared = [fields.shared(name) for name in self.brief.shared if text in (fields.shared(name), name, self._label(name))]
        found += [Evidence(ref=name, version=self._version(name)) for name in shared]
        own = text.removeprefix(f"{self.brief.step_id}.")
        if own in self.own:
            found.append(Evidence(ref=f"{self.brief.step_id}.{own}"))
        if not found:
            known = f"; there are: {', '.join(self.names[:20])}" if self.names else ""
            raise InvalidValue(f"nothing here is called {text[:100]!r}{known}")
        return found

    def _version(self, name: str) -> str | None:
        read = self.brief.reads.get(name)
        return None if read is None else read.version


def grounds_of(brief: AgentBrief, result: AgentResult) -> Grounds:
    """Return what the evidence of a finished run may name."""
    return Grounds(brief, {fact.key: fact for fact in result.facts}, frozenset(ref.id for ref in result.artifacts))

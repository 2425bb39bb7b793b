"""Requests built by hand: fields with versions, positions and times, looked at as the orchestrator would see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.advancing import advance
from orchestrator.causes import Cause, ResultCame
from orchestrator.decisions import Change, Decision, RingTask
from orchestrator.views import Outline, View, view_of
from schemas import fields
from schemas.agents import AgentCard
from schemas.blackboard import ABSENT, Snapshot, Stored
from schemas.facts import Fact, Provenance
from schemas.frozen import Frozen
from schemas.plans import Step
from schemas.requests import PlanRecord, RequestRecord, RequestStatus, StatusRecord, StepRecord, StepState
from schemas.results import AgentResult, Failure, ResultStatus
from schemas.teams import TeamCard

RETENTION_SECONDS = 604_800
OPENED_AT_MS = 1_000_000
DEADLINE_MS = 3_600_000

AGENTS = {name: AgentCard(name=name, tools=("look", "ask"), facts={"out": ("look",), "more": ("ask",)}) for name in ("ann", "bob")}


def step(id: str, *depends_on: str, **rest: Any) -> Step:
    """A step of agent `ann`, unless another is named."""
    return Step.model_validate({"id": id, "title": f"Title of {id}", "agent": "ann", "task": "Do it.", "depends_on": depends_on, **rest})


def result(step_id: str, text: str = "", *, steps: Iterable[Step] = (), agent: str = "ann") -> AgentResult:
    """A completed result with the fact `out`."""
    fact = Fact(key="out", value=step_id, provenance=Provenance(step=step_id, tool="look", call_id="1", path="out"))
    return AgentResult(
        agent=agent,
        step_id=step_id,
        status=ResultStatus.COMPLETED,
        summary=text or f"Text of {step_id}.",
        facts=(fact,),
        steps=tuple(steps),
    )


@dataclass
class Request:
    """One request on the board. Every `put` is a write of its own: it moves position and version."""

    steps: tuple[Step, ...] = ()
    id: str = "r-1"
    now_ms: int = OPENED_AT_MS
    position: int = 0
    stored: dict[str, Stored] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)
    on_call: tuple[Step, ...] = ()

    def put(self, records: Mapping[str, Frozen]) -> Request:
        """Write some fields at once."""
        self.position += 1
        for name, record in records.items():
            count = int(self.version(name).partition(".")[0]) + 1
            self.stored[name] = Stored(record.to_json(), f"{count}.{self.position:06d}", self.position, self.now_ms)
        return self

    def opened(self, status: RequestStatus = RequestStatus.ACCEPTED, *, deadline_ms: int = DEADLINE_MS, language: str = "en") -> Request:
        """As the producer leaves it."""
        record = RequestRecord(id=self.id, tenant="t", team="team", text="Please.", idempotency_key="k", content_sha256="0" * 64)
        card = TeamCard.model_validate(
            {"name": "team", "agents": AGENTS, "steps": self.steps, "on_call": self.on_call, "language": language}
        )
        return self.put({fields.REQUEST: record, fields.CARD: card, fields.STATUS: StatusRecord(status=status, deadline_ms=deadline_ms)})

    def planned(self, *, deadline_ms: int = DEADLINE_MS) -> Request:
        """As the orchestrator leaves it: every step pending."""
        if not self.stored:
            self.opened(deadline_ms=deadline_ms)
        running = StatusRecord(status=RequestStatus.RUNNING, deadline_ms=deadline_ms)
        plan = PlanRecord(steps=tuple(each.id for each in self.steps))
        records = {fields.step(each.id): StepRecord(state=StepState.PENDING, agent=each.agent) for each in self.steps}
        definitions = {fields.definition(each.id): each for each in self.steps}
        return self.put({fields.PLAN: plan, fields.STATUS: running, **definitions, **records})

    def status(self, status: RequestStatus, *, replays: int = 0) -> Request:
        """Write a status."""
        return self.put({fields.STATUS: StatusRecord(status=status, deadline_ms=DEADLINE_MS, replays=replays)})

    def is_at(self, step_id: str, state: StepState, *, of: AgentResult | None = None, lease_ms: int = 0, **rest: Any) -> Request:
        """Write a step's record, and its result where there is one."""
        agent = next((each.agent for each in self.steps if each.id == step_id), "ann")
        puts: dict[str, Frozen] = {fields.step(step_id): StepRecord.model_validate({"state": state, "agent": agent, **rest})}
        if of is not None:
            puts[fields.result(step_id)] = of
        self.put(puts)
        if lease_ms:
            self.leases[step_id] = self.now_ms + lease_ms
        return self

    def completed(self, step_id: str, text: str = "", *, steps: Iterable[Step] = (), **rest: Any) -> Request:
        """Complete a step."""
        return self.is_at(step_id, StepState.COMPLETED, of=result(step_id, text, steps=steps), **rest)

    def failed(self, step_id: str, code: str = "AGENT_ERROR", **rest: Any) -> Request:
        """Fail a step."""
        return self.is_at(step_id, StepState.FAILED, failure=Failure(code=code, description="it broke"), **rest)

    def running(self, step_id: str, *, lease_ms: int = 5_000, **rest: Any) -> Request:
        """Let somebody hold a step."""
        return self.is_at(step_id, StepState.RUNNING, lease_ms=lease_ms, attempt=1, **rest)

    def later(self, milliseconds: int) -> Request:
        """Let time pass."""
        self.now_ms += milliseconds
        return self

    def version(self, name: str) -> str:
        """A field's version now."""
        return self.stored[name].version if name in self.stored else ABSENT

    def view(self, *names: str, outline: Outline | None = None) -> View:
        """What a read of these fields sees; all there are where none is named. `outline` is what was kept of the plan."""
        asked = frozenset(names or (*self.stored, fields.PLAN, *map(fields.result, (each.id for each in self.steps))))
        found = {name: self.stored[name] for name in asked if name in self.stored}
        return view_of(Snapshot(self.id, found, self.now_ms, self.position, dict(self.leases), asked), outline)

    def after(self, cause: Cause) -> Decision:
        """What `advance` says once it has read all it asks for."""
        asked = [*self.stored, fields.PLAN]
        while True:
            decision = advance(self.view(*asked), cause, retention_seconds=RETENTION_SECONDS)
            if not decision.read_more:
                return decision
            asked += decision.read_more

    def change(self, cause: Cause) -> Change:
        """The write that follows from a cause."""
        decision = self.after(cause)
        assert decision.change is not None, decision
        return decision.change

    def result_came(self, step_id: str, state: StepState = StepState.COMPLETED, **rest: Any) -> ResultCame:
        """The bell of a step's end, as its worker would ring it now."""
        agent = next((each.agent for each in self.steps if each.id == step_id), "ann")
        said: dict[str, Any] = {
            "epoch": 0,
            "version": self.version(fields.step(step_id)),
            "sender": agent,
            "recipient": "orchestrator",
            "message_id": "m-1",
        }
        return ResultCame(step_id, state=state, **{**said, **rest})


def rung(decision: Decision | Change) -> list[str]:
    """The steps whose agents are told, in order."""
    return [ring.step_id for ring in decision.rings if isinstance(ring, RingTask)]

"""Random boundaries on top of a random plan: shared fields, supersteps, state machines, claims, confirmations, and who asks first."""

from __future__ import annotations

from random import Random
from typing import Any

from schemas import fields
from schemas.facts import Fact, Provenance
from schemas.gate import May
from schemas.packets import Control, Evidence, Kind, OnFailure, Output, Packet
from schemas.plans import Step, ancestors
from schemas.results import AgentResult
from schemas.shared import FieldCard, FieldChange, Operation, Transition
from workers.agents.agent import AgentBrief

TONES = ("amber", "beech", "cedar")
"""What agents say where they often say the same: the facts `tone`, findings, claims."""
SHARE = 0.17
"""Of the ordinary worlds, how many have shared fields and a person at the desk."""
SUM, LIST, SET, CLAIM, OFFER, VERDICT, SAID = "total", "found", "names", "claimed", "offer", "verdict", "told"
MERGED = (SUM, LIST, SET, CLAIM)
GUESS, ORDER, WITHDRAWAL = "guess", "order", "withdrawal"


def shared_by(random: Random, steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], tuple[FieldCard, ...]]:
    """Give steps something to do with shared fields; return them with the fields."""
    more: dict[str, dict[str, Any]] = {step.id: {} for step in steps}
    free = _supersteps(random, steps, more)
    random.shuffle(free)
    keepers = {name: free.pop() for name in (OFFER, VERDICT, CLAIM, SAID) if free and random.random() < 0.7}
    cards = _cards(random, *map(keepers.get, (OFFER, VERDICT, CLAIM, SAID)))
    for step in steps:
        _draw(random, step, more[step.id], cards, steps)
    for name, keeper in keepers.items():
        drawn = more[keeper]
        drawn["writes"] = (*drawn.get("writes", ()), name)
        if name in (CLAIM, SAID) or random.random() < 0.5:
            drawn["reads"] = tuple(dict.fromkeys((*drawn.get("reads", ()), name)))
    for step in steps:
        _confirm(random, step, more)
    for each in more.values():
        each["writes"] = tuple(dict.fromkeys(each.get("writes", ())))
    return tuple(step.model_copy(update=more[step.id]) for step in steps), tuple(cards.values())


def _supersteps(random: Random, steps: tuple[Step, ...], more: dict[str, dict[str, Any]]) -> list[str]:
    """Draw one superstep, now and then two; return the steps that are in none."""
    every = {step.id: step for step in steps}
    free = list(every)
    for name in ("search", "weigh")[: random.choice((1, 1, 2))]:
        members: list[str] = []
        for step in random.sample(free, len(free)):
            if len(members) < 3 and all(step not in ancestors(each, every) and each not in ancestors(step, every) for each in members):
                members.append(step)
        if len(members) < 2 or not _in_a_row(steps, more, members):
            continue
        for step in members[: random.choice((2, 3))]:
            more[step] |= {"superstep": name, "writes": tuple(random.sample(MERGED, random.choice((1, 2, 3))))}
            free.remove(step)
    return free


def _in_a_row(steps: tuple[Step, ...], more: dict[str, dict[str, Any]], members: list[str]) -> bool:
    """Whether no other superstep stands both above and below these: the two would wait for each other."""
    every = {step.id: step for step in steps}
    others = [step for step, drawn in more.items() if "superstep" in drawn]
    above = any(each in ancestors(member, every) for member in members for each in others)
    below = any(member in ancestors(each, every) for member in members for each in others)
    return not (above and below)


def _cards(random: Random, owner: str | None, verdict: str | None, arbiter: str | None, teller: str | None) -> dict[str, FieldCard]:
    cards = [
        FieldCard(name=SUM, type="integer", reducer="sum", capacity=random.choice((None, 20, 40))),
        FieldCard(name=LIST, type="list", members={"value": "text"}, reducer="append"),
        FieldCard(name=SET, type="list", members={"value": "text"}, reducer="union"),
        FieldCard(name=CLAIM, type="text", reducer="agree", arbiter=arbiter),
    ]
    if verdict is not None:
        cards.append(FieldCard(name=VERDICT, type="text", owner=verdict))
    if owner is not None:
        when: dict[str, Any] = {VERDICT: "pass"} if verdict is not None else {}
        moves = (
            Transition(source=None, target="draft", by=(owner,)),
            Transition(source="draft", target="approved", by=(owner,), when=when),
            Transition(source="draft", target="dropped", by=(owner,)),
        )
        members = {"note": "text", "state": "text"}
        cards.append(FieldCard(name=OFFER, type="object", members=members, owner=owner, state_key="state", transitions=moves))
    if teller is not None:
        cards.append(FieldCard(name=SAID, type="text", owner=teller, protected=True))
    return {card.name: card for card in cards}


def _draw(random: Random, step: Step, more: dict[str, Any], cards: dict[str, FieldCard], steps: tuple[Step, ...]) -> None:
    more["on_failure"] = random.choice((OnFailure.FAIL, OnFailure.RECHECK, OnFailure.RECHECK, OnFailure.GAP, OnFailure.PERSON))
    more["on_stale"] = random.choice(("rerun", "rerun", "rerun", "rollback", "person"))
    if step.needs is not None:
        more["needs"] = tuple(need.replace(".out", ".tone") if random.random() < 0.6 else need for need in step.needs)
    if random.random() < 0.12:
        more |= {"may": May.COMMIT, "irreversible": random.random() < 0.7}
    outputs = [Output(key=GUESS, kind=Kind.FINDING, required=False)] if random.random() < 0.3 else []
    outputs += [Output(key=ORDER, kind=Kind.ACTION_REQUEST, required=False)] if random.random() < 0.06 else []
    outputs += [Output(key=WITHDRAWAL, kind=Kind.RETRACTION, required=False)] if step.depends_on and random.random() < 0.06 else []
    more["outputs"] = tuple(outputs)
    if "superstep" in more:
        return
    if random.random() < 0.25:
        more["writes"] = tuple(random.sample(MERGED, 1))
    if random.random() < 0.5:
        more["reads"] = tuple(random.sample(sorted(cards), min(len(cards), random.choice((1, 2)))))


def _confirm(random: Random, step: Step, more: dict[str, dict[str, Any]]) -> None:
    """Now and then a step says again, from a source of its own, what a step before it has concluded; or needs what was concluded."""
    judged = [each for each in step.depends_on if any(output.key == GUESS for output in more[each]["outputs"])]
    if not judged:
        return
    if random.random() < 0.4:
        more[step.id]["confirms"] = {"tone": f"{random.choice(judged)}.{GUESS}"}
    if step.needs is not None and random.random() < 0.5:
        more[step.id]["needs"] = (*more[step.id]["needs"], f"{random.choice(judged)}.{GUESS}?")


def sharing(result: AgentResult, brief: AgentBrief, random: Random) -> AgentResult:
    """Return the result with what its agent says besides: the tone, judgements, and what it wants of shared fields."""
    step, call = brief.step, f"call-{random.randrange(10**6)}"
    tone = Fact(
        key="tone",
        value=random.choice(TONES),
        confidence=random.choice((1.0, 1.0, 1.0, 0.85, 0.4)),
        provenance=Provenance(step=step.id, tool="palette", call_id=call, path="tone"),
    )
    packets = tuple(each for output in step.outputs for each in _judged(output, brief, random))
    changes = tuple(each for name in step.writes if random.random() < 0.9 for each in _wanted(name, brief, random))
    if random.random() < 0.05:
        how = random.choice((Operation.PROPOSE, Operation.SET))  # a wish, or what is not its to write
        changes = (*changes, FieldChange(field=OFFER, operation=how, value={"note": random.choice(TONES), "state": "draft"}))
    return result.model_copy(update={"facts": (*result.facts, tone), "packets": packets, "changes": changes})


def _judged(output: Output, brief: AgentBrief, random: Random) -> tuple[Packet, ...]:
    payload, chance = random.choice(TONES), random.random()
    if output.kind is Kind.RETRACTION:
        read = sorted(name for name in brief.facts if name.endswith((".out", ".tone")))
        if not read or chance < 0.5:
            return ()
        payload = random.choice(read)
    control = Control(producer=brief.step_id, reason="it looks wrong", evidence=(Evidence(ref=f"{brief.step_id}.out"),))
    return (Packet(kind=output.kind, key=output.key, payload=payload, control=control),) if chance < 0.8 else ()


def _wanted(name: str, brief: AgentBrief, random: Random) -> tuple[FieldChange, ...]:
    """What a step wants of a field that it writes; now and then more than the field may take."""
    read = brief.reads.get(fields.shared(name))
    seen = None if read is None else read.version
    if name == CLAIM and CLAIM in brief.shared:  # who reads it and writes it settles it
        if brief.shared[CLAIM] != "":
            return ()
        return (FieldChange(field=name, operation=Operation.SETTLE, value=random.choice(TONES), seen=seen),)
    match name:
        case "offer":
            offer: dict[str, Any] = {"note": random.choice(TONES), "state": random.choice(("draft", "draft", "approved", "dropped"))}
            return (FieldChange(field=name, operation=Operation.SET, value=offer, seen=seen),)
        case "verdict":
            return (FieldChange(field=name, operation=Operation.SET, value=random.choice(("pass", "block")), seen=seen),)
        case "told":
            said = {"value": random.choice(TONES), "channel": "chat", "approval": "the rules"}
            return (FieldChange(field=name, operation=Operation.SET, seen=seen or "0", **said),)
        case "total":
            values: list[Any] = [random.randint(1, 15) for _ in range(random.choice((1, 1, 2)))]
        case "claimed":
            values = [random.choice(TONES)]
        case _:
            values = [random.choice(TONES) for _ in range(random.choice((1, 2)))]
    source = random.choice(("the page", f"source of {brief.step.title}"))
    return tuple(FieldChange(field=name, operation=Operation.ADD, value=each, source=source) for each in values)

"""Deliberate mistakes at the boundary: absorbing, retracting, rechecking and briefing without one of their rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from orchestrator import absorbing, acting, desk, merging, retracting, scheduling
from orchestrator.advancing import advance
from orchestrator.decisions import Change, Decision
from orchestrator.scheduling import Standing
from orchestrator.views import Outline, View
from schemas import fields, reducers
from schemas.shared import FieldCard, FieldChange, FieldRecord, check_change
from workers import gating, preparing


def _changed(where: Any, name: str, change: Callable[[View, Change], Change]) -> Any:
    """A decision of the orchestrator whose write is another one."""
    original = getattr(where, name)

    def mutated(view: View, *args: Any) -> Decision | None:
        decision: Decision | None = original(view, *args)
        if decision is None or decision.change is None:
            return decision
        return dataclasses.replace(decision, change=change(view, decision.change))

    return patch.object(where, name, mutated)


@contextmanager
def _all(*contexts: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def _without(change: Change, name: str) -> Change:
    return dataclasses.replace(change, put={field: value for field, value in change.put.items() if field != name})


def absorbed_without_the_barrier() -> Any:
    """Each member is taken in when it has ended."""
    original = absorbing._groups

    def mutated(view: View, outline: Outline, standing: Mapping[str, Standing]) -> Any:
        yield from original(view, outline, standing)
        for step in outline.graph.order:
            ended = standing[step] in (Standing.COMPLETED, Standing.FAILED)
            if ended and step in outline.graph.absorbing and not absorbing.is_absorbed(view, step):
                yield [step]

    return patch.object(absorbing, "_groups", mutated)


def absorbed_in_the_order_of_arrival() -> Any:
    return _all(patch.object(merging, "in_order", list), patch.object(reducers, "in_order", list))


def dependants_rung_before_the_end_is_taken_in() -> Any:
    return patch.object(scheduling, "_as_input", lambda step, state, outline, absorbed: state)


def older_contributions_are_kept() -> Any:
    return patch.object(absorbing, "_withdraw_older", lambda work, step: None)


def skipped_members_contribute() -> Any:
    """What a step had added that will not run again is kept."""
    original = absorbing._is_left

    def mutated(view: View, step: str, standing: Standing) -> bool:
        return standing is not Standing.SKIPPED and original(view, step, standing)

    return patch.object(absorbing, "_is_left", mutated)


def sum_over_its_limit() -> Any:
    return patch.object(merging, "_within_capacity", lambda work, card, claims: claims)


def contested_values_are_chosen_from() -> Any:
    return patch.object(merging, "is_contested", lambda claims: False)


def anybody_writes_a_field() -> Any:
    """Neither its owner nor its state machine is asked."""
    original = check_change

    def mutated(cards: Mapping[str, FieldCard], change: FieldChange, step: str, writes: tuple[str, ...]) -> None:
        card = cards.get(change.field)
        original(cards, change, step if card is None or card.owner is None else card.owner, writes)

    return _all(patch.object(absorbing, "check_change", mutated), patch.object(absorbing, "check_transition", lambda *_: None))


def no_state_machine() -> Any:
    return patch.object(absorbing, "check_transition", lambda *_: None)


def contested_values_are_passed() -> Any:
    original = gating.shared_offer

    def mutated(step: Any, card: Any, record: FieldRecord, version: str) -> Any:
        return dataclasses.replace(original(step, card, record, version), contested=False)

    return patch.object(gating, "shared_offer", mutated)


def withdrawn_values_are_briefed() -> Any:
    original = gating._offers

    def mutated(*args: Any) -> Any:
        for offer, *rest in original(*args):
            yield (dataclasses.replace(offer, retracted=""), *rest)

    return patch.object(gating, "_offers", mutated)


def what_a_failed_step_had_said_is_briefed() -> Any:
    return patch.object(preparing, "_is_completed", lambda *_: True)


def retraction_without_the_status() -> Any:
    """A claim that was decided on before lands after it."""
    return _changed(retracting, "retract", lambda view, change: change if view.status.status.over else _without(change, fields.STATUS))


def nothing_is_found_stale() -> Any:
    return patch.object(retracting, "follow", lambda *_: None)


def stale_found_by_the_version_alone() -> Any:
    """What says otherwise than before is overlooked where it was not withdrawn itself."""
    original = retracting._outdated

    def mutated(view: View, standing: Mapping[str, Standing], name: str, read: Any) -> str:
        why: str = original(view, standing, name, read)
        return why if "withdrawn" in why else ""

    return patch.object(retracting, "_outdated", mutated)


def rechecked_again_and_again() -> Any:
    """The second time as well, a third is let off."""
    original = retracting.recheck

    def mutated(view: View, outline: Outline, standing: Mapping[str, Standing]) -> Any:
        if len(view.absorbed.rechecked) > 3 or fields.ABSORBED not in view.stored:
            return original(view, outline, standing)
        record = view.absorbed.model_copy(update={"rechecked": ()})
        stored = view.stored[fields.ABSORBED]._replace(value=record.to_json())
        return original(dataclasses.replace(view, stored={**view.stored, fields.ABSORBED: stored}), outline, standing)

    return patch.object(retracting, "recheck", mutated)


def recheck_looks_at_nobody_else() -> Any:
    return patch.object(retracting, "_may_recheck", lambda _: False)


def decision_that_is_not_kept() -> Any:
    return _changed(desk, "decide", lambda _, change: _without(change, fields.BOUNDARY))


def commands_that_mean_whatever_is_there_by_now() -> Any:
    """Neither the version that was seen nor how often the request went on is asked for."""
    original = advance

    def mutated(view: View, cause: Any, **named: Any) -> Decision:
        if hasattr(cause, "version") and not hasattr(cause, "state"):
            cause = dataclasses.replace(cause, version="")
        elif hasattr(cause, "rules"):
            cause = dataclasses.replace(cause, replays=None)
        return original(view, cause, **named)

    return patch.object(acting, "advance", mutated)


AT_THE_BOUNDARY: tuple[Callable[[], Any], ...] = (
    absorbed_without_the_barrier,
    absorbed_in_the_order_of_arrival,
    dependants_rung_before_the_end_is_taken_in,
    older_contributions_are_kept,
    skipped_members_contribute,
    sum_over_its_limit,
    contested_values_are_chosen_from,
    anybody_writes_a_field,
    no_state_machine,
    contested_values_are_passed,
    withdrawn_values_are_briefed,
    what_a_failed_step_had_said_is_briefed,
    retraction_without_the_status,
    nothing_is_found_stale,
    stale_found_by_the_version_alone,
    rechecked_again_and_again,
    recheck_looks_at_nobody_else,
    decision_that_is_not_kept,
)

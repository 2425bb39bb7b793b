"""The list of all crash points, each beside the story that reaches it. A new durable step belongs here; a test says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ops.crash_points import AFTER, BEFORE
from tests.crash.running import Trial

_WORKER: dict[str, tuple[str, ...]] = {
    "chain": (
        *("write:step_claimed", "write:step_completed", "publish:result_ready", "ack:task"),
        *("write:step_to_be_retried", "mark:step"),
        "write:step_claimed:2",  # of a step that it went on with by itself
    ),
    "diamond": ("publish:task",),
    "dropped": ("publish:result_failed", "publish:letter"),
    "failed": ("dead_add:letter", "write:step_failed", "declare:agent"),
    "late": ("write:late_result_refused",),
    "long": ("renew:lease", "mark:step", "leave:step", "resize:credit", "ack:task_early"),
    "handed_back": ("write:step_handed_back",),
    "strayed": ("enter:step", "enter:request", "park:task"),
}
_ORCHESTRATOR: dict[str, tuple[str, ...]] = {
    "chain": ("write:plan_written", "declare:agent", "publish:task", "ack:submit", "ack:result_ready", "due:marks", "settle:step_away"),
    "diamond": ("write:request_completed", "publish:request"),
    "replayed": ("write:step_replayed", "dead_remove:letter", "ack:replay"),
    "replayed_later": ("mark:request", "write:step_replayed", "enter:request:2", "dead_remove:letter", "publish:task:2", "enter:request:3"),
    "failed": ("write:request_failed", "ack:result_failed"),
    "dropped": ("write:request_degraded", "write:dead_letter_dropped", "dead_remove:letter", "ack:drop"),
    "cancelled": ("write:request_cancelled", "ack:cancel"),
    "stalled": ("settle:step_later",),
    "overdue": ("dead_add:letter", "write:deadline_passed", "publish:letter"),
    "planned": ("write:further_steps_taken_in",),
    "overplanned": ("write:further_steps_refused",),
    "refused": ("write:command_refused", "settle:request_away"),
    "strayed": ("enter:step", "ack:task", "park:result_ready", "settle:request_later"),
    "given_up": ("write:step_failed", "dead_add:letter", "publish:letter"),
    "merged": ("write:changes_absorbed", "dead_add:letter", "write:decided", "dead_remove:letter", "ack:decide"),
    "asked": ("mark:request", "write:decided", "dead_remove:letter"),
    "declined": ("write:decided", "dead_remove:letter"),
    "retracted": ("mark:request", "write:retracted", "write:stale_found", "ack:retract"),
    "rechecked": ("write:rechecked", "dead_remove:letter"),
    "ruled": ("write:rules_changed", "ack:rules"),
}
_CLIENT: dict[str, tuple[str, ...]] = {
    "chain": ("enter:request", "write:request_opened", "recent_add:request", "publish:submit"),
    "replayed": ("publish:replay",),
    "dropped": ("publish:drop",),
    "cancelled": ("publish:cancel",),
    "merged": ("publish:decide",),
    "retracted": ("publish:retract",),
    "ruled": ("publish:rules",),
}
_SLOW = (
    *("client:write:request_opened:before", "client:write:request_opened:after"),
    *("client:recent_add:request:after", "client:publish:submit:before", "client:publish:submit:after"),
)
"""Where a client that never comes back leaves a request to the first mark, which is half a minute away."""
_STEPS = {"client": _CLIENT, "orchestrator": _ORCHESTRATOR, "worker": _WORKER}


def slow_trials() -> Iterator[Trial]:
    """More trials, of half a minute each."""
    for point in _SLOW:
        yield Trial("abandoned", (point,))


def trials() -> Iterator[Trial]:
    """Every crash point with its story."""
    for role, stories in _STEPS.items():
        for story, steps in stories.items():
            for step in steps:
                call, what, *passing = step.split(":")
                for side in (BEFORE, AFTER):
                    yield Trial(story, (":".join((role, call, what, side, *passing)),))


def names() -> set[str]:
    """The names of all points, without the number of the passing."""
    return {":".join(trial.points[0].split(":")[:4]) for trial in trials()}


def pairs(recorded: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterator[Trial]:
    """Every crash point with each of the points that follow it at once in a plain run, and with itself.

    After a crash the restarted process may take another way; then it dies once only. The sweeper's look for what is due
    stands between any two points, and is left out as a second one.
    """
    for trial in trials():
        if trial.scenario == "abandoned":
            continue
        first = trial.points[0]
        plain = ":".join(first.split(":")[:4])
        passed = [point for point in recorded[trial.scenario].get(trial.role, ()) if ":due:" not in point]
        following = {after for before, after in pairwise(passed) if before == plain} - {plain}
        for second in sorted(following):
            yield Trial(trial.scenario, (first, second))
        yield Trial(trial.scenario, (first, plain))

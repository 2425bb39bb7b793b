"""The page docs/performance.md: what was measured, how, and what it says. Pure; written by a whole run alone."""

from __future__ import annotations

from collections.abc import Iterable

from ops.bench.bar import Row
from ops.bench.contenders import CONTENDERS
from ops.bench.rendering import Conditions, Rounds, bar_table, cases_table, ratios_table, table

_PAGE = """# Performance

What the runtime costs beside what one would take instead. Agents do nothing here, so all that is measured is the runtime. This page
is written by `make bench` (`ops/bench/`); a quick look at two contenders, which leaves it as it is:

```sh
make bench ARGS="--only briefline,celery --pairs 2 --requests 100"
```

![CPU a request beside others, and requests a second in one process](pictures/performance.svg)

## What is asked for

Ratios are medians of {pairs} pairs within this one run. Where seconds are given, the worst of several tries counts. What
stands in the way where a bar is not reached: [profile](profile.md).

{bar}

## How it is measured

- Contenders run one after the other, {pairs} times in turn, on one RabbitMQ and one Redis that the bench starts (the shipped
  configuration: append-only file flushed every second; quorum queues, confirmed publishing, unless said otherwise). Each starts its own
  processes, waits until every worker consumes, warms up, answers {singles} requests one at a time (*alone*), then {requests},
  or as many as take it a second, with {window} under way (*loaded*). CPU and requests/s are of the full load.
- `chain` is three steps in a row; `diamond` one, two side by side, and one that joins them; `facts` is three specialists with a scripted
  model, a tool and eight facts each, of which the next step needs four and its manifest names the others, under three constraints.
- CPU is that of *all* processes: client, orchestrator, workers, RabbitMQ, Redis, read from the kernel by process id. Our orchestrator
  is a process of its own on servers, as `briefline orchestrator` starts it; embedded it shares the client's.
- Our client submits, waits, and takes the answer of each request (`Client.answer`); the others' get the last step's result.
  Of `facts` it reads the whole report (`Runtime.ask`).
- What they do is not the same. Those chained by hand and dramatiq keep no plan, no state of steps, no events and no facts, and nobody
  recovers a request whose step is lost; those in one process, ours included, keep nothing over its end (SQLite's checkpoints do).
- *Foreign cores* is what all other processes of the machine took meanwhile. In this run the median was {foreign:.2f}{warning}
- Absolute figures say what this machine is like. Ratios, those of CPU first of all, carry over.

{contenders}

## Ours over theirs

Below 1 is less than theirs. For requests/s more is better, for all else less.

{ratios}

## All figures

{cases}

Machine: {machine}. Versions: {versions}. The run took {minutes:.0f} minutes.
"""


def page(rows: Iterable[Row], rounds: Rounds, conditions: Conditions) -> str:
    """The whole page."""
    plan = conditions.plan
    return _PAGE.format(
        pairs=plan.pairs,
        singles=plan.singles,
        requests=plan.requests,
        window=plan.window,
        bar=bar_table(rows),
        foreign=conditions.foreign_cores,
        warning="." if conditions.is_quiet else ": too much for figures to be quoted.",
        contenders=table(("", "as it runs here"), [(each.title, each.settings) for each in CONTENDERS.values()]),
        ratios=ratios_table(rounds),
        cases=cases_table(rounds),
        machine=conditions.machine,
        versions=", ".join(f"{name} {number}" for name, number in conditions.versions.items()),
        minutes=conditions.seconds / 60,
    )

"""LangGraph in one process: a graph of no-op nodes, checkpointed after each step, in memory or in SQLite (BENCH_KIND)."""

from __future__ import annotations

import asyncio
import itertools
import operator
import os
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from ops.bench.figures import Figures
from ops.bench.loads import Load
from ops.bench.peers.peer import Payload, Peer


class State(TypedDict):
    """The payload, as a state whose `ts` grows."""

    id: int
    t0: float
    ts: Annotated[list[float], operator.add]


async def _node(state: State) -> dict[str, list[float]]:
    return {"ts": [time.time()]}


def _graph(case: str) -> Any:
    graph = StateGraph(State)
    for step in "abc" if case == "chain" else "abcd":
        graph.add_node(step, _node)
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    if case == "chain":
        graph.add_edge("b", "c")
        graph.add_edge("c", END)
    else:
        graph.add_edge("a", "c")
        graph.add_edge(["b", "c"], "d")
        graph.add_edge("d", END)
    return graph


async def _load(case: str, saver: Any, load: Load) -> Figures:
    graph = _graph(case).compile(checkpointer=saver)
    threads = itertools.count()

    async def ask(given: Payload) -> Payload:
        answer: Payload = await graph.ainvoke(given, {"configurable": {"thread_id": f"{next(threads)}"}})
        return answer

    return await load.lanes(ask)


async def _drive(case: str, load: Load) -> Figures:
    if os.environ["BENCH_KIND"] == "memory":
        return await _load(case, InMemorySaver(), load)
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncSqliteSaver.from_conn_string(str(Path(folder) / "checkpoints.db")) as saver:
            return await _load(case, saver, load)


def drive(case: str, load: Load) -> Figures:
    """Put the load on one case."""
    return asyncio.run(_drive(case, load))


PEER = Peer(drive)

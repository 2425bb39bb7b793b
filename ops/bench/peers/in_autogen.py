"""autogen-core in one process: an agent for each step, and a function that sends from one to the next."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from autogen_core import AgentId, MessageContext, RoutedAgent, SingleThreadedAgentRuntime, message_handler

from ops.bench.figures import Figures
from ops.bench.loads import Load
from ops.bench.peers.peer import Payload, Peer, joined, stamped


@dataclass
class Letter:
    """What agents send each other."""

    given: dict  # type: ignore[type-arg]  # its serializer reads the annotation


class NoOp(RoutedAgent):
    """An agent that stamps what it gets."""

    def __init__(self) -> None:
        super().__init__("does nothing")

    @message_handler
    async def handle(self, message: Letter, ctx: MessageContext) -> Letter:
        """Stamp and give back."""
        return Letter(stamped(message.given))


async def _drive(case: str, load: Load) -> Figures:
    runtime = SingleThreadedAgentRuntime()
    for step in "abcd":
        await NoOp.register(runtime, step, NoOp)
    runtime.start()

    async def send(step: str, given: Payload) -> Payload:
        answer: Letter = await runtime.send_message(Letter(given), AgentId(step, "default"))
        return answer.given

    async def ask(given: Payload) -> Payload:
        first = await send("a", given)
        if case == "chain":
            return await send("c", await send("b", first))
        branches = await asyncio.gather(send("b", first), send("c", first))
        return await send("d", joined(branches))

    figures = await load.lanes(ask)
    await runtime.stop()
    return figures


def drive(case: str, load: Load) -> Figures:
    """Put the load on one case."""
    return asyncio.run(_drive(case, load))


PEER = Peer(drive)

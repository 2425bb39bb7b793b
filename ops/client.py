"""The client: what a person or a program does with requests: submit, cancel, replay, drop, and all that a reader can.

The same calls serve the command line (on servers) and the embedded runtime (in memory).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

from ops.following import LOOK_SECONDS, events_of
from ops.forking import fork
from ops.opening import Accepted
from ops.producer import submit
from ops.reading import Reader
from ops.sessions import Session
from orchestrator.desk import DeskItem, field_of_item
from schemas import fields
from schemas.blackboard import Blackboard, Event
from schemas.broker import COMMANDS, Broker
from schemas.errors import InvalidValue, OutcomeUnknown, Refused, Unavailable, Undeliverable
from schemas.gate import BoundaryRules
from schemas.messages import ORCHESTRATOR, RECHECK, MessageType, message
from schemas.requests import RequestStatus, StepState
from workers.team import Team

SENDS = 3
ANSWER_SECONDS = 10.0
"""How long one sending of a command waits for its effect before the command is sent again."""


class Client(Reader):
    """Everything a user does with requests of one tenant."""

    def __init__(
        self, board: Blackboard, broker: Broker, *, tenant: str = "default", name: str = "client", look_seconds: float = LOOK_SECONDS
    ) -> None:
        super().__init__(board, tenant=tenant, look_seconds=look_seconds)
        self._broker = broker
        self._name = name

    async def submit(
        self,
        team: Team,
        text: str,
        *,
        constraints: Mapping[str, object] | None = None,
        idempotency_key: str | None = None,
        deadline_seconds: float | None = None,
        trace: str | None = None,
        session: Session | str | None = None,
    ) -> Accepted:
        """Open a request; see `ops.producer.submit`. A session by its name alone is never waited for."""
        return await submit(
            self._board,
            self._broker,
            team,
            text,
            tenant=self._tenant,
            constraints=constraints,
            idempotency_key=idempotency_key,
            deadline_seconds=deadline_seconds,
            trace=trace,
            session=Session(session) if isinstance(session, str) else session,
        )

    async def fork(
        self,
        request_id: str,
        at: str,
        *,
        team: Team | None = None,
        constraints: Mapping[str, object] | None = None,
        idempotency_key: str | None = None,
        deadline_seconds: float | None = None,
        trace: str | None = None,
    ) -> Accepted:
        """Open a request that takes up another one from step `at` on; see `ops.forking.fork`."""
        return await fork(
            self._board,
            self._broker,
            request_id,
            at,
            tenant=self._tenant,
            team=team,
            constraints=constraints,
            idempotency_key=idempotency_key,
            deadline_seconds=deadline_seconds,
            trace=trace,
        )

    async def cancel(self, request_id: str, reason: str = "") -> RequestStatus:
        """End a request now, for good, and return its status, when the board shows it.

        Raises:
            NotFound: the board has no such request.
            Refused: it was over already, or has been replayed meanwhile.
            OutcomeUnknown: nobody has answered; it may still be cancelled.
        """
        record = await self.status_record(request_id)
        if record.status is RequestStatus.CANCELLED:
            return record.status
        if record.status.over:
            raise Refused(f"the request is over ({record.status}); only what is running can be cancelled")
        await self._command(MessageType.CANCEL, request_id, epoch=record.replays, content=reason)
        return await self.status(request_id)

    async def replay(self, request_id: str, step_id: str, epoch: int | None = None) -> int:
        """Reopen a failed step and return its new epoch; `epoch` is the one that failed, by default the current one.

        Raises:
            NotFound: the board has no such request or step.
            Refused: the step is not FAILED in that epoch, or the request was cancelled.
            OutcomeUnknown: nobody has answered; it may still be replayed.
        """
        record = await self._step(request_id, step_id)
        wanted = record.epoch if epoch is None else epoch
        if record.state is not StepState.FAILED or record.epoch != wanted:
            raise Refused(f"step {step_id!r} is {record.state} in epoch {record.epoch}; only a failed step is replayed, in its own epoch")
        await self._command(MessageType.REPLAY, request_id, step_id=step_id, epoch=wanted)
        return (await self._step(request_id, step_id)).epoch

    async def drop(self, request_id: str, step_id: str, reason: str) -> None:
        """Take a dead letter out of the list; who and why is kept as an event.

        Raises:
            NotFound: the board has no such request or step.
            Refused: it is no dead letter.
            OutcomeUnknown: nobody has answered.
        """
        record = await self._step(request_id, step_id)
        if record.state is not StepState.FAILED:
            raise Refused(f"step {step_id!r} is {record.state}, so it is no dead letter")
        await self._command(MessageType.DROP, request_id, step_id=step_id, epoch=record.epoch, content=reason)

    async def retract(self, request_id: str, name: str, reason: str, *, recheck: bool = False) -> None:
        """Withdraw what a step said (`name` is `step.key`): what rests on it runs again, and the answer is made anew.

        `recheck`: the step itself runs again as well.

        Raises:
            NotFound: the board has no such request.
            Refused: the step has not completed, says nothing of it, or it was withdrawn already.
            OutcomeUnknown: nobody has answered; it may still be withdrawn.
        """
        step, dot, key = name.partition(".")
        if not (step and dot and key):
            raise InvalidValue(f"{name!r} is not of the form step.key", path="name")
        seen = await self._version(request_id, fields.result(step))
        choice = RECHECK if recheck else ""
        await self._command(MessageType.RETRACT, request_id, step_id=step, about=key, choice=choice, content=reason, seen=seen)

    async def decide(self, request_id: str, item: str | DeskItem, choice: str, reason: str, *, seen: str = "") -> None:
        """Decide an item of the desk; who decided, and why, is kept.

        The decision holds for the item as it was seen: as the given `DeskItem` says, or at the version `seen`; with a name
        alone, as it is now.

        Raises:
            NotFound: the board has no such request.
            Refused: there is no such item, or no such choice, or it has changed meanwhile.
            OutcomeUnknown: nobody has answered; it may still be decided.
        """
        name, seen = (item.id, item.version) if isinstance(item, DeskItem) else (item, seen)
        now = {field_of_item(name): seen} if seen else await self._version(request_id, field_of_item(name))
        await self._command(MessageType.DECIDE, request_id, about=name, choice=choice, content=reason, seen=now)

    async def set_rules(self, request_id: str, rules: BoundaryRules) -> None:
        """Let other boundary rules hold for a request that runs; `rules.on_rules_change` says what becomes of running steps.

        Raises:
            NotFound: the board has no such request.
            Refused: it is over.
            OutcomeUnknown: nobody has answered.
        """
        replays = (await self.status_record(request_id)).replays
        await self._command(MessageType.RULES, request_id, epoch=replays, content=rules.to_json().decode())

    async def _version(self, request_id: str, name: str) -> dict[str, str]:
        """The version of a field as a command is to find it: one that is delivered late, or twice, means what its sender saw."""
        await self.status(request_id)
        return {name: (await self._board.read(request_id, (name,))).version(name)} if name else {}

    async def _command(
        self,
        kind: MessageType,
        request_id: str,
        *,
        step_id: str | None = None,
        epoch: int = 0,
        content: str = "",
        about: str = "",
        choice: str = "",
        seen: dict[str, str] | None = None,
    ) -> None:
        """Send a command until the board shows its effect, or its refusal; each sending is a new message.

        Answers are looked for from before the first sending on: that one may have arrived, though nobody could say so.
        """
        position = (await self._board.read(request_id, (fields.STATUS,))).position
        sent: set[str] = set()
        trouble = ""
        for _ in range(SENDS):
            bell = message(
                kind,
                request_id,
                sender=self._name,
                recipient=ORCHESTRATOR,
                step_id=step_id,
                epoch=epoch,
                content=content,
                about=about,
                choice=choice,
                seen=seen,
            )
            sent.add(bell.id)
            try:
                await self._broker.publish(COMMANDS, bell)
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer = await self._answer(request_id, position, sent)
            except TimeoutError:
                continue
            except (Unavailable, Undeliverable) as error:
                trouble = f": {error}"
                continue
            if answer.labels.get("event") == "command_refused":
                raise Refused(answer.labels.get("reason", "refused"))
            return
        raise OutcomeUnknown(f"no orchestrator has answered the {kind} of {request_id}; it may still take effect{trouble}")

    async def _answer(self, request_id: str, position: int, sent: set[str]) -> Event:
        looks = min(self._look_seconds, ANSWER_SECONDS / 2)
        async with aclosing(events_of(self._board, request_id, position, look_seconds=looks)) as events:
            async for event in events:
                if event.cause in sent:
                    return event
        raise OutcomeUnknown(f"the board was set back, and the events of {request_id} with it")

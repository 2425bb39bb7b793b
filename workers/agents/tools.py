"""Tools: plain typed functions, what they may be called with, and what a call of one came to.

A tool's parameters are read from its signature and checked here, before the function runs; its return is turned into JSON
here, or into an error. Nothing of the model library is needed for that, so that a team loads without it. Called by the
specialist's loop; fact rules read the observations.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar, get_type_hints

import orjson
import structlog
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from schemas.artifacts import ArtifactRef
from schemas.codec import Json, digest, encode
from schemas.errors import InvalidTeam, InvalidValue, Refused
from schemas.facts import Zone
from schemas.frozen import Scalar, first_problem
from schemas.limits import MAX_ARTIFACT_BYTES
from workers.artifacts import NO_ARTIFACTS, RunArtifacts
from workers.reserving import NO_RESERVATIONS, Reservations

MAX_RETURN_BYTES = 64 * 1024
"""What one call may return, as JSON, where the model gets it whole. More is an error of the call: a model would drown in it."""

Result = TypeVar("Result")

CONTRADICTION_TOOL = "report_contradiction"
"""Every specialist has it: by calling it a model ends the run as `CONTRADICTORY_TASK`."""

READ_TOOL = "read_artifact"
"""A specialist has it where its brief carries a reference, or once its run has made one."""

LEFTOVER_SECONDS = 1.0
"""How long a cancelled call may take to clean up before its caller goes on without it."""

log = structlog.get_logger()


def utc_now() -> datetime:
    """Return the time now, in UTC. The clock of a team that sets none."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know that never comes from the model: a first parameter of this type is filled in by the loop."""

    constraints: Mapping[str, Scalar] = field(default_factory=dict)
    """Constraint name -> value, for what must be enforced in code."""
    now: Callable[[], datetime] = utc_now
    """The team's clock."""
    shared: Mapping[str, Any] = field(default_factory=dict)
    """Shared field -> its value as it stands in the brief, frozen all the way down."""
    artifacts: RunArtifacts = NO_ARTIFACTS
    """Where a tool puts what is too big to return (`await context.artifacts.put(...)`), and reads what the run may read."""
    reservations: Reservations = NO_RESERVATIONS
    """What the run holds of the team's resources."""

    async def reserve(self, name: str, amount: float, *, key: str = "") -> float:
        """Reserve a part of a resource until the step ends, and return what is left; no model is called in between.

        Two parts of one resource have two keys; the same key again is the same reservation, of the new amount.

        Raises:
            ToolFault: with what is left where that is less, or why nothing is reserved here.
        """
        try:
            return await self.reservations.reserve(name, amount, key)
        except Refused as error:
            raise ToolFault(str(error)) from error


@dataclass(frozen=True, slots=True)
class ToolObservation:
    """One call of a tool as it really was. Either `returned` is a JSON value, or `error` says why there is none."""

    tool: str
    arguments: Json
    returned: Json
    call_id: str
    round: int
    """Model call that asked for it, from 1."""
    error: str | None = None
    artifact: ArtifactRef | None = None
    """Where the return was over the limit, and the model got a reference in its place."""


@dataclass(frozen=True)
class Tool:
    """A function that a model may call.

    `description` falls back to the function's docstring. `output` is the model of its return, taken from the annotation where
    that is a pydantic model: returns are checked against it, and so are the paths of fact rules. `source` is the path in the
    return at which the tool names its own origin (document, address, snapshot). A return over the limit of a value is kept as an
    artifact, and the model reads a reference in its place, unless the tool is `whole`: then it gets all of it, 64 KiB at most.
    """

    name: str
    function: Callable[..., Any]
    description: str = ""
    output: type[BaseModel] | None = None
    zone: Zone = Zone.INTERNAL
    source: str | None = None
    timeout_seconds: float | None = None
    whole: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "description", (self.description or inspect.getdoc(self.function) or "").strip())
        if self.output is None:
            returns = self._hints.get("return")
            if isinstance(returns, type) and issubclass(returns, BaseModel):
                object.__setattr__(self, "output", returns)
        _ = self.parameters  # an unreadable signature is the team's mistake, so it is found when the team loads

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return get_type_hints(self.function, include_extras=True)
        except (NameError, TypeError) as error:
            raise InvalidTeam(f"the annotations of tool {self.name!r} cannot be read: {error}", path=f"tools.{self.name}") from error

    @cached_property
    def _signature(self) -> inspect.Signature:
        try:
            return inspect.signature(self.function)
        except (TypeError, ValueError) as error:
            raise InvalidTeam(f"the parameters of tool {self.name!r} cannot be read: {error}", path=f"tools.{self.name}") from error

    @cached_property
    def takes_context(self) -> bool:
        """Whether the function's first parameter is a `ToolContext`."""
        first = next(iter(self._signature.parameters), None)
        return first is not None and self._hints.get(first) is ToolContext

    @cached_property
    def parameters(self) -> type[BaseModel]:
        """A model of what the function may be called with."""
        fields: dict[str, Any] = {}
        for index, parameter in enumerate(self._signature.parameters.values()):
            if index == 0 and self.takes_context:
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise InvalidTeam(f"parameter {parameter.name!r} of tool {self.name!r} has no name", path=f"tools.{self.name}")
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (self._hints.get(parameter.name, Any), default)
        return create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)

    @cached_property
    def json_schema(self) -> dict[str, Any]:
        """JSON Schema of the parameters, as a model gets it."""
        schema = self.parameters.model_json_schema()
        schema.pop("title", None)
        return schema

    @cached_property
    def version(self) -> str:
        """Short hash of what a model and a fact rule see of the tool: name, description, parameters, output."""
        output = None if self.output is None else self.output.model_json_schema(mode="serialization")
        return digest([self.name, self.description, self.json_schema, output, self.zone.value, self.source])

    async def call(self, arguments: Mapping[str, Json], context: ToolContext) -> Json:
        """Call the function once and return its JSON value.

        Raises:
            ToolFault: bad arguments, an exception of any kind out of the function, or a return that is no JSON value.
            asyncio.CancelledError: only when the caller's own task was cancelled.
        """
        try:
            checked = self.parameters.model_validate(arguments)
        except (ValidationError, RecursionError) as error:
            raise ToolFault(f"bad arguments: {first_problem(error) if isinstance(error, ValidationError) else error}") from error
        given = {name: getattr(checked, name) for name in type(checked).model_fields}
        positional = (context,) if self.takes_context else ()
        try:
            async with asyncio.timeout(self.timeout_seconds) as limit:
                returned = await self._run(positional, given)
        except TimeoutError as error:
            if not limit.expired():
                raise ToolFault(f"{type(error).__name__}: {error}") from error
            raise ToolFault(f"no return within {self.timeout_seconds:g} seconds") from error
        kept = context.artifacts.open and not self.whole
        return self._as_json(returned, MAX_ARTIFACT_BYTES if kept else MAX_RETURN_BYTES)

    async def _run(self, positional: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """Run the function in a task of its own: a cancellation that it raises is its error, ours still stops us."""

        async def guarded() -> Any:
            try:
                if inspect.iscoroutinefunction(self.function):
                    return await self.function(*positional, **given)
                returned = await in_thread(lambda: self.function(*positional, **given), f"tool {self.name}")
                return await returned if inspect.isawaitable(returned) else returned
            except asyncio.CancelledError:
                raise
            except ToolFault as fault:  # a tool may say in its own words why it gives no value
                return fault
            except BaseException as error:  # SystemExit and the like would end the worker
                return ToolFault(f"{type(error).__name__}: {error}")

        task = asyncio.ensure_future(guarded())
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task}, timeout=LEFTOVER_SECONDS)  # one that ignores it is left behind
            raise
        if task.cancelled():
            raise ToolFault("the call was cancelled from inside")
        returned = task.result()
        if isinstance(returned, ToolFault):
            raise returned
        return returned

    def _as_json(self, returned: Any, limit: int) -> Json:
        if returned is None:
            raise ToolFault("the tool returned nothing")
        try:
            if self.output is not None:
                checked = returned if isinstance(returned, self.output) else self.output.model_validate(returned)
                returned = checked.model_dump(mode="json", by_alias=True)
            elif isinstance(returned, BaseModel):
                returned = returned.model_dump(mode="json", by_alias=True)
            data = encode(returned)
        except ValidationError as error:
            raise ToolFault(f"the return does not fit its declaration: {first_problem(error)}") from error
        except (InvalidValue, ValueError, RecursionError) as error:
            raise ToolFault(f"the return is not JSON: {error}") from error
        if len(data) > limit:
            raise ToolFault(f"the return has {len(data):,} bytes, the limit is {limit:,}")
        return orjson.loads(data)  # a copy: what the tool does with its object later changes no observation


class ToolFault(Exception):
    """A call that gave no value; the text is what the model reads."""


def tool(function: Callable[..., Any], *, name: str | None = None, description: str = "", output: type[BaseModel] | None = None) -> Tool:
    """Make a tool of a function, under the function's own name unless `name` says otherwise."""
    return Tool(name or function.__name__, function, description, output)


async def in_thread(function: Callable[[], Result], what: str) -> Result:
    """Run a blocking function in a daemon thread of its own, in the caller's context; `what` names it for people.

    A thread cannot be stopped: when the caller is cancelled, it is left behind and told of, and being a daemon it keeps neither
    a pool's place nor the process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()
    context = copy_context()

    def deliver(set_outcome: Callable[[Any], None], outcome: Any) -> None:
        if future.done():
            log.warning("thread_ended_late", what=what)
        else:
            set_outcome(outcome)

    def work() -> None:
        outcome: Any
        try:
            outcome = context.run(function)
            set_outcome: Callable[[Any], None] = future.set_result
        except BaseException as error:  # whatever it is, it belongs to the caller and not to this thread
            outcome, set_outcome = _carried(error), future.set_exception
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, set_outcome, outcome)

    threading.Thread(target=work, name=f"briefline {what}", daemon=True).start()
    try:
        return await future
    except asyncio.CancelledError:
        log.warning("thread_left_behind", what=what)
        raise


def _carried(error: BaseException) -> Exception:
    """A future takes no StopIteration, and a loop is ended by SystemExit: both travel as plain errors."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")

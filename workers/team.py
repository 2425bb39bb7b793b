"""Teams: named agents, declared constraints and a plan, checked as a whole when they are made.

A team is code; its card is the pure data of it, and all that producer and orchestrator ever know. Called by the producer
(card, constraints), the worker line (agents), and whoever loads a team by name.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from types import ModuleType
from typing import Any, Literal

from pydantic import ValidationError

from schemas.codec import digest, refuse_unsafe
from schemas.errors import BrieflineError, InvalidTeam, InvalidValue, MissingConstraint, NotFound
from schemas.frozen import Scalar, first_problem
from schemas.gate import BoundaryRules
from schemas.plans import Step
from schemas.reducers import Reducer, known_reducers
from schemas.requests import ConstraintRecord, Origin
from schemas.results import MadeWith
from schemas.shared import FieldCard
from schemas.teams import ConstraintCard, TeamCard, check_card
from workers.agents.actions import Action, check_actions
from workers.agents.agent import Agent
from workers.agents.models import Model
from workers.agents.specialist import Specialist
from workers.agents.tools import utc_now
from workers.briefing import BriefLimits
from workers.phrases import EN, Phrases
from workers.quoting import scalar_text

_SHIPPED = "workers.teams"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A value that holds for the whole request.

    `extract` is a pure function from the user's words to the value, or None; a given value wins over it. `wording` is how the
    value reads in a brief, with `{value}` and `{unit}`.
    """

    name: str
    label: str
    type: Literal["text", "integer", "number", "boolean"] = "text"
    unit: str = ""
    required: bool = False
    extract: Callable[[str], Scalar | None] | None = None
    wording: str = ""

    @property
    def card(self) -> ConstraintCard:
        """The pure data of it."""
        return ConstraintCard(name=self.name, label=self.label, type=self.type, unit=self.unit, required=self.required)

    def record(self, value: object, origin: Origin) -> ConstraintRecord:
        """Return the record of a value, converted from text where the type asks for it.

        Raises:
            InvalidValue: the value is of another type; the path names the constraint.
        """
        checked = self._checked(value)
        shown = scalar_text(checked)
        unit = f" {self.unit}" if self.unit else ""
        text = self.wording.format(value=shown, unit=self.unit) if self.wording else f"{shown}{unit}"
        return ConstraintRecord(name=self.name, label=self.label, value=checked, unit=self.unit, origin=origin, text=text)

    def _checked(self, value: object) -> Scalar:
        path = f"constraints.{self.name}"
        kinds: dict[str, tuple[type, ...]] = {"text": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}
        if isinstance(value, str) and self.type != "text":
            value = _from_text(value.strip(), self.type)
        is_boolean = isinstance(value, bool)
        refuse_unsafe(value, path)  # text may have become a number that JSON cannot hold
        if not isinstance(value, kinds[self.type]) or is_boolean != (self.type == "boolean"):
            raise InvalidValue(f"must be {self.type}", path=path)
        if isinstance(value, str):
            value = value.strip()
        return value  # type: ignore[return-value]  # one of the four kinds, by the check above


def _from_text(text: str, kind: str) -> Scalar:
    """Read what a command line gives; text that does not fit comes back as it is, and is refused by its type."""
    try:
        if kind == "integer":
            return int(text.replace(",", ""))
        if kind == "number":
            return float(text.replace(",", ""))
    except ValueError:
        return text
    return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower(), text)


class Team:
    """Agents, steps and constraints that fit together; making one that does not is refused.

    `steps` is the plan that a request starts with, `on_call` the steps that a planning one of them may wake: where there are any, it
    plans no others. `model` and `clock` are what specialists think with and tell the time by where they have none of their own;
    `phrases` is the language of the briefs. `fields` are what the team keeps beside facts, `actions` how models change them,
    `reducers` its own ways to merge contributions; `rules` are what the gate asks of a crossing.

    Raises:
        InvalidTeam: two agents of one name, a specialist without a model, a rule, constraint, field, action or reducer that
            does not fit.
        InvalidPlan: a circle, or an agent, tool, dependency, need, expected fact or shared field that does not exist.
    """

    def __init__(
        self,
        name: str,
        agents: Iterable[Agent],
        steps: Iterable[Step | Mapping[str, Any]],
        constraints: Iterable[Constraint] = (),
        *,
        deadline_seconds: float = 3600.0,
        model: Model | None = None,
        phrases: Phrases = EN,
        limits: BriefLimits | None = None,
        clock: Callable[[], datetime] = utc_now,
        fields: Iterable[FieldCard] = (),
        rules: BoundaryRules | None = None,
        actions: Iterable[Action] = (),
        reducers: Mapping[str, Reducer] | None = None,
        on_call: Iterable[Step | Mapping[str, Any]] = (),
    ) -> None:
        self.name = name
        self.phrases = phrases
        self.limits = limits or BriefLimits()
        self.clock = clock
        self.constraints = tuple(constraints)
        self.agents = _by_name(agents, model, clock)
        shared = _fields(fields)
        self.steps = tuple(_writing(_step(step, index), shared) for index, step in enumerate(steps))
        self.on_call = tuple(_writing(_step(step, index, "on_call"), shared) for index, step in enumerate(on_call))
        self.actions = tuple(actions)
        self.card = self._card(deadline_seconds, shared, rules or BoundaryRules(), tuple(reducers or ()))
        check_card(self.card)
        check_actions(self.actions, self.card.fields, {name: card.tools for name, card in self.card.agents.items()})
        self.reducers = known_reducers(reducers or {}, self.card.fields.values())

    def _card(self, deadline_seconds: float, shared: dict[str, FieldCard], rules: BoundaryRules, own: tuple[str, ...]) -> TeamCard:
        agents = {name: agent.card for name, agent in self.agents.items()}
        constraints = tuple(constraint.card for constraint in self.constraints)
        content = {
            "name": self.name,
            "agents": {name: card.version for name, card in agents.items()},
            "steps": [step.model_dump(mode="json") for step in self.steps],
            "on_call": [step.model_dump(mode="json") for step in self.on_call],
            "constraints": [[card.model_dump(mode="json"), each.wording] for card, each in zip(constraints, self.constraints, strict=True)],
            "language": self.phrases.language,
            "fields": [card.model_dump(mode="json") for card in shared.values()],
            "rules": rules.version,
            "actions": [each.version for each in self.actions],
        }
        try:
            return TeamCard(
                name=self.name,
                agents=agents,
                constraints=constraints,
                steps=self.steps,
                on_call=self.on_call,
                deadline_seconds=deadline_seconds,
                language=self.phrases.language,
                fields=shared,
                rules=rules,
                reducers=tuple(name for name in own if any(card.reducer == name for card in shared.values())),
                version=digest(content),
            )
        except ValidationError as error:
            raise InvalidTeam(first_problem(error), path=f"team {self.name!r}") from error

    @cached_property
    def card_json(self) -> bytes:
        """The card as it is stored with each request; written once, as it never changes."""
        return self.card.to_json()

    def agent(self, name: str) -> Agent:
        """Return the agent of that name.

        Raises:
            NotFound: naming those there are.
        """
        found = self.agents.get(name)
        if found is None:
            raise NotFound(f"team {self.name!r} has no agent {name!r}; there are: {', '.join(self.agents)}", path="agent")
        return found

    def made_with(self, agent: str, *, brief_sha256: str, position: int) -> MadeWith:
        """Return what a result of `agent` is made with now; `position` is the event position of its brief."""
        versions = self.agent(agent).versions
        return MadeWith(
            brief_sha256=brief_sha256,
            position=position,
            team=self.card.version,
            persona=versions.persona,
            tools=versions.tools,
            rules=versions.rules,
            model=versions.model,
            reads={},  # a default that can be changed would be copied each time, at a third of the cost of all this
        )

    def resolve(self, text: str, given: Mapping[str, object] | None = None) -> tuple[ConstraintRecord, ...]:
        """Return the request's constraints in declared order: a given value, else one extracted from the words.

        Raises:
            InvalidValue: a given value of another type, or for a constraint that the team does not have.
            MissingConstraint: a required one that neither the caller nor the words give, by name.
        """
        given = given or {}
        self._refuse_unknown(given)
        records: list[ConstraintRecord] = []
        for constraint in self.constraints:
            record = _record(constraint, text, given)
            if record is not None:
                records.append(record)
            elif constraint.required:
                raise MissingConstraint(
                    f"{constraint.label} is required, and neither given nor found in the request", path=f"constraints.{constraint.name}"
                )
        return tuple(records)

    def given(self, given: Mapping[str, object]) -> tuple[ConstraintRecord, ...]:
        """Return the constraints that are given, and no others, in declared order.

        Raises:
            InvalidValue: a value of another type, or for a constraint that the team does not have.
        """
        self._refuse_unknown(given)
        return tuple(each.record(given[each.name], Origin.GIVEN) for each in self.constraints if each.name in given)

    def _refuse_unknown(self, given: Mapping[str, object]) -> None:
        known = [constraint.name for constraint in self.constraints]
        for name in given:
            if name not in known:
                raise InvalidValue(
                    f"team {self.name!r} has no such constraint; there are: {', '.join(known) or 'none'}", path=f"constraints.{name}"
                )


def _record(constraint: Constraint, text: str, given: Mapping[str, object]) -> ConstraintRecord | None:
    value = given.get(constraint.name)
    if value is not None and not (isinstance(value, str) and not value.strip()):
        return constraint.record(value, Origin.GIVEN)
    found = constraint.extract(text) if constraint.extract is not None else None
    return None if found is None else constraint.record(found, Origin.EXTRACTED)


def _by_name(agents: Iterable[Agent], model: Model | None, clock: Callable[[], datetime]) -> dict[str, Agent]:
    found: dict[str, Agent] = {}
    for index, agent in enumerate(agents):
        try:
            name = agent.card.name
        except (AttributeError, ValidationError) as error:
            said = first_problem(error) if isinstance(error, ValidationError) else "wrap a function in BlackBox(name, function)"
            raise InvalidTeam(f"an agent is a Specialist or a BlackBox with a name; {said}", path=f"agents.{index}") from error
        if name in found:
            raise InvalidTeam(f"agent {name!r} is there twice", path=f"agents.{index}.name")
        if isinstance(agent, Specialist):
            agent = agent.completed_with(model, clock)
            if agent.model is None:
                raise InvalidTeam(f"specialist {name!r} has no model, and the team names none", path=f"agents.{name}.model")
        found[agent.name] = agent
    return found


def _writing(step: Step, shared: Mapping[str, FieldCard]) -> Step:
    """A step that owns, moves or settles a field writes it, whether or not its plan says so too: then others wait for what it wants."""
    own = (card.name for card in shared.values() if step.id in (*card.writers, card.arbiter))
    writes = tuple(dict.fromkeys((*step.writes, *own)))
    return step if writes == step.writes else step.model_copy(update={"writes": writes})


def _fields(cards: Iterable[FieldCard]) -> dict[str, FieldCard]:
    found: dict[str, FieldCard] = {}
    for index, card in enumerate(cards):
        if card.name in found:
            raise InvalidTeam(f"field {card.name!r} is declared twice", path=f"fields.{index}.name")
        found[card.name] = card
    return found


def _step(step: Step | Mapping[str, Any], index: int, where: str = "steps") -> Step:
    if isinstance(step, Step):
        return step
    for key in step:
        if key not in Step.model_fields:
            near = difflib.get_close_matches(key, Step.model_fields, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it has: {', '.join(Step.model_fields)}"
            raise InvalidTeam(f"a step has no {key!r}{hint}", path=f"{where}.{index}.{key}")
    try:
        return Step.model_validate(step)
    except ValidationError as error:
        raise InvalidTeam(first_problem(error), path=f"{where}.{index}") from None


def shipped_teams() -> tuple[str, ...]:
    """Return the names of the teams that Briefline ships."""
    package = importlib.import_module(_SHIPPED)
    return tuple(sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg))


def load_team(name: str, **options: object) -> Team:
    """Load a shipped team by its name, or any team as `package.module:attribute`.

    The attribute may also be a function without parameters that returns a team, or a module that holds a team of its own name.
    `options` go to the function `make_team` that stands beside the team (for the shipped ones: `scenario`, `model`, `today`).

    Raises:
        NotFound: no such team, module or attribute, or options for a team that takes none.
        InvalidTeam: what stands there is no team, or one that does not fit together.
    """
    module, attribute = _module_of(name)
    found = getattr(module, attribute, None)
    if found is None and hasattr(module, "__path__") and importlib.util.find_spec(f"{module.__name__}.{attribute}") is not None:
        found = importlib.import_module(f"{module.__name__}.{attribute}")
    if isinstance(found, ModuleType):
        module, found = found, getattr(found, attribute, None)
    if options:
        made = _made_with_options(module, options)
    elif found is None:
        raise NotFound(f"module {module.__name__!r} has no {attribute!r}", path="team")
    else:
        made = found() if callable(found) and not isinstance(found, Team) else found
    if not isinstance(made, Team):
        raise InvalidTeam(f"{name!r} is a {type(made).__name__}, not a Team", path="team")
    return made


def _module_of(name: str) -> tuple[ModuleType, str]:
    module_name, colon, attribute = name.partition(":")
    if not colon:
        if name not in shipped_teams():
            raise NotFound(
                f"there is no team {name!r}; shipped are: {', '.join(shipped_teams())}. Your own is named as package.module:attribute",
                path="team",
            )
        module_name, attribute = f"{_SHIPPED}.{name}.team", "team"
    if not (attribute.isidentifier() and all(part.isidentifier() for part in module_name.split("."))):
        raise NotFound(f"{name!r} is not of the form package.module:attribute", path="team")
    try:
        return importlib.import_module(module_name), attribute
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(error.name + ".")):
            raise InvalidTeam(f"module {module_name!r} needs a module that is not there: {error.name!r}", path="team") from error
        raise NotFound(f"there is no module {error.name!r} (of team {name!r})", path="team") from error
    except BrieflineError:
        raise  # its team does not fit together, and the error says where
    except Exception as error:
        raise InvalidTeam(f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}", path="team") from error


def _made_with_options(module: ModuleType, options: Mapping[str, object]) -> Any:
    make = getattr(module, "make_team", None)
    if not callable(make):
        raise NotFound(f"module {module.__name__!r} has no make_team, so its team takes no options", path="team")
    unknown = [name for name in options if name not in inspect.signature(make).parameters]
    if unknown:
        raise NotFound(f"{module.__name__}.make_team has no option {', '.join(unknown)}", path="team")
    return make(**options)

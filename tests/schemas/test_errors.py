"""The one error tree: as its docstring draws it, and with one question, whether trying again can help."""

from __future__ import annotations

import inspect
import re

from schemas import errors
from schemas.errors import AgentFailed, BrieflineError, InvalidPlan, Refused, Unavailable


def tree() -> dict[str, str]:
    """Class -> base, from the drawing."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        drawn = re.match(r"^([│├└─ ]*)([A-Z]\w+) {2,}", line)
        if drawn:
            above = above[: len(drawn[1]) // 4]
            if above:
                found[drawn[2]] = above[-1]
            above.append(drawn[2])
    return found


def test_the_tree_is_as_its_drawing_says() -> None:
    classes = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, BrieflineError)}
    assert tree() == {name: kind.__base__.__name__ for name, kind in classes.items() if kind.__base__ and name != "BrieflineError"}


def test_only_a_server_that_is_away_makes_trying_again_worthwhile() -> None:
    retryable = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and getattr(kind, "retryable", False) is True}
    assert retryable == {"Unavailable", "OutcomeUnknown", "BoardOutOfMemory"}
    assert issubclass(errors.BoardOutOfMemory, Unavailable)


def test_an_agent_says_itself_whether_trying_again_can_help() -> None:
    assert AgentFailed("BUSY", "later", retryable=True).retryable
    plain = AgentFailed("WRONG", "this cannot be")
    assert (plain.retryable, plain.code, str(plain)) == (False, "WRONG", "WRONG: this cannot be")


def test_a_refusal_begins_with_the_path_where_there_is_one() -> None:
    assert str(InvalidPlan("no such step", path="steps.2.needs.0")) == "steps.2.needs.0: no such step"
    assert (str(Refused("no words")), Refused("no words").path) == ("no words", "")

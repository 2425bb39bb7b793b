"""Nothing that arrives is run: no pickle, no eval, no module or attribute looked up by a name out of data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.commands.requests import team_at_hand
from ops.settings import load_settings

ROOT = Path(__file__).parents[2]
FLOORS = ("schemas", "orchestrator", "workers", "ops")

UNSAFE_MODULES = {
    *("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "jsonpickle", "joblib", "marshal", "shelve"),
    *("yaml", "code", "codeop", "xmlrpc"),
}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "globals", "locals", "vars"}
UNSAFE_ATTRIBUTES = {"os.system", "os.popen", "os.execv", "builtins.eval", "subprocess.getoutput", "pkgutil.resolve_name"}

IMPORTS_BY_NAME = {("workers/team.py", "_module_of"), ("workers/team.py", "load_team"), ("workers/team.py", "shipped_teams")}
"""Where a module is imported by a name: the operator's team."""
IMPORTS_OF_A_CONSTANT = {("workers/agents/specialist.py", "importlib.import_module(_LOOP)")}
LOADS_A_TEAM = {
    ("ops/access.py", "team_of(settings, given.team)"),
    ("ops/commands/checking.py", "team_of(settings)"),
    ("ops/commands/serving.py", "load_team(team)"),
    ("ops/commands/demo.py", "team_of(settings, team_name)"),
    ("ops/commands/requests.py", "team_of(settings)"),
    ("ops/commands/requests.py", "team_of(settings, candidate)"),
    ("ops/commands/requests.py", "team_of(settings, name)"),
    ("ops/commands/serving.py", "team_of(settings)"),
    ("ops/producer.py", "team_of(settings)"),
    ("ops/wiring.py", "load_team(name or settings.team, **options)"),
}
"""Every call, and each takes its name from settings or a flag; `candidate` is of the settings, or one of the shipped names."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for floor in FLOORS:
        for path in sorted((ROOT / floor).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Calls with the name of the function that they stand in."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            name = getattr(function, "name", "")
            nested = {
                id(node)
                for inner in ast.walk(function)
                if inner is not function and isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
                for node in ast.walk(inner)
            }
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and id(node) not in nested:
                    yield name, node


def found(tree: ast.AST) -> list[str]:
    """What must not stand in a source."""
    wrong = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                wrong += [name.name for name in names if name.name.split(".")[0] in UNSAFE_MODULES]
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in UNSAFE_MODULES:
                wrong.append(module)
            case ast.Call(func=ast.Name(id=name)) if name in UNSAFE_CALLS:
                wrong.append(name)
            case ast.Call(func=ast.Attribute() as function) if ast.unparse(function) in UNSAFE_ATTRIBUTES:
                wrong.append(ast.unparse(function))
            case ast.keyword(arg="shell", value=ast.Constant(value=True)):
                wrong.append("shell=True")
            case ast.Call(func=ast.Attribute(attr="load_module" | "exec_module")):
                wrong.append(ast.unparse(node))
    return wrong


def test_no_source_can_run_or_unpickle_what_arrives() -> None:
    assert {path: wrong for path, tree in sources() if (wrong := found(tree))} == {}


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from pickle import loads", "eval(x)", "os.system(x)", "run(x, shell=True)", "import yaml.reader", "__import__(x)"],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert found(ast.parse(source))


def test_only_the_operators_team_is_imported_by_name() -> None:
    by_name: set[tuple[str, str]] = set()
    constant: set[tuple[str, str]] = set()
    teams: set[tuple[str, str]] = set()
    for path, tree in sources():
        for function, call in calls(tree):
            said = ast.unparse(call.func)
            if said.endswith("import_module") and path != "ops/bench/contending.py":  # one of the contenders, by a table
                (constant if path == "workers/agents/specialist.py" else by_name).add(
                    (path, ast.unparse(call) if path == "workers/agents/specialist.py" else function)
                )
            elif said in ("load_team", "team_of"):
                teams.add((path, ast.unparse(call)))
    assert (by_name, constant, teams) == (IMPORTS_BY_NAME, IMPORTS_OF_A_CONSTANT, LOADS_A_TEAM)


def test_a_team_that_a_request_names_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "canary_of_a_request.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings = load_settings({"team": "bitmall"}, env_file=None)
    for name in ("canary_of_a_request:team", "canary_of_a_request", "os:abort", "workers.teams.bitmall.team:team"):
        assert team_at_hand(settings, name, None) is None
    at_hand = team_at_hand(settings, "bitmall", None)
    assert at_hand is not None and at_hand.name == "bitmall"
    with pytest.raises(SystemExit, match="imported"):  # the same name, from a person
        team_at_hand(settings, "bitmall", "canary_of_a_request:team")

"""The documents hold what the code has: programs run, excerpts are true, and everything they name exists."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from ops.cli import app
from ops.commands.exits import EXIT_CODES
from ops.settings import Settings, settings_table, variable

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
DOCUMENTS = [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WIDTH = "100"
"""Columns of the terminal whose output the README shows."""

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def _text(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def _blocks(document: Path, language: str) -> list[str]:
    return [body for kind, body in BLOCK.findall(_text(document)) if kind == language]


def _inline(document: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", BLOCK.sub("", _text(document)))


def _calls(document: Path, program: str) -> Iterator[list[str]]:
    """Every call of a program in shell blocks and in the text, as the arguments behind it."""
    shell = [line for block in _blocks(document, "sh") for line in block.splitlines()]
    for line in (*shell, *_inline(document)):
        words = shlex.split(line, comments=True)
        if program in words and words[0] not in ("docker", "sudo"):
            yield words[words.index(program) + 1 :]


def _run(*command: str, cwd: Path = ROOT, **environment: str) -> str:
    """Run a program of ours to its end, and return what it printed on standard output."""
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _normal(shown: str) -> str:
    """Output without what differs from run to run: trailing blanks, measured times, the number of empty lines."""
    lines = [re.sub(r"\d+\.\d\d s", "0.00 s", line.rstrip()) for line in shown.splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def _assert_excerpt(excerpt: str, shown: str) -> None:
    """Every part between two lines of `…` stands in the output as it is, in this order."""
    rest = _normal(shown)
    for part in re.split(r"^…$", excerpt, flags=re.MULTILINE):
        _, found, rest = rest.partition(_normal(part))
        assert found, f"not printed, or not in this order:\n{part}"


@cache
def _demo(*arguments: str) -> str:
    return _run(sys.executable, "-m", "ops", "demo", *arguments, COLUMNS=WIDTH)


def _excerpts() -> tuple[str, str, str]:
    demo, stuck, first = _blocks(README, "text")
    return demo, stuck, first


def test_the_first_program_prints_what_the_readme_says(tmp_path: Path) -> None:
    (program,) = _blocks(README, "python")
    assert len(program.splitlines()) < 30
    (tmp_path / "shop.py").write_text(program, encoding="utf-8")
    printed = _run(sys.executable, "shop.py", cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert _excerpts()[2] in printed


def test_the_first_program_is_refused_without_its_rule_as_the_readme_says(tmp_path: Path) -> None:
    (program,) = _blocks(README, "python")
    without, times = re.subn(r", FactRules\.of\(.*?\)\)\)$", ")", program, flags=re.MULTILINE)
    assert times == 1
    (tmp_path / "shop.py").write_text(without, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no rule of agent 'counter' produces fact 'pieces'" in done.stderr.splitlines()[-1]


def test_the_program_on_artifacts_prints_what_its_page_says(tmp_path: Path) -> None:
    blocks = BLOCK.findall(_text(ROOT / "docs" / "boundary.md").partition("## Artifacts\n")[2])
    program = next(body for language, body in blocks if language == "python")
    shown = next(body for language, body in blocks if language == "text")
    (tmp_path / "trip.py").write_text(program, encoding="utf-8")
    assert _run(sys.executable, "trip.py", cwd=tmp_path, PYTHONPATH=str(ROOT)) == shown


def _programs(document: Path) -> list[tuple[str, str]]:
    """Every whole program in a document, with what it says that it prints: the block of text behind it."""
    blocks = BLOCK.findall(_text(document))
    return [(body, after) for (kind, body), (_, after) in pairwise(blocks) if kind == "python" and "\nasyncio.run(main())" in body]


@pytest.mark.parametrize(("program", "printed"), _programs(ROOT / "docs" / "boundary.md"))
def test_the_programs_of_the_boundary_print_what_it_says(program: str, printed: str, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(program, encoding="utf-8")
    assert _run(sys.executable, "shop.py", cwd=tmp_path, PYTHONPATH=str(ROOT)) == printed


def test_the_demo_prints_what_the_readme_shows() -> None:
    _assert_excerpt(_excerpts()[0], _demo())


def test_the_stuck_demo_prints_the_notice_that_the_readme_shows() -> None:
    shown = _demo("--scenario", "product-stuck")
    _assert_excerpt(_excerpts()[1], shown)
    assert "DEGRADED: " in shown
    assert "保修与掉线处理" in shown


def test_an_excerpt_that_was_not_printed_is_found() -> None:
    shown = "one\ntook 1.23 s\n\n\n\nthree"
    _assert_excerpt("one\n…\n took 9.99 s\n\nthree".replace(" took", "took"), shown)
    for wrong in ("two", "three\n…\none", "one\nthree"):
        with pytest.raises(AssertionError, match="not printed"):
            _assert_excerpt(wrong, shown)


def test_the_settings_table_is_current() -> None:
    assert settings_table() in _text(README)


def test_the_table_of_exit_codes_is_the_codes() -> None:
    section = _text(README).partition("## Exit codes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", section, re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == EXIT_CODES


def test_every_line_that_is_held_names_its_test() -> None:
    section = _text(README).partition("## What is held")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)[2:]
    assert len(rows) > 12
    for what, held, how in rows:
        assert held == "no" or "held" in held or held == "partly", what
        assert held == "no" or re.search(r"`test_\w+`", how), f"{what}: no test is named"


@each_document
def test_every_named_test_exists(document: Path) -> None:
    defined = set(re.findall(r"^\s*(?:async )?def (test_\w+)", "\n".join(map(_text, (ROOT / "tests").rglob("test_*.py"))), re.MULTILINE))
    named = {name for code in _inline(document) if re.fullmatch(r"test_\w+", name := code)}
    assert named <= defined


@each_document
def test_every_make_target_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", _text(ROOT / "Makefile"), re.MULTILINE))
    for target, *rest in _calls(document, "make"):
        assert target in targets, target
        assert all(word.startswith("ARGS=") for word in rest), rest


@each_document
def test_every_command_and_option_exists(document: Path) -> None:
    for arguments in _calls(document, "briefline"):
        command: Any = typer.main.get_command(app)
        while arguments and hasattr(command, "commands"):
            name, *arguments = arguments
            assert name in command.commands, name
            command = command.commands[name]
        if arguments or not hasattr(command, "commands"):
            command.make_context(command.name, list(arguments))  # raises for an unknown option, a wrong value or a missing argument


def test_a_call_with_a_wrong_option_is_found() -> None:
    command: Any = typer.main.get_command(app)
    for wrong in (["--colour"], []):  # no such option; the text is missing
        with pytest.raises(Exception, match=r"No such option|Missing"):
            command.commands["submit"].make_context("submit", wrong)


@each_document
def test_every_option_in_the_text_is_one_of_some_command(document: Path) -> None:
    def options(command: Any) -> Iterator[str]:
        for parameter in command.params:
            yield from parameter.opts
        for below in getattr(command, "commands", {}).values():
            yield from options(below)

    named = {code.split()[0] for code in _inline(document) if code.startswith("--")}
    assert named <= set(options(typer.main.get_command(app)))


@each_document
def test_every_variable_is_a_setting(document: Path) -> None:
    assert set(re.findall(r"\bBRIEFLINE_[A-Z_]*[A-Z]\b", _text(document))) <= set(map(variable, Settings.model_fields))


@each_document
def test_every_python_module_that_is_run_exists(document: Path) -> None:
    for call in _calls(document, "-m"):
        if call and not call[0].startswith(("not ", "real_llm")):  # -m of pytest names markers
            assert importlib.util.find_spec(call[0]) is not None, call[0]


@each_document
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", _text(document))):
        if "://" not in target:
            assert (document.parent / target.partition("#")[0]).exists(), target


@each_document
def test_every_named_file_folder_and_function_exists(document: Path) -> None:
    tops = "schemas|orchestrator|workers|ops|tests|docs|requirements"
    for code in _inline(document):
        if re.fullmatch(rf"(?:{tops})/[\w./]*", path := code.partition("::")[0]):
            assert (ROOT / path).exists(), path
        if "::" in code:
            assert path.endswith(".py"), code
            _assert_defined(ROOT / path, code.partition("::")[2])


def _assert_defined(path: Path, dotted: str) -> None:
    body: list[ast.stmt] = ast.parse(_text(path)).body
    for name in dotted.split("."):
        found = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name]
        assert found, f"{path.name} has no {dotted}"
        body = found[-1].body


def test_the_readme_leads_to_every_document() -> None:
    linked = set(re.findall(r"\]\(([^)\s]+)\)", _text(README)))
    assert {"docs/architecture.md", "docs/glossary.md", "docs/testing.md", "docs/decisions/", "CHANGELOG.md"} <= linked


def test_the_guide_to_testing_names_every_suite_and_marker() -> None:
    text = _text(ROOT / "docs" / "testing.md")
    suites = {path.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    assert suites <= set(re.findall(r"^\| `tests/(\w+)/` \|", text, re.MULTILINE))
    markers = tomllib.loads(_text(ROOT / "pyproject.toml"))["tool"]["pytest"]["ini_options"]["markers"]
    assert {marker.partition(":")[0] for marker in markers} == set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


def test_decisions_are_numbered_without_a_gap_and_fit_on_a_page() -> None:
    for number, document in enumerate(DECISIONS, start=1):
        assert document.name.startswith(f"{number:04d}-")
        assert _text(document).startswith(f"# {number}. ")
        assert "**Decision.**" in _text(document)
        assert len(_text(document)) < 3000


def test_the_version_in_the_changelog_is_the_packages() -> None:
    version = tomllib.loads(_text(ROOT / "pyproject.toml"))["project"]["version"]
    assert f"## [{version}]" in _text(ROOT / "CHANGELOG.md")


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "pictures").glob("*.svg")), ids=lambda path: path.name)
def test_pictures_are_plain_and_can_be_seen_in_the_dark(picture: Path) -> None:
    root = ElementTree.fromstring(_text(picture))
    kinds = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not kinds & {"script", "foreignObject", "image", "use"}  # what a page that shows pictures of others takes out
    assert {"title", "desc"} <= kinds  # for who cannot see it
    assert "prefers-color-scheme: dark" in _text(picture)

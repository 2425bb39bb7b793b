"""Describing: the JSON Schema of a model with the words that stand beside its fields in the code.

pydantic could take them up itself, but only by reading the source whenever a model is defined: at every start of every
process. Here it is read when somebody exports. `ops.exporting` and `ops.asyncapi` call this room.
"""

from __future__ import annotations

import ast
from functools import cache
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from typing import Any

import schemas
from schemas.frozen import Frozen


def described(model: type[Frozen]) -> dict[str, Any]:
    """Return the JSON Schema of what a reader of `model` takes, without pydantic's titles of fields."""
    schema = model.model_json_schema(mode="validation")
    for name, part in ((model.__name__, schema), *schema.get("$defs", {}).items()):
        for field, value in part.get("properties", {}).items():
            value.pop("title", None)
            if words := field_words(name).get(field):
                value["description"] = words
    return schema


def field_words(name: str) -> dict[str, str]:
    """Return field -> what the code says of it, for a class of `schemas`; members of an enum are fields here."""
    return _words().get(name, {})


@cache
def _words() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for folder in schemas.__path__:
        for file in sorted(Path(folder).glob("*.py")):
            classes = (node for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.ClassDef))
            found |= {node.name: _words_of(node) for node in classes}
    return found


def _words_of(node: ast.ClassDef) -> dict[str, str]:
    words: dict[str, str] = {}
    for statement, following in pairwise(node.body):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=field)) | ast.Assign(targets=[ast.Name(id=field)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                words[field] = cleandoc(text)
    return words

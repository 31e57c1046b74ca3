"""Syntax trees of the code, parsed and walked once for all tests that check rules of it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "headway"


@cache
def modules_below(folder: Path) -> tuple[Path, ...]:
    """Returns the Python files below a folder, sorted."""
    return tuple(sorted(folder.rglob("*.py")))


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Returns the syntax tree of a file. It is shared: do not change it."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_by_type(path: Path) -> Mapping[type[ast.AST], list[Any]]:
    """Returns all nodes of a file's tree in the order of `ast.walk`, by their type."""
    found: dict[type[ast.AST], list[Any]] = {}
    for node in ast.walk(syntax_tree(path)):
        found.setdefault(type(node), []).append(node)
    return found


def nodes(path: Path, *types: type[ast.AST]) -> list[Any]:
    """Returns the nodes of these types in a file."""
    return [node for each in types for node in nodes_by_type(path).get(each, ())]


@cache
def imports(path: Path) -> frozenset[str]:
    """Returns the names of the modules that a file imports."""
    names = {name.name for node in nodes(path, ast.Import) for name in node.names}
    return frozenset(names | {node.module for node in nodes(path, ast.ImportFrom) if node.module})

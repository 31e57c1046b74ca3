"""Public functions, methods and classes have docstrings; STYLE.md names the exceptions. Packages say what belongs elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path

from tests.support.paths import NODE, ROOT
from tests.support.source_trees import SOURCE, modules_below, nodes, syntax_tree

Function = ast.FunctionDef | ast.AsyncFunctionDef
IMPLEMENTS = re.compile(r"Implements ((?:[\w.]+(?:, | and )?)+)")


@dataclass(frozen=True)
class Defined:
    """A class of the code, and where its module imports names from."""

    node: ast.ClassDef
    imports: Mapping[str, tuple[str, str]]

    @cached_property
    def documented(self) -> set[str]:
        return {item.name for item in self.node.body if isinstance(item, Function) and ast.get_docstring(item)}

    @cached_property
    def parents(self) -> list[str]:
        """The names of base classes, and of the Protocols that the docstring names."""
        found = [ast.unparse(base).partition("[")[0] for base in self.node.bases]
        named = IMPLEMENTS.search(" ".join((ast.get_docstring(self.node) or "").split()))
        return found + (re.findall(r"[\w.]*\w", named[1].replace(" and ", ", ")) if named else [])


@cache
def _imports(path: Path) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for node in nodes(path, ast.ImportFrom):
        if node.module:
            found |= {name.asname or name.name: (node.module, name.name) for name in node.names}
    for node in nodes(path, ast.Import):
        found |= {name.name: (name.name, "") for name in node.names}
    return found


@cache
def _classes() -> Mapping[str, list[Defined]]:
    classes: dict[str, list[Defined]] = {}
    for path in [*modules_below(SOURCE), *modules_below(NODE)]:
        for node in nodes(path, ast.ClassDef):
            classes.setdefault(node.name, []).append(Defined(node, _imports(path)))
    return classes


def _library_class(name: str, imports: Mapping[str, tuple[str, str]]) -> object:
    """Returns the class of a library that a base class's name stands for; None for Headway's own."""
    first, _, rest = name.partition(".")
    module, attribute = imports.get(first, ("builtins", first))
    if module.partition(".")[0] == "headway":
        return None
    try:
        found: object = import_module(module)
    except ImportError:  # a module of node/, which has no package of its own here
        return None
    for part in [*filter(None, [attribute]), *filter(None, [rest])]:
        found = getattr(found, part, None)
    return found


def _inherits_docstring(method: str, of: Defined, seen: frozenset[str] = frozenset()) -> bool:
    for parent in of.parents:
        name = parent.rpartition(".")[2]
        if hasattr(_library_class(parent, of.imports), method):
            return True
        for base in _classes().get(name, []):
            if base.node is of.node or name in seen:
                continue
            if method in base.documented or _inherits_docstring(method, base, seen | {name}):
                return True
    return False


def _undocumented(path: Path) -> Iterator[str]:
    tree = syntax_tree(path)

    def walk(body: list[ast.stmt], of: ast.ClassDef | None) -> Iterator[str]:
        for node in body:
            if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
                continue
            where = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
            if isinstance(node, ast.ClassDef):
                if not ast.get_docstring(node):
                    yield where
                yield from walk(node.body, node)
            elif ast.get_docstring(node) or any(ast.unparse(one).endswith(".setter") for one in node.decorator_list):
                continue
            elif of is None:
                if node.name != "main" or not ast.get_docstring(tree):
                    yield where
            elif not _inherits_docstring(node.name, Defined(of, _imports(path))):
                yield where

    yield from walk(tree.body, None)


def test_public_functions_methods_and_classes_have_docstrings() -> None:
    assert [one for root in (SOURCE, NODE) for path in modules_below(root) for one in _undocumented(path)] == []


def _exists(name: str) -> bool:
    """Returns whether a package or module of this name exists: `headway.health`, `health.policy`, `node/agent`."""
    if name.startswith("node"):
        return (ROOT / name).exists()
    path = SOURCE.joinpath(*name.removeprefix("headway.").split("."))
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    return path.parent.with_suffix(".py").is_file() and path.name in path.parent.with_suffix(".py").read_text()


def test_packages_say_what_belongs_elsewhere() -> None:
    wrong = []
    for path in sorted([*SOURCE.rglob("__init__.py"), *NODE.rglob("__init__.py")]):
        text = " ".join((ast.get_docstring(syntax_tree(path)) or "").split())
        _, found, elsewhere = text.partition("Not here: ")
        names = [name for name in re.findall(r"`([^`]+)`", elsewhere.partition(". ")[0]) if " " not in name]
        wrong += [] if found else [f"{path.relative_to(ROOT)}: no 'Not here: '"]
        wrong += [f"{path.relative_to(ROOT)}: there is no {name}" for name in names if not _exists(name)]
    assert wrong == []

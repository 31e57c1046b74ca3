"""No module imports itself through others, counting imports inside functions and under TYPE_CHECKING."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.paths import NODE, ROOT
from tests.support.source_trees import nodes


def modules_below(folder: Path) -> dict[str, Path]:
    found = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    for node in nodes(path, ast.Import):
        yield from (alias.name for alias in node.names)
    for node in nodes(path, ast.ImportFrom):
        for alias in node.names if node.module else ():
            full = f"{node.module}.{alias.name}"
            yield full if full in modules else node.module


def cycle(modules: dict[str, Path]) -> list[str]:
    graph = {
        name: {one for one in imported(path, modules) if one in modules and one != name}
        for name, path in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("folder", [ROOT / "src", NODE], ids=["src", "node"])
def test_modules_have_no_import_cycles(folder: Path) -> None:
    assert cycle(modules_below(folder)) == []


def test_check_detects_import_cycle(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    from b import x\n")
    (tmp_path / "b.py").write_text("from a import f\n")
    assert set(cycle(modules_below(tmp_path))) == {"a", "b"}

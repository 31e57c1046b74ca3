"""The Python programs in docs/ compile, and import only names that Headway has."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}-{number}")
    for path in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
    for number, block in enumerate(FENCE.findall(path.read_text()), 1)
]


@pytest.mark.parametrize("block", BLOCKS)
def test_imports_of_headway_exist(block: str) -> None:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "headway":
            module = importlib.import_module(node.module or "")
            assert not [name.name for name in node.names if not hasattr(module, name.name)], node.module
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "headway":
                    importlib.import_module(name.name)

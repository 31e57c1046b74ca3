"""An unavailable database of the server is no fault of a machine: no code that judges machines catches its error."""

from __future__ import annotations

import ast
from pathlib import Path

import headway
from headway.errors import CommandFailed, Unreachable
from headway.store.db.transactions import CommitUnknown, DatabaseLocked, StoreUnavailable

JUDGES = ("autoscale", "cluster", "health", "rollout")


def test_errors_of_the_database_are_no_errors_of_machines() -> None:
    for error in (StoreUnavailable, DatabaseLocked, CommitUnknown):
        assert not issubclass(error, Unreachable | CommandFailed | OSError | TimeoutError)


def test_code_that_judges_machines_passes_errors_of_the_database_on() -> None:
    """A `try` that writes to the store and catches every HeadwayError either has a clause for StoreUnavailable, or makes its text
    with fault_text, which raises StoreUnavailable again."""
    found = []
    for package in JUDGES:
        for file in sorted((Path(headway.__file__).parent / package).rglob("*.py")):
            found += [f"{file.name}:{node.lineno}" for node in ast.walk(ast.parse(file.read_text())) if _hides(node)]
    assert found == []


def _hides(node: ast.AST) -> bool:
    """Returns whether the statement takes an error of the database for one of a machine."""
    if not isinstance(node, ast.Try):
        return False
    body = "\n".join(map(ast.unparse, node.body))
    kinds = " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type)
    handled = "\n".join(map(ast.unparse, node.handlers))
    writes = ".store" in body or "add_step" in body
    return writes and "HeadwayError" in kinds and "StoreUnavailable" not in kinds and "fault_text" not in handled

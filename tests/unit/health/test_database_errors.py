"""An unavailable database of the server is no fault of a machine: no code that judges machines catches its error."""

from __future__ import annotations

import ast
from pathlib import Path

import headway
from headway.errors import CommandFailed, Unreachable
from headway.store.db.errors import CommitUnknown, DatabaseLocked, StoreUnavailable

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
            found += [f"{file.name}:{line}" for line in hidden(file.read_text())]
    assert found == []


def test_reports_of_progress_and_functions_that_write_count_as_writes() -> None:
    for body in ("await report('roll', 'x')", "await install(machine, self.report)", "await self._change()"):
        text = f"""
class Rollout:
    async def _change(self): await self._tell()
    async def _tell(self): await self.report('roll', 'x')
    async def step(self):
        try:
            {body}
        except HeadwayError as error:
            failures['n'] = error
"""
        assert hidden(text) == [6], body
        assert (
            hidden(
                text.replace(
                    "except HeadwayError", "except StoreUnavailable:\n            raise\n        except HeadwayError"
                )
            )
            == []
        )
    assert hidden("try:\n    await reboot(machine)\nexcept HeadwayError:\n    pass\n") == []


def hidden(text: str) -> list[int]:
    """Returns the lines of statements that take an error of the database for one of a machine."""
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    writers: set[str] = set()
    while more := {one.name for one in functions if _writes(one.body, writers)} - writers:
        writers |= more
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Try) and _hides(node, writers)]


def _hides(node: ast.Try, writers: set[str]) -> bool:
    kinds = " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type)
    handled = "\n".join(map(ast.unparse, node.handlers))
    passed_on = all(ast.unparse(handler.body[-1]) == "raise" for handler in node.handlers)
    caught = (
        "HeadwayError" in kinds and "StoreUnavailable" not in kinds and "fault_text" not in handled and not passed_on
    )
    return caught and _writes(node.body, writers)


def _writes(body: list[ast.stmt], writers: set[str]) -> bool:
    """Returns whether the statements write to the store, report progress, which is a row of the store, or call one of these
    functions of the module."""
    names = {
        node.id if isinstance(node, ast.Name) else node.attr
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name | ast.Attribute)
    }
    return bool(names & {"store", "add_step", "report", "_report", *writers})

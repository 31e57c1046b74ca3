"""A person's function runs in a process of its own, whose faults are faults of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batch_worker.program import CallFailed, Program, StartFailed
from headway.transport.remote_program import program_source

PREDICT = """\
import os
import sys

def predict(rows):
    print("computing", len(rows))
    if "die" in rows:
        os._exit(3)
    if "few" in rows:
        return rows[1:]
    if sys.stdin.read():
        return ["the function has read the calls"]
    return [row * 2 for row in rows]

def other(rows):
    return [None for row in rows]
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[[str], Program]]:
    (tmp_path / "worker.py").write_text(program_source("batch_worker"))
    (tmp_path / "predict.py").write_text(PREDICT)
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    made: list[Program] = []

    def make(name: str) -> Program:
        made.append(Program(str(tmp_path / name), [sys.executable, str(tmp_path / "worker.py"), "call"]))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_results_come_in_the_order_of_rows(program: Callable[[str], Program]) -> None:
    assert program("predict.py").call([b"1", b'"a"']) == [b"2", b'"aa"']
    assert program("predict.py:other").call([b"1"]) == [b"null"]


def test_fault_of_the_function_is_the_fault_of_a_call(program: Callable[[str], Program]) -> None:
    made = program("predict.py")
    with pytest.raises(CallFailed, match="it returned 0 results for 1 rows"):
        made.call([b'"few"'])
    with pytest.raises(CallFailed, match="TypeError"):
        made.call([b"{}"])
    with pytest.raises(CallFailed, match="the program ended: exit code 3"):
        made.call([b'"die"'])
    assert made.call([b"3"]) == [b"6"]


def test_program_that_can_not_be_loaded_computes_no_row(program: Callable[[str], Program]) -> None:
    with pytest.raises(StartFailed, match="could not be loaded: exit code 1"):
        program("broken.py").call([b"1"])

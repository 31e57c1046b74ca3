"""A person's function runs in a process of its own, whose faults are faults of rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batch_worker import program as programs
from batch_worker.program import CallFailed, Program, StartFailed
from headway.transport.remote_program import program_source

PREDICT = """\
import os
import signal
import sys

def predict(rows):
    answers = int(sys.argv[-1])
    if "half" in rows:
        os.write(answers, b'+\\n"row"\\n"cut')
        os._exit(0)
    if "hang" in rows or "leave" in rows and os.fork() == 0:
        with open("alive", "w") as pipe:
            pipe.write("here\\n")
            pipe.flush()
            signal.pause()
    if "leave" in rows:
        os._exit(5)
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
def program(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    (tmp_path / "worker.py").write_text(program_source("batch_worker"))
    (tmp_path / "predict.py").write_text(PREDICT)
    (tmp_path / "slow.py").write_text("import signal\nsignal.pause()\n")
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    os.mkfifo(tmp_path / "alive")
    made: list[Program] = []

    def make(name: str, call_s: float = 600, start_s: float = 600) -> Program:
        arguments = [sys.executable, str(tmp_path / "worker.py"), "call"]
        made.append(Program(str(tmp_path / name), arguments, start_s, call_s))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_results_come_in_the_order_of_rows(program: Callable[..., Program]) -> None:
    assert program("predict.py").call([b"1", b'"a"']) == [b"2", b'"aa"']
    assert program("predict.py:other").call([b"1"]) == [b"null"]


def test_fault_of_the_function_is_the_fault_of_a_call(program: Callable[..., Program]) -> None:
    made = program("predict.py")
    with pytest.raises(CallFailed, match="it returned 0 results for 1 rows"):
        made.call([b'"few"'])
    with pytest.raises(CallFailed, match="TypeError"):
        made.call([b"{}"])
    with pytest.raises(CallFailed, match="the program ended: exit code 3"):
        made.call([b'"die"'])
    assert made.call([b"3"]) == [b"6"]


def test_program_that_can_not_be_loaded_computes_no_row(program: Callable[..., Program]) -> None:
    with pytest.raises(StartFailed, match="could not be loaded: exit code 1"):
        program("broken.py").call([b"1"])
    with pytest.raises(StartFailed, match="the program was not loaded within 1 s"):
        program("slow.py", start_s=1).call([b"1"])


def test_answer_that_is_cut_off_is_no_result(program: Callable[..., Program]) -> None:
    made = program("predict.py")
    with pytest.raises(CallFailed, match="the program ended: exit code 0"):
        made.call([b'"half"', b"1"])
    assert made.call([b"3"]) == [b"6"]


def test_call_that_is_not_answered_in_time_ends_the_program(
    program: Callable[..., Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pipe = os.open("alive", os.O_RDONLY | os.O_NONBLOCK)
    made = program("predict.py", call_s=1)
    with pytest.raises(CallFailed, match="did not answer within 1 s"):
        made.call([b'"hang"'])
    os.set_blocking(pipe, True)
    while os.read(pipe, 100):  # until no process has it open
        pass
    monkeypatch.setattr(programs, "MOST_UNANSWERED", 2)
    with pytest.raises(StartFailed, match="2 calls in a row were not answered within 1 s each"):
        made.call([b'"hang"'])
    os.close(pipe)


def test_process_that_the_function_leaves_behind_ends_with_it(
    program: Callable[..., Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pipe = os.open("alive", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(CallFailed, match="the program ended: exit code 5"):
        program("predict.py").call([b'"leave"'])
    os.set_blocking(pipe, True)
    while os.read(pipe, 100):  # until no process has it open
        pass
    os.close(pipe)


@pytest.fixture
def worker(program: Callable[..., Program], tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Starts a worker of a batch with one row, and the function `predict`."""

    def start(row: str) -> subprocess.Popen[str]:
        (tmp_path / "rows.jsonl").write_text(f"{row}\n")
        settings = {
            "folder": str(tmp_path / "batch"), "input": str(tmp_path / "rows.jsonl"), "program": str(tmp_path / "predict.py"),
            "shard_rows": 1, "call_rows": 1, "start_s": 600, "call_s": 600, "tries": 1, "lease_s": 600, "about": {},
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, str(tmp_path / "worker.py"), "work"],
            env={**os.environ, "HEADWAY_BATCH": json.dumps(settings), "SLURM_JOB_ID": "7"},
            cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    return start


def test_worker_that_fails_tells_why_and_gives_its_lease_back(
    worker: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "batch/parts/0.1").mkdir(parents=True)  # so that the part can't be written
    with worker("1") as process:
        _, errors = process.communicate()
    assert process.returncode == 1
    assert "IsADirectoryError" in errors
    record = json.loads((tmp_path / "batch/workers/7.0").read_bytes())
    assert record["error"].startswith("IsADirectoryError")
    assert (tmp_path / "batch/leases/0.1").stat().st_mtime == 0

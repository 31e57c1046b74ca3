"""Ranks of a job are found among processes, and py-spy reads where they are: 16 processes, of which one sleeps in its data
loader."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.health.jobs.rank_stacks import py_spy
from headway.health.jobs.stall_stragglers import RankStack, find_stragglers
from tests.support.paths import NODE

RANKS, SLOW = 16, 5
JOB = 2 * os.getpid()  # the processes of all jobs here are looked at, also those of this test in another worker
TRAINING = """
import os, sys, time, multiprocessing

def load_batch():
    if int(os.environ["RANK"]) == {slow}:
        print("slow", flush=True)
        time.sleep(600)

def all_reduce():
    print("waits", flush=True)
    sys.stdin.read()

def worker():
    time.sleep(600)

if __name__ == "__main__":
    multiprocessing.Process(target=worker, daemon=True).start()  # a data loader: it inherits RANK
    load_batch()
    all_reduce()
"""


@pytest.fixture
def training(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    script = tmp_path / "train.py"
    script.write_text(TRAINING.format(slow=SLOW))
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "RANK": str(rank), "SLURM_JOB_ID": str(JOB)},
        )
        for rank in range(RANKS)
    ]
    try:
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() in ("waits\n", "slow\n")
        yield ranks
    finally:
        for rank in ranks:
            os.killpg(rank.pid, signal.SIGKILL)  # with its data loader, which would be a rank of the next test
            rank.wait(60)
            assert rank.stdin is not None
            assert rank.stdout is not None
            rank.stdin.close()
            rank.stdout.close()


def read(job: int, program: bytes) -> dict[str, object]:
    request = json.dumps({"job": job, "py_spy": len(program)})
    argv = [sys.executable, "-I", "-S", str(NODE / "programs" / "rank_stacks.py"), request]
    ran = subprocess.run(argv, input=program, capture_output=True, timeout=300, check=True)
    answer: dict[str, object] = json.loads(ran.stdout)
    return answer


def test_rank_that_sleeps_in_its_data_loader_is_named(training: list[subprocess.Popen[str]]) -> None:
    if os.geteuid():
        pytest.skip("py-spy needs root")
    assert py_spy(), "py-spy is a dependency of Headway"
    ranks = read(JOB, py_spy())["ranks"]
    assert isinstance(ranks, list)
    assert [(one["rank"], one["pid"]) for one in sorted(ranks, key=lambda one: one["rank"])] == [
        (number, process.pid) for number, process in enumerate(training)
    ]
    found = find_stragglers([RankStack(one["rank"], "lab-1-1", tuple(one["frames"])) for one in ranks])
    assert found is not None
    assert found.text().startswith(
        f"rank {SLOW} is in load_batch (train.py:7) on lab-1-1, and 15 ranks wait in all_reduce"
    )


def test_ranks_are_read_at_the_same_time(training: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    together = 8  # the GPUs of a node: ranks that hang must not keep each other's stacks from being read in time
    started = tmp_path / "started"
    program = f"""#!/bin/sh
echo >>{started}
while [ $(wc -l <{started}) -lt {together} ]; do sleep 0.05; done
echo '[{{"thread_name": "MainThread", "frames": []}}]'
"""
    ranks = read(JOB, program.encode())["ranks"]
    assert isinstance(ranks, list)
    assert [(one["rank"], one["error"]) for one in ranks] == [
        (number, "") for number, _ in sorted(enumerate(training), key=lambda pair: pair[1].pid)
    ]


def test_other_jobs_have_no_ranks_and_a_missing_py_spy_is_an_error(training: list[subprocess.Popen[str]]) -> None:
    assert read(JOB + 1, b"") == {"ranks": [], "nccl": ""}
    ranks = read(JOB, b"")["ranks"]
    assert isinstance(ranks, list)
    assert {one["error"] for one in ranks} == {"py-spy is not available"}


def test_nccls_report_is_asked_of_its_ras_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server in place of NCCL's, which answers in pieces and closes the connection, as that does."""
    spec = importlib.util.spec_from_file_location("rank_stacks", NODE / "programs" / "rank_stacks.py")
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    asked: list[bytes] = []

    def answer(server: socket.socket) -> None:
        one, _ = server.accept()
        with one:
            asked.append(one.recv(100))
            one.sendall(b"NCCL version 2.28.9\n")
            one.sendall(b"#0-0 (27a0) MISMATCH\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(program, "NCCL_RAS", server.getsockname())
        thread = threading.Thread(target=answer, args=(server,))
        thread.start()
        assert program.nccl_status() == "NCCL version 2.28.9\n#0-0 (27a0) MISMATCH\n"
        thread.join(60)
    assert asked == [b"verbose status\n"]
    assert program.nccl_status() == "", "nothing listens any more"

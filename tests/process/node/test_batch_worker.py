"""A worker that Slurm ends gives its shard back, ends what it has started, and says why it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headway.transport.remote_program import program_source

# Both hold the first row, and tell their process: a function, and a server that does not end when it is asked to.
PROGRAM = """\
import os, signal

def predict(rows):
    with open("computing", "w") as file:
        file.write(str(os.getpid()))
    signal.pause()
"""
SERVER = """\
import http.server, os, signal, sys

class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        with open("computing", "w") as file:
            file.write(str(os.getpid()))
        signal.sigwait([signal.SIGUSR2])

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("server", ["", f"{sys.executable} server.py {{port}}"], ids=["program", "server"])
def test_worker_that_is_ended_gives_its_shard_back(tmp_path: Path, server: str) -> None:
    (tmp_path / "worker.py").write_text(program_source("batch_worker"))
    (tmp_path / "predict.py").write_text(PROGRAM)
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a"}\n')
    settings = {
        "folder": str(tmp_path / "batch"), "input": str(tmp_path / "rows.jsonl"), "shard_rows": 1, "call_rows": 1, "tries": 1,
        "lease_s": 0.06, "start_s": 60, "call_s": 600,
        "program": "" if server else "predict.py", "server": server, "model": "m", "about": {},
    }  # fmt: skip
    env = {**os.environ, "HEADWAY_BATCH": json.dumps(settings), "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "0"}
    worker = subprocess.Popen([sys.executable, "worker.py", "work"], cwd=tmp_path, env=env)
    try:
        while not (computing := tmp_path / "computing").exists() or not computing.read_text():
            assert worker.poll() is None
            time.sleep(0.01)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 143
    finally:
        worker.kill()
        worker.wait()
    assert (tmp_path / "batch" / "leases" / "0.1").stat().st_mtime == 0
    assert not alive(int(computing.read_text()))
    assert list((tmp_path / "batch" / "tmp").iterdir()) == []
    record = json.loads((tmp_path / "batch" / "workers" / "7_0.0").read_text())
    assert record["error"] == "Slurm ended it: its time limit, a preemption, or scancel"

"""`python3 -m headway_train COMMAND` passes the warning only to processes that listen for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

TRAIN = Path(__file__).parents[4] / "node" / "train"
# os.write: the warning may come in the middle of a print.
RANK = """
import os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: (os.write(1, b"warned\\n"), sys.exit(3)))
os.write(1, b"listens\\n")
while True: signal.pause()
"""
LAUNCHER = f"""
import subprocess, sys
deaf = subprocess.Popen(["sleep", "60"])
rank = subprocess.Popen([sys.executable, "-c", {RANK!r}], start_new_session=True)
code = rank.wait()
print("deaf", deaf.poll(), flush=True)
deaf.kill()
sys.exit(code)
"""


def start(*words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "headway_train", *words]
    env = {**os.environ, "PYTHONPATH": str(TRAIN)}
    return subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_warning_reaches_the_rank_but_not_its_launcher() -> None:
    with start(sys.executable, "-c", LAUNCHER) as ran:
        assert ran.stdout is not None
        assert ran.stdout.readline() == "listens\n"
        ran.send_signal(signal.SIGUSR1)
        assert ran.stdout.read() == "warned\ndeaf None\n"
        assert ran.wait(timeout=60) == 3, "the launcher's own end"


def test_early_warning_waits_until_a_process_listens() -> None:
    slow = "import sys; print('up', flush=True); sys.stdin.readline()\n" + RANK
    with start(sys.executable, "-c", slow) as ran:
        assert ran.stdout is not None
        assert ran.stdin is not None
        assert ran.stdout.readline() == "up\n"
        ran.send_signal(signal.SIGUSR1)
        ran.stdin.write("go\n")
        ran.stdin.flush()
        assert ran.stdout.read() == "listens\nwarned\n"
        assert ran.wait(timeout=60) == 3


def test_wrapper_returns_the_exit_code_and_passes_sigterm_on() -> None:
    assert start("true").wait(timeout=60) == 0
    assert start("no-such-program").wait(timeout=60) == 127
    with start("sh", "-c", "echo up; sleep 60 & wait") as ran:
        assert ran.stdout is not None
        assert ran.stdout.readline() == "up\n"
        ran.send_signal(signal.SIGTERM)
        assert ran.wait(timeout=60) == 128 + signal.SIGTERM
        ran.stdout.close()

"""Programs that a node test runs end with the test, also when it is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from agent.node_tests import programs
from agent.node_tests.results import NodeTestSkipped

NODE = Path(programs.__file__).parents[2]
_WAIT_S = 30.0


def child(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


def started(words: list[str]) -> subprocess.Popen[str]:
    """Starts a program and returns once it has written a line."""
    process = programs.start_program(words)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_program_ends_when_its_test_is_killed() -> None:
    code = f"""
        import sys
        sys.path.insert(0, {str(NODE)!r})
        from agent.node_tests.programs import start_program
        process = start_program(["/bin/sleep", "600"])
        print(process.pid, flush=True)
        process.wait()
    """
    test = subprocess.Popen(child(code), stdout=subprocess.PIPE, text=True)
    assert test.stdout is not None
    running = os.pidfd_open(int(test.stdout.readline()))
    test.kill()
    test.communicate()
    try:
        assert select.select([running], [], [], _WAIT_S)[0], "the program still runs"
    finally:
        if not select.select([running], [], [], 0)[0]:
            signal.pidfd_send_signal(running, signal.SIGKILL)
        os.close(running)


def test_program_can_clean_up_before_it_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "stopped"
    process = started(
        child(f"""
            import signal, sys, time
            def stop(*_):
                open({str(file)!r}, "w").close()
                sys.exit(3)
            signal.signal(signal.SIGTERM, stop)
            print("ready", flush=True)
            time.sleep(600)
        """)
    )
    programs.end_program(process)
    assert (process.returncode, file.exists()) == (3, True)


def test_program_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_GRACE_S", 0.1)
    process = started(
        child("""
            import signal, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print("ready", flush=True)
            time.sleep(600)
        """)
    )
    programs.end_program(process)
    assert process.returncode == -signal.SIGKILL


def test_program_that_hangs_is_ended_at_its_limit() -> None:
    began = time.monotonic()
    with pytest.raises(NodeTestSkipped, match=r"sleep did not end within 1 s"):
        programs.run_program(["/bin/sleep", "600"], 1.0)
    assert time.monotonic() - began < _WAIT_S

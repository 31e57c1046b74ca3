"""Runs other test programs that are installed on the machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from agent.node_tests.results import NodeTestSkipped

_MOST_TEXT = 300  # characters of a program's output that are shown


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        """Returns the last line that it wrote, for a message."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return (lines[-1].strip() if lines else f"exit code {self.code}")[:_MOST_TEXT]


def find_program(name: str, package: str) -> str:
    """Returns the path of a program. Raises NodeTestSkipped, naming its package, where it is not installed."""
    path = shutil.which(name)
    if path is None:
        raise NodeTestSkipped(f"{name} is not installed (package {package})")
    return path


def run_program(argv: Sequence[str], limit_s: float) -> Ended:
    """Runs a program to its end. Raises NodeTestSkipped when it does not end within `limit_s` seconds; it and all that it
    started are then killed."""
    process = start_program(argv)
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise NodeTestSkipped(f"{os.path.basename(argv[0])} did not end within {limit_s:.0f} s") from None
    finally:
        end_program(process)
    return Ended(process.returncode, out, err)


def start_program(argv: Sequence[str]) -> subprocess.Popen[str]:
    """Starts a program with a process group of its own."""
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def end_program(process: subprocess.Popen[str]) -> None:
    """Kills a program that still runs, with its process group."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

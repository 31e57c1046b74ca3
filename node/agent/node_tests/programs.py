"""Runs other test programs that are installed on the machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.node_tests.results import NodeTestSkipped

_MOST_TEXT = 300  # characters of a program's output that are shown
_GRACE_S = 10.0  # seconds that a program has after SIGTERM: dcgmi stops the diagnostic, which runs in nv-hostengine
_POLL_S = 0.02
_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None)  # loaded here because nothing should be loaded between fork and exec


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
    """Runs a program to its end. Raises NodeTestSkipped when it does not end within `limit_s` seconds; it is then ended as by
    end_program."""
    process = start_program(argv)
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise NodeTestSkipped(f"{os.path.basename(argv[0])} did not end within {limit_s:.0f} s") from None
    finally:
        end_program(process)
    return Ended(process.returncode, out, err)


def start_program(argv: Sequence[str]) -> subprocess.Popen[str]:
    """Starts a program with a process group of its own. The kernel kills it when the thread that calls this ends, also by
    SIGKILL (a job's prolog ends a test so): the caller must stay until the program has ended."""
    return subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=_die_with(os.getpid()),
    )


def _die_with(parent: int) -> Callable[[], None]:
    """Returns what the child of `parent` calls before it runs its program."""

    def prepare() -> None:
        _libc.prctl(_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it ended before the call
            os._exit(1)

    return prepare


def end_program(process: subprocess.Popen[str]) -> None:
    """Ends a program that still runs, with its process group: by SIGTERM, and after 10 s by SIGKILL."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    # The ended program is not reaped before its group is killed: its number can't belong to another one by then.
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

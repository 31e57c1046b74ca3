"""Ends a process together with the processes that it has started: it was started with a session of its own."""

import contextlib
import os
import signal


def has_ended(process):
    """Returns whether a process has ended. It stays a zombie, so that its number still names its group."""
    if process.returncode is not None:
        return True
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, process.pid, options) is not None
    except ChildProcessError:
        return True


def kill_group(process, number=signal.SIGKILL):
    """Sends a signal to a process and those of its group. Does nothing after `process.wait`."""
    if process is not None and process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)

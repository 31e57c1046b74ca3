"""Runs podman. Needs only Python."""

from __future__ import annotations

import shutil
import subprocess

TIMEOUT_S = 180


def podman(*argv: str) -> str:
    """Returns podman's output; "" if it failed or is not installed."""
    if shutil.which("podman") is None:
        return ""
    ran = subprocess.run(["podman", *argv], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return ran.stdout if ran.returncode == 0 else ""

"""Replaces this process by another program."""

from __future__ import annotations

import os
import sys

from headway.errors import Refused

SSH_PACKAGE = "openssh-client"


def exec_program(argv: list[str], package: str = "") -> None:
    """Replaces this process by `argv`: its terminal, signals and exit code are the program's.

    Raises Refused when the program is not installed; `package` is the Debian package that contains it."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(argv[0], argv)  # noqa: S606
    except FileNotFoundError:
        raise Refused(f"{argv[0]} is not installed here", hint=f"apt install {package}" if package else "") from None

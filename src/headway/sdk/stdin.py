"""Forwards standard input to a command that runs on the cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable


def forward_stdin(send: Callable[[bytes], bool], read: Callable[[], bytes]) -> None:
    """Starts a thread that sends pieces until the input has ended (the last one is empty) or `send` returns False.

    The thread is not joined: it may block in `read` of a terminal after the command has ended."""

    def forward() -> None:
        while send(piece := read()) and piece:
            pass

    threading.Thread(target=forward, daemon=True).start()

"""Standard input of a command that runs elsewhere, read while its output comes."""

from __future__ import annotations

import threading
from collections.abc import Callable


def stdin_thread(put: Callable[[bytes], bool], read: Callable[[], bytes]) -> None:
    """Passes pieces on until the input has ended (an empty piece, passed on too) or nobody takes them any more. Nobody
    waits for the thread: it may hang in `read` of a terminal when the command has ended."""

    def work() -> None:
        while put(piece := read()) and piece:
            pass

    threading.Thread(target=work, daemon=True).start()

"""Saves a traceback in a file, for a bug report."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from pathlib import Path


def save_traceback() -> Path:
    """Writes the traceback being handled, mode 600, and returns the file's path."""
    from headway import __version__

    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "headway"
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(prefix=time.strftime("bug-%Y%m%d-%H%M%S-"), suffix=".log", dir=state)
    except OSError:
        handle, name = tempfile.mkstemp(prefix="headway-bug-", suffix=".log")
    with os.fdopen(handle, "w") as out:
        # Words of the command line may hold a token or a user's text: only the command's name is kept.
        out.write(f"headway {__version__}, Python {sys.version.split()[0]}, command: {' '.join(sys.argv[1:2])}\n\n")
        out.write(traceback.format_exc())
    return Path(name)

"""`python -m headway.server`: the server in the foreground, set by its environment.

HEADWAY_STATE          the state folder
HEADWAY_HOST           address to listen on (127.0.0.1: loopback only)
HEADWAY_PORT           7878, or a free one where that is taken; 0 = any free one
HEADWAY_DATABASE_URL   postgresql://USER@HOST/DATABASE; none = SQLite in the state folder
HEADWAY_DATASET_ROOTS  folders that datasets may come from, separated by ":"; none = any but the system's
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from headway import paths
from headway.errors import HeadwayError


def main() -> int:
    gc.disable()  # imports make no garbage; main.ready turns it on again
    from headway.server.main import DEFAULT_PORT, serve

    env = os.environ
    try:
        port_text = env.get("HEADWAY_PORT", "")
        port = int(port_text) if port_text.isascii() and port_text.isdigit() else None
        roots = tuple(Path(root).resolve() for root in env.get("HEADWAY_DATASET_ROOTS", "").split(":") if root)
        serve(
            paths.state_dir(),
            env.get("HEADWAY_HOST") or "127.0.0.1",
            DEFAULT_PORT if port is None else port,
            env.get("HEADWAY_DATABASE_URL", ""),
            dataset_roots=roots,
        )
    except HeadwayError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"the server can't run on {paths.state_dir()}: {error.strerror or error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""agent.pyz ROLE ...: see the package."""

from __future__ import annotations

import os
import sys


def main() -> None:
    role, *values = sys.argv[1:]
    try:
        if role == "node":
            from .config import load
            from .node import serve_node

            serve_node(load(*values))
        elif role == "head":
            from .config import load
            from .head import serve_head

            serve_head(load(*values))
        elif role == "power":
            from .power import power

            power(*values)
        elif role == "keep":
            from .config import load
            from .recall import keep

            keep(load().state)
        elif role == "recall":
            from .config import load
            from .recall import handed_in, notes_of, recall

            config = load()
            for line in recall(notes_of(config.cluster), inherited=handed_in(config.state)):
                print(line, flush=True)
        elif role == "test":
            from .active import start

            start(values)
        elif role == "watch":
            from .watch import watch

            watch(*values)
        else:
            sys.exit(f"agent: no such role: {role}")
    except BrokenPipeError:  # nobody reads any more
        os._exit(0)


if __name__ == "__main__":
    main()

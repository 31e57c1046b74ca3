"""Dispatches a request to the module that carries it out."""

import json
import sys
from importlib import import_module

# Only the module that is needed is imported, so that a new process for each request starts fast.
DOES = {
    "exec": ("commands", "exec_"),
    "run": ("commands", "run_command"),
    "sbatch": ("submit", "sbatch"),
    "bundle": ("bundles", "store_bundle"),
    "follow": ("logs", "follow_log"),
    "read": ("logs", "read_log_part"),
    "search": ("logs", "search_log"),
    "serve": ("serve", "serve"),
    "terminal": ("terminal", "terminal"),
    "tunnel": ("tunnel", "tunnel"),
}


def main():
    """Reads the request and carries it out."""
    # All users of this machine can read arguments, so the request is the first line of standard input, as for `serve`.
    # Only requests that use standard input until they end come as an argument.
    request = json.loads(sys.argv[1]) if len(sys.argv) > 1 else json.loads(sys.stdin.buffer.readline())["ask"]
    module, name = DOES[request["do"]]
    getattr(import_module(f"user_helper.{module}"), name)(request)


if __name__ == "__main__":
    main()

"""Dispatches a request to the module that carries it out."""

import json
import sys
from importlib import import_module

# Only the module that is needed is imported, so that a new process for each request starts fast.
DOES = {
    "exec": ("commands", "exec_"),
    "run": ("commands", "run"),
    "sbatch": ("submit", "sbatch"),
    "bundle": ("bundles", "bundle"),
    "follow": ("logs", "follow"),
    "read": ("logs", "read"),
    "search": ("logs", "search"),
    "serve": ("serve", "serve"),
    "tunnel": ("tunnel", "tunnel"),
}


def main():
    """Carries out the request."""
    # The request is a line on standard input with data after it, as for `serve`. Requests that need standard input for
    # their whole life come as an argument, which all users on this machine can read.
    ask = json.loads(sys.argv[1]) if len(sys.argv) > 1 else json.loads(sys.stdin.buffer.readline())["ask"]
    module, name = DOES[ask["do"]]
    getattr(import_module(f"user_helper.{module}"), name)(ask)


if __name__ == "__main__":
    main()

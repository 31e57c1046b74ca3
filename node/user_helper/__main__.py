"""Dispatches a request to the module that carries it out."""

import json
import sys
from importlib import import_module

# Only that module is read: a fresh program for each request should start fast.
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
    # On standard input as a helper is asked, data behind it; what needs that for as long as it lives is asked in a word, which
    # everybody on this machine can read.
    ask = json.loads(sys.argv[1]) if len(sys.argv) > 1 else json.loads(sys.stdin.buffer.readline())["ask"]
    module, name = DOES[ask["do"]]
    getattr(import_module(f"user_helper.{module}"), name)(ask)


if __name__ == "__main__":
    main()

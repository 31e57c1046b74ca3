"""One request: what it asks for, done by the module that it belongs to."""

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
    ask = json.loads(sys.argv[1])
    module, name = DOES[ask["do"]]
    getattr(import_module(f"as_person.{module}"), name)(ask)


if __name__ == "__main__":
    main()

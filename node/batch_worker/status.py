"""Tells the progress of a batch from its folder."""

import itertools
import json
import os

_SHOWN_ERRORS = 5
_SHOWN_WORKERS = 100  # the latest
_ERROR_BYTES = 4000


def read_status(folder):
    """Returns the progress as a JSON object. `rows` and `shards` are null until the plan exists."""
    plan = _json(folder, "plan.json")
    workers = [_json(folder, "workers", name) for name in sorted(_names(folder, "workers"))]
    workers = [worker for worker in workers if worker]
    done = [int(name) for name in _names(folder, "done")]
    status = {
        "rows": plan["rows"] if plan else None,
        "shards": len(plan["shards"]) if plan else None,
        "done_shards": len(done),
        "done_rows": sum(plan["shards"][shard][4] for shard in done) if plan else 0,
        "errors": sum(worker["errors"] for worker in workers),
        "seconds": sum(worker["seconds"] for worker in workers),
        "workers": sorted(workers, key=lambda worker: worker["started"])[-_SHOWN_WORKERS:],
        "output": False,
    }
    output = _json(folder, "output", "batch.json")
    if output:
        status.update(output=True, errors=output["errors"], some_errors=_some_errors(os.path.join(folder, "output")))
    return status


def _some_errors(output):
    names = sorted(name for name in os.listdir(output) if name.startswith("errors-"))
    if not names:
        return []
    with open(os.path.join(output, names[0]), "rb") as file:
        lines = itertools.islice(file, _SHOWN_ERRORS)
        return [line[:_ERROR_BYTES].decode(errors="replace").rstrip("\n") for line in lines]


def _names(folder, name):
    try:
        return [found for found in os.listdir(os.path.join(folder, name)) if not found.startswith(".")]
    except FileNotFoundError:
        return []


def _json(*path):
    """Returns the content of a file, or None if it does not exist."""
    try:
        with open(os.path.join(*path), "rb") as file:
            return json.load(file)
    except FileNotFoundError:
        return None

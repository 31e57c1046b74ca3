"""`agent.pyz power FOLDER WORD NODES`, run by slurmctld as SlurmUser: appends one line that the server reads (server_stream.py).
Only SlurmUser can write to the folder, so no other user can ask for machines. The node names are only a hint: the
server then reads
the node states from Slurm."""

from __future__ import annotations

import json
import os
import re
import time

ASKED = "/var/lib/headway-power"
FILE = "asked.jsonl"
MOST_BYTES = 256 * 1024
WORDS = ("up", "down", "failed")
_NODES = re.compile(r"[A-Za-z0-9,\[\]-]{1,20000}")


def write_power_request(folder: str, word: str, nodes: str) -> None:
    """Appends one line to the file in `folder`. `word` is one of WORDS; `nodes` is a hostlist. Ends the program for
    anything else."""
    if word not in WORDS or not _NODES.fullmatch(nodes):
        raise SystemExit(f"power: {word!r} is an unknown request for these nodes")
    path = f"{folder}/{FILE}"
    line = json.dumps({"at": round(time.time(), 1), "word": word, "nodes": nodes})
    if os.path.exists(path) and os.stat(path).st_size > MOST_BYTES:
        os.unlink(path)  # readers notice the new file
    with open(path, "a") as file:
        file.write(line + "\n")

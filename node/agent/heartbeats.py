"""Heartbeats: how often a node's agent sends one, and the file in which the head's agent keeps when each node sent its last
one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from agent.log import log

HEARTBEAT_S = 1.0  # nodes send, the head writes the file, and the server gets its summary this often
HEARTBEATS_FILE = "/run/headway/beats.json"
REPORT_SILENT_S = 2.0  # a node is reported as silent after so long


def write_heartbeats(path: str, last: Mapping[str, float]) -> None:
    """Writes when each node sent its last message (Unix seconds). A failure is logged: `heartbeat_summary` then reports that
    the head's agent is away."""
    try:
        with open(f"{path}.new", "w") as file:
            file.write(json.dumps({node: round(at, 2) for node, at in last.items()}))
        os.replace(f"{path}.new", path)
    except OSError as error:
        log(f"{path}: {error}")


def heartbeat_summary(path: str, now: float) -> dict[str, Any]:
    """Returns the second's summary for the server: {"alive": nodes, "silent": {node: seconds}}, or {"relay": seconds} if the
    head's agent itself is away. `path`: the heartbeats' file. `now`: Unix seconds."""
    try:
        relay_s = now - os.stat(path).st_mtime
        with open(path) as file:
            ages = {node: round(now - at, 1) for node, at in json.load(file).items()}
    except (OSError, ValueError):
        return {"relay": -1}
    if relay_s > REPORT_SILENT_S:
        return {"relay": round(relay_s, 1)}
    silent = {node: age for node, age in ages.items() if age > REPORT_SILENT_S}
    return {"alive": len(ages) - len(silent), "silent": silent}

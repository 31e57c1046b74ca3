"""Slurm's states and numbers in plain words. Pure."""

from __future__ import annotations

from collections.abc import Collection

from headway.domain.durations import split_duration
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import BUSY
from headway.jobs.explain.reason_lines import explain_reason
from headway.schemas.nodes.nodes import NodeOut

_DOWN = {"DOWN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN"}
_STARTING = {"UNKNOWN", "FUTURE", "INVALID_REG", "POWERING_UP", "REBOOT_ISSUED"}


def pending_reason(reason: str) -> str:
    """Returns why a job waits. "(Resources)" and "Resources" give the same text."""
    if reason.strip("() ") == "None":
        return "about to start"
    return explain_reason(reason) or "not yet considered by the scheduler"


def node_kind(node: NodeOut) -> tuple[str, str]:
    """Returns (kind, word) of a node: kind is "up", "idle", "down", "drain" or "start" and selects its style; word
    is shown."""
    states = set(node.states)
    if node.machine not in ("", "running"):
        return ("start", "starting") if node.machine == "starting" else ("down", "down")
    if node.role == "head":
        return "up", node.machine or "running"
    if states & _DOWN:
        return "down", "not responding" if "NOT_RESPONDING" in states and "DOWN" not in states else "down"
    if "DRAIN" in states:
        return "drain", "draining" if states & BUSY else "drained"
    if not states:
        return "start", "not read yet"
    if states & _STARTING:
        return "start", "starting"
    if states & BUSY:
        return "up", "cleaning up" if states & BUSY == {"COMPLETING"} else "in use"
    return "idle", "ready" if node.role == "spare" else "idle"


def incident_kind(state: str) -> str:
    """Returns the style of an incident's state: ok, warn, bad or info."""
    return {"returned": "ok", "false alarm": "info", "out of service": "bad"}.get(state, "warn")


def job_word(state: str, reason: str) -> tuple[str, str]:
    """Returns (kind, word) of a job's state: kind is "running", "waiting", "done", "cancelled" or "failed"."""
    base = state.split()[0].split(",")[0].upper() if state else ""
    if base in RUNNING:
        return "running", {"RUNNING": "running", "CONFIGURING": "starting"}.get(base, base.lower())
    if base in WAITING:
        return "waiting", "held" if "Held" in reason or "HOLD" in base else "pending"
    if base == "COMPLETED":
        return "done", "finished"
    if base == "CANCELLED":
        return "cancelled", "cancelled"
    words = {"OUT_OF_MEMORY": "out of memory", "NODE_FAIL": "node failed", "TIMEOUT": "ran out of time"}
    return "failed", words.get(base, base.lower().replace("_", " ") or "unknown")


def sentence(text: str) -> str:
    """Returns the text with a capital first letter; the rest is unchanged."""
    return text[:1].upper() + text[1:]


def duration(seconds: float) -> str:
    """Returns a duration with two figures at most: 42s, 4m 12s, 3h 07m, 2d 4h."""
    days, hours, minutes, left = split_duration(max(0, int(seconds)))
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {left:02d}s" if minutes else f"{left}s"


def slurm_time(seconds: int) -> str:
    """Returns a duration in squeue's format: 1-02:03:04."""
    days, hours, minutes, left = split_duration(seconds)
    clock = f"{hours:02d}:{minutes:02d}:{left:02d}"
    return f"{days}-{clock}" if days else clock


def count(number: int, one: str, many: str = "") -> str:
    """Returns a number with its noun: "1 node" for (1, "node"), "3 nodes" for (3, "node")."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def node_list(names: Collection[str]) -> str:
    """Returns nodes as Slurm writes them, or their number where that is too long; "" for none."""
    text = compress(names)
    return text if len(text) <= 60 else count(len(names), "node")


def seconds(value: float) -> str:
    """Returns seconds in words: 0.4 s, 14 s, 2m 10s."""
    if value >= 100:
        return duration(int(value))
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"

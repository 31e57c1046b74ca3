"""Values for people: GPU cells, styles of states, durations, times, counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.cli.output.terminal import Span, Terminal
from headway.domain.durations import split_duration
from headway.domain.slurm.job_states import RUNNING, WAITING

if TYPE_CHECKING:
    from decimal import Decimal

    from headway.schemas.nodes.nodes import NodeOut

SIMULATED_NOTE = "GPUs are SIMULATED: these machines have no GPU device."


def gpu_cells(allocated: Sequence[bool], terminal: Terminal) -> list[Span]:
    """Returns one cell per GPU, filled where it is allocated."""
    full, free = ("█", "░") if terminal.unicode else ("#", ".")
    return [(full, "busy") if used else (free, "dim") for used in allocated]


def node_gpus(node: NodeOut, terminal: Terminal) -> list[Span]:
    """Returns `████░░░░ 4/8`; the cells of an unusable node are in the style "bad"."""
    if not node.gpus:
        return []
    allocated = [gpu.job_id is not None for gpu in node.gpus]
    cells = gpu_cells(allocated, terminal)
    if not node.usable:
        cells = [(text, "bad") for text, _ in cells]
    parts = " parts" if node.gpus[0].part else ""
    return [*cells, (f" {sum(allocated)}/{len(allocated)}{parts}", "")]


_BAD_NODE_STATES = {"DOWN", "FAIL", "NOT_RESPONDING", "UNKNOWN", "INVALID_REG", "POWERED_DOWN"}
_WARN_NODE_STATES = {"DRAIN", "DRAINED", "DRAINING", "REBOOT_REQUESTED", "COMPLETING", "MAINTENANCE", "FUTURE"}
_BUSY_NODE_STATES = {"ALLOCATED", "MIXED"}
_INCIDENT_STYLES = {"returned": "good", "false alarm": "dim", "out of service": "bad"}


def node_style(states: Sequence[str]) -> str:
    """Returns the style of a node with these Slurm states."""
    found = set(states)
    if found & _BAD_NODE_STATES or not found:
        return "bad"
    if found & _WARN_NODE_STATES:
        return "warn"
    return "busy" if found & _BUSY_NODE_STATES else "good"


def incident_style(state: str) -> str:
    """Returns the style of an incident's state; "warn" while it is open."""
    return _INCIDENT_STYLES.get(state, "warn")


def budget_style(level: str) -> str:
    """Returns the style of a budget's level: ok, warn or over."""
    return {"ok": "good", "warn": "warn", "over": "bad"}[level]


def job_style(state: str) -> str:
    """Returns the style of a job state; "bad" for states such as FAILED."""
    if state in {"COMPLETED", "CANCELLED", "CACHED", "SKIPPED"}:
        return "dim"
    if state in RUNNING or state in WAITING:
        return "good" if state == "RUNNING" else "warn"
    return "bad"


def duration(seconds: float | None) -> str:
    """Returns a duration as Slurm prints it: 4:07, 1:04:07, 2-01:04:07; "unlimited" for None."""
    if seconds is None:
        return "unlimited"
    days, h, m, s = split_duration(max(0, int(seconds)))
    if days:
        return f"{days}-{h:02}:{m:02}:{s:02}"
    return f"{h}:{m:02}:{s:02}" if h else f"{m}:{s:02}"


def seconds(value: float | None) -> str:
    """Returns `1.5 s`; "" for None."""
    return "" if value is None else f"{max(0.0, value):.1f} s"


def utc_day(unix_s: float) -> str:
    """Returns the UTC date."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d")


def local_time(unix_s: float | None) -> str:
    """Returns a local date and time; "" for None and 0."""
    if not unix_s:
        return ""
    from datetime import datetime

    return datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def usd(amount: Decimal | float) -> str:
    """Returns an amount with two decimals, such as `1,234.50`."""
    return f"{amount:,.2f}"


def share(part: float | None) -> str:
    """Returns a part of 1 in per cent; "" for None."""
    return "" if part is None else f"{100 * part:.1f} %"


def plural(number: int, one: str, many: str = "") -> str:
    """Returns `1 node`, `3 nodes`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def sparkline(values: Sequence[float], terminal: Terminal, width: int = 48) -> str:
    """Returns a curve of `values` in at most `width` block characters; "" where it can't be drawn."""
    finite = [v for v in values if v == v and abs(v) != float("inf")]
    if len(finite) < 2 or not terminal.unicode:
        return ""
    step = max(1.0, len(finite) / width)
    picked = [finite[int(i * step)] for i in range(min(width, len(finite)))]
    low, high = min(picked), max(picked)
    marks = "▁▂▃▄▅▆▇█"
    return "".join(marks[round((v - low) / (high - low) * 7) if high > low else 0] for v in picked)

"""Declares a Slurm field once: its place in the answer, its parser, and Headway's name for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.domain.slurm.hostlist import expand
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState, Reservation

_GRES_COUNT = re.compile(r"^gpu(?::[^:()]+)?:(\d+)")
_GRES_TYPE = re.compile(r"^gpu:([^:()]+):\d+")
_IDX = re.compile(r"\(IDX:([\d,\-]*)\)")
_SHARED = re.compile(r"\((\d+/\d+(?:,\d+/\d+)*)\)")
_MEMORY = re.compile(r"\bmem=(\d+(?:\.\d+)?)([KMGTP]?)")
_MIB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_BETWEEN = re.compile(r",(?![^(]*\))")  # commas that are not inside "(IDX:0-1,4)"

# Flags that squeue shows instead of the base state while they are set.
_SHOWN_FLAGS = ("COMPLETING", "CONFIGURING", "STAGE_OUT", "REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED", "SIGNALING")


@dataclass(frozen=True)
class Field:
    """A field of a record. `name` is Headway's name, `source` is Slurm's key, `parse` converts the value, `unit`
    is Slurm's unit. `default` is used where a record lacks the key, as in older or newer versions."""

    name: str
    source: str
    parse: Callable[[Any], Any]
    unit: str = ""
    default: Any = field(default=None)


def read_record(fields: Iterable[Field], row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns Headway's fields of one of Slurm's records."""
    found = {}
    for spec in fields:
        value = row.get(spec.source)
        found[spec.name] = spec.default if value is None else spec.parse(value)
    return found


@dataclass(frozen=True)
class Adapter:
    """Paths and parsers of one slurmrestd version."""

    version: str  # "v0.0.42"
    nodes: str
    jobs: str
    job: str  # with {id}
    reservations: str
    ping: str
    plain: Mapping[str, str]  # parameters that leave out the per-core lists
    detailed: Mapping[str, str]  # parameters that add gres_detail
    node_state: Callable[[Mapping[str, Any]], NodeState]
    job_state: Callable[[Mapping[str, Any]], JobState]
    reservation: Callable[[Mapping[str, Any]], Reservation]
    reservations_apart: bool = False  # True where nodes do not name their reservation


# ---- parsers, by the shape of a value --------------------------------------------------------------------------------


def parse_text(value: Any) -> str:
    """Returns the value as text; "" for `(null)` and `N/A`, which Slurm writes for nothing."""
    return "" if value in ("(null)", "N/A", "None", None) else str(value)


def parse_program(value: Any) -> str:
    """Returns the first word of a command: its arguments may contain secrets, and all users see the queue."""
    return parse_text(value).partition(" ")[0]


def parse_words(value: Any) -> tuple[str, ...]:
    """Returns the words of a list, or of a text with commas."""
    if isinstance(value, str):
        value = [word for word in value.split(",") if word]
    return tuple(str(word) for word in value)


def parse_number(value: Any) -> int:
    """Returns a plain number, or the number of Slurm's {"set", "infinite", "number"}; 0 for not set and infinite."""
    return _number(value) or 0


def seconds_from_minutes(value: Any) -> int | None:
    """Returns minutes as seconds; None for no limit."""
    minutes = _number(value)
    return None if minutes is None else minutes * 60


def _number(value: Any) -> int | None:
    if isinstance(value, dict):
        if not value.get("set", True) or value.get("infinite", False):
            return None
        value = value.get("number", 0)
    return int(value or 0)


def parse_hosts(value: Any) -> tuple[str, ...]:
    """Returns the names of a host list, in Slurm's order."""
    listed = parse_text(value)
    return tuple(expand(listed)) if listed else ()


def gpu_count(value: Any) -> int:
    """Returns the GPUs of a GRES text: `gpu:h100:8(S:0-1),gpu:l40s:2` -> 10."""
    return sum(int(match[1]) for part in _BETWEEN.split(parse_text(value)) if (match := _GRES_COUNT.match(part)))


def gpu_types(value: Any) -> tuple[str, ...]:
    """Returns the types of a GRES text: `gpu:h100:8(S:0-1),gpu:l40s:2` -> ("h100", "l40s")."""
    found = (_GRES_TYPE.match(part) for part in _BETWEEN.split(parse_text(value)))
    return tuple(dict.fromkeys(match[1] for match in found if match))


def gpu_indexes(value: Any) -> tuple[int, ...]:
    """Returns the GPU numbers of a GRES text: `gpu:h100:3(IDX:0-1,5)` -> (0, 1, 5), `shard:3(3/8,0/8)` -> (0,)."""
    found: set[int] = set()
    for part in _BETWEEN.split(parse_text(value)):
        if (shared := _SHARED.search(part)) and part.startswith(("shard", "mps")):
            found.update(i for i, use in enumerate(shared[1].split(",")) if not use.startswith("0/"))
            continue
        match = _IDX.search(part)
        if match is None or not part.startswith("gpu"):
            continue
        for span in filter(None, match[1].split(",")):
            first, _, last = span.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def gpu_shares_of_tres(value: Any) -> int:
    """Returns the shards, or the per cent of MPS, of a TRES text: `cpu=1,gres/shard=3` -> 3."""
    parts = (part.partition("=") for part in parse_text(value).split(","))
    return sum(int(count) for name, _, count in parts if name in ("gres/shard", "gres/mps"))


def gpus_of_tres(value: Any) -> int:
    """Returns the GPUs of a TRES text: `cpu=2,mem=200M,gres/gpu=4,gres/gpu:h100=4` -> 4 (the total, not the counts
    by type)."""
    for part in parse_text(value).split(","):
        name, _, count = part.partition("=")
        if name == "gres/gpu":
            return int(count)
    return 0


def memory_of_tres(value: Any) -> int:
    """Returns the MiB of a TRES text: `cpu=2,mem=1.5G,node=1` -> 1536."""
    match = _MEMORY.search(parse_text(value))
    return int(float(match[1]) * _MIB[match[2]]) if match else 0


def one_line_text(value: Any) -> str:
    """Returns any value as one line: lists with commas, "" for a value that is not set."""
    if isinstance(value, dict):
        return _of_number(value) if "number" in value else ""
    if isinstance(value, list):
        return ",".join(str(word) for word in value)
    return parse_text(value)


def flag_text(value: Any) -> str:
    """Returns "yes" or "", for a flag that squeue shows as a word."""
    return "yes" if value and value not in ("0", "no") else ""


def _of_number(value: dict[str, Any]) -> str:
    found = _number(value)
    return str(found) if found else ""


def base_state(value: Any) -> str:
    """Returns the state as squeue shows it in one word: the first flag that squeue shows, else the base state. A
    job that ends is COMPLETING until its epilog is done."""
    words = parse_words(value)
    for flag in _SHOWN_FLAGS:
        if flag in words:
            return flag
    return words[0] if words else ""

"""The outcome of a replay: what Slurm refused, why jobs waited, and how long, from the events of node/programs/replay_jobs.py."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.slurm_import.replay.submissions import Replay

_FAILED = re.compile(r"submission failed: (.+)")
# Reasons of pending jobs that are no limit: other jobs or the scheduler (squeue(1), JOB REASON CODES)
_NO_LIMIT = (
    "",
    "None",
    "Priority",
    "Resources",
    "BeginTime",
    "Dependency",
    "Licenses",
    "Reservation",
    "Cleaning",
    "Prolog",
)


@dataclass
class PartitionOutcome:
    """Jobs of one partition of the site. Waits in seconds of the site's time."""

    submitted: int = 0
    refused: int = 0
    started: int = 0
    site_waits_s: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)


@dataclass
class Outcome:
    """`refused` and `limited`: Slurm's reason -> ids of the site's jobs."""

    partitions: dict[str, PartitionOutcome] = field(default_factory=dict)
    refused: dict[str, list[str]] = field(default_factory=dict)
    limited: dict[str, list[str]] = field(default_factory=dict)


def read_outcome(replay: Replay, events: Iterable[Mapping[str, Any]]) -> Outcome:
    """Returns the outcome of these events."""
    found = Outcome()
    for event in events:
        job = replay.submissions[event["job"]].job
        of = found.partitions.setdefault(job.partition, PartitionOutcome())
        match event["kind"]:
            case "submitted":
                of.submitted += 1
            case "refused":
                of.refused += 1
                found.refused.setdefault(_refusal(event["why"]), []).append(job.job_id)
            case "waits" if event["why"] not in _NO_LIMIT:
                jobs = found.limited.setdefault(event["why"], [])
                if job.job_id not in jobs:
                    jobs.append(job.job_id)
            case "ended" if event["wait"] is not None:
                of.started += 1
                of.waits_s.append(max(0.0, event["wait"]) * replay.factor)
                if job.start:
                    of.site_waits_s.append(job.wait_s)
    return found


def median(waits_s: list[float]) -> float | None:
    """Returns the median; None without a wait."""
    return statistics.median(waits_s) if waits_s else None


def _refusal(text: str) -> str:
    """Returns the reason in an error of sbatch."""
    match = _FAILED.search(text)
    lines = [line.removeprefix("sbatch: error: ") for line in text.splitlines() if line.strip()]
    return match[1].strip() if match else (lines[-1] if lines else "sbatch gave no reason")

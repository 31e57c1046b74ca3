"""Reads which job holds which GPU. The prolog writes it to a file for each job."""

from __future__ import annotations

import os
from dataclasses import dataclass

JOBS = "/var/lib/headway/job-tmp"


@dataclass(frozen=True)
class Job:
    """A job on this node and the indices of its GPUs."""

    number: int
    gpus: tuple[int, ...]


def jobs_on_node(folder: str = JOBS) -> list[Job]:
    """Returns all jobs on this node, sorted by number."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    numbers = sorted(int(name) for name in names if name.isdigit())
    return [Job(number, _numbers(f"{folder}/{number}/gpus")) for number in numbers]


def _numbers(path: str) -> tuple[int, ...]:
    try:
        with open(path) as file:
            return tuple(int(word) for word in file.read().strip().split(",") if word.isdigit())
    except OSError:
        return ()

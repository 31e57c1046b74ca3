"""Reads which job holds which GPU. The prolog writes it to a file for each job."""

from __future__ import annotations

import os
from dataclasses import dataclass

JOBS = "/var/lib/headway/job-tmp"
GPU_OF_PART = "/run/headway/gpu-of-part"  # the GPU of each MIG instance, in the order in which Slurm counts them


@dataclass(frozen=True)
class GpuJob:
    """A job on this node and the indices of its GPUs."""

    number: int
    gpus: tuple[int, ...]


def jobs_on_node(folder: str = JOBS, parts: str = GPU_OF_PART) -> list[GpuJob]:
    """Returns all jobs on this node, sorted by number. A job with MIG instances has the GPUs that they are parts of."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    numbers = sorted(int(name) for name in names if name.isdigit())
    gpu_of = _numbers(parts)
    return [GpuJob(number, _gpus(_numbers(f"{folder}/{number}/gpus"), gpu_of)) for number in numbers]


def _gpus(held: tuple[int, ...], gpu_of: tuple[int, ...]) -> tuple[int, ...]:
    if not gpu_of:
        return held
    return tuple(dict.fromkeys(gpu_of[part] for part in held if part < len(gpu_of)))


def _numbers(path: str) -> tuple[int, ...]:
    try:
        with open(path) as file:
            return tuple(int(word) for word in file.read().strip().split(",") if word.isdigit())
    except OSError:
        return ()

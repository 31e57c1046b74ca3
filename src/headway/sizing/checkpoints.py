"""Checkpoints of a training: their size, how long a write takes, and the interval that loses least."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from headway.sizing.training_run import OPTIMIZERS, TrainingRun

# Llama 3 405B (2407.21783, section 3.3.4): 419 unexpected interruptions in 54 days on 16,384 GPUs.
GPU_HOURS_PER_INTERRUPTION = 16_384 * 54 * 24 / 419
WRITE_BYTES_S_PER_NODE = 2e9  # an assumption: shared storage that takes 2 GB/s from each machine, and 200 GB/s of all
MOST_WRITE_BYTES_S = 200e9
_RESTART_S = 600.0  # from an interruption to the first new step: an assumption


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Bytes and seconds. `lost_share`: part of the time that writes, repeated steps and restarts take."""

    size_bytes: float
    write_s: float
    interval_s: float
    interruptions_a_day: float
    lost_share: float


def plan_checkpoints(run: TrainingRun, write_bytes_s: float = 0) -> CheckpointPlan:
    """Returns the plan for synchronous writes by all machines; `write_bytes_s` of the whole storage, 0: 2 GB/s a machine. The
    interval is Young's, sqrt(2 x write time x mean time between interruptions) (Daly, 2006, equation 1)."""
    trained = run.shape.parameters * run.trained_share
    size = trained * (2.0 + OPTIMIZERS[run.optimizer])
    write = size / (write_bytes_s or min(MOST_WRITE_BYTES_S, WRITE_BYTES_S_PER_NODE * run.nodes))
    between = GPU_HOURS_PER_INTERRUPTION / run.gpus * 3600
    interval = max(60.0, sqrt(2 * write * between))
    lost = write / interval + (interval / 2 + _RESTART_S) / between
    return CheckpointPlan(size, write, interval, 86_400 / between, min(0.9, lost))

"""Which GPU time of a job counts as idle in costs. When the owner of an idle job is told: health/jobs/stall_detection.py."""

from __future__ import annotations

IDLE_IN_COSTS_BELOW_PERCENT = 2.0  # mean utilization, over a sample, of a job's busiest GPU


def idle_seconds(utilization_percent: float | None, sample_s: int) -> int:
    """Returns how many seconds of a sample count as idle: all or none. With None (not measured) the job counts as busy."""
    return sample_s if utilization_percent is not None and utilization_percent < IDLE_IN_COSTS_BELOW_PERCENT else 0

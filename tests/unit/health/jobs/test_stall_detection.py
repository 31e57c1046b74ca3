"""Stalled jobs are distinguished from jobs that only look stalled."""

from __future__ import annotations

import pytest

from headway.domain.cluster import StallRule
from headway.health.jobs.stall_detection import (
    GpuUsage,
    StallKind,
    detect_idle,
    detect_stall,
    format_duration,
    job_rules,
)

HALF_AN_HOUR = StallRule(1800)
NOTHING, SPINS, WORKS = GpuUsage(0, 0, 0, 8), GpuUsage(100, 100, 0, 8), GpuUsage(100, 99, 40, 8)


@pytest.mark.parametrize(
    ("quiet_s", "use", "stalled"),
    [
        (1800, NOTHING, True),
        (1800, SPINS, True),
        (1799, SPINS, False),  # not yet
        (9000, WORKS, False),  # long steps, or one that writes nothing
        (9000, GpuUsage(100, 20, 0, 8), False),  # one GPU waits, another doesn't
        (9000, None, False),  # nobody knows
    ],
)
def test_stall_requires_quiet_time_and_useless_gpu_activity(
    quiet_s: float, use: GpuUsage | None, stalled: bool
) -> None:
    assert (detect_stall(HALF_AN_HOUR, quiet_s, use) is not None) is stalled


def test_idle_job_is_detected_by_unused_gpus() -> None:
    stall = detect_idle(StallRule(7200), 7200, NOTHING)
    assert stall is not None
    assert (stall.kind, stall.why) == (StallKind.IDLE, "its GPUs did nothing for 2 h")
    assert detect_idle(StallRule(7200), 7199, NOTHING) is None
    assert detect_idle(StallRule(7200), 7200, SPINS) is None
    assert detect_idle(StallRule(7200), 7200, None) is None


def test_zero_time_disables_stall_rule() -> None:
    assert detect_stall(StallRule(0), 1e9, NOTHING) is None
    assert detect_idle(StallRule(0), 1e9, NOTHING) is None


@pytest.mark.parametrize(
    ("comment", "stall_s", "idle_s"),
    [
        ("", 1800, 7200),
        ("stall=600 idle=0", 600, 0),
        ("run 7, stall=60", 60, 7200),
        ("change=5 stall=x idle=-3", 1800, 7200),
    ],
)
def test_job_comment_overrides_stall_times(comment: str, stall_s: int, idle_s: int) -> None:
    stall, idle = job_rules(comment, StallRule(1800, acts=True), StallRule(7200))
    assert (stall, idle) == (StallRule(stall_s, acts=True), StallRule(idle_s))


def test_format_duration_picks_readable_unit() -> None:
    assert [format_duration(value) for value in (40, 90, 1800, 7200)] == ["40 s", "90 s", "30 min", "2 h"]

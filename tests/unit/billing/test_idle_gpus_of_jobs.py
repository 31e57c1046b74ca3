from __future__ import annotations

from headway.billing.idle_gpus_of_jobs import IDLE_IN_COSTS_BELOW_PERCENT, idle_seconds


def test_a_sample_is_idle_below_two_per_cent() -> None:
    assert idle_seconds(IDLE_IN_COSTS_BELOW_PERCENT - 0.1, 60) == 60
    assert idle_seconds(IDLE_IN_COSTS_BELOW_PERCENT, 60) == 0


def test_a_job_that_was_not_measured_is_busy() -> None:
    assert idle_seconds(None, 60) == 0

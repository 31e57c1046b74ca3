"""A group waits longer after each failed try to create machines."""

from __future__ import annotations

from headway.autoscale.retry_delays import CreationBackoff, retry_delay_s


def test_retry_delay_doubles_up_to_maximum() -> None:
    assert [retry_delay_s(count) for count in (1, 2, 3, 4)] == [60, 120, 240, 480]
    assert retry_delay_s(20) == 1800


def test_machines_requested_together_count_as_one_try() -> None:
    backoff = CreationBackoff()
    assert backoff.record_failure("gpu", 100.0, 110.0) == (1, 170.0)
    assert backoff.record_failure("gpu", 105.0, 130.0) == (1, 190.0), "requested before the first one failed"
    assert backoff.record_failure("gpu", 190.0, 200.0) == (2, 320.0)
    assert (backoff.waiting_groups(319.0), backoff.waiting_groups(320.0)) == ({"gpu"}, set())
    backoff.record_success("gpu")
    assert backoff.record_failure("gpu", 400.0, 410.0) == (1, 470.0)

"""Figures add up, percentiles come from buckets, and counters of replicas become what was counted since the last reading."""

from __future__ import annotations

import json

import pytest

from headway.domain.serving.service_figures import (
    ReplicaCounters,
    ServiceFigures,
    bucket_of,
    percentile_ms,
    sum_figures,
)


def test_figures_add_up_and_pass_through_json() -> None:
    one = ServiceFigures(10, 1, 2, 30, 40, {5: 3}, {4: 3}, {})
    other = ServiceFigures(5, 0, 0, 0, 0, {5: 1, 6: 4}, {4: 5}, {9: 1})
    both = ServiceFigures(15, 1, 2, 30, 40, {5: 4, 6: 4}, {4: 8}, {9: 1})
    assert sum_figures([one, other]) == both
    assert ServiceFigures.of(json.loads(json.dumps(both.document()))) == both
    assert both.error_rate == pytest.approx(1 / 15)
    assert ServiceFigures().error_rate == 0


@pytest.mark.parametrize("seconds", [0.002, 0.02, 0.5, 7.0, 900.0])
def test_percentile_is_right_to_about_five_per_cent(seconds: float) -> None:
    found = percentile_ms({bucket_of(seconds): 100}, 0.95)
    assert found is not None
    assert found / (1000 * seconds) == pytest.approx(1, abs=0.06)


def test_percentiles_count_from_the_fastest() -> None:
    fast, slow = bucket_of(0.01), bucket_of(1.0)
    buckets = {slow: 4, fast: 96}
    half, most, nearly_all = (percentile_ms(buckets, share) for share in (0.5, 0.95, 0.99))
    assert half == most == pytest.approx(10, rel=0.06)
    assert nearly_all == pytest.approx(1000, rel=0.06)
    assert percentile_ms({}, 0.5) is None
    assert percentile_ms({0: 1}, 0.5) == 0.5


def test_counters_are_what_came_since_the_last_reading() -> None:
    before = ReplicaCounters(100, 50, {"0.1": 2, "0.5": 5, "+Inf": 6})
    now = ReplicaCounters(130, 80, {"0.1": 3, "0.5": 9, "+Inf": 10})
    found = now.since(before)
    assert (found.prompt_tokens, found.generated_tokens) == (30, 30)
    assert found.first_token == {bucket_of(0.1): 1, bucket_of(0.5): 3}
    assert now.since(None).generated_tokens == 80
    again = ReplicaCounters(7, 3, {"0.1": 1, "+Inf": 1}).since(now)
    assert (again.generated_tokens, again.first_token) == (3, {bucket_of(0.1): 1}), "the replica was started again"
    assert ReplicaCounters(first_token={"nonsense": 3}).since(None).first_token == {}

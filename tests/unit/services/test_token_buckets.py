"""A bucket allows its size at once, then its size a minute; an overdrawn one fills again first."""

from __future__ import annotations

from headway.services.token_buckets import TokenBuckets


def test_bucket_allows_its_size_at_once_and_then_one_a_second() -> None:
    buckets = TokenBuckets(60)
    assert [buckets.take("ann", 0.0) for _ in range(60)] == [0] * 60
    assert buckets.take("ann", 0.0) == 1
    assert buckets.take("bob", 0.0) == 0
    assert buckets.take("ann", 1.0) == 0
    assert buckets.take("ann", 1.0) == 1


def test_refused_request_takes_nothing_and_an_old_bucket_is_no_fuller_than_its_size() -> None:
    buckets = TokenBuckets(2)
    assert [buckets.take("ann", 0.0) for _ in range(5)] == [0, 0, 30, 30, 30]
    assert [buckets.take("ann", 9000.0) for _ in range(3)] == [0, 0, 30]


def test_large_request_overdraws_the_bucket_and_delays_the_next() -> None:
    buckets = TokenBuckets(60)
    assert buckets.take("ann", 0.0, 200) == 0
    assert buckets.take("ann", 0.0) == 141
    assert buckets.take("ann", 141.0) == 0


def test_clock_that_goes_back_empties_no_bucket() -> None:
    buckets = TokenBuckets(60)
    buckets.take("ann", 100.0, 10)
    assert buckets.take("ann", 50.0) == 0
    assert buckets.take("ann", 51.0, 50) == 0

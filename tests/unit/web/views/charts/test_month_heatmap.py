"""The monthly heatmap places each hour in the right day and level."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from headway.billing.periods import month_period
from headway.schemas.billing.capacity import HourOut, TypeOut
from headway.web.views.charts.month_heatmap import heat, level

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("share", "found"), [(0, 0), (0.001, 1), (0.25, 1), (0.5, 2), (0.75, 3), (0.86, 3), (0.9, 4), (1, 4), (1.01, 4)]
)
def test_share_maps_to_heatmap_level(share: float, found: int) -> None:
    assert level(share) == found


def test_hours_are_placed_in_days_of_cluster_time_zone() -> None:
    october = month_period("2026-10", BERLIN)
    hours = [
        HourOut(at=october.start, allocated=8, present=8),
        HourOut(at=october.start + 3600, allocated=0, present=8),
        HourOut(at=october.start + 7200, allocated=0, present=0),  # no machine yet
        HourOut(at=october.end - 3600, allocated=4, present=8),  # after the night with an hour more
    ]
    [picture] = heat([TypeOut(gpu_type="h100", utilisation=0.5, hours=hours)], october, BERLIN)
    assert picture.days == tuple(range(1, 32))
    assert picture.levels == {0: "M0 1h1v1h-1z", 2: "M30 23h1v1h-1z", 4: "M0 0h1v1h-1z"}
    assert picture.summary == "Share of GPUs allocated: at most 100%, on day 1 at 0 h; none allocated in 1 of 3 hours"


def test_fragmented_free_gpus_have_their_own_heatmap() -> None:
    october = month_period("2026-10", BERLIN)
    hours = [
        HourOut(at=october.start, allocated=4, present=16, free=12, fragmented=3),
        HourOut(at=october.start + 3600, allocated=16, present=16, free=0, fragmented=0),  # nothing was free
        HourOut(at=october.start + 7200, allocated=8, present=16, free=8, fragmented=8),
    ]
    held, free = heat([TypeOut(gpu_type="h100", utilisation=0.5, fragmentation=0.5, hours=hours)], october, BERLIN)
    assert (held.title, held.ends) == ("H100, hour by hour", ("none allocated", "all"))
    assert (free.title, free.kind) == ("H100, free in pieces, hour by hour", "h100")
    assert free.levels == {1: "M0 0h1v1h-1z", 4: "M0 2h1v1h-1z"}
    assert free.summary.endswith("at most 100%, on day 1 at 2 h; none in pieces in 0 of 2 hours")


def test_gpu_type_without_machines_has_no_heatmap() -> None:
    october = month_period("2026-10", BERLIN)
    empty = TypeOut(gpu_type="h200", utilisation=None, hours=[HourOut(at=october.start, allocated=0, present=0)])
    assert heat([empty], october, BERLIN) == []

"""Months and moments in a time zone."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from headway.billing import cluster_invoice, periods
from headway.billing.prices import price_segments
from headway.domain.billing.ledger import MachineLifetime
from tests.support.billing.october import OCTOBER, UTC, H, priced


def test_daylight_saving_month_bills_one_hour_more_or_less() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert periods.month_period("2026-10", berlin).seconds == 745 * H
    assert periods.month_period("2026-03", berlin).seconds == 743 * H
    assert OCTOBER.seconds == 744 * H
    a_month = [MachineLifetime("lab-1-1", "main", 0, 0, 0)]
    for name, hours in (("2026-10", 745), ("2026-03", 743)):
        period = periods.month_period(name, berlin)
        cut = price_segments.segments(priced((0, "2")), {"main"}, period)
        found = cluster_invoice.invoice_lines("lab", period, cluster_invoice.metered(a_month, [], cut, period.end))
        assert found.total_cents == hours * 200
    days = periods.days(*((p := periods.month_period("2026-10", berlin)).start, p.end), berlin)
    assert len(days) == 31
    assert max(end - start for start, end in days) == 25 * H


def test_parses_months_and_moments_in_time_zone() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert periods.month_period("2026-12", berlin).end == periods.month_period("2027-01", berlin).start
    assert periods.previous_month(OCTOBER, UTC).name == "2026-09"
    assert periods.month_of(OCTOBER.end - 1, UTC) == OCTOBER
    assert periods.parse_moment("2026-10", UTC) == periods.parse_moment("2026-10-01", UTC) == OCTOBER.start
    assert periods.parse_moment(str(OCTOBER.start), UTC) == OCTOBER.start
    assert periods.parse_moment("2026-10-01T02:00", berlin) == OCTOBER.start
    for wrong in ("2026-13", "yesterday", "2026-1"):
        with pytest.raises(ValueError, match=r".+"):
            periods.parse_moment(wrong, UTC)

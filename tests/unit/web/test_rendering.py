"""Times are rendered for browsers without scripts."""

from __future__ import annotations

import pytest

from headway.web import rendering


def test_clock_shows_the_date_unless_it_is_today(monkeypatch: pytest.MonkeyPatch) -> None:
    midnight = 1_700_006_400.0  # 2023-11-15 00:00 UTC
    monkeypatch.setattr(rendering.time, "time", lambda: midnight + 60)
    assert rendering.clock(midnight + 1) == "00:00:01 UTC"
    assert rendering.clock(midnight - 1) == "2023-11-14 23:59 UTC"

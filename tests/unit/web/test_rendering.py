"""Times are rendered for browsers without scripts, and warnings as sentences."""

from __future__ import annotations

import pytest

from headway.schemas.submission.submission_check import CheckJobOut
from headway.web import rendering


def test_clock_shows_the_date_unless_it_is_today(monkeypatch: pytest.MonkeyPatch) -> None:
    midnight = 1_700_006_400.0  # 2023-11-15 00:00 UTC
    monkeypatch.setattr(rendering.time, "time", lambda: midnight + 60)
    assert rendering.clock(midnight + 1) == "00:00:01 UTC"
    assert rendering.clock(midnight - 1) == "2023-11-14 23:59 UTC"


def test_check_of_a_submission_shows_its_warning() -> None:
    values = {
        "checked": CheckJobOut(warning="environment pytorch of lab is not there"),
        "oob": False,
        "budgets": [],
        "unsure": "",
        "price": None,
        "changes": None,
    }
    text = rendering.templates().get_template("parts/submit_check.html").render(**values)
    assert '<p class="is-warn">Environment pytorch of lab is not there.</p>' in text

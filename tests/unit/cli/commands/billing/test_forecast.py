"""forecast prints the error, the day on which the GPUs are all in use, weeks and teams."""

from __future__ import annotations

import pytest

from headway.cli.commands.billing.forecast import forecast
from headway.cli.output.formatting import utc_day
from tests.support.billing.billing_fakes import NOW


def test_forecast_says_its_error_and_when_the_gpus_are_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    forecast()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "error of a day in the past: 25.0 % of its GPU-hours; of four weeks: 10.0 %; 80.0 % of the days were in the band"
        " (77 days compared, method: trend)"
    )
    assert lines[1] == (
        f"the 8 GPUs are 95 % allocated from {utc_day(NOW)} at the earliest, in the expected case not within 2 weeks"
    )
    assert lines[2].startswith("on 3 of the last 28 days 95 % of the GPUs were allocated")
    rows = [line.split() for line in lines if line]
    assert [utc_day(NOW), "672.0", "50.0", "%"] in rows
    assert ["vision", "2,000.0", "2,688.0", "12.5", "%", "0:05", "1:00", "10:00", "-"] in rows

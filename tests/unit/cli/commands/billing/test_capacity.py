"""capacity prints the use of GPUs."""

from __future__ import annotations

import pytest

from headway.cli.commands.billing.capacity import capacity


def test_capacity_shows_fragmentation_of_free_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    capacity()
    captured = capsys.readouterr().out
    assert "h100: 50.0 % allocated, 75.0 % in the fullest hour" in captured
    assert "h100: 25.0 % of the free GPU-hours on nodes that also ran a job, most in the hour of" in captured
    assert "(4.00 of 4.00)" in captured
    assert "free now: 16 GPUs, 8 of them on completely free nodes (50.0 % fragmented)" in captured

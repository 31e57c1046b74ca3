"""goodput prints shares and advice."""

from __future__ import annotations

import pytest

from headway.cli.commands.billing.goodput import goodput


def test_goodput_lists_checkpoint_advice_per_job(capsys: pytest.CaptureFixture[str]) -> None:
    goodput()
    captured = capsys.readouterr().out
    assert "104     20.0 s   1:00         20:00           12.50" in captured
    first = [line.split("  ")[0] for line in captured.splitlines()]
    assert [word for word in first if word in ("no team", "all")] == ["no team", "all", "all"], (
        "a team may be called so"
    )

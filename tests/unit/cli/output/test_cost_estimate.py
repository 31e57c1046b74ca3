"""The answer of --estimate names what is unknown."""

from __future__ import annotations

from decimal import Decimal

import pytest

from headway.cli.output.cost_estimate import print_estimate
from headway.schemas.billing.cost_estimate import EstimateOut


def test_estimate_names_unknown_values_and_uninterpreted_options(capsys: pytest.CaptureFixture[str]) -> None:
    endless = EstimateOut(
        team="vision", gpus=8, nodes=1, time_limit_s=None, gpu_hours=None, usd=None, usd_per_hour=Decimal(8)
    )
    print_estimate(endless)
    captured = capsys.readouterr().out
    assert "8.00 USD an hour" in captured
    assert "unknown to Slurm" in captured
    print_estimate(endless.model_copy(update={"usd_per_hour": None, "unread": ["--nodelist"]}))
    assert "unknown; options that could not be interpreted: --nodelist" in capsys.readouterr().out

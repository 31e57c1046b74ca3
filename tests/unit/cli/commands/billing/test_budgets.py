"""budgets prints what is left."""

from __future__ import annotations

import pytest

from headway.cli.commands.billing.budgets import budgets
from headway.cli.output import formatting
from headway.schemas.billing.budgets import BudgetOut
from tests.support.billing.billing_fakes import NOW, Ledger


def test_budgets_without_any_names_the_cluster_file_field(capsys: pytest.CaptureFixture[str]) -> None:
    budgets()
    assert "teams.NAME.budget" in capsys.readouterr().out


def test_budgets_show_the_end_of_their_period(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = BudgetOut(
        team="vision", unit="usd", per="month", limit=20, used=5, left=15, warn_at=16, level="ok", cap=True,
        held_back=False, start=NOW, end=NOW + 3600,
    )  # fmt: skip
    monkeypatch.setattr(Ledger, "budgets", lambda *_: [one])
    budgets()
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["TEAM", "USED", "OF", "LEFT", "UNIT", "PER", "UNTIL", "STATE"]
    assert formatting.local_time(NOW + 3600) in row

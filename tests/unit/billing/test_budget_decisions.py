"""Levels of a budget."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from headway.billing import budget_decisions
from headway.billing.budget_decisions import Level
from headway.domain.teams import Budget


def test_budget_warns_then_caps() -> None:
    budget = Budget("usd", Decimal(100), "month", 0.8, True)
    levels = [
        budget_decisions.budget_status("vision", budget, 0, Fraction(used)).level for used in (79, 80, 99, 100, 500)
    ]
    assert levels == [Level.OK, Level.WARN, Level.WARN, Level.OVER, Level.OVER]
    told = budget_decisions.budget_status("vision", budget, 0, Fraction(2500, 30))
    assert (told.used, told.left) == (Decimal("83.33"), Decimal("16.67"))
    over = budget_decisions.budget_status(
        "speech", Budget("gpu_hours", Decimal(1), "day", 0.8, cap=False), 0, Fraction(2)
    )
    assert budget_decisions.capped([budget_decisions.budget_status("vision", budget, 0, Fraction(100)), over]) == {
        "vision"
    }

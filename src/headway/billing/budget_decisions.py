"""Budgets: how much a team may spend in a period, and which level it has reached. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from headway.domain.teams import Budget


class Level(StrEnum):
    """The used part of a budget."""

    OK = "ok"
    WARN = "warn"  # the budget's `warn` share is used up
    OVER = "over"


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """The state of one budget in one period. `used` is in the budget's unit: "usd" or "gpu_hours"."""

    team: str
    budget: Budget
    start: int  # of the period, unix seconds
    used: Decimal
    level: Level

    @property
    def left(self) -> Decimal:
        """Returns how much of the limit is left, never less than 0."""
        return max(Decimal(0), self.budget.limit - self.used)


def budget_status(team: str, budget: Budget, start: int, used: Fraction) -> BudgetStatus:
    """Returns the status of a budget whose period began at `start` (unix seconds). The level is exact; `used` is
    rounded to two decimals in the result."""
    limit = Fraction(budget.limit)
    level = Level.OVER if used >= limit else Level.WARN if used >= limit * Fraction(str(budget.warn)) else Level.OK
    return BudgetStatus(
        team, budget, start, (Decimal(used.numerator) / Decimal(used.denominator)).quantize(Decimal("0.01")), level
    )


def capped(found: Iterable[BudgetStatus]) -> frozenset[str]:
    """Returns the teams whose jobs may not start until their next period: over the limit of a budget with `cap`."""
    return frozenset(status.team for status in found if status.level is Level.OVER and status.budget.cap)

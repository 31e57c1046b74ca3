"""The geometry of charts of spending."""

from __future__ import annotations

from fractions import Fraction

from headway.billing.periods import Period
from headway.billing.spending import Step
from headway.schemas.billing.budgets import BudgetOut
from headway.services.billing.reports.spending import BurnDown, Spending
from headway.web.views.charts.spending_chart import burn_down_chart, cluster_chart, day_chart, sum_chart

DAY = 86_400
MONTH = Period("2026-10", 0, 30 * DAY)


def spending(*usd: int, forecast: int | None = None) -> Spending:
    days = tuple(
        (Step(i * DAY, (i + 1) * DAY, Fraction(amount)), 100 * amount, 50 * amount) for i, amount in enumerate(usd)
    )
    total = 100 * sum(usd)
    return Spending(True, days, (), total, total // 2, 0, forecast and 100 * forecast, ())


def test_bars_fill_the_chart_up_to_a_round_number() -> None:
    chart = day_chart(spending(0, 30, 15), 30)
    assert chart is not None
    assert chart.ticks == ("40", "20", "0")
    assert [(bar.number, bar.top, bar.allocated_top) for bar in chart.bars] == [
        (0, 100, 100), (1, 25, 62.5), (2, 62.5, 81.25),
    ]  # fmt: skip
    assert day_chart(spending(0, 0), 30) is None


def test_parts_of_clusters_stand_on_one_another() -> None:
    chart = cluster_chart([("a", spending(30)), ("b", spending(10, 0))], 30)
    assert chart is not None
    assert [(part.of, part.number, part.top, part.height) for part in chart.parts] == [(0, 0, 25, 75), (1, 0, 0, 25)]
    assert cluster_chart([], 30) is None


def test_sum_ends_now_and_its_forecast_at_the_end_of_the_month() -> None:
    chart = sum_chart(spending(10, 10, 10, forecast=100), MONTH, 2 * DAY + DAY // 2)
    assert chart is not None
    assert chart.line == f"M0 100.0L{DAY} 90.0L{2 * DAY} 80.0L{2 * DAY + DAY // 2} 70.0"
    assert chart.forecast == f"M{2 * DAY + DAY // 2} 70.0L{30 * DAY} 0.0"
    assert (chart.other, chart.width) == ("", 30 * DAY)


def test_burn_down_ends_when_the_budget_is_spent() -> None:
    budget = BudgetOut(
        team="vision", unit="usd", per="month", limit=100, used=20, left=80, warn_at=80, level="ok", cap=True,
        held_back=False, start=0, end=30 * DAY,
    )  # fmt: skip
    steps = (Step(0, DAY, Fraction(10)), Step(DAY, 2 * DAY, Fraction(10)))
    chart = burn_down_chart(BurnDown(budget, steps, 300.0, 10 * DAY), 2 * DAY)
    assert chart.line == f"M0 0.0L{DAY} 10.0L{2 * DAY} 20.0"
    assert chart.forecast == f"M{2 * DAY} 20.0L{10 * DAY} 100.0"
    assert chart.level == 80

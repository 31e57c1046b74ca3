"""The chart of a sweep has a point for each value, and the best value so far."""

from __future__ import annotations

from headway.schemas.submission.sweeps import SweepOut, TrialOut
from headway.web.views.charts.sweep_chart import HEIGHT, WIDTH, sweep_chart


def sweep(*values: float | None, goal: str = "minimize", best: int | None = 1) -> SweepOut:
    trials = [
        TrialOut(number=number, parameters={}, state="done", value=value) for number, value in enumerate(values, 1)
    ]
    return SweepOut(
        id="s-1", cluster="lab", name="s", person="a", user="a", created_at=0, state="done", method="grid", metric="loss",
        goal=goal, parameters=[], trial_count=len(trials), parallel=1, trials=trials, best=best,
    )  # fmt: skip


def test_points_lie_in_the_drawing_and_the_best_line_only_improves() -> None:
    chart = sweep_chart(sweep(3.0, None, 4.0, 1.0, best=4))
    assert chart is not None
    assert [point.number for point in chart.points] == [1, 3, 4]
    assert all(0 < point.x <= WIDTH and 0 < point.y < HEIGHT for point in chart.points)
    assert [point.best for point in chart.points] == [False, False, True]
    assert chart.best_path.count("V") == 1
    assert not chart.logarithmic


def test_line_of_a_metric_that_is_maximized_goes_up() -> None:
    chart = sweep_chart(sweep(3.0, 4.0, 1.0, goal="maximize", best=2))
    assert chart is not None
    assert chart.best_path.count("V") == 1
    assert chart.points[1].y < chart.points[0].y


def test_values_of_many_magnitudes_get_a_logarithmic_axis() -> None:
    chart = sweep_chart(sweep(0.001, 10.0, 1000.0))
    assert chart is not None
    assert chart.logarithmic
    assert sweep_chart(sweep(-1.0, 1e6)) is not None


def test_equal_values_and_a_single_trial_are_drawn_and_none_is_not() -> None:
    assert sweep_chart(sweep(2.0)) is not None
    assert sweep_chart(sweep(0.0, 0.0)) is not None
    assert sweep_chart(sweep(None)) is None

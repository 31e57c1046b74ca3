"""The effective time of a training is computed correctly from its reported steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.jobs.view.ettr import MAX_MARKS, EffectiveTime


def of(*marks: tuple[int, float]) -> EffectiveTime:
    course = EffectiveTime()
    for step, at in marks:
        course.add_report(step, at)
    return course


def test_run_without_restart_has_full_effective_time() -> None:
    found = of((10, 100.0), (20, 110.0), (30, 120.0))
    assert (found.lost_s, found.down_s, found.restarts, found.ettr) == (0, 0, 0, 1.0)
    assert of((10, 100.0)).ettr is None


def test_repeated_work_and_downtime_reduce_effective_time() -> None:
    # Reached step 40 at 140, went on from 20 (first reached at 120) at 160: 20 s of work, and 20 s in between.
    found = of((10, 110.0), (20, 120.0), (30, 130.0), (40, 140.0), (20, 160.0), (30, 170.0), (40, 180.0), (50, 190.0))
    assert (found.lost_s, found.down_s, found.restarts) == (20.0, 20.0, 1)
    assert found.ettr == pytest.approx(1 - 40 / 80)


def test_lost_time_interpolates_steps_between_reports() -> None:
    found = of((10, 110.0), (30, 130.0), (20, 150.0), (30, 160.0))
    assert (found.lost_s, found.down_s) == (10.0, 20.0)


def test_second_restart_adds_only_its_own_losses() -> None:
    found = of((10, 110.0), (30, 130.0), (20, 150.0), (30, 160.0), (20, 170.0), (30, 180.0))
    assert found.restarts == 2
    assert (found.lost_s, found.down_s) == (10.0 + 10.0, 20.0 + 10.0)


@pytest.mark.parametrize(("step", "lost_s"), [(50, 0.0), (41, 0.0), (40, 0.0), (35, 5.0)])
def test_reported_restart_loses_only_the_repeated_steps(step: int, lost_s: float) -> None:
    """One that saved when it was warned goes on behind its last step: all of it counted."""
    found = of((30, 130.0), (40, 140.0))
    found.add_report(step, 160.0, restarted=True)
    found.add_report(step + 10, 170.0)
    assert (found.lost_s, found.down_s, found.restarts, found.up_s) == (lost_s, 20.0, 1, 20.0)
    assert found.losses == [(140.0, lost_s)]


def test_lost_work_is_counted_once() -> None:
    found = of((0, 1.0), (2, 2.0), (1, 3.0), (0, 4.0))
    assert (found.lost_s, found.down_s, found.ettr) == (1.0, 2.0, 0.0)


def test_older_and_untimed_reports_are_ignored() -> None:
    found = of((10, 110.0), (30, 130.0), (20, 120.0), (5, 0.0))
    assert (found.restarts, found.last_report_at) == (0, 130.0)


@given(st.lists(st.tuples(st.integers(0, 200), st.floats(0.1, 50)), min_size=2, max_size=200))
def test_lost_and_down_time_never_exceed_elapsed_time(moves: list[tuple[int, float]]) -> None:
    course, now = EffectiveTime(), 1000.0
    for step, gap in moves:
        now += gap
        course.add_report(step, now)
    assert 0 <= course.lost_s + course.down_s <= course.last_report_at - course.first_report_at + 1e-6
    assert course.ettr is not None


def test_long_run_is_thinned_without_losing_accuracy() -> None:
    course = of(*((step, 1000.0 + step) for step in range(3 * MAX_MARKS)))
    course.add_report(MAX_MARKS, 1e5)
    assert course.lost_s == pytest.approx(2 * MAX_MARKS - 1)

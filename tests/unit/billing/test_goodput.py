"""Goodput, checkpoint advice, budgets, energy and capacity are computed correctly."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.billing import goodput
from headway.billing.goodput import Cause, Parts
from headway.jobs.view.ettr import EffectiveTime


def test_goodput_excludes_and_ettr_includes_queue_time() -> None:
    parts = Parts(productive=600, lost=100, idle=100, waiting=200)
    assert (parts.goodput, parts.ettr) == (0.75, 0.6)
    assert Parts().goodput is None
    assert Parts(waiting=5).ettr == 0


def test_ettr_and_loss_match_scripted_run_within_1_percent() -> None:
    """Steps of 2 s; a checkpoint every 50; killed after step 180, back after 40 s at step 150; then to 400."""
    course = EffectiveTime()
    at = 1000.0
    for step in range(1, 181):
        at += 2
        course.add_report(step, at)
    at += 40
    for step in range(151, 401):
        at += 2
        course.add_report(step, at)
    productive_s = 400 * 2.0
    spent_s = at - 1000.0 - 2
    assert course.ettr is not None
    assert course.ettr * spent_s == pytest.approx(productive_s, rel=0.01)
    saved_at = 1000.0 + 150 * 2
    lost = goodput.lost_s("NODE_FAIL", 1000, 1360, saved_at)
    assert lost == pytest.approx(60, rel=0.01)
    run_s = 360 + (at - 1400)
    assert run_s - lost == pytest.approx(productive_s, rel=0.01)


def test_interrupted_run_loses_time_since_last_checkpoint() -> None:
    assert goodput.lost_s("PREEMPTED", 100, 500, None) == 400
    assert goodput.lost_s("REQUEUED", 100, 500, 460.0) == 40
    assert goodput.lost_s("REQUEUED", 100, 500, 50.0) == 400  # of the run before
    assert goodput.lost_s("COMPLETED", 100, 500, None) == 0
    assert goodput.lost_s("NODE_FAIL", 100, 0, None) == 0


@given(st.floats(60, 1e7), st.floats(0.1, 600), st.floats(1, 1e6))
def test_recommended_checkpoint_interval_minimizes_waste(failure_s: float, write_s: float, other_s: float) -> None:
    best = goodput.interval_s(failure_s, write_s)
    if other_s >= write_s:
        assert (
            goodput.wasted_share(best, failure_s, write_s) <= goodput.wasted_share(other_s, failure_s, write_s) + 1e-9
        )
    assert best >= write_s


def test_checkpoint_advice_states_savings() -> None:
    told = goodput.checkpoint_advice(every_s=60, failure_s=86400, write_s=30)
    assert told.best_s == pytest.approx(math.sqrt(2 * 86400 * 30))
    assert told.saves == pytest.approx(0.5 + 60 / 172800 - (30 / told.best_s + told.best_s / 172800))
    assert goodput.checkpoint_advice(told.best_s, 86400, 30).saves == 0


def test_causes_are_ranked_by_cost() -> None:
    found = goodput.ranked(
        [
            Cause("queue", "queue", 9, Fraction(1)),
            Cause("fault", "XID 79 on n1", 1, Fraction(5)),
            Cause("idle", "", 0, Fraction(0)),
        ]
    )
    assert [one.kind for one in found] == ["fault", "queue"]

"""Goodput, checkpoint advice, budgets, energy and capacity are computed correctly."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.billing import budget_levels, capacity, goodput
from headway.billing.budget_levels import Level
from headway.billing.capacity import Ends
from headway.billing.goodput import Cause, Parts
from headway.domain.cluster import Budget
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
        assert goodput.waste(best, failure_s, write_s) <= goodput.waste(other_s, failure_s, write_s) + 1e-9
    assert best >= write_s


def test_checkpoint_advice_states_savings() -> None:
    told = goodput.advice(every_s=60, failure_s=86400, write_s=30)
    assert told.best_s == pytest.approx(math.sqrt(2 * 86400 * 30))
    assert told.saves == pytest.approx(0.5 + 60 / 172800 - (30 / told.best_s + told.best_s / 172800))
    assert goodput.advice(told.best_s, 86400, 30).saves == 0


def test_causes_are_ranked_by_cost() -> None:
    found = goodput.ranked(
        [
            Cause("queue", "queue", 9, Fraction(1)),
            Cause("fault", "XID 79 on n1", 1, Fraction(5)),
            Cause("idle", "", 0, Fraction(0)),
        ]
    )
    assert [one.kind for one in found] == ["fault", "queue"]


def test_budget_warns_then_caps() -> None:
    budget = Budget("usd", Decimal(100), "month", 0.8)
    levels = [budget_levels.budget_status("vision", budget, 0, Fraction(used)).level for used in (79, 80, 99, 100, 500)]
    assert levels == [Level.OK, Level.WARN, Level.WARN, Level.OVER, Level.OVER]
    told = budget_levels.budget_status("vision", budget, 0, Fraction(2500, 30))
    assert (told.used, told.left) == (Decimal("83.33"), Decimal("16.67"))
    over = budget_levels.budget_status("speech", Budget("gpu_hours", Decimal(1), "day", cap=False), 0, Fraction(2))
    assert budget_levels.capped([budget_levels.budget_status("vision", budget, 0, Fraction(100)), over]) == {"vision"}


@given(st.lists(st.tuples(st.integers(-500, 1500), st.integers(0, 800), st.integers(1, 9)), max_size=30))
def test_held_unit_seconds_follow_from_start_and_end_sums(runs: list[tuple[int, int, int]]) -> None:
    marks = [0, 100, 250, 400, 1000]

    def ends(which: int) -> dict[int, Ends]:
        found: dict[int, Ends] = {}
        for start, length, units in runs:
            at = (start, start + length)[which]
            if at >= marks[-1]:
                continue
            place = max((i for i, mark in enumerate(marks[:-1]) if at >= mark), default=-1)
            was = found.get(place, Ends(0, 0))
            found[place] = Ends(was.units + units, was.unit_moments + units * at)
        return found

    wanted = [
        sum(units * max(0, min(start + length, high) - max(start, low)) for start, length, units in runs)
        for low, high in itertools.pairwise(marks)
    ]
    assert capacity.held_between(marks, ends(0), ends(1)) == wanted


def test_percentiles_and_job_sizes_are_computed_from_counts() -> None:
    counts = [(10, 50), (20, 40), (300, 10)]
    assert [capacity.percentile(counts, which) for which in capacity.PERCENTILES] == [10, 20, 300]
    assert capacity.percentile([], 50) is None
    assert [capacity.size_of(gpus) for gpus in (0, 1, 8, 9, 64, 65, 4096)] == [
        "no GPU", "1 GPU", "2 to 8", "9 to 64", "9 to 64", "more than 64", "more than 64",
    ]  # fmt: skip


def test_fragmentation_counts_free_gpus_on_partly_used_nodes() -> None:
    found = capacity.free([(8, 0), (8, 6), (8, 2)])
    assert (found.gpus, found.together, found.fragmentation) == (16, 8, 0.5)
    assert capacity.free([]).fragmentation == 0

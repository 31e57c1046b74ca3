"""ASHA stops the trials that are not among the best of a rung; a sweep ends when its trials have, when all fail, or at its
cost."""

from __future__ import annotations

from typing import Any

from headway.jobs.sweeps.sweep_file import Sweep, read_sweep
from headway.jobs.sweeps.trial_decisions import best_trial, end_of_sweep, spent_usd, trials_to_begin, trials_to_stop
from headway.store import TrialRow


def sweep(**change: Any) -> Sweep:
    base = {"name": "s", "run": "x", "metric": {"name": "loss"}, "trials": 9, "parameters": {"a": [1, 2]}}
    return read_sweep({**base, "early_stopping": {"min_step": 10, "eta": 3}, **change})


def trial(number: int, state: str = "running", **fields: Any) -> TrialRow:
    ended = None if state in ("running", "pending", "submitting") else 9.0
    return TrialRow("s-1", "lab", number, {}, 0.0, **{"state": state, "ended_at": ended, **fields})


def at_rung(values: list[float | None], rung: str = "10") -> list[TrialRow]:
    return [trial(number, rungs={rung: value}) for number, value in enumerate(values, 1)]


def test_first_of_a_rung_goes_on_and_a_worse_second_stops() -> None:
    assert trials_to_stop(sweep(), at_rung([1.0]), {1}) == {}
    assert trials_to_stop(sweep(), at_rung([1.0, 2.0]), {2}) == {2: "loss 2 at step 10: number 2 of 2"}
    assert trials_to_stop(sweep(), at_rung([1.0, 0.5]), {2}) == {}


def test_third_part_of_a_rung_goes_on() -> None:
    assert set(trials_to_stop(sweep(), at_rung([3, 1, 2, 6, 5, 4]), set(range(1, 7)))) == {1, 4, 5, 6}
    assert set(trials_to_stop(sweep(metric={"name": "a", "goal": "maximize"}), at_rung([3, 1, 2]), {1, 2, 3})) == {2, 3}


def test_trial_is_judged_once_at_each_rung() -> None:
    assert trials_to_stop(sweep(), at_rung([3.0, 1.0, 2.0]), {2}) == {}


def test_nan_is_the_worst_and_stops_even_as_number_two() -> None:
    assert list(trials_to_stop(sweep(), at_rung([5.0, None]), {2})) == [2]


def test_highest_reached_rung_counts() -> None:
    first = trial(1, rungs={"10": 9.0, "30": 1.0})
    assert trials_to_stop(sweep(), [first, *at_rung([0, 0.1, 0.2])[1:]], {1}) == {}


def test_trials_begin_up_to_parallel_and_to_their_number() -> None:
    assert trials_to_begin(sweep(parallel=4), [trial(1), trial(2, "done"), trial(3, "stopped", ended_at=None)]) == 2
    assert trials_to_begin(sweep(parallel=4), [trial(n, "done") for n in range(1, 9)]) == 1


def test_sweep_is_done_when_every_trial_has_ended() -> None:
    done = [trial(n, "done", value=1.0) for n in range(1, 9)]
    assert end_of_sweep(sweep(), [*done, trial(9)], None) is None
    assert end_of_sweep(sweep(), [*done, trial(9, "failed", why="x")], None) == ("done", "")


def test_sweep_whose_first_trials_all_fail_ends_with_a_sentence() -> None:
    failed = [trial(n, "failed", why="the program was not found") for n in (1, 2, 3)]
    assert end_of_sweep(sweep(), failed[:2], None) is None
    end = end_of_sweep(sweep(), [*failed, trial(4)], None)
    assert end == ("failed", "all of its first 3 trials failed; trial 3: the program was not found")
    assert end_of_sweep(sweep(), [*failed, trial(4, value=0.5)], None) is None
    assert end_of_sweep(sweep(trials=1), failed[:1], None) is not None


def test_sweep_stops_at_its_cost() -> None:
    trials = [trial(1, run_s=1800.0), trial(2, run_s=1800.0)]
    assert spent_usd(trials, 4.0) == 4.0
    assert end_of_sweep(sweep(max_cost=5), trials, 4.0) is None
    assert end_of_sweep(sweep(max_cost=4), trials, 4.0) == (
        "stopped",
        "its trials cost 4.00 USD; max_cost is 4.00 USD",
    )


def test_best_trial_ended_well_if_any_has() -> None:
    trials = [
        trial(1, "stopped", value=0.1),
        trial(2, "done", value=0.3),
        trial(3, value=0.2),
        trial(4, "done", value=0.4),
    ]
    assert (found := best_trial(sweep(), trials)) is not None
    assert found.number == 2
    assert (found := best_trial(sweep(), [trials[0], trials[2]])) is not None
    assert found.number == 3
    assert best_trial(sweep(), [trial(1)]) is None

"""What a sweep does next, decided from its trials: stop some early, begin others, end. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from headway.jobs.sweeps.sweep_file import Sweep
from headway.store.db.rows import TrialRow

FAILED_AT_FIRST = 3  # trials that fail before any has a value end the sweep


def rank(sweep: Sweep, value: float | None) -> float:
    """Returns a number by which values are ordered, the best lowest; None (NaN, infinite) is the worst of all."""
    if value is None:
        return math.inf
    return -value if sweep.metric.goal == "maximize" else value


def best_trial(sweep: Sweep, trials: Sequence[TrialRow]) -> TrialRow | None:
    """Returns the trial with the best value among those that ended well or, if none has, among those that still run. Trials
    that were stopped early have trained less than the others and don't count, unless no other has a value."""
    for states in (("done",), ("running", "pending"), ("stopped",)):
        some = [one for one in trials if one.state in states and one.value is not None]
        if some:
            return min(some, key=lambda one: (rank(sweep, one.value), one.number))
    return None


def trials_to_stop(sweep: Sweep, trials: Sequence[TrialRow], reached: Collection[int]) -> dict[int, str]:
    """Returns the running trials that are to be stopped, with the reason. `reached`: the trials that have just reached a rung;
    each is judged at its highest one, once: it goes on if it is among the best 1/eta of those that have reached it so far."""
    if sweep.early_stopping is None:
        return {}
    found = {}
    for trial in trials:
        steps = [str(step) for step in sweep.early_stopping.rungs() if str(step) in trial.rungs]
        if trial.number not in reached or trial.state != "running" or not steps:
            continue
        rung = steps[-1]
        order = sorted((rank(sweep, other.rungs[rung]), other.number) for other in trials if rung in other.rungs)
        place = [number for _, number in order].index(trial.number) + 1
        if place > max(1, len(order) // sweep.early_stopping.eta):
            value = trial.rungs[rung]
            text = "no number" if value is None else f"{value:.6g}"
            found[trial.number] = f"{sweep.metric.name} {text} at step {rung}: number {place} of {len(order)}"
    return found


def free_places(sweep: Sweep, trials: Sequence[TrialRow]) -> int:
    """Returns how many further trials may be in the queue now."""
    return max(0, sweep.parallel - sum(one.ended_at is None and one.state != "waiting" for one in trials))


def trials_to_begin(sweep: Sweep, trials: Sequence[TrialRow]) -> int:
    """Returns how many trials the search may add now; none if they come from a program."""
    if sweep.method == "manual":
        return 0
    return max(0, min(free_places(sweep, trials), sweep.trial_count() - len(trials)))


def end_of_sweep(sweep: Sweep, trials: Sequence[TrialRow], spent_usd: float | None) -> tuple[str, str] | None:
    """Returns (state, reason) of a sweep that has to end now, or None."""
    failed = [trial for trial in trials if trial.state == "failed"]
    worked = any(trial.value is not None or trial.state == "done" for trial in trials)
    if sweep.max_cost is not None and spent_usd is not None and spent_usd >= sweep.max_cost:
        return "stopped", f"its trials cost {spent_usd:,.2f} USD; max_cost is {sweep.max_cost:,.2f} USD"
    active = any(trial.ended_at is None for trial in trials)
    complete = len(trials) >= sweep.trial_count() and not active
    if not worked and (len(failed) >= FAILED_AT_FIRST or (failed and complete)):
        return "failed", f"all of its first {len(failed)} trials failed; trial {failed[-1].number}: {failed[-1].why}"
    return ("done", "") if complete else None


def spent_usd(trials: Sequence[TrialRow], usd_per_hour: float | None) -> float | None:
    """Returns the cost of the trials so far in USD; None without a price."""
    return None if usd_per_hour is None else sum(trial.run_s for trial in trials) / 3600 * usd_per_hour

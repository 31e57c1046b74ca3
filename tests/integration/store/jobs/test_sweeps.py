"""The database counts the trials of sweeps and finds the best ones, as the rules for all trials in memory do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headway.jobs.sweeps.sweep_file import read_sweep
from headway.jobs.sweeps.trial_decisions import best_trial
from headway.store import Store, TrialRow, open_store
from tests.support.clusters.builders import Clock

TRIALS = {
    "mixed": [("failed", 0.1), ("done", 3.0), ("done", 2.0), ("done", 2.0), ("stopped", 0.5), ("running", 1.0)],
    "running": [("stopped", 0.5), ("running", 2.0), ("pending", 1.0), ("waiting", None)],
    "stopped": [("stopped", 4.0), ("stopped", None), ("stopped", 5.0)],
    "nothing": [("failed", 1.0), ("done", None)],
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(tmp_path / "h.db", clock=Clock())
    yield opened
    await opened.close()


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
async def test_summaries_are_those_of_all_trials(store: Store, goal: str) -> None:
    document = {
        "name": "s",
        "run": "x",
        "metric": {"name": "loss", "goal": goal},
        "parameters": {"a": [1, 2]},
        "trials": 9,
    }
    sweep = read_sweep(document)
    rows = {
        name: [
            TrialRow(name, "lab", number, {"a": 1}, 1.0, state, 10 + number, None if state == "running" else 2.0, 1, value,
                     run_s=60.0)
            for number, (state, value) in enumerate(trials, 1)
        ]
        for name, trials in TRIALS.items()
    }  # fmt: skip
    for trials in rows.values():
        await store.sweeps.add_trials(trials)
    asked = [*rows, "empty"]
    found = await store.sweeps.summaries(asked if goal == "maximize" else [], asked if goal == "minimize" else [])
    assert set(found) == set(rows)
    for name, trials in rows.items():
        summary = found[name]
        assert summary.best == best_trial(sweep, trials), name
        assert summary.first == trials[0]
        assert summary.ended == sum(trial.ended_at is not None for trial in trials)
        assert summary.run_s == 60.0 * len(trials)
    assert await store.sweeps.summaries([], []) == {}

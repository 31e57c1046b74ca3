"""A sweep of alice's in `demo`: some trials have ended, some were stopped early, some run."""

from __future__ import annotations

import time

from headway.jobs.sweeps.search import trial_parameters
from headway.jobs.sweeps.sweep_file import read_sweep
from headway.services.sweeps.stored_sweep import StoredSweep
from headway.store import Store, TrialRow

FILE = {
    "name": "lr-search",
    "run": "python train.py --lr {lr} --batch {batch}",
    "metric": {"name": "val_loss"},
    "parameters": {"lr": {"min": 1e-5, "max": 0.1, "log": True}, "batch": [16, 32, 64]},
    "trials": 16,
    "parallel": 3,
    "early_stopping": {"min_step": 100, "max_step": 2700},
}
LOSSES = (2.91, 2.4, 3.3, 2.52, 3.41, 2.17, 2.95, 3.1, 2.05, 2.61, 2.3)


async def put(store: Store) -> None:
    """Stores the sweep."""
    stored = StoredSweep(read_sweep(FILE), "m", "", None, 4.0, 1.0)
    row = await store.sweeps.save("demo", "lr-search", person="alice", user="alice", document=stored.document())
    trials = []
    for number, loss in enumerate(LOSSES, 1):
        state = "done" if loss < 2.45 and number < 10 else "stopped"
        why = "" if state == "done" else f"val_loss {loss:.6g} at step 100: number {number} of {number}"
        if number > 9:
            state, why = ("running", "") if number == 10 else ("failed", "the program ended with exit code 1")
        ended = None if state == "running" else time.time()
        trials.append(
            TrialRow(
                row.id, "demo", number, trial_parameters(stored.sweep, number), time.time(), state, 300 + number, ended,
                2700 if state == "done" else 100, loss, {"100": loss}, why, run_s=1800.0,
            )
        )  # fmt: skip
    trials.append(TrialRow(row.id, "demo", 12, trial_parameters(stored.sweep, 12), time.time(), "pending", 312))
    await store.sweeps.add_trials(trials)

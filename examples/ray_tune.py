"""Ray Tune: searches learning rate, momentum and width of a small network, and stops bad trials early (ASHA).

    headway run --nodes 4 --gpus 8 --launcher ray -- /scratch/me/ray/bin/python ray_tune.py

A trial writes a checkpoint after each epoch. If a node is lost, its trials continue on others from their checkpoints; if the
job is requeued, the search continues where it was, because $HEADWAY_CHECKPOINT_DIR stays the same."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from ray import tune
from ray.tune.schedulers import ASHAScheduler

STATE = "state.npz"


def data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns points of a plane, and whether each lies within one of two rings."""
    points = np.random.default_rng(0).uniform(-1, 1, (rows, 2))
    radius = np.hypot(points[:, 0], points[:, 1])
    return points, (np.sin(radius * 9) > 0).astype(float)[:, None]


def train(config: dict[str, Any]) -> None:
    """Trains one network; each epoch ends with a report and a checkpoint."""
    points, inside = data(config["rows"])
    random = np.random.default_rng(config["seed"])
    weights = [random.normal(0, 2, (3, config["width"])), random.normal(0, 0.1, (config["width"] + 1, 1))]
    speeds = [np.zeros_like(layer) for layer in weights]
    first = 1
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder, np.load(Path(folder) / STATE) as kept:
            first = int(kept["epoch"]) + 1
            weights, speeds = [kept["w0"], kept["w1"]], [kept["s0"], kept["s1"]]
    for epoch in range(first, config["epochs"] + 1):
        for batch in np.array_split(random.permutation(len(points)), max(1, len(points) // 64)):
            x = np.c_[points[batch], np.ones(len(batch))]
            hidden = np.c_[np.tanh(x @ weights[0]), np.ones(len(batch))]
            error = 1 / (1 + np.exp(-hidden @ weights[1])) - inside[batch]
            back = (error @ weights[1][:-1].T) * (1 - hidden[:, :-1] ** 2)
            for at, gradient in enumerate((x.T @ back, hidden.T @ error)):
                speeds[at] = config["momentum"] * speeds[at] - config["lr"] * gradient / len(batch)
                weights[at] = weights[at] + speeds[at]
        hidden = np.c_[np.tanh(np.c_[points, np.ones(len(points))] @ weights[0]), np.ones(len(points))]
        accuracy = float(np.mean((hidden @ weights[1] > 0) == (inside > 0.5)))
        with tempfile.TemporaryDirectory() as folder:
            state = {"w0": weights[0], "w1": weights[1], "s0": speeds[0], "s1": speeds[1]}
            np.savez(Path(folder) / STATE, epoch=epoch, **state)
            found = {"accuracy": accuracy, "epoch": epoch, "started_at": first}
            tune.report(found, checkpoint=tune.Checkpoint.from_directory(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=32, help="number of trials")
    parser.add_argument("--epochs", type=int, default=40, help="epochs of a trial that is not stopped early")
    parser.add_argument("--grace", type=int, default=4, help="epochs that every trial gets")
    parser.add_argument("--rows", type=int, default=4000, help="points to train on")
    parser.add_argument("--gpus-per-trial", type=float, default=0, help="share of a GPU that each trial holds")
    parser.add_argument("--folder", default=os.environ.get("HEADWAY_CHECKPOINT_DIR", "checkpoints"), help="for results")
    asked = parser.parse_args()
    folder = Path(asked.folder).resolve() / "search"
    trainable = tune.with_resources(train, {"cpu": 1, "gpu": asked.gpus_per_trial})
    if tune.Tuner.can_restore(str(folder)):
        print(f"continues the search in {folder}", flush=True)
        tuner = tune.Tuner.restore(str(folder), trainable=trainable, resume_unfinished=True, restart_errored=True)
    else:
        tuner = tune.Tuner(
            trainable,
            param_space={
                "lr": tune.loguniform(1e-3, 3), "momentum": tune.uniform(0, 0.95), "width": tune.choice([8, 32, 128]),
                "seed": tune.randint(0, 1000), "rows": asked.rows, "epochs": asked.epochs,
            },
            tune_config=tune.TuneConfig(
                metric="accuracy", mode="max", num_samples=asked.samples,
                scheduler=ASHAScheduler(time_attr="epoch", max_t=asked.epochs, grace_period=asked.grace),
            ),
            run_config=tune.RunConfig(
                name=folder.name, storage_path=str(folder.parent), verbose=1,
                checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
                # How often a trial continues after its node was lost.
                failure_config=tune.FailureConfig(max_failures=10),
            ),
        )  # fmt: skip
    results = tuner.fit()
    best = results.get_best_result()
    found = ", ".join(f"{name}={best.config[name]:.4g}" for name in ("lr", "momentum", "width"))
    accuracy, epoch = best.metrics["accuracy"], best.metrics["epoch"]
    print(
        f"{len(results)} trials, {results.num_errors} failed; best accuracy {accuracy:.3f} after epoch {epoch} with {found}"
    )
    print(f"its checkpoint: {best.checkpoint.path}", flush=True)


if __name__ == "__main__":
    main()

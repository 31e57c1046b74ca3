"""Ray Data and Ray Train: prepares points on all nodes, and trains a small network with several workers (DDP).

    headway run --nodes 4 --gpus 8 --launcher ray -- /scratch/me/ray/bin/python ray_train.py --workers 4 --gpus-per-worker 8

Each epoch ends with a checkpoint. A training that lost a node, or whose job was requeued, continues from the newest one, because
$HEADWAY_CHECKPOINT_DIR stays the same."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray import train
from ray.train.torch import TorchTrainer, prepare_model

STATE = "state.pt"


def add_labels(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns points of a plane for these numbers, and whether each lies within one of two rings."""
    random = np.random.default_rng(int(rows["id"][0]))
    points = random.uniform(-1, 1, (len(rows["id"]), 2)).astype(np.float32)
    inside = np.sin(np.hypot(points[:, 0], points[:, 1]) * 9) > 0
    return {"points": points, "inside": inside.astype(np.float32)}


def work(config: dict[str, Any]) -> None:
    """Trains on this worker's share of the data."""
    rank = train.get_context().get_world_rank()
    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    model = prepare_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    first = 1
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            kept = torch.load(Path(folder) / STATE, weights_only=True)
        first = kept["epoch"] + 1
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
    print(f"worker {rank} on {os.uname().nodename} begins with epoch {first}", flush=True)
    share = train.get_dataset_shard("train")
    device = train.torch.get_device()
    for epoch in range(first, config["epochs"] + 1):
        right = rows = 0
        for batch in share.iter_torch_batches(batch_size=256, device=device):
            guess = model(batch["points"])[:, 0]
            loss = torch.nn.functional.binary_cross_entropy_with_logits(guess, batch["inside"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += int(((guess > 0) == (batch["inside"] > 0.5)).sum())
            rows += len(guess)
        found = {"epoch": epoch, "accuracy": right / rows}
        with tempfile.TemporaryDirectory() as folder:
            if rank == 0:
                state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, Path(folder) / STATE)
            train.report(found, checkpoint=train.Checkpoint.from_directory(folder) if rank == 0 else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2, help="number of workers")
    parser.add_argument("--gpus-per-worker", type=int, default=0, help="GPUs that each worker holds")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the data")
    parser.add_argument("--rows", type=int, default=100_000, help="points to train on")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate")
    parser.add_argument("--folder", default=os.environ.get("HEADWAY_CHECKPOINT_DIR", "checkpoints"), help="for results")
    asked = parser.parse_args()
    data = ray.data.range(asked.rows).map_batches(add_labels, batch_size=4096)
    resources = {"CPU": 1, "GPU": asked.gpus_per_worker} if asked.gpus_per_worker else {"CPU": 1}
    trainer = TorchTrainer(
        work,
        train_loop_config={"lr": asked.lr, "epochs": asked.epochs},
        scaling_config=train.ScalingConfig(
            num_workers=asked.workers, use_gpu=asked.gpus_per_worker > 0, resources_per_worker=resources
        ),
        datasets={"train": data},
        run_config=train.RunConfig(
            name="training",
            storage_path=str(Path(asked.folder).resolve()),
            failure_config=train.FailureConfig(max_failures=10),
            checkpoint_config=train.CheckpointConfig(num_to_keep=2),
        ),
    )
    result = trainer.fit()
    print(f"epoch {result.metrics['epoch']}: accuracy {result.metrics['accuracy']:.3f}", flush=True)
    print(f"its checkpoint: {result.checkpoint.path}", flush=True)


if __name__ == "__main__":
    main()

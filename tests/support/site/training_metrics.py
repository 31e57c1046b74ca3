"""Metrics of the demo's training, as the server's worker copies them."""

from __future__ import annotations

import json
import math
import time
from typing import Any

from headway.services.app_state import AppState
from headway.services.jobs.training_metrics import metric_files
from headway.store.jobs.trainings import TrainingRow
from tests.support.site.snapshots import losses

NAMES = ["loss", "lr", "grad_norm", "val/loss", "val/accuracy"]


def put_metrics(state: AppState, cluster: str, job: int) -> None:
    """Stores metrics of a training that was restarted once and had one loss that is not a number."""
    began, lines = time.time() - 3000, []
    curve = losses(12_000, last=1.4)
    for run, steps in ((began, curve[:1500]), (began + 2000, curve[1400:])):
        lines += [json.dumps({"run": run}), json.dumps({"names": NAMES})]
        for step, loss in steps:
            known = math.nan if step == 3000 else loss
            rate = 3e-4 * min(1, step / 500) * (0.5 + 0.5 * math.cos(math.pi * step / 12_000))
            norm = 0.8 + 6 * math.exp(-step / 200) + abs(math.sin(step * 0.9)) * 0.3
            val = [loss + 0.12, 1 - math.exp(-step / 4000)] if step % 500 == 0 else [None, None]
            lines.append(json.dumps([step, run + step / 6, known, rate, norm, *val]))
    files = metric_files(state)
    files.forget(cluster, job)
    known_metrics = files.read(cluster, job)
    known_metrics.read_at = time.time()
    files.append(cluster, job, known_metrics, ("\n".join(lines) + "\n").encode())


async def put_trainings(state: AppState, cluster: str) -> None:
    """Stores four trainings: of two people, one of them running, one whose loss is not finite."""
    for job, name, user, loss, word in (
        (104, "llama-8b", "alice", 1.402, "RUNNING"),
        (98, "llama-8b", "alice", 1.931, "COMPLETED"),
        (97, "llama-8b-high-rate", "bob", None, "FAILED"),
        (91, "resnet50", "victor", 2.774, "TIMEOUT"),
    ):
        metrics = {
            "loss": (12_000, loss, loss, 10.94),
            "val/loss": (12_000, loss and loss + 0.12, loss and loss + 0.11, 10.99),
            "lr": (12_000, 3e-6, 3e-6, 3e-4),
        }
        row = TrainingRow(
            cluster, job, str(job), name, user, "vision", word, time.time() - 9000, time.time() - 60, metrics
        )
        await state.store.trainings.save([row])
        facts: dict[str, Any] = {"datasets": [{"name": "wiki", "version": str(1 + (job > 97)), "mount": "/d"}]}
        git = {"commit": f"{job:02x}" * 20, "branch": "main", "dirty": job == 97}
        request = {"script": f"#!/bin/bash\nsrun python train.py --lr {job / 1e5:g}\n", "script_args": [], "git": git}
        told: dict[str, Any] = {"person": user, "user": user, "kind": "submit", "audit": {}}
        await state.store.jobs.record(cluster, job, request=request, facts=facts, **told)
    await state.store.trainings.annotate(cluster, 98, "Rate halved; the new baseline.", ["baseline"])

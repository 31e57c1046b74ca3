"""A pipeline of alice's in `demo`: one step is cached, one was skipped, one runs."""

from __future__ import annotations

from typing import Any

from headway.store import Store

FILE = {
    "name": "tune",
    "steps": {
        "prepare": {"run": "python3 prepare.py", "inputs": ["prepare.py"], "outputs": {"data": {"file": "data"}}},
        "train": {
            "run": "torchrun train.py {prepare.data}",
            "needs": ["prepare"],
            "outputs": {"model": {"file": "m.pt"}},
        },
        "evaluate": {
            "run": "python3 evaluate.py {train.model}",
            "needs": ["prepare", "train"],
            "outputs": {"accuracy": {"metric": "accuracy"}},
        },
        "publish": {"run": "python3 publish.py", "needs": ["evaluate"], "when": "evaluate.accuracy >= 0.9"},
        "improve": {"run": "torchrun train.py --more", "needs": ["evaluate"], "when": "evaluate.accuracy < 0.9"},
    },
}
JOBS = {"prepare": 330, "train": 331, "evaluate": 332, "publish": 333, "improve": 334}


def _result(step: str, state: str, **fields: Any) -> dict[str, Any]:
    return {"job": JOBS[step], "state": state, **fields}


async def put(store: Store) -> None:
    """Stores the pipeline."""
    row = await store.pipelines.save(
        "demo",
        "tune",
        person="alice",
        user="alice",
        workdir="/scratch/alice/runs/tune-20261129-101500-3fa2",
        document={"document": FILE, "bundle": "", "git": None},
    )
    folder = row.workdir
    results = {
        "prepare": _result(
            "prepare",
            "cached",
            why="its content is that of job 300",
            source=300,
            outputs={"data": {"kind": "file", "value": f"{folder}/data", "path": "data", "bytes": 48_318_382}},
        ),
        "train": _result(
            "train",
            "done",
            outputs={"model": {"kind": "file", "value": f"{folder}/m.pt", "path": "m.pt", "bytes": 1_288_490_188}},
        ),
        "evaluate": _result("evaluate", "done", outputs={"accuracy": {"kind": "metric", "value": "0.8731"}}),
        "publish": _result("publish", "skipped", why="evaluate.accuracy is 0.8731, not >= 0.9"),
    }
    await store.pipelines.save_results(row.id, results, {step: JOBS[step] for step in results})
    for step, job in JOBS.items():
        await store.jobs.record(
            "demo",
            job,
            person="alice",
            user="alice",
            kind="run",
            request={},
            facts={},
            audit={},
            pipeline=row.id,
            step=step,
        )

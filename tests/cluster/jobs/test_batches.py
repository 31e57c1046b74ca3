"""Batches on a real cluster: the results are a dataset version, and a worker that Slurm ends gives its shard back."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cluster.lab import Lab

from headway.schemas.submission.batches import BatchIn

# One row fails.
PROGRAM = """\
import os

def predict(rows):
    if any(row["n"] == 13 for row in rows):
        raise ValueError("thirteen")
    return [{"n": row["n"], "double": 2 * row["n"], "model": os.environ["HEADWAY_BATCH_MODEL"]} for row in rows]
"""
ROWS = 5000


def test_results_become_a_dataset_version(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "predict.py").write_text(PROGRAM)
    rows = "".join(json.dumps({"n": number}) + "\n" for number in range(ROWS))
    lab.head("tee", "/scratch/victor/rows.jsonl", user="victor", stdin=rows)
    words = ["--input", "/scratch/victor/rows.jsonl", "--output", "doubled", "--program", "predict.py", "--model", "m1"]
    more = ["--workers", "2", "--folder", str(tmp_path), "--as", "victor", "--shard-rows", "500"]
    started = lab.cli("batch", "run", *words, *more, "-o", "json").json()

    def shown(_: Lab) -> str:
        return lab.cli("batch", "show", started["id"]).out

    lab.wait(
        lambda: lab.client.batches.get("lab", started["id"]).ended_at is not None, "the end of the batch", seen=shown
    )
    found = lab.client.batches.get("lab", started["id"])
    assert (found.state, found.dataset) == ("done", "doubled@1"), shown(lab)
    assert (found.rows, found.done_rows, found.errors, found.done_shards) == (ROWS, ROWS, 1, 10)
    out = [json.loads(line) for line in lab.head("cat", "/datasets/doubled/1/part-00000.jsonl").out.splitlines()]
    assert [row["n"] for row in out] == [number for number in range(ROWS) if number != 13]
    assert out[1] == {"n": 1, "double": 2, "model": "m1"}
    (error,) = lab.head("cat", "/datasets/doubled/1/errors-00000.jsonl").out.splitlines()
    assert json.loads(error)["error"] == "ValueError: thirteen"
    assert json.loads(error)["tries"] == 3


# The worker with the first row waits until the test allows it to compute.
WAITING = """\
import os, pathlib, time

def predict(rows):
    if rows[0]["n"] == 0 and not os.path.exists("/scratch/victor/go"):
        held = pathlib.Path("/scratch/victor/held")
        held.write_text(os.environ["SLURM_ARRAY_JOB_ID"] + "_" + os.environ["SLURM_ARRAY_TASK_ID"])
        while held.exists():
            time.sleep(0.05)
    return rows
"""


def test_shard_of_a_worker_that_slurm_ends_does_not_wait_for_its_lease(lab: Lab) -> None:
    lab.head("tee", "/scratch/victor/few.jsonl", user="victor", stdin='{"n": 0}\n{"n": 1}\n{"n": 2}\n')
    lab.head("tee", "/scratch/victor/wait.py", user="victor", stdin=WAITING)
    request = BatchIn(
        input="/scratch/victor/few.jsonl", output="waiting", program="/scratch/victor/wait.py", workers=2, shard_rows=1,
        lease_s=3600, user="victor",
    )  # fmt: skip
    started = lab.client.batches.start("lab", request)

    def shown(_: Lab) -> str:
        return lab.cli("batch", "show", started.id).out

    held = ("cat", "/scratch/victor/held")
    task = lab.wait(lambda: lab.head(*held, check=False).out, "a worker to compute the first row", seen=shown)
    lab.head("touch", "/scratch/victor/go", user="victor")
    lab.head("scancel", task, user="victor")
    lab.wait(lambda: lab.client.batches.get("lab", started.id).ended_at is not None, "the end of the batch", seen=shown)
    found = lab.client.batches.get("lab", started.id)
    assert (found.state, found.done_rows, found.errors) == ("done", 3, 0), shown(lab)

"""A batch on a real cluster: each row is computed once although a node fails, and the results are a dataset version."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cluster.lab import Lab

# The function waits at one row until the test has seen that the worker has computed others.
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

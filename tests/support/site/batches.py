"""Batches of alice's in `demo`: one runs, one has failed."""

from __future__ import annotations

from headway.schemas.submission.batches import BatchIn
from headway.services.batches.stored_batch import StoredBatch
from headway.store import Store

ERROR = '{"file":"part-00000.jsonl","line":8,"error":"ValueError: the row has no text","tries":3,"row":{"id":7}}'


async def put(store: Store) -> None:
    """Stores the batches."""
    request = BatchIn(input="questions@2", output="answers", model="/datasets/llama-8b/1", workers=2)
    workers = [
        {"task": f"401_{task}", "node": f"demo-1-{task + 1}", "shard": 40 + task, "shards": 20 - task,
         "rows": 20_000 - 1000 * task, "errors": task, "seconds": 1800.0, "error": ""}
        for task in range(2)
    ]  # fmt: skip
    progress = {
        "rows": 1_000_000, "shards": 1000, "done_shards": 39, "done_rows": 39_000, "errors": 1, "seconds": 3600.0,
        "workers": workers, "some_errors": [ERROR],
    }  # fmt: skip
    stored = StoredBatch(request, "m", "/datasets/questions/2", "/scratch/alice/runs/answers-m/batch", "/w", 4.0)
    row = await store.batches.save("demo", "answers", person="alice", user="alice", document=stored.document())
    await store.batches.change(row.id, of_state="submitting", state="running", job_id=401, progress=progress)
    failed = await store.batches.save("demo", "labels", person="alice", user="alice", document=stored.document())
    why = "the program could not be loaded: exit code 1; see the job's log"
    await store.batches.change(failed.id, of_state="submitting", state="failed", why=why, ended_at=1.0)

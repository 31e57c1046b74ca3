"""A batch of a million rows loses nodes, workers and the server, and each row is in its output once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from headway.schemas.submission.batches import BatchIn, BatchOut
from headway.schemas.submission.run_request import JobFields
from tests.cluster.lab import Lab

pytestmark = pytest.mark.soak
ROWS = 1_000_000
SHARD_ROWS = 2000
LEASE_S = 10
BAD = 100_003  # each row whose number is 7 above a multiple of this fails
PATIENCE_S = 1800.0
SPEC = """\
name: batch
plan: h100-8
nodes: 3
spares: 1
teams: {vision: {users: [ann]}}
"""
MAKE_ROWS = f"""
with open("/scratch/ann/rows.jsonl", "w") as file:
    for number in range({ROWS}):
        file.write('{{"n": %d, "text": "row %d"}}\\n' % (number, number))
"""
PROGRAM = f"""\
import time

def predict(rows):
    time.sleep(0.25)  # the time of a model
    if any(row["n"] % {BAD} == 7 for row in rows):
        raise ValueError("seven")
    return [{{"n": row["n"], "length": len(row["text"])}} for row in rows]
"""
COUNT = f"""
import glob, json
seen = bytearray({ROWS})
wrong = errors = 0
for path in sorted(glob.glob("/datasets/lengths/1/*.jsonl")):
    for line in open(path):
        row = json.loads(line)
        errors += "error" in row
        wrong += row.get("length", 0) != len("row %d" % row["n"]) if "n" in row else (row["line"] - 1) % {BAD} != 7
        number = row["n"] if "n" in row else row["line"] - 1
        seen[number] = min(255, seen[number] + 1)
print(json.dumps({{"once": seen.count(1), "never": seen.count(0), "errors": errors, "wrong": wrong}}))
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("batch") / "state", name="batch")
    file = made.state / "batch.yaml"
    file.write_text(SPEC)
    try:
        made.cli("image", "build", "debian13", timeout_s=1800)
        made.cli("apply", str(file), "--yes", timeout_s=600)
        yield made
    finally:
        made.down()


def names(lab: Lab, folder: str) -> list[str]:
    """Returns the names in a folder of the batch's state, without the server."""
    return lab.podman("exec", lab.container("batch-head"), "ls", folder).split()


def test_each_of_a_million_rows_is_in_the_output_once(lab: Lab) -> None:
    lab.head("python3", "-c", MAKE_ROWS, user="ann")
    lab.head("tee", "/scratch/ann/predict.py", user="ann", stdin=PROGRAM)
    request = BatchIn(
        input="/scratch/ann/rows.jsonl", output="lengths", program="/scratch/ann/predict.py", workers=3, call_rows=500,
        shard_rows=SHARD_ROWS, lease_s=LEASE_S, job=JobFields(gpus=8), user="ann",
    )  # fmt: skip
    started = lab.client.batches.start("batch", request)

    def found() -> BatchOut:
        return lab.client.batches.get("batch", started.id)

    def shown(_: Lab) -> str:
        return lab.cli("batch", "show", started.id, check=False).out

    def committed(shards: int) -> BatchOut:
        """Waits until this many shards are committed."""
        lab.wait(lambda: found().done_shards >= shards, f"{shards} shards", PATIENCE_S, seen=shown)
        return found()

    def busy(batch: BatchOut) -> str:
        """Returns a node on which a task of the batch runs."""
        nodes = lab.head("squeue", "-h", "-t", "RUNNING", "-o", "%N", "-j", str(batch.job_id)).out.split()
        return nodes[0]

    lab.podman("kill", lab.container(busy(committed(20))))
    lab.podman("exec", lab.container(busy(committed(80))), "pkill", "-KILL", "-u", "ann", "-f", "predict.py")
    lab.podman("kill", lab.container(busy(committed(140))))

    before_stop = committed(220).done_shards
    lab.cli("server", "stop")
    lab.forget_client()
    lab.wait(lambda: len(names(lab, f"{started.folder}/done")) > before_stop + 30, "work without a server", PATIENCE_S)
    lab.cli("server", "start")

    # A worker that is stopped for longer than its lease: when no other shard is left, another one takes its shard, then both
    # compute it.
    late = busy(committed(400))
    container = lab.container(late)
    task = lab.head("squeue", "-h", "-w", late, "-t", "RUNNING", "-o", "%F_%K", "-j", str(found().job_id)).out.split()[
        0
    ]

    def held() -> str:
        """Stops the worker. Returns the lease that it holds, or lets it continue if it is between two shards."""
        lab.podman("exec", container, "pkill", "-STOP", "-u", "ann", "python3")
        leases = lab.head("grep", "-rlx", task, f"{started.folder}/leases", check=False).out.split()
        done = set(names(lab, f"{started.folder}/done"))
        mine = [name for name in (path.rpartition("/")[2] for path in leases) if name.partition(".")[0] not in done]
        open_ = [name for name in mine if name[0].isdigit()]
        if not open_:
            lab.podman("exec", container, "pkill", "-CONT", "-u", "ann", "python3")
        return max(open_, key=lambda name: int(name.partition(".")[2]), default="")

    shard, _, attempt = lab.wait(held, "the worker to hold a shard").partition(".")
    following = f"{shard}.{int(attempt) + 1}"
    lab.wait(lambda: following in names(lab, f"{started.folder}/leases"), "another attempt", PATIENCE_S, seen=shown)
    lab.podman("exec", container, "pkill", "-CONT", "-u", "ann", "python3")

    lab.wait(lambda: found().ended_at is not None, "the end of the batch", PATIENCE_S, seen=shown)
    batch = found()
    assert (batch.state, batch.dataset, batch.done_rows) == ("done", "lengths@1", ROWS), shown(lab)
    errors = sum(number % BAD == 7 for number in range(ROWS))
    counted = json.loads(lab.head("python3", "-c", COUNT).out)
    assert counted == {"once": ROWS, "never": 0, "errors": errors, "wrong": 0}
    assert batch.errors == errors

"""Datasets with versions are added, verified and removed on a real cluster while a job that reads them runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.lab import Lab

from headway.schemas.submission.submit_request import SubmitIn

USER = "viola"
READS = """\
#!/bin/bash
#SBATCH --job-name=reads --gpus=1
echo "$(cat /datasets/words/1/deep/a.txt)" > "$HOME/read"
touch /datasets/words/1/more 2>> "$HOME/refused"
while [ ! -e "$HOME/enough" ]; do sleep 0.1; done
cat /datasets/words/1/deep/a.txt > "$HOME/late" 2> "$HOME/gone"
"""


STAGED = """\
#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=1 --ntasks-per-node=2 --cpus-per-task=2
# the first command is the second line after this
[ "$(cat "$HEADWAY_SCRATCH/words/b.txt")" = beta ] && touch "$HOME/first"
srun --ntasks-per-node=1 --nodes=2 bash -c 'cat $HEADWAY_SCRATCH/words/deep/a.txt > "$HOME/on-$SLURMD_NODENAME"'
touch "$HOME/staged"
sleep 600
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "words"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a.txt").write_text("alpha")
    (folder / "b.txt").write_text("beta")
    return folder


def test_dataset_version_is_added_read_staged_verified_and_removed(lab: Lab, source: Path) -> None:
    slurmd = ("systemctl", "show", "-p", "MainPID", "--value", "slurmd.service")
    before = [lab.podman("exec", lab.container(node), *slurmd) for node in ("lab-1-1", "lab-1-2")]
    earlier = lab.sbatch(USER, "--gpus=1", wrap='while [ ! -e "$HOME/enough" ]; do sleep 0.1; done')
    lab.wait_job(earlier, "RUNNING")
    added = lab.cli("dataset", "add", "words", "--from", str(source))
    assert added.out.splitlines()[-1] == "/datasets/words/1"

    job = lab.submit(READS, user=USER)
    lab.wait(lambda: lab.head("cat", f"/home/{USER}/read", check=False).out, "the job to have read")
    assert lab.output(f"/home/{USER}/read") == "alpha\n"
    refusal = lab.wait(
        lambda: lab.head("cat", f"/home/{USER}/refused", check=False).out, "the job to have been refused"
    )
    assert "Read-only file system" in refusal
    assert lab.cli("dataset", "verify", "words").out.splitlines()[-1] == "words@1 is complete"
    refused = lab.cli("dataset", "rm", "words@1", "--yes", check=False)
    assert refused.code == 6
    assert f"lineage of job {job}" in refused.err

    staged = lab.client.jobs.sbatch("lab", SubmitIn(script=STAGED, user=USER, stage_in=["words"])).job_id
    lab.wait(
        lambda: lab.head("test", "-e", f"/home/{USER}/staged", check=False).code == 0, "the second job to have read"
    )
    nodes = lab.head("scontrol", "show", "hostnames", lab.field(staged, "NodeList")).out.split()
    assert len(nodes) == 2
    assert [lab.output(f"/home/{USER}/on-{node}") for node in nodes] == ["alpha", "alpha"]
    lab.head("test", "-e", f"/home/{USER}/first")
    own = f"/var/lib/headway/job-tmp/{staged}"
    assert all("b.txt" in lab.podman("exec", lab.container(node), "ls", f"{own}/tmp/words") for node in nodes)
    lab.head("scancel", "--signal=KILL", "--full", str(staged))
    lab.wait_job(staged)
    for node in nodes:
        gone = ("exec", lab.container(node), "sh", "-c", f"test -e {own} && echo there || echo gone")
        lab.wait(lambda gone=gone: lab.podman(*gone).strip() == "gone", f"the job's folder on {node} to be gone")

    kept = lab.state / "volumes/lab/library/versions/words/1/b.txt"
    kept.chmod(0o644)
    kept.write_text("BETA")
    damaged = lab.cli("dataset", "verify", "words@1", check=False)
    assert damaged.code == 1
    assert "b.txt has different content" in damaged.err
    listed = lab.cli("dataset", "ls", "-o", "json").json()  # other tests keep datasets on the shared cluster too
    assert [row["state"] for row in listed if row["name"] == "words"] == ["damaged"]

    lab.cli("dataset", "rm", "words@1", "--yes", "--force")
    lab.head("touch", f"/home/{USER}/enough", user=USER)
    lab.wait_job(earlier, "COMPLETED")
    lab.wait_job(job)
    assert "No such file" in lab.output(f"/home/{USER}/gone")
    (row,) = [dataset for dataset in lab.client.jobs.lineage("lab", job).datasets if dataset["name"] == "words"]
    assert row["version"] == "1"
    assert "by force" in row["removed"]
    assert [lab.podman("exec", lab.container(node), *slurmd) for node in ("lab-1-1", "lab-1-2")] == before
    assert "/datasets/words " not in lab.head("cat", "/proc/self/mounts").out

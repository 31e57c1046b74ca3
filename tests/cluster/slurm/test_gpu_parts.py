"""Jobs hold parts of GPUs: MIG instances and shards, isolated by the device cgroup, and changed on drained nodes only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.lab import Lab

FILE = """
name: parts
plan: h200-8
nodes: 1
mig: {layout}
teams: {{vision: {{users: [alice], limits: {{gpu_parts: {{"3g.71gb": 3}}}}}}}}
"""
HALVES, MIXED = '{"3g.71gb": 2}', '{"3g.71gb": 1, "2g.35gb": 1, "1g.18gb": 2}'
# Prints the device files that the job may open; there is no driver, so an allowed open fails with ENXIO.
OPENS = """
import errno, glob, os
for path in sorted(glob.glob("/dev/nvidia[0-9]") + glob.glob("/dev/nvidia-caps/*")):
    try:
        os.open(path, os.O_RDWR)
    except OSError as error:
        if error.errno == errno.ENXIO:
            print(path)
"""


@pytest.fixture(scope="module")
def parts(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("parts") / "state", name="parts")
    with lab.applied(FILE.format(layout=HALVES)):
        lab.head("tee", "/home/alice/opens.py", user="alice", stdin=OPENS)
        yield lab


def run(lab: Lab, *flags: str, command: tuple[str, ...] = ("nvidia-smi", "-L")) -> list[str]:
    return lab.head("srun", "--chdir=/home/alice", *flags, *command, user="alice").out.splitlines()


def test_a_job_sees_and_opens_its_instance_alone(parts: Lab) -> None:
    """Two jobs hold the halves of GPU 0. Each opens the GPU's file and the two of its own half, none of the other's."""
    flags = ("--gres=gpu:3g.71gb:1", "--output=opens-%j.txt")
    first = parts.sbatch("alice", *flags, wrap="nvidia-smi -L; python3 opens.py; until [ -e free ]; do sleep 0.2; done")
    parts.wait_job(first, "RUNNING")
    second = run(parts, "--gres=gpu:3g.71gb:1", command=("sh", "-c", "nvidia-smi -L; python3 opens.py"))
    parts.head("touch", "/home/alice/free", user="alice")
    assert parts.wait_job(first) == "COMPLETED"
    shown = parts.output(f"/home/alice/opens-{first}.txt").splitlines()
    for lines in (shown, second):
        assert lines[0].startswith("GPU 0: NVIDIA H200 (simulated)")
        assert lines[1].startswith("  MIG 3g.71gb      Device  0: (UUID: MIG-")
        assert len(lines) == 5
    caps = [f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in (12, 13, 21, 22)]
    assert shown[2:] == [*caps[:2], "/dev/nvidia0"]
    assert second[2:] == [*caps[2:], "/dev/nvidia0"]
    assert shown[1] != second[1]


def test_instances_are_accounted_by_type(parts: Lab) -> None:
    job = parts.sbatch("alice", "--gres=gpu:3g.71gb:3", "--output=/dev/null", wrap="true")
    assert parts.wait_job(job) == "COMPLETED"
    tres = parts.head("sacct", "-X", "-n", "-P", "-o", "AllocTRES", "-j", str(job)).out
    assert "gres/gpu:3g.71gb=3" in tres


def test_a_teams_limit_of_parts_holds(parts: Lab) -> None:
    job = parts.sbatch("alice", "--gres=gpu:3g.71gb:4", "--output=/dev/null", wrap="true")
    parts.wait(lambda: "QOSGrp" in parts.field(job, "Reason"), "the limit to be the reason")
    parts.head("scancel", str(job))


def test_a_roll_divides_gpus_anew_after_the_nodes_jobs(parts: Lab) -> None:
    parts.head("rm", "-f", "/home/alice/free", user="alice")
    job = parts.sbatch(
        "alice",
        "--gres=gpu:3g.71gb:1",
        "--output=/dev/null",
        wrap="until [ -e free ]; do sleep 0.2; done; nvidia-smi -L",
    )
    parts.wait_job(job, "RUNNING")
    file = Path(parts.state / "parts.yaml")
    file.write_text(FILE.format(layout=MIXED))
    said = parts.cli("apply", str(file), "--yes", timeout_s=300)
    assert "parts-1-1: each GPU is to be 1 x 3g.71gb + 1 x 2g.35gb + 2 x 1g.18gb, now 2 x 3g.71gb" in said.out
    assert parts.field(job, "JobState") == "RUNNING"
    rolls = parts.cli("roll", "parts", "--dry-run").out
    assert f"once job {job} has ended" in rolls
    parts.head("touch", "/home/alice/free", user="alice")
    parts.cli("roll", "parts", "--yes", timeout_s=300)
    assert parts.wait_job(job) == "COMPLETED"
    assert [line.split()[:2] for line in run(parts, "--gres=gpu:1g.18gb:2") if "MIG" in line] == [
        ["MIG", "1g.18gb"]
    ] * 2
    assert "match the file" in parts.cli("plan", str(file)).out

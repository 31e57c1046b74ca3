"""The scripts of examples/, each of a common kind, run by sbatch on the login node and by `headway submit`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.lab import Lab

EXAMPLES = Path(__file__).parents[3] / "examples"
HOME = "/home/admin/examples"  # home of the user who applied


@pytest.fixture(scope="module", autouse=True)
def _copied(lab: Lab) -> None:
    lab.cli("cp", "-q", "-r", str(EXAMPLES), "lab:")


def by_sbatch(lab: Lab, name: str, *flags: str) -> int:
    return int(lab.head("env", "-C", HOME, "sbatch", "--parsable", *flags, name, user="admin").out)


def by_submit(lab: Lab, name: str, *flags: str) -> int:
    return int(lab.cli("submit", "lab", "--parsable", "--chdir", "examples", *flags, str(EXAMPLES / name)).out)


@pytest.mark.parametrize("way", [by_sbatch, by_submit], ids=["sbatch", "submit"])
def test_sanity_example_lists_the_gpu_of_its_job(lab: Lab, way: object) -> None:
    assert callable(way)
    job = way(lab, "sanity.sbatch")
    assert lab.wait_job(job) == "COMPLETED"
    assert lab.output(lab.field(job, "StdOut")).count("GPU 0:") == 1


def test_hostfile_example_lists_each_node_once(lab: Lab) -> None:
    job = by_sbatch(lab, "hostfile.sbatch")
    assert lab.wait_job(job) == "COMPLETED"
    lines = [line for line in lab.output(lab.field(job, "StdOut")).splitlines() if "slots=" in line]
    assert [line.split() for line in lines] == [[line.split()[0], "slots=8"] for line in lines]
    assert len({line.split()[0] for line in lines}) == 2


def test_fsdp_example_trains_on_four_nodes(lab: Lab) -> None:
    job = by_submit(lab, "train_fsdp.sbatch")
    assert lab.wait_job(job, patience_s=240) == "COMPLETED", lab.why(job)
    out = lab.field(job, "StdOut")
    assert f"/{job}/" in out
    assert "step" in lab.output(out) + lab.output(lab.field(job, "StdErr"))


def test_embedding_example_processes_every_shard_as_an_array(lab: Lab) -> None:
    job = by_sbatch(lab, "batch_embed.sbatch", "--array=0-7")
    lab.wait_array(job)
    made = lab.head("bash", "-c", f"ls {HOME}/embeddings", user="admin").out.split()
    assert len(made) == 8, made


def test_restart_chain_example_continues_after_a_failure(lab: Lab) -> None:
    last = int(lab.head("env", "-C", HOME, "bash", "restart_chain.sh", user="admin").out.split()[-1])
    assert lab.wait_job(last) == "COMPLETED"


def test_gpu_hours_example_reports_usage_by_user(lab: Lab) -> None:
    job = by_sbatch(lab, "sanity.sbatch")
    assert lab.wait_job(job) == "COMPLETED"

    def reported() -> bool:
        return (
            "admin" in lab.head("bash", f"{HOME}/gpu_hours.sh", "now-1days").out.split()
        )  # a month may just have begun

    lab.wait(reported, "accounting to have the job")

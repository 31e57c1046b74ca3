"""The scripts of examples/, each of a common kind, run by sbatch on the login node and by `headway submit`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.lab import Lab

EXAMPLES = Path(__file__).parents[2] / "examples"
HOME = "/home/admin/examples"  # home of the user who applied


@pytest.fixture(scope="module", autouse=True)
def _copied(lab: Lab) -> None:
    lab.cli("cp", "-q", "-r", str(EXAMPLES), "lab:")


def by_sbatch(lab: Lab, name: str, *flags: str) -> int:
    return int(lab.head("env", "-C", HOME, "sbatch", "--parsable", *flags, name, user="admin").out)


def by_submit(lab: Lab, name: str, *flags: str) -> int:
    return int(lab.cli("submit", "lab", "--parsable", "--chdir", "examples", *flags, str(EXAMPLES / name)).out)


@pytest.mark.parametrize("way", [by_sbatch, by_submit], ids=["sbatch", "submit"])
def test_sanity_lists_the_one_gpu_of_the_job(lab: Lab, way: object) -> None:
    assert callable(way)
    job = way(lab, "sanity.sbatch")
    assert lab.wait_job(job) == "COMPLETED"
    assert lab.output(lab.field(job, "StdOut")).count("GPU 0:") == 1


def test_a_host_file_has_a_line_a_node(lab: Lab) -> None:
    job = by_sbatch(lab, "hostfile.sbatch")
    assert lab.wait_job(job) == "COMPLETED"
    lines = [line for line in lab.output(lab.field(job, "StdOut")).splitlines() if "slots=" in line]
    assert [line.split() for line in lines] == [[line.split()[0], "slots=8"] for line in lines]
    assert len({line.split()[0] for line in lines}) == 2


def test_a_four_node_torchrun_script_trains_and_its_output_folder_is_made(lab: Lab) -> None:
    job = by_submit(lab, "train_fsdp.sbatch")
    assert lab.wait_job(job, patience_s=240) == "COMPLETED", lab.why(job)
    out = lab.field(job, "StdOut")
    assert f"/{job}/" in out
    assert "step" in lab.output(out) + lab.output(lab.field(job, "StdErr"))


def test_an_array_embeds_every_shard(lab: Lab) -> None:
    job = by_sbatch(lab, "batch_embed.sbatch", "--array=0-7")
    lab.wait_array(job)
    made = lab.head("bash", "-c", f"ls {HOME}/embeddings", user="admin").out.split()
    assert len(made) == 8, made


def test_a_chain_goes_on_after_a_failure_and_ends_after_success(lab: Lab) -> None:
    last = int(lab.head("env", "-C", HOME, "bash", "restart_chain.sh", user="admin").out.split()[-1])
    assert lab.wait_job(last) == "COMPLETED"


def test_finance_s_report_counts_gpu_hours_by_user(lab: Lab) -> None:
    job = by_sbatch(lab, "sanity.sbatch")
    assert lab.wait_job(job) == "COMPLETED"

    def reported() -> bool:
        return "admin" in lab.head("bash", f"{HOME}/gpu_hours.sh").out.split()

    lab.wait(reported, "accounting to have the job")

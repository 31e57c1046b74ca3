"""The node makes the MIG instances that the cluster file names, changes nothing that is right, and nothing under jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent.config import load_config
from agent.gpu.job_gpus import jobs_on_node
from agent.gpu.mig import Instance, MigError, fault_of, gpu_of_each, make_instances
from agent.gpu.simulated_mig import SimulatedMig

HALVES = (Instance(0, 4, 3, 1, "3g.71gb", 71_885), Instance(4, 4, 3, 2, "3g.71gb", 71_885))
MIXED = (
    Instance(0, 2, 2, 3, "2g.35gb"),
    Instance(2, 1, 1, 9, "1g.18gb"),
    Instance(3, 1, 1, 10, "1g.18gb"),
    Instance(4, 4, 3, 2, "3g.71gb"),
)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedMig:
    def plain_file(path: str, mode: int, device: int) -> None:
        Path(path).write_text(f"{mode:o} {os.major(device)}:{os.minor(device)}")

    monkeypatch.setattr(os, "mknod", plain_file)
    return SimulatedMig(2, state=str(tmp_path / "mig.json"), devices=str(tmp_path))


def files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "nvidia-caps").iterdir())


def test_instances_of_every_gpu_are_made_once(driver: SimulatedMig, tmp_path: Path) -> None:
    done = list(make_instances(driver, HALVES))
    assert done[:3] == [
        "GPU 0: MIG mode is on",
        "GPU 0: instance 1 is made, 3g.71gb",
        "GPU 0: instance 2 is made, 3g.71gb",
    ]
    assert files(tmp_path) == sorted(f"nvidia-cap{minor}" for minor in (12, 13, 21, 22, 147, 148, 156, 157))
    assert list(make_instances(driver, HALVES)) == []


def test_a_new_layout_keeps_instances_that_are_in_both(driver: SimulatedMig) -> None:
    list(make_instances(driver, HALVES))
    done = [line for line in make_instances(driver, MIXED) if line.startswith("GPU 1")]
    assert done == [
        "GPU 1: instance 1 is removed",
        "GPU 1: instance 3 is made, 2g.35gb",
        "GPU 1: instance 9 is made, 1g.18gb",
        "GPU 1: instance 10 is made, 1g.18gb",
    ]


def test_whole_gpus_again(driver: SimulatedMig, tmp_path: Path) -> None:
    list(make_instances(driver, HALVES))
    assert list(make_instances(driver, ()))[-1] == "GPU 1: MIG mode is off"
    assert files(tmp_path) == []


def test_nothing_is_changed_under_jobs(driver: SimulatedMig) -> None:
    list(make_instances(driver, HALVES))
    assert list(make_instances(driver, HALVES, in_use=True)) == []
    with pytest.raises(MigError, match=r"GPU 0 has no MIG instance 2g\.35gb .*jobs are on the node: drain it first"):
        list(make_instances(driver, MIXED, in_use=True))
    assert driver.instances(0) == list(HALVES)


def test_a_lost_instance_is_named(driver: SimulatedMig, tmp_path: Path) -> None:
    list(make_instances(driver, HALVES))
    (tmp_path / "nvidia-caps" / "nvidia-cap157").unlink()
    assert fault_of(driver, 0, HALVES) == ""
    assert fault_of(driver, 1, HALVES) == "GPU 1 has no MIG instance 3g.71gb at memory slice 4"
    list(make_instances(driver, HALVES))
    assert fault_of(driver, 1, HALVES) == ""


def test_jobs_with_instances_hold_the_gpus_of_these(tmp_path: Path) -> None:
    """Slurm numbers the instances of a node by type: here 3g of GPUs 0 and 1, 2g of both, then four 1g."""
    order = gpu_of_each((0, 1), MIXED)
    assert order == [0, 1, 0, 1, 0, 0, 1, 1]
    (tmp_path / "parts").write_text(",".join(map(str, order)))
    for job, held in (("7", "1,6"), ("8", "2,4"), ("9", "")):
        (tmp_path / "jobs" / job).mkdir(parents=True)
        (tmp_path / "jobs" / job / "gpus").write_text(f"{held}\n")
    jobs = jobs_on_node(str(tmp_path / "jobs"), str(tmp_path / "parts"))
    assert {job.number: job.gpus for job in jobs} == {7: (1,), 8: (0,), 9: ()}
    assert jobs_on_node(str(tmp_path / "jobs"), str(tmp_path / "none"))[0].gpus == (1, 6)


def test_configuration_of_a_node_that_is_not_rolled_yet(tmp_path: Path) -> None:
    row = {"profile": "3g.71gb", "start": 0, "size": 4, "compute": 3, "number": 1, "memory_mib": 71_885}
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({"head": "10.0.0.1", "mig": [row], "machines": {"lab-1-2": {"mig": []}}}))
    assert load_config(str(path), "lab-1-1").mig == HALVES[:1]
    assert load_config(str(path), "lab-1-2").mig == ()

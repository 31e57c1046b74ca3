"""Simulated GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.gpu import gpu_metrics, simulated
from tests.support.machines.simulated_gpus import PLAN


class Place:
    """A machine with simulated GPUs: devices, cgroups and what jobs were given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("dev", "faults", "held"):
            (folder / name).mkdir()
        for index in range(4):
            (folder / "dev" / f"nvidia{index}").touch()
        self.source = simulated.Simulated(
            PLAN,
            faults=str(folder / "faults"),
            devices=str(folder / "dev"),
            cgroups=str(folder / "cgroup"),
            jobs=str(folder / "held"),
            host="lab-1-1",
        )

    def job(self, number: int, gpus: str, processor_s: float, memory_mib: int, *, unified: bool = False) -> None:
        mine = self.folder / "held" / str(number)
        mine.mkdir(exist_ok=True)
        (mine / "gpus").write_text(f"{gpus}\n")
        if unified:
            place = self.folder / f"cgroup/system.slice/slurmstepd.scope/job_{number}"
            place.mkdir(parents=True, exist_ok=True)
            (place / "cpu.stat").write_text(f"usage_usec {processor_s * 1e6:.0f}\nuser_usec 1\n")
            (place / "memory.current").write_text(str(memory_mib << 20))
            return
        for controller, name, value in (
            ("cpuacct", "cpuacct.usage", processor_s * 1e9),
            ("memory", "memory.usage_in_bytes", memory_mib << 20),
        ):
            place = self.folder / f"cgroup/{controller}/slurm_lab-1-1/uid_1000/job_{number}"
            place.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(f"{value:.0f}\n")


@pytest.mark.parametrize("unified", [False, True])
def test_simulated_gpus_show_the_load_of_their_job(tmp_path: Path, unified: bool) -> None:
    place = Place(tmp_path)
    place.job(12, "1,2", 100.0, 2000, unified=unified)
    place.source.read(now=50.0)
    place.job(12, "1,2", 103.0, 2000, unified=unified)
    idle, first, second, _ = place.source.read(now=55.0)
    assert [one.figures[gpu_metrics.UTIL] for one in (idle, first, second)] == [0, 60, 60]
    assert (idle.figures[gpu_metrics.FB_USED], first.figures[gpu_metrics.FB_USED]) == (0, 512 + 1000)
    assert first.figures[gpu_metrics.FB_FREE] == 81559 - 1512
    for name in (gpu_metrics.POWER, gpu_metrics.TEMP, gpu_metrics.SM_CLOCK, gpu_metrics.ENERGY):
        assert first.figures[name] > idle.figures[name], name
    assert first.name == "NVIDIA H100 80GB HBM3 (simulated)"
    place.job(12, "1,2", 103.0, 2000, unified=unified)
    assert place.source.read(now=60.0)[1].figures[gpu_metrics.UTIL] == 0, "a job that stands still"
    assert first.uuid != second.uuid


def test_simulated_gpu_faults_are_read_from_files(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for name, text in (
        ("gpu0-ecc", "2\n"), ("gpu1-throttle", "thermal"), ("gpu2-lost", ""), ("gpu3-pcie", "8"),
        ("gpu3-nvlinks-down", "2"), ("gpu3-rows-pending", ""), ("nonsense", "x"),
    ):  # fmt: skip
        (tmp_path / "faults" / name).write_text(text)
    first, second, third, fourth = place.source.read(now=1.0)
    assert (first.figures[gpu_metrics.DBE], second.figures[gpu_metrics.DBE]) == (2, 0)
    assert (second.figures[gpu_metrics.THROTTLE], second.figures[gpu_metrics.TEMP]) == (0x40, 95)
    assert third.lost
    assert [
        fourth.figures[name] for name in (gpu_metrics.PCIE_WIDTH, gpu_metrics.NVLINKS, gpu_metrics.ROWS_PENDING)
    ] == [
        8,
        16,
        1,
    ]
    (tmp_path / "dev" / "nvidia3").unlink()
    assert place.source.read(now=2.0)[3].lost, "its device is gone"

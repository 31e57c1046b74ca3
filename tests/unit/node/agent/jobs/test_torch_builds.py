"""A GPU job whose PyTorch has no CUDA is found by its loaded libraries, and told in its own log."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from agent.gpu.job_gpus import GpuJob
from agent.jobs import torch_builds
from agent.jobs.torch_builds import WITHOUT_CUDA, Finding, InstalledDriver, TorchBuilds, TorchWatch, warn_in_log
from agent.jobs.training_reports import Reports

CPU = "7f00-7f01 r-xp 0 08:01 12 /usr/lib/x86_64-linux-gnu/libtorch_cpu.so.2.6\n"
CUDA = "7f02-7f03 r-xp 0 08:01 13 /environments/pytorch/1/lib/python3.13/site-packages/torch/lib/libtorch_cuda.so\n"


class Machine:
    """A folder like /proc with processes of jobs."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "1").mkdir()
        (place / "1" / "cgroup").write_text("0::/init.scope\n")
        self.processes: dict[int, str] = {}

    def run(self, pid: int, job: int, maps: str, name: str = "python3") -> None:
        folder = self.place / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "cgroup").write_text(f"0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0\n")
        (folder / "maps").write_text(maps)
        self.processes[pid] = name


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


JOBS = [GpuJob(7, (0, 1)), GpuJob(8, (2,)), GpuJob(9, ())]


R550 = InstalledDriver("550.163.01", 12)


def look(
    builds: TorchBuilds, machine: Machine, jobs: list[GpuJob] = JOBS, driver: InstalledDriver = R550
) -> list[Finding]:
    return builds.find_new(jobs, machine.processes.items(), driver)


def test_job_is_named_once_at_the_second_look(machine: Machine) -> None:
    builds = TorchBuilds(str(machine.place))
    machine.run(100, 7, CPU)
    machine.run(101, 9, CPU)  # holds no GPU
    machine.run(102, 8, CPU, name="sshd")
    assert look(builds, machine) == []
    assert look(builds, machine) == [Finding(7, 100)]
    assert look(builds, machine) == []


def test_pytorch_with_cuda_is_left_alone_also_if_its_library_loads_later(machine: Machine) -> None:
    builds = TorchBuilds(str(machine.place))
    machine.run(100, 7, CPU)
    assert look(builds, machine) == []
    machine.run(100, 7, CPU + CUDA)
    assert look(builds, machine) == []
    machine.run(103, 7, CPU)  # another process of the job computes on the CPU on purpose
    assert look(builds, machine) == []
    assert look(builds, machine) == []


def cuda(version: int, libcuda: str = "") -> str:
    runtime = f"7f04-7f05 r-xp 0 08:01 14 /environments/pytorch/1/nvidia/lib/libcudart.so.{version}\n"
    return CPU + CUDA + runtime + (f"7f06-7f07 r-xp 0 08:01 15 {libcuda}\n" if libcuda else "")


@pytest.mark.parametrize(
    "libcuda", ["", "/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01", "/usr/lib/headway/driver/libcuda.so.1"]
)
def test_pytorch_for_a_newer_cuda_than_the_driver_supports_is_named_with_both(machine: Machine, libcuda: str) -> None:
    builds = TorchBuilds(str(machine.place))
    machine.run(100, 7, cuda(13, libcuda))
    assert look(builds, machine) == []
    (found,) = look(builds, machine)
    assert (found, found.flag) == (Finding(7, 100, 13), "torch_cuda_too_new")
    assert "built for CUDA 13, and driver 550.163.01 of this node supports CUDA 12: it finds no GPU" in found.warning(
        R550
    )


def test_pytorch_that_the_driver_supports_is_left_alone(machine: Machine) -> None:
    for maps, driver in (
        (cuda(12), R550),
        (cuda(12), InstalledDriver("580.95.05", 13)),
        (cuda(13), InstalledDriver("580.95.05", 13)),
        (cuda(13), InstalledDriver()),  # read by DCGM: nothing is known of the driver
        (cuda(13, "/usr/local/cuda-13.0/compat/libcuda.so.580.65.06"), R550),  # NVIDIA's package of newer libraries
    ):
        builds = TorchBuilds(str(machine.place))
        machine.run(100, 7, maps)
        assert look(builds, machine, driver=driver) == look(builds, machine, driver=driver) == []


def test_image_with_libraries_of_a_newer_driver_is_left_alone(machine: Machine) -> None:
    builds = TorchBuilds(str(machine.place))
    machine.run(100, 7, cuda(13))
    compat = machine.place / "100/root/usr/local/cuda-13.0/compat"
    compat.mkdir(parents=True)
    (compat / "libcuda.so.580.65.06").touch()
    assert look(builds, machine) == look(builds, machine) == []


def test_number_of_an_ended_job_is_looked_at_again(machine: Machine) -> None:
    builds = TorchBuilds(str(machine.place))
    machine.run(100, 7, CPU)
    look(builds, machine)
    assert look(builds, machine) == [Finding(7, 100)]
    assert look(builds, machine, []) == []
    look(builds, machine)
    assert look(builds, machine) == [Finding(7, 100)]


@pytest.mark.skipif(os.geteuid() != 0, reason="it becomes another user")
def test_warning_is_appended_with_the_rights_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for parent in (tmp_path, *tmp_path.parents):
        if parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o111)
    mine, secret = tmp_path / "log", tmp_path / "secret"
    mine.write_text("step 1\n")
    secret.write_text("untouched\n")
    secret.chmod(0o644)
    os.chown(mine, 65534, 65534)
    said: list[str] = []
    monkeypatch.setattr(torch_builds, "log", said.append)
    for file, mode in ((mine, "a"), (secret, "r")):  # the second one is only opened for reading
        with (
            file.open(mode) as err,
            subprocess.Popen(["cat"], stdin=-1, stderr=err, user=65534, group=65534) as process,
        ):
            warn_in_log(Finding(7, process.pid), InstalledDriver())
            process.communicate()
    assert mine.read_text().startswith("step 1\nheadway: job 7 holds GPUs, but this PyTorch is built without CUDA")
    assert secret.read_text() == "untouched\n"
    assert len(said) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="it becomes another user")
def test_log_that_only_the_groups_of_the_process_may_write_gets_the_warning(tmp_path: Path) -> None:
    for parent in (tmp_path, *tmp_path.parents):
        if parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o111)
    for group in (65533, 65532):
        team = tmp_path / str(group)
        team.touch()
        team.chmod(0o660)
        os.chown(team, 0, group)
        with (
            team.open("a") as err,
            subprocess.Popen(["cat"], stdin=-1, stderr=err, user=65534, group=65533, extra_groups=[65532]) as process,
        ):
            warn_in_log(Finding(7, process.pid), InstalledDriver())
            process.communicate()
        assert team.read_text().startswith("headway: job 7 holds GPUs"), group


def test_log_that_blocks_delays_no_report(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks, ends = threading.Event(), threading.Event()

    def warn(*_: Any) -> None:
        blocks.set()
        ends.wait(60)

    monkeypatch.setattr(torch_builds, "warn_in_log", warn)
    machine.run(100, 7, CPU)
    (machine.place / "100" / "stat").write_text("100 (python3) S 1")
    found: deque[tuple[int, str]] = deque()
    watch = TorchWatch(lambda: JOBS, found, InstalledDriver, str(machine.place))
    watch.look_once()
    looks = threading.Thread(target=watch.look_once)
    looks.start()
    assert blocks.wait(60)
    assert list(found) == [(7, "torch_without_cuda")]
    ends.set()
    looks.join(60)


def test_flag_is_in_every_later_report_and_users_can_not_set_it() -> None:
    sent: list[dict[str, Any]] = []
    reports = Reports(sent.append, lambda *_: 7)
    reports.receive(b'{"step": 1, "torch_without_cuda": 1}', 1, 1, 0.0)
    assert "torch_without_cuda" not in sent[-1]["jobs"]["7"]
    reports.set_flag(7, WITHOUT_CUDA, 1.0)
    reports.receive(b'{"step": 2}', 1, 1, 1.5)
    reports.flush(2.0)
    assert sent[-1]["jobs"]["7"].items() >= {"step": 2, "torch_without_cuda": 1}.items()
    quiet = Reports(sent.append, lambda *_: 8)
    quiet.set_flag(8, WITHOUT_CUDA, 1.0)
    quiet.flush(2.0)
    assert sent[-1]["jobs"]["8"]["torch_without_cuda"] == 1

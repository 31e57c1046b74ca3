"""`make gpu-proof` on a bare Debian 13 and 12, where the GPUs are SIMULATED: it starts a Slurm of one node, checks that jobs can
open their own GPUs only, and leaves nothing behind."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.providers.bare_machines import Bare

ROOT = Path(__file__).parents[3]
MACHINE = 10
LIBRARY = "/root/libcuda.so"


@contextmanager
def prepared(folder: Path, system: str, packages: str) -> Iterator[Bare]:
    """Yields a bare machine with the files of `make gpu-proof` and two device files, but no driver."""
    made = Bare(folder / system, system, shared=False, packages=packages)
    try:
        made.up(MACHINE)
        library = folder / "libcuda.so"
        source = ROOT / "node/image/gpu/simulated_libcuda.c"
        subprocess.run(
            ["gcc", "-O2", "-fPIC", "-shared", "-o", str(library), str(source), "-lm"], check=True, timeout=120
        )
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for name in ("node", "examples"):
                tar.add(ROOT / name, name, filter=lambda info: None if "__pycache__" in info.name else info)
            tar.add(library, "libcuda.so")
        unpack = ["podman", "exec", "--interactive", made.container(MACHINE), "tar", "x", "-C", "/root"]
        subprocess.run(unpack, input=packed.getvalue(), check=True, timeout=120)
        made.inside(MACHINE, "sh", "-c", "for n in 0 1; do mknod -m 666 /dev/nvidia$n c 195 $n; done")
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module", params=["debian13", "debian12"])
def bare(request: pytest.FixtureRequest, node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    with prepared(tmp_path_factory.mktemp("proof"), request.param, "python3") as made:
        yield made


def proof(bare: Bare, *words: str) -> list[str]:
    argv = ["python3", "/root/node/gpu_proof", "--simulated", LIBRARY, "--report", "/root/report.md", "--only", "slurm"]
    out = bare.inside(MACHINE, *argv, *words, timeout_s=600)
    return [" ".join(line.split()) for line in out.splitlines()]


def left_behind(bare: Bare) -> str:
    code = "pgrep -l 'munged|slurm'; ls -d /var/tmp/headway-* /run/headway /usr/sbin/policy-rc.d 2>/dev/null; true"
    return bare.inside(MACHINE, "sh", "-c", code)


def test_nothing_is_installed_unless_asked_for(bare: Bare) -> None:
    (line, _) = proof(bare)
    assert line.startswith("slurm one-node Slurm not run skipped: not installed: munged, slurmctld, slurmd")
    assert left_behind(bare) == ""


def test_jobs_can_open_their_own_gpus_only(bare: Bare) -> None:
    lines = proof(bare, "--install")
    assert lines[0] == "slurm packages ok installed: munge, slurmctld, slurmd, slurm-client"
    assert lines[1].startswith("slurm one-node Slurm ok Slurm ")
    assert lines[2:5] == [
        "slurm a job with one GPU ok may open 1 of 2 GPUs, CUDA_VISIBLE_DEVICES=0",
        "slurm a job without GPUs ok may open 0 of 2 GPUs, CUDA_VISIBLE_DEVICES=unset",
        "slurm a job with all GPUs ok may open 2 of 2 GPUs, CUDA_VISIBLE_DEVICES=0,1",
    ]
    assert lines[5] == "slurm agent ok its metrics name 2 GPUs"
    assert lines[6] == "slurm training as a job not run skipped: this Python has no torch"
    assert "**SIMULATED: no GPU was used.**" in bare.inside(MACHINE, "cat", "/root/report.md")
    assert left_behind(bare) == ""


def test_packages_come_from_a_folder_without_a_network(bare: Bare) -> None:
    script = """
set -e
export DEBIAN_FRONTEND=noninteractive
mkdir -p /root/debs/partial
apt-get install -qq --reinstall --download-only -o Dir::Cache::archives=/root/debs munge slurmctld slurmd slurm-client
apt-get purge -qq slurmctld slurmd slurm-client munge
ip route del default
"""
    bare.inside(MACHINE, "sh", "-c", script, timeout_s=600)
    lines = proof(bare, "--packages", "/root/debs")
    assert lines[0].endswith("packages of /root/debs")
    assert lines[1].startswith("slurm one-node Slurm ok Slurm ")
    assert proof(bare, "--packages", "/nowhere")[0].startswith("slurm one-node Slurm ok"), "Slurm is installed by now"


@pytest.mark.soak
def test_training_as_a_job_is_requeued_and_continues(node_image: None, tmp_path: Path) -> None:
    """With Debian's PyTorch, which computes on the CPU and is changed as in the node image."""
    with prepared(tmp_path, "debian13", "python3,python3-torch") as bare:
        bare.inside(MACHINE, "sh", "/root/node/image/torch-without-libuv.sh", "/")
        lines = {" ".join(line.split()[1:]) for line in proof(bare, "--install")}
        assert left_behind(bare) == ""
    found = "\n".join(sorted(lines))
    for expected in (
        r"^training as a job until it is killed ok step [23]\d, loss \d",
        r"^training as a job again ok step 40, loss \d",
        r"^continues as a job ok continues after step [123]0$",
        r"^agent during the training ok \d+\.\d\d % of one core, \d+ MB resident$",
    ):
        assert re.search(expected, found, re.MULTILINE), found

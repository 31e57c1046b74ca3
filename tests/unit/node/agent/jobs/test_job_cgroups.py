"""CPU time and memory of jobs are those of their cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.jobs.job_cgroups import JobCgroups, job_metrics

MIB = 1 << 20


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def v1(root: Path) -> None:
    write(root / "cpu,cpuacct/slurm_lab-1-1/uid_1000/job_12/cpuacct.usage", "2500000000\n")
    memory = root / "memory/slurm_lab-1-1/uid_1000/job_12"
    write(memory / "memory.usage_in_bytes", f"{300 * MIB}\n")
    write(memory / "memory.stat", f"inactive_file 7\ntotal_inactive_file {100 * MIB}\n")


def v2(root: Path) -> None:
    job = root / "system.slice/slurmstepd.scope/job_12"
    write(job / "cpu.stat", "usage_usec 2500000\nuser_usec 1\n")
    write(job / "memory.current", f"{300 * MIB}\n")
    write(job / "memory.stat", f"anon 1\ninactive_file {100 * MIB}\n")


@pytest.mark.parametrize("version", [v1, v2])
def test_job_metrics_have_cpu_time_and_memory_without_reclaimable_files(tmp_path: Path, version: object) -> None:
    version(tmp_path)  # type: ignore[operator]
    assert list(job_metrics([12, 13], JobCgroups(str(tmp_path)))) == [
        ("headway_job_cpu_seconds_total", {"hpc_job": "12"}, 2.5),
        ("headway_job_memory_bytes", {"hpc_job": "12"}, 200 * MIB),
    ]

"""A job's tasks join the cgroup that the prolog names, on files that stand for cgroups."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from headway.images import recipe

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="compiles the header")


@pytest.fixture
def join(tmp_path: Path) -> list[str]:
    """The command that joins the cgroup of the job with the folder `job`."""
    (tmp_path / "job").mkdir()
    spank, source = recipe.files_folder() / "spank", tmp_path / "main.c"
    source.write_text(
        f'#include "{spank}/job_processes.h"\n#include "{spank}/job_network.h"\n'
        f'int main(void) {{ (void)limit_processes; return join_network_cgroup("{tmp_path}/job") == 0 ? 0 : 1; }}\n'
    )
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-o", str(tmp_path / "join"), str(source)], check=True, timeout=60)
    return [str(tmp_path / "join")]


def test_task_joins_the_cgroup_of_its_job(tmp_path: Path, join: list[str]) -> None:
    (tmp_path / "procs").touch()
    (tmp_path / "job/join-cgroup").write_text(f"{tmp_path}/procs\n")
    assert subprocess.run(join, check=False, timeout=10).returncode == 0
    assert (tmp_path / "procs").read_text() == "0"


def test_task_does_not_start_outside_of_the_cgroup(tmp_path: Path, join: list[str]) -> None:
    (tmp_path / "job/join-cgroup").write_text(f"{tmp_path}/gone/cgroup.procs\n")
    assert subprocess.run(join, check=False, timeout=10).returncode == 1
    (tmp_path / "job/join-cgroup").write_text("")
    assert subprocess.run(join, check=False, timeout=10).returncode == 1


def test_job_without_an_own_cgroup_joins_none(join: list[str]) -> None:
    assert subprocess.run(join, check=False, timeout=10).returncode == 0

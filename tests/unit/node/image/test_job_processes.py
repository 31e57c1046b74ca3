"""The limit of processes of a job, on folders that stand for cgroups."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from headway.images import recipe

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="compiles the header")
STEP = "/system.slice/slurmstepd.scope/job_7/step_0"


@pytest.fixture
def limit(tmp_path: Path) -> list[str]:
    """The command that gives itself the limit of job 7: 4096 processes."""
    (tmp_path / "jobs/7").mkdir(parents=True)
    (tmp_path / "jobs/7/processes").write_text("4096\n")
    source = tmp_path / "main.c"
    header = recipe.files_folder() / "spank/job_processes.h"
    source.write_text(f'#include "{header}"\nint main(void) {{ return limit_processes(7) == 0 ? 0 : 1; }}\n')
    places = {"JOB_FOLDERS": "jobs", "CGROUPS": "cgroup", "OWN_CGROUP": "own"}
    named = [f'-D{name}="{tmp_path}/{place}"' for name, place in places.items()]
    subprocess.run(["gcc", "-D_GNU_SOURCE", *named, "-o", str(tmp_path / "limit"), str(source)], check=True, timeout=60)
    return [str(tmp_path / "limit")]


def test_step_has_the_limit_with_cgroup_v2(tmp_path: Path, limit: list[str]) -> None:
    (tmp_path / "own").write_text(f"0::{STEP}/user/task_0\n")
    step = Path(f"{tmp_path}/cgroup{STEP}")
    (step / "user").mkdir(parents=True)
    (step / "user/pids.max").write_text("max")
    controllers = [folder / "cgroup.subtree_control" for folder in (step.parent.parent, step.parent, step)]
    for file in controllers:
        file.touch()
    assert subprocess.run(limit, check=False, timeout=10).returncode == 0
    assert (step / "user/pids.max").read_text().startswith("4096")
    assert [file.read_text() for file in controllers] == ["+pids"] * 3


def test_job_has_no_limit_where_the_controller_is_missing(tmp_path: Path, limit: list[str]) -> None:
    (tmp_path / "own").write_text(f"0::{STEP}/user/task_0\n")
    Path(f"{tmp_path}/cgroup{STEP}/user").mkdir(parents=True)
    assert subprocess.run(limit, check=False, timeout=10).returncode == 1


def test_process_outside_of_slurms_cgroups_gets_no_limit(tmp_path: Path, limit: list[str]) -> None:
    (tmp_path / "own").write_text("0::/user.slice/user-0.slice\n")
    (tmp_path / "cgroup").mkdir()
    assert subprocess.run(limit, check=False, timeout=10).returncode == 1

"""The script that prolog and epilog call runs correctly under bash in a temporary folder, with programs that record what
they are asked for."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.render.files_by_role import render_files
from headway.render.machine_paths import EPILOG, JOB_SHM, JOB_TMP, PROLOG
from headway.render.slurm.hooks.mps import MPS, SCRIPT, SIMULATED_PROGRAM
from tests.support.clusters.render_cases import parts_cluster, parts_site

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="acts for other users")
ANN, BOB = 20000, 20001
# systemd-run notes the unit and its options, and starts nothing; a unit is active as long as its file exists.
PROGRAMS = {
    "systemd-run": """\
echo "$@" >>$units/log
[ ! -e $units/broken ] || exit 0
while [ "$1" != --unit ]; do shift; done
touch $units/$2""",
    "systemctl": """\
for unit; do :; done
case $* in
*is-active*) [ -e $units/$unit ] ;;
stop*) rm -f $units/$unit ;;
esac""",
    "journalctl": "echo no GPU",
    "control": 'read -r command; echo "$(id -u) $CUDA_MPS_PIPE_DIRECTORY $command" >>$units/told; [ ! -e $units/broken ]',
    "sleep": "",
}


class Node:
    """A node with GPUs that jobs share by MPS."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.units = folder, folder / "units"
        for name in ("bin", "units", "shm", "jobs"):
            (folder / name).mkdir()
        self.units.chmod(0o777)
        folder.chmod(0o755)
        for name, text in PROGRAMS.items():
            (folder / "bin" / name).write_text(f"#!/bin/bash\nunits={self.units}\n{text}\n")
            (folder / "bin" / name).chmod(0o755)
        text = render_files(parts_cluster(), parts_site())["node-mps"][SCRIPT].text
        assert SIMULATED_PROGRAM in text
        text = text.replace(SIMULATED_PROGRAM, "control").replace(MPS, f"{folder}/mps")
        self.script = text.replace(JOB_SHM, f"{folder}/shm").replace(JOB_TMP, f"{folder}/jobs")

    def run(self, word: str, **env: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        argv = ["bash", "-c", self.script, "mps", word]
        return subprocess.run(argv, env={"PATH": path, **env}, check=False, timeout=30, capture_output=True, text=True)

    def begin(self, job: int, user: int = ANN, gpu: str = "2", percentage: str = "30") -> str:
        """Runs what the prolog of a job runs. Returns why it failed."""
        own, shm = self.folder / f"jobs/{job}", self.folder / f"shm/{job}.a"
        own.mkdir()
        shm.mkdir()
        (own / "shm").symlink_to(shm)
        env = {"SLURM_JOB_ID": str(job), "SLURM_JOB_UID": str(user), "SLURM_JOB_GID": str(user), "SLURM_JOB_GPUS": gpu}
        done = self.run("start", own=str(own), CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=percentage, **env)
        assert (done.returncode == 0) == (not done.stderr)
        return done.stderr

    def end(self, job: int) -> None:
        """Runs what the epilog of a job runs after it deleted the job's folder."""
        (self.folder / f"jobs/{job}/mps").unlink(missing_ok=True)
        assert self.run("end").returncode == 0

    def active(self) -> list[str]:
        return sorted(path.name for path in self.units.glob("headway-mps-*"))


@pytest.fixture
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to other users
        yield Node(Path(folder))


def test_daemon_runs_from_the_first_job_of_a_user_on_a_gpu_to_the_last(node: Node) -> None:
    assert node.begin(7) == ""
    assert node.begin(8) == ""
    assert node.active() == ["headway-mps-20000-2"]
    assert len((node.units / "log").read_text().splitlines()) == 1
    pipe = node.folder / "mps/20000-2"
    assert [(node.folder / f"jobs/{job}/mps").read_text() for job in (7, 8)] == [f"{pipe}\n"] * 2
    assert (pipe.stat().st_mode & 0o7777, pipe.stat().st_uid) == (0o700, ANN)
    # Programs and daemon exchange data in /dev/shm.
    assert {(node.folder / f"jobs/{job}/shm").resolve() for job in (7, 8)} == {node.folder / "shm/mps-20000-2"}
    node.end(7)
    assert node.active() == ["headway-mps-20000-2"]
    node.end(8)
    assert node.active() == []
    assert (node.units / "told").read_text().splitlines()[-1] == f"{ANN} {pipe} quit"
    assert not [*(node.folder / "mps").iterdir(), *(node.folder / "shm").iterdir()]


def test_each_user_has_a_daemon_that_may_open_only_its_gpu(node: Node) -> None:
    assert node.begin(7) == ""
    assert node.begin(8, BOB) == ""
    assert node.active() == ["headway-mps-20000-2", "headway-mps-20001-2"]
    for line, user in zip((node.units / "log").read_text().splitlines(), (ANN, BOB), strict=True):
        assert f"--uid {user} --gid {user} " in line
        assert "DevicePolicy=closed" in line
        assert f"BindPaths={node.folder}/shm/mps-{user}-2:/dev/shm" in line
        assert f"CUDA_MPS_PIPE_DIRECTORY={node.folder}/mps/{user}-2" in line
        assert line.endswith("bin/control -f")
    node.end(7)
    assert node.active() == ["headway-mps-20001-2"]


def test_job_without_a_share_starts_no_daemon(node: Node) -> None:
    assert node.begin(7, percentage="") == ""
    assert node.active() == []
    assert not (node.folder / "jobs/7/mps").exists()


def test_a_daemon_that_cannot_run_is_reported_in_one_sentence(node: Node) -> None:
    (node.units / "broken").touch()
    assert node.begin(7) == (
        "headway: control does not start for GPU 2: see journalctl -u headway-mps-20000-2, which ends with: no GPU\n"
    )
    (node.folder / "bin/control").unlink()
    host = os.uname().nodename
    assert node.begin(8) == (
        f"headway: control is missing on {host}: install it (in Debian the package nvidia-cuda-mps), or remove mps from the "
        "group\n"
    )


def test_only_groups_with_mps_have_the_script() -> None:
    """A job's folder is deleted before `end` looks who still uses a daemon."""
    files = render_files(parts_cluster(), parts_site())
    for group in ("mig", "shards", "whole"):
        assert SCRIPT not in files[f"node-{group}"]
        assert SCRIPT not in files[f"node-{group}"][PROLOG].text
    prolog, epilog = files["node-mps"][PROLOG].text, files["node-mps"][EPILOG].text
    assert f'own="$own" {SCRIPT} start || exit 1\n' in prolog
    assert epilog.index(f"{SCRIPT} end\n") > epilog.index('take "$folder"')

"""The files of a one-node Slurm fit its version and what the machine allows."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_proof import __main__ as program
from gpu_proof.one_node_slurm import OneNodeSlurm, missing_programs
from tests.support.waiting import wait_until

DEVICES = ["/dev/nvidia0", "/dev/nvidia1"]


def files(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, isolates: bool) -> tuple[str, str]:
    """Returns slurm.conf and cgroup.conf."""
    monkeypatch.setattr(OneNodeSlurm, "version", lambda _: version)
    made = OneNodeSlurm(DEVICES, isolates, folder=folder)
    return made._slurm_conf(), made._cgroup_conf()


@pytest.mark.parametrize(("version", "disabled"), [("22.05.8", ""), ("24.11.5", "CgroupPlugin=disabled\n")])
def test_cgroups_are_left_out_where_they_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, disabled: str
) -> None:
    slurm, cgroup = files(tmp_path, monkeypatch, version, isolates=False)
    assert (cgroup, "proctrack/cgroup" in slurm) == (disabled, False)
    assert "ConstrainDevices=yes" in files(tmp_path, monkeypatch, version, isolates=True)[1]


def test_every_gpu_is_a_gres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert " Gres=gpu:2\n" in files(tmp_path, monkeypatch, "24.11.5", isolates=True)[0]
    lines = OneNodeSlurm(DEVICES, folder=tmp_path)._gres_conf().splitlines()
    assert lines == [f"Name=gpu File={device} Flags=nvidia_gpu_env" for device in DEVICES]


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None if name == "slurmd" else f"/usr/sbin/{name}")
    assert missing_programs() == ["slurmd"]


def test_daemons_do_not_share_the_session_of_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C would otherwise end slurmctld before the jobs are cancelled."""
    (tmp_path / "munged").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "munged").chmod(0o755)
    monkeypatch.setattr("gpu_proof.one_node_slurm.PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    slurm = OneNodeSlurm(DEVICES, folder=tmp_path)
    slurm._start("munged")
    (daemon,) = slurm._daemons
    assert os.getsid(daemon.pid) == daemon.pid
    slurm._close()
    assert daemon.poll() is not None


def test_steps_end_although_slurmctld_does_not_answer(tmp_path: Path) -> None:
    """slurmstepd and its processes outlive slurmd, and would keep the GPUs. Those of another Slurm go on."""
    folder = tmp_path / "proof"
    (folder / "spool").mkdir(parents=True)
    stand_in = str(tmp_path / "slurmstepd")
    shutil.copy(shutil.which("bash") or "", stand_in)
    argv = [stand_in, "-c", "sleep 600 & echo $!; wait"]
    own = subprocess.Popen(argv, cwd=folder / "spool", stdout=subprocess.PIPE, text=True)
    other = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert own.stdout
        assert other.stdout
        task, _ = own.stdout.readline(), other.stdout.readline()
        OneNodeSlurm(DEVICES, folder=folder)._close()
        own.wait(30)
        assert own.stdout.read() == "", "the task has ended too: it held the pipe"
        gone = Path(f"/proc/{int(task)}")
        wait_until(lambda: not gone.exists(), "the end of the task", lambda: f"{gone} is there")
        assert other.poll() is None
        assert not folder.exists()
    finally:
        own.kill()
        for child in Path(f"/proc/{other.pid}/task/{other.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        other.kill()
        other.wait()


def test_end_of_the_terminal_ends_what_was_started(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\nfrom gpu_proof import __main__ as program\n"
        "def step(proof):\n    try:\n        os.kill(os.getpid(), signal.SIGHUP)\n        yield\n"
        "    finally:\n        print('cleaned up', flush=True)\n"
        "program.STEPS.update(metrics=step)\nprogram.open_proof = lambda *_: None\n"
        "program.describe_machine = lambda _: {}\n"
        "class Report:\n    def __init__(self, *_, **__): pass\nprogram.Report = Report\n"
        "class Config: simulated = True\nclass Proof: config = Config\nprogram.open_proof = lambda *_: Proof\n"
        f"sys.argv = ['gpu_proof', '--only', 'metrics', '--report', {str(tmp_path / 'r.md')!r}]\nprogram.main()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(program.ROOT / "node")}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (129, "cleaned up\n"), ran.stderr

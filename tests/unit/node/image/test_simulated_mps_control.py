"""The stand-in for NVIDIA's MPS control daemon serves its own user on one GPU and refuses what it does not simulate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import NODE

SCRIPT = NODE / "image/rootfs/usr/lib/headway/simulated-mps-control"


class Control:
    """The program on a node whose GPU files are in `folder`/dev."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.program = folder, folder / "control.py"
        (folder / "dev").mkdir()
        (folder / "dev/nvidia3").touch()
        self.program.write_text(SCRIPT.read_text().replace('DEVICES = "/dev"', f'DEVICES = "{folder}/dev"'))
        self.env = {name: str(folder) for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")}

    def argv(self, *options: str) -> list[str]:
        return [sys.executable, "-IS", str(self.program), *options]

    def tell(self, command: str, *options: str, **more: str) -> tuple[str, str]:
        """Returns the answer and the error."""
        done = subprocess.run(
            self.argv(*options),
            input=command,
            env={**self.env, **more},
            text=True,
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode == 0) == (not done.stderr)
        return done.stdout, done.stderr

    def serve(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.argv("-f"), env={**self.env, "CUDA_VISIBLE_DEVICES": "0"}, text=True, stderr=subprocess.PIPE
        )
        log = self.folder / "control.log"
        while not (log.exists() and log.read_text()):
            assert process.poll() is None
        return process


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return Control(tmp_path)


def test_daemon_answers_its_user_until_quit(control: Control) -> None:
    with control.serve() as daemon:
        assert control.tell("get_server_list\n") == ("", "")
        assert control.tell("get_default_active_thread_percentage\n") == ("100.0\n", "")
        assert "start_server is not simulated" in control.tell("start_server\n")[1]
        assert control.tell("quit\n") == ("", "")
        assert daemon.wait(timeout=30) == 0
    assert "no control daemon answers" in control.tell("get_server_list\n")[1]
    log = (control.folder / "control.log").read_text()
    assert log.startswith("SIMULATED GPUs")
    assert f"control daemon of user {os.getuid()} for nvidia3\n" in log


@pytest.mark.skipif(os.geteuid() != 0, reason="acts for another user")
def test_daemon_refuses_another_user(control: Control) -> None:
    for folder in (control.folder, *control.folder.parents):
        if folder.stat().st_uid == os.getuid() and str(folder) not in ("/", "/tmp"):
            folder.chmod(0o755)
    with control.serve() as daemon:
        (control.folder / "control").chmod(0o777)
        other = subprocess.run(
            ["setpriv", "--reuid", "20001", "--clear-groups", *control.argv()],
            input="quit\n", env=control.env, text=True, capture_output=True, timeout=30, check=False,
        )  # fmt: skip
        assert "this control daemon belongs to user 0" in other.stderr
        control.tell("quit\n")
        assert daemon.wait(timeout=30) == 0


def test_daemon_refuses_more_than_its_gpu_and_unknown_options(control: Control) -> None:
    assert "the options -d are not simulated" in control.tell("", "-d")[1]
    assert "set CUDA_MPS_PIPE_DIRECTORY" in control.tell("quit", CUDA_MPS_PIPE_DIRECTORY="")[1]
    (control.folder / "dev/nvidia4").touch()
    assert "one GPU is simulated" in control.tell("", "-f", CUDA_VISIBLE_DEVICES="0")[1]

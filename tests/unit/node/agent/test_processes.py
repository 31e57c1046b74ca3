"""The agent lists and ends processes correctly whatever their names contain."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from agent import config, processes
from agent.checks import runner as checks
from agent.metrics import sampler

CUT = "run_训练模型.sh".encode()[:15]  # as the kernel cuts names: in the middle of a letter
HIGH = 4_194_300  # no process has such a number


def process(proc: Path, pid: int, name: bytes, job: int = 0, uid: int = 0, text: str = "") -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_bytes(name + b"\n")
    (folder / "stat").write_bytes(b"%d (%s) S 1 1 1 0 -1 0\n" % (pid, name))
    (folder / "status").write_text(f"Name:\tx\nUid:\t{uid}\t0\t0\t0\nGid:\t0\t0\t0\t0\n")
    (folder / "cmdline").write_text(f"{text}\0")
    (folder / "cgroup").write_text(f"0::/system.slice/slurmstepd.scope/job_{job}/step_0/task_0\n" if job else "0::/\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    with pytest.raises(UnicodeDecodeError):
        CUT.decode()
    process(tmp_path, 1, b"systemd")
    process(tmp_path, HIGH + 1, b"python3", job=12, uid=1000)
    process(tmp_path, HIGH + 2, CUT, job=13, uid=1000)
    process(tmp_path, HIGH + 3, b"slurmstepd", job=13)
    return tmp_path


def test_end_jobs_kills_processes_with_undecodable_names(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.lost_contact import node_lease

    killed: set[int] = set()

    def kill(pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        if pid in killed:
            raise ProcessLookupError
        killed.add(pid)

    monkeypatch.setattr(node_lease.os, "kill", kill)
    assert node_lease.end_jobs(str(proc)) == {12, 13}
    assert killed == {HIGH + 1, HIGH + 2}


def test_end_jobs_kills_user_processes_named_slurmstepd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.lost_contact import node_lease

    process(tmp_path, 1, b"systemd")
    process(tmp_path, HIGH + 1, b"slurmstepd", job=12, uid=1000)
    process(tmp_path, HIGH + 2, b"slurmstepd", job=12)
    killed: list[int] = []

    def kill(pid: int, _: int) -> None:
        if pid in killed:
            raise ProcessLookupError
        killed.append(pid)

    monkeypatch.setattr(node_lease.os, "kill", kill)
    assert node_lease.end_jobs(str(tmp_path)) == {12}
    assert killed == [HIGH + 1]


def test_user_process_named_slurmstepd_cannot_end_another_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not where the program is set-uid root, and asks for a password."""
    ended: list[int | None] = []
    monkeypatch.setattr(sampler, "jobs_on_node", list)
    monkeypatch.setattr(sampler, "end_jobs", lambda _, only: ended.append(only))
    looks = sampler.Sampler(
        config.Config(head="h", offline_response=True), None, checks.Runner((), str(tmp_path)), str(tmp_path)
    )
    process(tmp_path, HIGH + 1, b"slurmstepd", text="slurmstepd: [7.extern]")
    process(tmp_path, HIGH + 2, b"slurmstepd", text="slurmstepd: [7.batch]", uid=1000)
    looks._processes(0.0)
    shutil.rmtree(tmp_path / str(HIGH + 2))
    for at in (15.0, 30.0, 45.0):
        looks._processes(at)
    assert ended == []
    process(tmp_path, HIGH + 3, b"slurmstepd", text="slurmstepd: [7.batch]")
    looks._processes(60.0)
    shutil.rmtree(tmp_path / str(HIGH + 3))
    looks._processes(75.0)
    looks._processes(90.0)
    assert ended == [7], "what root started counts"


def test_list_processes_includes_undecodable_names(proc: Path) -> None:
    found = {pid: (name, state) for pid, name, state in processes.list_processes(str(proc))}
    assert len(found) == 4
    assert found[HIGH + 2] == (CUT.decode(errors="replace"), "S")


class LastLook(BaseException):
    """Ends the endless."""


def test_sampling_error_is_logged_and_sampling_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.metrics import head

    looks: list[float] = []

    def look(now: float) -> None:
        looks.append(now)
        if len(looks) % 2:
            raise ValueError("no number")
        raise LastLook

    said: list[str] = []
    monkeypatch.setattr(sampler.time, "sleep", lambda _: None)
    for module in (sampler, head):
        monkeypatch.setattr(module, "log", said.append)
    runner = checks.Runner((), str(tmp_path))
    every: list[Any] = [
        sampler.Sampler(config.Config(head="h"), None, runner, str(tmp_path)),
        head.HeadSampler({}, str(tmp_path)),
    ]
    for one in every:
        monkeypatch.setattr(one, "sample", look)
        monkeypatch.setattr(one._disks, "start", lambda: None)
        with pytest.raises(LastLook):
            one.run()
    assert (len(looks), said) == (4, ["the machine can't be measured: ValueError: no number"] * 2)

"""What the agent reads of processes: whatever anybody calls theirs, it goes on looking."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.node_agent import checks, config, watcher

CUT = "run_训练模型.sh".encode()[:15]  # as the kernel cuts names: in the middle of a letter
HIGH = 4_194_300  # no process has such a number


def process(proc: Path, pid: int, name: bytes, job: int = 0) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_bytes(name + b"\n")
    (folder / "stat").write_bytes(b"%d (%s) S 1 1 1 0 -1 0\n" % (pid, name))
    (folder / "cgroup").write_text(f"0::/system.slice/slurmstepd.scope/job_{job}/step_0/task_0\n" if job else "0::/\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    with pytest.raises(UnicodeDecodeError):
        CUT.decode()
    process(tmp_path, 1, b"systemd")
    process(tmp_path, HIGH + 1, b"python3", job=12)
    process(tmp_path, HIGH + 2, CUT, job=13)
    process(tmp_path, HIGH + 3, b"slurmstepd", job=13)
    return tmp_path


def test_a_name_that_was_cut_within_a_letter_keeps_no_job_alive(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent import lease

    killed: set[int] = set()

    def kill(pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        if pid in killed:
            raise ProcessLookupError
        killed.add(pid)

    monkeypatch.setattr(lease.os, "kill", kill)
    assert lease.end_jobs(str(proc)) == {12, 13}
    assert killed == {HIGH + 1, HIGH + 2}


def test_it_is_one_process_among_the_others(proc: Path) -> None:
    found = {pid: (name, state) for pid, name, state in watcher.processes(str(proc))}
    assert len(found) == 4
    assert found[HIGH + 2] == (CUT.decode(errors="replace"), "S")


class LastLook(BaseException):
    """Ends the endless."""


def test_what_goes_wrong_in_a_look_is_said_and_the_next_one_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent import headfigures

    looks: list[float] = []

    def look(now: float) -> None:
        looks.append(now)
        if len(looks) % 2:
            raise ValueError("no number")
        raise LastLook

    said: list[str] = []
    monkeypatch.setattr(watcher.time, "sleep", lambda _: None)
    for module in (watcher, headfigures):
        monkeypatch.setattr(module, "say", said.append)
    runner = checks.Runner((), str(tmp_path))
    every: list[Any] = [
        watcher.Watcher(config.Config(head="h"), None, runner, str(tmp_path)),
        headfigures.HeadWatcher({}, str(tmp_path)),
    ]
    for one in every:
        monkeypatch.setattr(one, "look", look)
        monkeypatch.setattr(one._disks, "start", lambda: None)
        with pytest.raises(LastLook):
            one.run()
    assert (len(looks), said) == (4, ["the machine can't be looked at: ValueError: no number"] * 2)

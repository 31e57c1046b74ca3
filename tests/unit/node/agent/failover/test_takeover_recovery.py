"""Jobs that the first head's controller had accepted and not saved are listed with their scripts once the second head
leads."""

from __future__ import annotations

import os
import pwd
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent import config
from agent.failover import takeover_recovery
from agent.jobs import queue_recovery

ME = pwd.getpwuid(os.getuid())
SAVED = 1_000_000  # when the first one's controller wrote its queue last


class Controller:
    """The second one's, which has taken over what was written."""

    def __init__(self, known: Mapping[int, int]) -> None:
        self.jobs = dict(known)
        self.fails = 0

    def known_jobs(self) -> Mapping[int, int]:
        if self.fails:
            self.fails -= 1
            raise OSError("squeue: no answer")
        return self.jobs


class World:
    def __init__(self, folder: Path) -> None:
        self.state = folder / "slurm/slurmctld"
        self.handed = folder / "slurm/resubmit"
        self.home = folder / "home/ann"
        for made in (self.state / "hash.4", self.home):
            made.mkdir(parents=True)
        (self.state / "job_state").write_text("")
        os.utime(self.state / "job_state", (SAVED, SAVED))
        self.controller = Controller({33: ME.pw_uid})
        self.heir = self.agent()

    def agent(self) -> Any:
        """Started anew."""
        settings = config.Config(head="10.0.0.2", first=False, first_head="10.0.0.1", state=str(self.state))
        return takeover_recovery.TakeoverRecovery(
            settings, lambda: self.controller, f"{self.home.parent}/*/.headway-submitted-lab"
        )

    def accepted(self, job: int, at: int) -> None:
        kept = self.state / f"hash.{job % 10}/job.{job}"
        kept.mkdir(parents=True)
        (kept / "script").write_text(f"#!/bin/sh\n# {job}\n")
        with (self.home / ".headway-submitted-lab").open("a") as file:
            file.write(f"{job} {at} {b'sbatch a.sh'.replace(b' ', bytes(1)).hex()}\n")

    def beat(self, at: int, number: int = 0) -> None:
        (self.state / "heartbeat").write_bytes(struct.pack(">QQ", at, number))

    def due(self) -> list[tuple[int, int, str]]:
        return [(one.note.job, one.began, one.kept) for one in queue_recovery.read_takeover_list(str(self.handed))]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(queue_recovery.time, "time", lambda: SAVED + 20.0)
    return World(tmp_path)


def falls_silent(world: World, at: float = 50.0) -> None:
    world.beat(SAVED + 3)
    world.heir.check(at)
    world.heir.check(at + takeover_recovery.STILL_S - 0.1)
    assert not (world.handed / "saved").exists()
    world.heir.check(at + takeover_recovery.STILL_S)


def test_unsaved_jobs_are_listed_with_scripts_after_the_takeover(world: World) -> None:
    world.accepted(33, SAVED - 60)
    world.accepted(34, SAVED + 2)
    falls_silent(world)
    (world.state / "hash.4/job.34/script").unlink()  # the controller that takes over knows no such job
    world.beat(SAVED + 8, number=1)
    world.heir.check(53.0)
    assert world.due() == [(34, SAVED + 8, str(world.handed))]
    assert (world.handed / "job.34/script").read_text() == "#!/bin/sh\n# 34\n"
    assert world.handed.stat().st_mode & 0o777 == 0o700, "scripts may hold secrets"
    world.beat(SAVED + 9, number=1)
    world.heir.check(54.0)
    assert len(world.due()) == 1


def test_reused_job_number_of_another_user_keeps_the_job_listed(world: World) -> None:
    world.accepted(34, SAVED + 2)
    falls_silent(world)
    world.controller.jobs[34] = ME.pw_uid + 1
    world.beat(SAVED + 8, number=1)
    world.heir.check(53.0)
    assert [job for job, _, _ in world.due()] == [34]


def test_resumed_first_head_leaves_no_takeover_list(world: World) -> None:
    world.accepted(34, SAVED + 2)
    falls_silent(world)
    world.beat(SAVED + 7)
    world.heir.check(53.0)
    assert not world.handed.exists()


def test_takeover_list_stays_after_the_first_head_leads_again(world: World) -> None:
    world.accepted(34, SAVED + 2)
    falls_silent(world)
    world.beat(SAVED + 8, number=1)
    world.heir.check(53.0)
    os.utime(world.state / "job_state", (SAVED + 500, SAVED + 500))
    world.beat(SAVED + 501)
    world.heir.check(500.0)
    world.heir.check(504.0)
    world.beat(SAVED + 506)  # silent for a moment, and there again
    world.heir.check(505.0)
    assert [job for job, _, _ in world.due()] == [34]
    assert (world.handed / "job.34/script").exists()


@pytest.mark.parametrize("restarted", [False, True])
def test_failed_takeover_list_is_written_by_a_later_try(world: World, restarted: bool) -> None:
    world.accepted(34, SAVED + 2)
    falls_silent(world)
    world.controller.fails = 1
    world.beat(SAVED + 8, number=1)
    with pytest.raises(OSError, match="no answer"):
        world.heir.check(53.0)
    if restarted:
        world.heir = world.agent()
    world.beat(SAVED + 12)  # the first one leads again: its controller answers
    world.heir.check(57.0)
    assert world.due() == [(34, SAVED + 8, str(world.handed))]
    assert not (world.handed / "saved").exists(), "the sign for the first head that it is whole"


def test_recovery_error_is_logged_and_the_agent_continues(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Any] = []

    def fails(now: float) -> None:
        looks.append(now)
        if len(looks) > 2:
            raise SystemExit
        raise OSError("[Errno 28] No space left on device: 'resubmit/saved.new'")

    monkeypatch.setattr(world.heir, "check", fails)
    monkeypatch.setattr(takeover_recovery.time, "sleep", lambda _: None)
    from agent import log

    log._last_written[0] = -1.0
    with pytest.raises(SystemExit):
        world.heir.run()
    assert "No space left on device" in capsys.readouterr().err

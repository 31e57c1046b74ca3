"""The prolog as bash runs it, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from headway.render.scripts import JOB_SHM, scripts
from headway.render.slurm_conf import JOB_TMP, PROLOG
from headway.render.version import version


def prolog(folder: Path, job: int = 7, volumes: Sequence[tuple[str, str, bool]] = (), *, looked: bool = True) -> int:
    text = scripts(version("24.11"), volumes=volumes)[PROLOG].text.replace("/srv/headway/", f"{folder}/")
    text = text.replace(JOB_SHM, f"{folder}/shm/headway").replace(JOB_TMP, f"{folder}/job-tmp")
    text = text.replace("/run/headway/", f"{folder}/").replace("n < 200", "n < 3")
    (folder / "shm").mkdir(exist_ok=True)
    if looked:
        (folder / "looked").touch()
    env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": str(job), "SLURM_JOB_UID": "20000"}
    return subprocess.run(["bash", "-c", text], env=env, check=False, timeout=30).returncode


def test_a_job_gets_folders_that_all_its_tasks_may_write(tmp_path: Path) -> None:
    assert prolog(tmp_path) == 0
    assert prolog(tmp_path, job=8) == 0
    for part in ("job-tmp/7/tmp", "job-tmp/7/shm/", "shm/headway/8"):
        assert (tmp_path / part).stat().st_mode & 0o7777 == 0o1777, part
    for closed in ("job-tmp/7", "shm/headway"):
        assert (tmp_path / closed).stat().st_mode & 0o7777 == 0o700, closed


def test_no_job_begins_where_a_volume_is_lost(tmp_path: Path) -> None:
    there, lost = ("/srv/headway/proc", "/proc", False), ("/srv/headway/scratch", "/scratch-of-nobody", False)
    (tmp_path / "proc").mkdir()
    assert prolog(tmp_path, volumes=[there, lost]) == 0, "a machine that has it in its own way"
    (tmp_path / "scratch").mkdir()
    assert prolog(tmp_path, volumes=[there, lost]) == 1
    assert prolog(tmp_path, volumes=[there]) == 0


def test_a_job_waits_for_the_first_look_at_a_machine_that_has_just_come_up(tmp_path: Path) -> None:
    assert prolog(tmp_path, looked=False) == 0, "where nobody looks, jobs go on after a while"
    moment = tmp_path / "bin" / "sleep"  # the look ends while the prolog waits
    moment.parent.mkdir()
    moment.write_text(f"#!/bin/sh\ntouch {tmp_path}/unfit {tmp_path}/looked\n")
    moment.chmod(0o755)
    assert prolog(tmp_path, looked=False) == 1


def test_a_link_that_somebody_put_in_the_way_is_not_followed(tmp_path: Path) -> None:
    """/dev/shm is everybody's: root must not open up what a link there leads to."""
    victim = tmp_path / "etc"
    (victim / "7").mkdir(parents=True, mode=0o755)
    (tmp_path / "shm").mkdir()
    (tmp_path / "shm" / "headway").symlink_to(victim)
    assert prolog(tmp_path) == 0
    assert (victim / "7").stat().st_mode & 0o7777 == 0o755
    assert not (tmp_path / "shm" / "headway").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to somebody else")
def test_a_folder_that_somebody_else_made_there_is_replaced(tmp_path: Path) -> None:
    victim = tmp_path / "etc"
    victim.mkdir(mode=0o755)
    trap = tmp_path / "shm" / "headway"
    trap.mkdir(parents=True, mode=0o700)
    (trap / "7").symlink_to(victim)
    os.chown(trap, 20001, 20001)
    assert prolog(tmp_path) == 0
    assert victim.stat().st_mode & 0o7777 == 0o755
    assert trap.stat().st_uid == 0
    assert not (trap / "7").is_symlink()

"""Jobs that a controller had accepted and, killed, had not saved: which they are, and how they are submitted again."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.node_agent import recall

BEGAN = 1_000_000
ME = pwd.getpwuid(os.getuid())


def note(job: int, at: int = BEGAN - 3, *argv: bytes) -> Any:
    return recall.Note(job, at, os.getuid(), (b"sbatch", *argv))


def line(job: int, at: int, argv: bytes = b"sbatch\0a.sh\0") -> str:
    return f"{job} {at} {argv.hex()}\n"


class Slurm:
    """A controller that has begun, what it knows, and what accounting has."""

    def __init__(self, known: Mapping[int, int], records: Mapping[int, Sequence[Any]] | None = None) -> None:
        self._known, self._records = known, records or {}
        self.submitted: list[int] = []
        self.numbers: dict[int, int] = {}
        self.closed = 0

    def began(self) -> int:
        return BEGAN

    def known(self) -> Mapping[int, int]:
        return self._known

    def records(self, job: int) -> Sequence[Any]:
        return self._records.get(job, ())

    def close_records(self) -> None:
        assert not self.submitted, "Slurm takes a run for known whose number is"
        self.closed += 1

    def submit(self, note: Any, folder: str, numbers: Mapping[int, int]) -> str:
        assert folder.endswith(f"/job.{note.job}")
        self.submitted.append(note.job)
        self.numbers = dict(numbers)
        return f"Submitted batch job {note.job + 100}"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home" / "ann"
    made.mkdir(parents=True)
    return made


def ran(slurm: Slurm, home: Path) -> list[str]:
    notes = f"{home.parent}/*/.headway-submitted"
    return list(recall.recall(slurm, notes, f"{home}/kept", f"{home}/done"))


def test_what_is_not_there_any_more_is_submitted_again_once_and_in_its_order(home: Path) -> None:
    (home / ".headway-submitted").write_text(
        line(30, BEGAN - 300) + line(34, BEGAN - 2) + line(33, BEGAN - 4) + line(35, BEGAN - 1) + line(36, BEGAN + 1)
    )
    slurm = Slurm({35: BEGAN - 1, 36: BEGAN + 1})
    assert ran(slurm, home) == [
        f"job {job} was not saved by the controller before it was killed; submitted again: Submitted batch job {job + 100}"
        for job in (33, 34)
    ]
    assert slurm.submitted == [33, 34], "30 is older than any unsaved state, 36 came later"
    assert (slurm.numbers, slurm.closed) == ({33: 133}, 1)
    assert ran(slurm, home) == [], "the controller died again"


def test_a_number_that_was_given_to_another_since_is_a_job_that_was_forgotten() -> None:
    mine, theirs = note(34), note(34, BEGAN + 1)
    assert recall.forgotten([mine, theirs], {34: BEGAN + 1}, BEGAN) == [mine]
    assert recall.forgotten([mine], {34: BEGAN + 5}, BEGAN) == [], "a job that was requeued has another second, too"


def test_what_has_ended_does_not_run_again_nor_what_has_begun_and_forbids_it(home: Path) -> None:
    (home / ".headway-submitted").write_text("".join(line(job, BEGAN - 2) for job in (1, 2, 3, 4)))
    for job in (2, 3):
        (home / f"kept/job.{job}").mkdir(parents=True)
    (home / "kept/job.2/script").write_text("#!/bin/sh\n#SBATCH --requeue\n")
    (home / "kept/job.3/script").write_text("#!/bin/sh\n#SBATCH -N 2 --no-requeue\n")
    running = [recall.Record(BEGAN - 2, True, False)]
    older = recall.Record(BEGAN - 5000, True, True)  # another job of that number, of long ago
    slurm = Slurm({}, {1: [recall.Record(BEGAN - 3, True, True)], 2: [older, *running], 3: running})
    ran(slurm, home)
    assert slurm.submitted == [2, 4]


def test_it_begins_after_what_still_runs_was_ended_unless_its_owner_says_when() -> None:
    words = recall.command(note(34, BEGAN, b"--gpus=1", b"a.sh", b"x y"), b"#!/bin/sh\n", {})
    assert words[0] == b"sbatch"
    assert words[1].startswith(b"--comment=headway: ")
    assert words[2:] == [b"--begin=now+10", b"--gpus=1", b"a.sh", b"x y"]
    for argv, script in (((b"--begin=16:00",), b""), ((), b"#!/bin/sh\n#SBATCH -N1 -b 16:00\n")):
        assert b"--begin=now+10" not in recall.command(note(34, BEGAN, *argv), script, {})


def test_who_depends_on_one_that_has_another_number_now_depends_on_that() -> None:
    words = recall.command(
        note(40, BEGAN, b"-d", b"afterok:34:35,after:36+1", b"--dependency=afterok:34", b"34"), b"", {34: 37}
    )
    assert words[3:] == [b"-d", b"afterok:37:35,after:36+1", b"--dependency=afterok:37", b"34"]


def test_the_environment_is_that_of_the_first_time_without_what_sbatch_adds() -> None:
    saved = b"\x03\0\0\0" + b"\0".join([b"FOO=a=b\nc", b"SLURM_SUBMIT_DIR=/x", b"PATH=/opt/bin", b"junk", b""])
    found = recall.environment(saved, ME)
    assert found[b"FOO"] == b"a=b\nc"
    assert found[b"PATH"] == b"/opt/bin"
    assert found[b"HOME"] == ME.pw_dir.encode()
    assert b"SLURM_SUBMIT_DIR" not in found
    assert recall.environment(b"", ME)[b"PATH"]


def test_notes_that_are_a_link_or_nonsense_count_for_nothing(home: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text(line(7, BEGAN))
    (home / ".headway-submitted").symlink_to(theirs)
    assert recall.notes_in([f"{home}/.headway-submitted"], 0) == []
    mine = home / "notes"
    mine.write_bytes(b"\xff\n1\n2 x 00\n3 4 zz\n" + line(8, BEGAN).encode() + b"9 10")
    assert [note.job for note in recall.notes_in([f"{mine}"], 0)] == [8]


def test_scripts_of_new_jobs_are_kept_and_go_when_they_are_old(tmp_path: Path) -> None:
    state, kept = tmp_path / "state", tmp_path / "kept"
    for job, age in ((7, 5), (8, 500)):
        folder = state / f"hash.{job}" / f"job.{job}"
        folder.mkdir(parents=True)
        (folder / "script").write_text(f"echo {job}")
        os.utime(folder, (BEGAN - age, BEGAN - age))
    recall.keep(str(state), str(kept), BEGAN)
    assert [file.read_text() for file in kept.glob("*/script")] == ["echo 7"]
    shutil.rmtree(state / "hash.7")
    recall.keep(str(state), str(kept), BEGAN + 30)
    assert len(list(kept.iterdir())) == 1, "it died again before the recall"
    recall.keep(str(state), str(kept), BEGAN + 300)
    assert list(kept.iterdir()) == []

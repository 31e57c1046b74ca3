"""The notes of submitted jobs, and the resubmission that they allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.jobs import queue_recovery, submission_notes
from tests.support.machines.submissions import BEGAN, ENVIRONMENT, ME, THEIRS, line, note


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user who submitted jobs. The controller saved its state ten seconds before it began."""
    made = tmp_path / "home" / "ann"
    (made / "kept").mkdir(parents=True)
    (made / "kept/saved").write_text(str(BEGAN - 10.0))
    monkeypatch.setattr(queue_recovery.time, "time", lambda: BEGAN + 5.0)
    return made


def test_note_with_a_reused_job_number_counts_as_lost() -> None:
    first, second = note(34), note(34, BEGAN + 1)
    assert submission_notes.notes_without_job([first, second], {34: ME.pw_uid}, BEGAN) == [first]
    assert submission_notes.notes_without_job([first], {34: THEIRS}, BEGAN) == [first]
    assert submission_notes.notes_without_job([first], {34: ME.pw_uid}, BEGAN) == [], (
        "a job that was requeued has another second, too"
    )


@pytest.mark.parametrize(
    ("words", "at"),
    [
        ("a.sh x", 0), ("-N 2 --gpus=1 a.sh -N", 3), ("-N2 --time 30 a.sh", 3), ("--hold --no-kill a.sh", 2),
        ("-vH -o out a.sh", 3), ("-oaNe a.sh", 1), ("--parsable -J name -- a.sh", 4), ("--container-mount-home a.sh", 1),
        ("-N1 --gpus=8 : -N2 -p cpu a.sh :", 6), ("--oom-kill-step a.sh", 1), ("--wrap=x", None), ("-n 4", None), ("", None),
    ],
)  # fmt: skip
def test_script_index_finds_the_script_argument(words: str, at: int | None) -> None:
    assert submission_notes.script_index(words.encode().split()) == at


def test_resubmitted_job_begins_after_a_delay_unless_begin_is_set() -> None:
    words = submission_notes.sbatch_argv(
        note(34, BEGAN, b"--gpus=1", b"a.sh", b"x y"), b"#!/bin/sh\n", {}, b"/tmp/new/a.sh"
    )
    assert words[0] == b"/usr/bin/sbatch"
    assert words[1].startswith(b"--comment=headway: ")
    assert words[2:] == [b"--begin=now+10", b"--gpus=1", b"/tmp/new/a.sh", b"x y"]
    for argv, script in (((b"--begin=16:00",), b""), ((), b"#!/bin/sh\n#SBATCH -N1 -b 16:00\n")):
        assert b"--begin=now+10" not in submission_notes.sbatch_argv(note(34, BEGAN, *argv), script, {}, b"")


def test_dependencies_are_renumbered_to_resubmitted_jobs() -> None:
    asked = note(40, BEGAN, b"-d", b"afterok:34:35,after:36+1", b"--dependency=afterok:34", b"34")
    words = submission_notes.sbatch_argv(asked, b"", {34: 37}, b"")
    assert words[3:] == [b"-d", b"afterok:37:35,after:36+1", b"--dependency=afterok:37", b"34"]


def test_resubmission_uses_the_saved_environment_without_slurm_variables() -> None:
    saved = ENVIRONMENT + b"SLURM_SUBMIT_DIR=/x\0PATH=/opt/bin\0junk\0"
    found = submission_notes.submission_environment(saved, ME)
    assert found[b"FOO"] == b"a=b\nc"
    assert found[b"PATH"] == b"/opt/bin"
    assert found[b"HOME"] == ME.pw_dir.encode()
    assert b"SLURM_SUBMIT_DIR" not in found
    assert submission_notes.submission_environment(b"", ME)[b"PATH"]


def test_read_notes_ignores_symlinks_and_invalid_lines(home: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text(line(7, BEGAN))
    (home / ".headway-submitted-lab").symlink_to(theirs)
    assert submission_notes.read_notes([f"{home}/.headway-submitted-lab"], 0, BEGAN) == []
    mine = home / "notes"
    bad = b"\xff\n1\n2 x 00\n3 4 zz\n-5 4 00\n99999999999999 4 00\n"
    mine.write_bytes(bad + line(8, BEGAN).encode() + b"9 10")
    assert [note.job for note in submission_notes.read_notes([f"{mine}"], 0, BEGAN)] == [8]

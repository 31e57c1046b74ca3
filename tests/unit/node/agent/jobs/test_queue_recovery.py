"""Jobs that a killed controller had accepted and not saved are identified and submitted again."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.jobs import queue_recovery, submission_notes
from tests.support.machines.submissions import BEGAN, ENVIRONMENT, ME, THEIRS, line, note


def record(at: int, *, started: bool = False, ended: int = 0, user: str = ME.pw_name) -> Any:
    return submission_notes.AccountingRecord(user, at, started, ended)


class Slurm:
    """A controller that has begun, what it knows, and what accounting has."""

    def __init__(self, known: Mapping[int, int], records: Mapping[int, Sequence[Any]] | None = None) -> None:
        self._known, self._records = known, records or {}
        self.submitted: list[int] = []
        self.kept: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        self.closed = 0
        self.answers: dict[int, str] = {}  # job -> what sbatch says instead
        self.there: list[Any] = []

    def resubmitted_jobs(self) -> list[Any]:
        return self.there

    def controller_start(self) -> int:
        return BEGAN

    def known_jobs(self) -> Mapping[int, int]:
        return self._known

    def records(self, job: int) -> Sequence[Any]:
        return self._records.get(job, ())

    def close_records(self) -> None:
        assert not self.submitted, "Slurm takes a run for known whose number is"
        self.closed += 1

    def submit(self, note: Any, owner: pwd.struct_passwd, kept: Any, numbers: Mapping[int, int]) -> str:
        assert owner == ME
        self.submitted.append(note.job)
        self.numbers, self.kept[note.job] = dict(numbers), kept
        if note.job in self.answers:
            return self.answers[note.job]
        return f"Submitted batch job {note.job + 100}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user who submitted jobs. The controller saved its state ten seconds before it began."""
    made = tmp_path / "home" / "ann"
    (made / "kept").mkdir(parents=True)
    (made / "kept/saved").write_text(str(BEGAN - 10.0))
    monkeypatch.setattr(queue_recovery.time, "time", lambda: BEGAN + 5.0)
    return made


def noted(home: Path, *lines: str) -> None:
    file = home / ".headway-submitted-lab"
    file.write_text("".join(lines))
    os.utime(file, (BEGAN, BEGAN))


def ran(slurm: Slurm, home: Path) -> list[str]:
    notes = f"{home.parent}/*/.headway-submitted-lab"
    return list(queue_recovery.resubmit_lost_jobs(notes, slurm, f"{home}/kept", f"{home}/done"))


def test_lost_jobs_are_resubmitted_once_in_order(home: Path) -> None:
    noted(home, *(line(job, BEGAN + at) for job, at in ((30, -300), (34, -2), (33, -4), (35, -1), (36, 1), (37, 60))))
    slurm = Slurm({35: ME.pw_uid, 36: ME.pw_uid})
    assert ran(slurm, home) == [
        f"job {job} was not saved by the controller before it was killed; submitted again: Submitted batch job {job + 100}"
        for job in (33, 34)
    ]
    assert slurm.submitted == [33, 34], "30 is older than any unsaved state, 36 came later, 37 is of the future"
    assert (slurm.numbers, slurm.closed) == ({33: 133}, 1)
    assert ran(slurm, home) == [], "the controller died again"


def test_hetjob_noted_per_component_is_resubmitted_once(home: Path) -> None:
    noted(home, *[line(33, BEGAN - 3, b"sbatch\0-N1\0:\0-N2\0a.sh\0")] * 2)
    slurm = Slurm({})
    ran(slurm, home)
    assert slurm.submitted == [33]


def test_lost_jobs_are_those_newer_than_the_last_saved_state(home: Path) -> None:
    (home / "kept/saved").write_text(str(BEGAN - 7200.0))
    noted(home, line(34, BEGAN - 7198), line(33, BEGAN - 7300))
    slurm = Slurm({})
    ran(slurm, home)
    assert slurm.submitted == [34]


def test_ended_and_started_no_requeue_jobs_are_not_resubmitted(home: Path) -> None:
    noted(home, *(line(job, BEGAN - 2) for job in (1, 2, 3, 4, 5)))
    for job in (2, 3):
        (home / f"kept/job.{job}").mkdir(parents=True)
    (home / "kept/job.2/script").write_text("#!/bin/sh\n#SBATCH --requeue\n")
    (home / "kept/job.3/script").write_text("#!/bin/sh\n#SBATCH -N 2 --no-requeue\n")
    running = [record(BEGAN - 2, started=True)]
    older = record(BEGAN - 5000, ended=BEGAN - 1)  # another job of that number, of long ago
    others = record(BEGAN - 2, ended=BEGAN - 1, user="somebody else")
    flushed = record(BEGAN - 2, ended=BEGAN)  # by a controller that found no state at all
    slurm = Slurm(
        {}, {5: [flushed], 1: [record(BEGAN - 5, ended=BEGAN - 1)], 2: [older, *running], 3: running, 4: [others]}
    )
    ran(slurm, home)
    assert slurm.submitted == [2, 4, 5]


def test_job_lost_again_after_resubmission_is_resubmitted(home: Path) -> None:
    (home / "done").write_text(f'{{"job": 34, "at": {BEGAN - 4}, "said": ""}}\n')
    noted(home, line(34, BEGAN - 4), line(34, BEGAN - 1))
    slurm = Slurm({}, {34: [record(BEGAN - 4, ended=BEGAN - 1)]})
    assert len(ran(slurm, home)) == 1


def test_saved_script_and_environment_are_used_only_for_their_owner(home: Path) -> None:
    """A number in somebody's notes proves nothing: a script and its environment may be secret."""
    noted(home, *(line(job, BEGAN - 2) for job in (1, 2, 3)))
    for job, saved in ((1, ENVIRONMENT), (2, b"\x02\0\0\0USER=victim\0HOME=/home/victim\0TOKEN=x\0"), (3, b"\0\0\0\0")):
        (home / f"kept/job.{job}").mkdir()
        (home / f"kept/job.{job}/script").write_bytes(b"#!/bin/sh\n\0")
        (home / f"kept/job.{job}/environment").write_bytes(saved)
    slurm = Slurm({}, {3: [record(BEGAN - 2, started=True)]})
    ran(slurm, home)
    assert slurm.kept[1] == submission_notes.SavedJob(b"#!/bin/sh\n", ENVIRONMENT)
    assert slurm.kept[2] == submission_notes.SavedJob()
    assert slurm.kept[3].script == b"#!/bin/sh\n", "accounting says that it was theirs"


def test_scripts_of_possibly_unsaved_jobs_are_kept_until_saved(tmp_path: Path) -> None:
    state, kept = tmp_path / "state", tmp_path / "kept"
    state.mkdir()
    (state / "job_state").touch()
    os.utime(state / "job_state", (BEGAN, BEGAN))
    for job, at in ((7, BEGAN + 3), (8, BEGAN - 500)):
        folder = state / f"hash.{job}" / f"job.{job}"
        folder.mkdir(parents=True)
        (folder / "script").write_text(f"echo {job}")
        os.utime(folder, (at, at))
    queue_recovery.save_newest_jobs(str(state), str(kept))
    assert [file.read_text() for file in kept.glob("*/script")] == ["echo 7"]
    assert float((kept / "saved").read_text()) == BEGAN
    shutil.rmtree(state / "hash.7")
    queue_recovery.save_newest_jobs(str(state), str(kept))
    assert len(list(kept.glob("job.*"))) == 1, "it died again before the resubmission"
    os.utime(state / "job_state", (BEGAN + 300, BEGAN + 300))
    queue_recovery.save_newest_jobs(str(state), str(kept))
    assert list(kept.glob("job.*")) == []


AWAY = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
UNSURE = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


def test_resubmission_continues_when_the_controller_answers_again(home: Path) -> None:
    """Also when it was killed in between and has written its queue since: those seconds count as saved then."""
    noted(home, *(line(job, BEGAN - 4 + n) for n, job in enumerate((33, 34, 35))))
    slurm = Slurm({})
    slurm.answers = {34: AWAY}
    with pytest.raises(TimeoutError, match="are submitted again, from job 34 on"):
        ran(slurm, home)
    assert slurm.submitted == [33, 34], "nor would it take 35"
    (home / "kept/saved").write_text(str(BEGAN + 60.0))
    again = Slurm({})
    assert len(ran(again, home)) == 2
    assert (again.submitted, again.numbers) == ([34, 35], {33: 133, 34: 134})
    assert ran(again, home) == []


def test_uncertain_resubmission_is_looked_up_before_a_retry(home: Path) -> None:
    noted(home, line(33, BEGAN - 4), line(34, BEGAN - 3, b"sbatch\0-d\0afterok:33\0a.sh"), line(35, BEGAN - 3))
    slurm = Slurm({})
    slurm.answers = {33: UNSURE}
    with pytest.raises(TimeoutError):
        ran(slurm, home)
    assert slurm.submitted == [33, 35], "34 needs to know its number; what keeps one keeps no other"
    slurm = Slurm({})
    other = (
        queue_recovery.Resubmission(90, THEIRS, BEGAN + 1, 33),
        queue_recovery.Resubmission(91, ME.pw_uid, BEGAN - 100, 33),
    )  # of a time before
    slurm.there = [*other, queue_recovery.Resubmission(92, ME.pw_uid, BEGAN + 1, 33)]
    assert "submitted again: Submitted batch job 92" in ran(slurm, home)[0]
    assert (slurm.submitted, slurm.numbers) == ([34], {33: 92, 35: 135})


def test_uncertain_resubmission_with_own_comment_is_not_repeated(home: Path) -> None:
    noted(home, line(33, BEGAN - 4, b"sbatch\0--comment=mine\0a.sh\0"))
    slurm = Slurm({})
    slurm.answers = {33: UNSURE}
    assert len(ran(slurm, home)) == 1
    slurm.answers = {}
    assert ran(slurm, home) == []


def test_resubmitted_job_is_recognised_by_its_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    comment = submission_notes.sbatch_argv(note(34), b"", {}, b"")[1].decode().partition("=")[2]
    rows = f"92 1000 {BEGAN + 1} {comment}\n93 1000 {BEGAN} (null)\n94 1000 {BEGAN} about {comment}\n"
    monkeypatch.setattr(queue_recovery.Slurm, "_run_command", lambda *_: rows)
    assert queue_recovery.Slurm().resubmitted_jobs() == [queue_recovery.Resubmission(92, 1000, BEGAN + 1, 34)]


def handed_on(home: Path, *notes: Any, began: int) -> Path:
    folder = home / "handed"
    folder.mkdir()
    queue_recovery.write_takeover_list(
        [queue_recovery.LostSubmission(note, began, str(folder)) for note in notes], str(folder)
    )
    return folder


def test_takeover_list_is_resubmitted_once_by_the_first_head(home: Path) -> None:
    taken_over = BEGAN - 600
    noted(home, line(34, taken_over - 3), line(35, BEGAN - 2))
    ended, lost = note(33, taken_over - 2, b"b.sh"), note(34, taken_over - 3, b"a.sh")
    folder = handed_on(home, lost, ended, began=taken_over)
    (folder / "job.34").mkdir()
    (folder / "job.34/script").write_text("#!/bin/sh\n")
    (folder / "job.34/environment").write_bytes(ENVIRONMENT)
    slurm = Slurm({34: THEIRS, 35: ME.pw_uid}, {33: [record(taken_over - 2, started=True, ended=taken_over - 1)]})
    notes, done = f"{home.parent}/*/.headway-submitted-lab", f"{home}/done"
    list(queue_recovery.resubmit_lost_jobs(notes, slurm, f"{home}/kept", done, str(folder)))
    assert slurm.submitted == [34], "33 had ended before the takeover; 35 the second one wrote down"
    assert slurm.kept[34].script == b"#!/bin/sh\n"
    assert not folder.exists()
    list(queue_recovery.resubmit_lost_jobs(notes, slurm, f"{home}/kept", done, str(folder)))
    assert slurm.submitted == [34]


def test_takeover_list_stays_if_resubmission_fails(home: Path) -> None:
    class Silent(Slurm):
        def records(self, job: int) -> Sequence[Any]:
            raise RuntimeError("slurmdbd")

    folder = handed_on(home, note(34), began=BEGAN)
    with pytest.raises(RuntimeError):
        list(
            queue_recovery.resubmit_lost_jobs(
                f"{home.parent}/none", Silent({}), f"{home}/kept", f"{home}/done", str(folder)
            )
        )
    assert [one.note.job for one in queue_recovery.read_takeover_list(str(folder))] == [34]


def test_incomplete_takeover_list_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_recovery, "HAND_S", 0.2)
    folder = handed_on(home, note(34), began=BEGAN)
    (folder / "saved").write_text(str(BEGAN - 10.0))
    slurm = Slurm({})

    def again() -> list[str]:
        return list(
            queue_recovery.resubmit_lost_jobs(f"{home}/none", slurm, f"{home}/kept", f"{home}/done", str(folder))
        )

    with pytest.raises(TimeoutError, match="not finish its list"):
        again()
    assert slurm.submitted == []
    (folder / "saved").unlink()
    again()
    assert slurm.submitted == [34]


def test_job_in_takeover_list_and_notes_is_resubmitted_once(home: Path) -> None:
    noted(home, line(34, BEGAN - 3))
    found = submission_notes.read_notes([str(home / ".headway-submitted-lab")], 0, BEGAN)
    folder = handed_on(home, *found, began=BEGAN - 1)
    slurm = Slurm({})
    list(
        queue_recovery.resubmit_lost_jobs(
            f"{home.parent}/*/.headway-submitted-lab", slurm, f"{home}/kept", f"{home}/done", str(folder)
        )
    )
    assert slurm.submitted == [34]

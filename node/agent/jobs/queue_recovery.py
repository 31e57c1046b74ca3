"""Submits jobs again that slurmctld had accepted and lost. slurmctld saves its queue up to five seconds after a change; when
it is killed before that, it comes back without the jobs of those seconds and gives their numbers to other jobs.

`agent.pyz save-scripts` runs before slurmctld starts: it copies the scripts and environments of the newest jobs, which slurmctld
writes at once and deletes when it comes back without the jobs. `agent.pyz resubmit` runs afterwards: a submission that the
user's sbatch noted (cli_filter.lua), that has no job and that accounting has not seen end, is submitted again as its user, in
the old order and so usually under the old number. A run that may still exist is first ended by Slurm, as soon as its node
registers. What the controller does not accept because it went away again is kept on a list and tried again.

With two heads, the second one takes over without the first one's last seconds, while accounting is away. It writes the list
(agent/failover/takeover_recovery.py), which the first head carries out here when it is back."""

from __future__ import annotations

import contextlib
import functools
import glob
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent.jobs.submission_notes import (
    RESUBMITTED,
    AccountingRecord,
    SavedJob,
    SubmissionNote,
    dependencies,
    must_not_run_again,
    notes_without_job,
    read_bytes,
    read_notes,
    records_of_submission,
    saved_job,
    sbatch_argv,
    script_index,
    submission_environment,
)
from agent.marker_files import whole_lines

T = TypeVar("T")
KEPT = "/var/lib/headway/resubmit"
DONE = "/var/lib/headway/resubmitted.jsonl"
HANDED = "resubmit"  # next to the StateSaveLocation: both heads mount it, and only root writes there
DUE = "due.jsonl"
SAVED = "saved"  # holds when the controller last wrote its queue
BEGAN = "began"  # holds when the next controller began to lead
NOTES = "/home/*/.headway-submitted-"  # followed by the cluster's name, because several clusters may share homes
UNSAVED_S = 10.0  # submissions so much older than the last saved state are in it
WAIT_S = 120.0  # how long to wait for answers of slurmctld and slurmdbd
HAND_S = 30.0  # how long to wait for the second head's list
_SUBMIT_S = 30.0
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL", "REVOKED")
# sbatch's messages when the controller has not accepted the job
_AWAY = ("unable to contact", "connection refused", "standby mode", "temporarily unable")
_UNSURE = ("timed out", "zero bytes")  # the controller may have accepted it
_UNIX_TIMES = {"SLURM_TIME_FORMAT": "%s"}
_SUBMITTED = re.compile(r"^(?:Submitted batch job )?(\d+)", re.MULTILINE)  # sbatch's output, also with --parsable


@dataclass(frozen=True)
class Resubmission:
    """A job in the queue whose comment says that it is job `old`, submitted again."""

    job: int
    uid: int
    submitted: int
    old: int


@dataclass(frozen=True)
class LostSubmission:
    """A submission of which the controller that started at `began` (Unix seconds) has no job. `kept`: the folder with
    its files."""

    note: SubmissionNote
    began: int
    kept: str


def save_newest_jobs(state: str, kept: str = KEPT) -> None:
    """Copies the scripts of the newest jobs to `kept`. Runs before the controller starts, because the controller
    deletes the folders of jobs that it does not know. `state`: the StateSaveLocation."""
    os.makedirs(kept, mode=0o700, exist_ok=True)
    try:
        saved = os.stat(f"{state}/job_state").st_mtime
    except OSError:
        saved = 0.0  # the controller has never saved its queue
    for old in [] if os.path.exists(f"{kept}/{DUE}") else glob.glob(f"{kept}/job.*"):
        if os.stat(old).st_mtime < saved - 60:
            shutil.rmtree(old)
    for folder in glob.glob(f"{state}/hash.*/job.*"):
        with contextlib.suppress(OSError):  # deleted in the meantime
            if os.stat(folder).st_mtime >= saved - UNSAVED_S:
                shutil.copytree(folder, f"{kept}/{os.path.basename(folder)}", dirs_exist_ok=True)
    write_atomically(f"{kept}/{SAVED}", str(saved))


class Slurm:
    """Slurm's commands, as far as this module needs them."""

    def controller_start(self) -> int:
        """Returns the start time of the controller in Unix seconds; 0 if scontrol does not show it."""
        found = re.search(r"^BOOT_TIME\s*=\s*(\d+)", self._run_command("scontrol", "show", "config"), re.MULTILINE)
        return int(found[1]) if found else 0

    def known_jobs(self) -> dict[int, int]:
        """Returns job -> uid of all jobs in the queue. An array counts by its own number, because its tasks' numbers
        may have belonged to other jobs before."""
        rows = self._run_command("squeue", "--all", "--noheader", "--states=all", "--format=%F %U").splitlines()
        return {int(job): int(uid) for job, uid in (row.split() for row in rows)}

    def resubmitted_jobs(self) -> list[Resubmission]:
        """Returns the jobs that this module submitted again. Jobs with a comment of their owner can't be recognized."""
        rows = self._run_command("squeue", "--all", "--noheader", "--states=all", "--format=%F %U %V %k").splitlines()
        found = (re.match(rf"(\d+) (\d+) (\d+) {RESUBMITTED} (\d+)$", row.strip()) for row in rows)
        return [Resubmission(*map(int, match.groups())) for match in found if match]

    def records(self, job: int) -> list[AccountingRecord]:
        """Returns all accounting records of a job number, including earlier jobs with the same number."""
        argv = ("sacct", "-D", "-X", "-a", "-n", "-P", "-o", "User,State,Submit,Start,End", "-j", str(job))
        rows = (line.split("|") for line in self._run_command(*argv).splitlines())
        return [
            AccountingRecord(row[0], int(row[2]), row[3].isdigit(), _number(row[4]) if row[1].startswith(_ENDED) else 0)
            for row in rows
            if len(row) == 5 and row[2].isdigit()
        ]

    def submit(self, note: SubmissionNote, owner: pwd.struct_passwd, kept: SavedJob, numbers: Mapping[int, int]) -> str:
        """Submits the job as its owner and returns sbatch's output. The script is written to a folder that only the
        owner can read, under its old name, because sbatch names the job after it."""
        where = re.search(rb"\0SLURM_SUBMIT_DIR=([^\0]*)", kept.environment)
        cwd = where[1] if where else owner.pw_dir.encode()
        at = script_index(note.argv[1:])
        with tempfile.TemporaryDirectory(prefix="headway-resubmit-") as folder, tempfile.TemporaryFile() as output:
            path = b""
            if kept.script and at is not None:
                path = os.path.join(folder.encode(), os.path.basename(note.argv[1 + at]))
                _write_owned_file(path, kept.script, owner)
                os.chown(folder, owner.pw_uid, owner.pw_gid)
            words = [
                b"/bin/sh",
                b"-c",
                b'cd -- "$1"; shift; exec "$@"',
                b"sh",
                cwd,
                *sbatch_argv(note, kept.script, numbers, path),
            ]
            with tempfile.TemporaryFile() as typed:
                typed.write(kept.script if at is None else b"")
                typed.seek(0)
                run = subprocess.Popen(
                    words,
                    user=owner.pw_uid,
                    group=owner.pw_gid,
                    extra_groups=os.getgrouplist(owner.pw_name, owner.pw_gid),
                    env=submission_environment(kept.environment, owner),
                    cwd="/",
                    stdin=typed,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            try:
                run.wait(_SUBMIT_S)
            except subprocess.TimeoutExpired:  # sbatch --wait: the job is submitted, and sbatch has printed its number
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
            output.seek(0)
            return output.read(4096).decode(errors="replace").strip()

    def close_records(self) -> None:
        """Ends the records of jobs that accounting believes to be running and the controller does not know (sacctmgr
        show runawayjobs)."""
        subprocess.run(
            ["sacctmgr", "-i", "show", "runawayjobs"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )

    def _run_command(self, *argv: str) -> str:
        """Returns a command's standard output, with times in Unix seconds. Raises CalledProcessError or
        TimeoutExpired."""
        env = {**os.environ, **_UNIX_TIMES}
        return subprocess.run(argv, env=env, check=True, capture_output=True, text=True, timeout=20).stdout


def note_files(cluster: str) -> str:
    """Returns the pattern of the files in which users' sbatch notes submissions to this cluster."""
    return f"{NOTES}{cluster}"


def takeover_folder(state: str) -> str:
    """Returns the folder in which the second head leaves its list. `state`: the StateSaveLocation."""
    return f"{os.path.dirname(state)}/{HANDED}"


def lost_submissions(slurm: Slurm, began: int, notes: str, kept: str) -> list[LostSubmission]:
    """Returns the submissions unknown to the controller that started at `began`. Raises CalledProcessError or
    TimeoutExpired."""
    # read before the notes, so that a submission in between does not count as lost
    known = _patiently(slurm.known_jobs)
    saved = float(read_bytes(f"{kept}/{SAVED}") or began)
    found = notes_without_job(read_notes(glob.glob(notes), saved - UNSAVED_S, time.time()), known, began)
    return [LostSubmission(note, began, kept) for note in found]


def write_takeover_list(found: Iterable[LostSubmission], folder: str) -> None:
    """Appends to the list in `folder`, which the first head carries out."""
    rows = [
        {
            "job": note.job,
            "at": note.at,
            "uid": note.uid,
            "argv": b"\0".join(note.argv).hex(),
            "began": submission.began,
        }
        for submission in found
        for note in [submission.note]
    ]
    there = read_bytes(f"{folder}/{DUE}").decode()
    write_atomically(f"{folder}/{DUE}", there + "".join(f"{json.dumps(row)}\n" for row in rows))


def read_takeover_list(folder: str) -> list[LostSubmission]:
    """Returns the list in `folder`, or []."""
    rows = map(json.loads, read_bytes(f"{folder}/{DUE}").splitlines())
    return [
        LostSubmission(
            SubmissionNote(row["job"], row["at"], row["uid"], tuple(bytes.fromhex(row["argv"]).split(b"\0"))),
            row["began"],
            folder,
        )
        for row in rows
    ]


def resubmit_lost_jobs(
    notes: str, slurm: Slurm | None = None, kept: str = KEPT, done: str = DONE, inherited: str = ""
) -> Iterator[str]:
    """Submits lost jobs again and yields a line of text for each. `notes`: pattern of the files that sbatch writes.
    `inherited`: the folder with the second head's list. Raises TimeoutError if the second head has not finished its
    list or the controller does not accept every job; the caller tries again."""
    slurm = slurm or Slurm()
    ends = time.monotonic() + HAND_S
    while inherited and os.path.exists(f"{inherited}/{SAVED}") and time.monotonic() < ends:
        time.sleep(0.1)
    whole = not os.path.exists(f"{inherited}/{SAVED}")
    # the list in `kept` is from a try that was interrupted
    listed = [
        *read_takeover_list(kept),
        *(read_takeover_list(inherited) if inherited and whole else []),
    ]
    there = {submission.note for submission in listed}
    ours = [
        submission
        for submission in lost_submissions(slurm, _patiently(slurm.controller_start), notes, kept)
        if submission.note not in there
    ]
    if ours:  # written before anything is submitted: the next controller counts these seconds as saved
        write_takeover_list(ours, kept)
    found = sorted((*listed, *ours), key=lambda submission: (submission.note.at, submission.note.job))
    yield from _again(slurm, found, done)
    if not whole:
        raise TimeoutError(f"the second head did not finish its list in {inherited}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{kept}/{DUE}")
    if inherited:
        shutil.rmtree(inherited, ignore_errors=True)


def _again(slurm: Slurm, found: Sequence[LostSubmission], done: str) -> Iterator[str]:
    """Submits each lost job that must run again. Raises TimeoutError if some have to be tried again."""
    before: dict[int, list[int]] = {}
    numbers: dict[int, int] = {}
    taken = set[int]()
    notes = {(submission.note.job, submission.note.at) for submission in found}
    for row in map(json.loads, whole_lines(done)):
        before.setdefault(row["job"], []).append(row["at"])
        new = _SUBMITTED.search(row["said"])
        if new:
            taken.add(int(new[1]))
        if new and (row["job"], row["at"]) in notes:
            numbers[row["job"]] = int(new[1])
    # a submission that was noted twice appears once
    due: dict[SubmissionNote, tuple[pwd.struct_passwd, SavedJob, int]] = {}
    for submission in found:
        note = submission.note
        try:
            owner = pwd.getpwuid(note.uid)
        except KeyError:
            continue
        earlier = [at for at in before.get(note.job, ()) if at < note.at]
        if note.at in before.get(note.job, ()):
            continue
        records = _patiently(functools.partial(slurm.records, note.job))
        records = records_of_submission(note, records, owner.pw_name, max(earlier, default=0))
        files = saved_job(f"{submission.kept}/job.{note.job}", owner, known=bool(records))
        if not must_not_run_again(note, records, files.script, submission.began):
            due[note] = owner, files, submission.began
    if not due:
        return
    slurm.close_records()  # before their numbers are in use again
    there = _patiently(slurm.resubmitted_jobs)  # an earlier try may have submitted more than it noted
    late: list[int] = []
    for note, (owner, files, began) in due.items():
        # it depends on a job that is still to be submitted
        if tuple(dependencies(note.argv, dict.fromkeys(late, 0))) != note.argv:
            late.append(note.job)
            continue
        mine_again = (a.job for a in there if (a.old, a.uid) == (note.job, note.uid) and a.submitted >= began)
        already = next((job for job in mine_again if job not in taken), 0)
        try:
            reply = f"Submitted batch job {already}" if already else slurm.submit(note, owner, files, numbers)
        except (OSError, ValueError) as error:
            reply = str(error)
        new = _SUBMITTED.search(reply)
        if new:
            numbers[note.job] = int(new[1])
            taken.add(int(new[1]))
        elif _later(note, reply):
            late.append(note.job)
            if any(words in reply.lower() for words in _AWAY):
                break
            continue
        with open(done, "a") as file:
            file.write(json.dumps({"job": note.job, "at": note.at, "said": reply}) + "\n")
        what = "submitted again" if new else "and can't be submitted again"
        yield f"job {note.job} was not saved by the controller before it was killed; {what}: {reply}"
    if late:
        raise TimeoutError(f"jobs that the controller refused are submitted again, from job {late[0]} on")


def _later(note: SubmissionNote, reply: str) -> bool:
    """Returns whether the submission is to be tried again. If the controller may have accepted it, only when the new
    job could be recognized by its comment."""
    words = reply.lower()
    unsure = not reply or any(phrase in words for phrase in _UNSURE)
    return any(phrase in words for phrase in _AWAY) or (
        unsure and not any(w.startswith(b"--comment") for w in note.argv)
    )


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def write_atomically(path: str, text: str) -> None:
    """Replaces the file with `text`, synced to disk, so that readers (also on the other head) see the old or the new
    content."""
    with open(f"{path}.new", "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def _write_owned_file(path: bytes, text: bytes, owner: pwd.struct_passwd) -> None:
    with open(path, "xb") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o700)
        os.fchown(file.fileno(), owner.pw_uid, owner.pw_gid)


def _patiently(ask: Callable[[], T]) -> T:
    ends = time.monotonic() + WAIT_S
    while True:
        try:
            return ask()
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            if time.monotonic() > ends:
                raise
            time.sleep(0.2)

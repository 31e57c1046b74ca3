"""Submits jobs again that slurmctld had accepted and lost. slurmctld saves its queue up to five seconds after a change; when
it is killed before that, it comes back without the jobs of those seconds and gives their numbers to other jobs.

`agent.pyz keep` runs before slurmctld starts: it copies the scripts and environments of the newest jobs, which slurmctld
writes at once and deletes when it comes back without the jobs. `agent.pyz recall` runs afterwards: a submission that the
user's sbatch noted (cli_filter.lua), that has no job and that accounting has not seen end, is submitted again as its user, in
the old order and so usually under the old number. A run that may still exist is first ended by Slurm, as soon as its node
registers. What the controller does not accept because it went away again is kept on a list and tried again.

With two heads, the second one takes over without the first one's last seconds, while accounting is away. It writes the list
(agent/ha/takeover_recovery.py), which the first head carries out here when it is back."""

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
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agent.journal import whole_lines

T = TypeVar("T")
KEPT = "/var/lib/headway/recall"
DONE = "/var/lib/headway/recalled.jsonl"
HANDED = "recall"  # beside the folder with Slurm's state: both heads have it, and root alone writes there
DUE = "due.jsonl"
SAVED = "saved"  # when the controller had written its queue last
BEGAN = "began"  # when the next one began to lead
NOTES = "/home/*/.headway-submitted-"  # and the cluster: several may have the same homes
UNSAVED_S = 10.0  # what is so much older than the last state that was written is in it
BEGIN_S = 10  # until then every node has registered, and Slurm has ended what still ran there
WAIT_S = 120.0  # for the controller and the accounting database to answer
HAND_S = 30.0  # for the second head to end its list
SAME_S = 5  # between the second that sbatch notes and the one that Slurm does
_SUBMIT_S = 30.0
_MOST_BYTES = 256 * 1024
_MOST_NOTES = 200  # of one person
_MOST_JOB = 2**26
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL", "REVOKED")
_AWAY = ("unable to contact", "connection refused", "standby mode", "temporarily unable")  # it has not taken the job
_UNSURE = ("timed out", "zero bytes")  # it may have
_AGAIN = "headway: submitted again, for the controller was killed before it had saved job"
_UNIX_TIMES = {"SLURM_TIME_FORMAT": "%s"}
_SUBMITTED = re.compile(r"^(?:Submitted batch job )?(\d+)", re.MULTILINE)  # or --parsable
_BEGINS = re.compile(rb"^#SBATCH\s+(?:.*\s)?(?:--begin|-b)", re.MULTILINE)
_STAYS = re.compile(rb"^#SBATCH\s+(?:.*\s)?--no-requeue", re.MULTILINE)
# sbatch's options whose value is a word of its own, and those of its long ones that take none.
_SHORT_WITH_VALUE = b"AaBbCcDdeFGiJLMmNnopqStwx"
_LONG_ALONE = frozenset(
    b"contiguous exclusive get-user-env hold ignore-pbs immediate nice no-kill no-requeue oom-kill-step overcommit oversubscribe "
    b"parsable propagate quiet reboot requeue resv-ports spread-job stepmgr test-only use-min-nodes verbose wait x11 "
    b"container-mount-home container-remap-root container-writable container-readonly container-entrypoint".split()
)


@dataclass(frozen=True)
class SubmissionNote:
    """One submission, as its sbatch noted it: its job, when (unix seconds), whose, and its command line."""

    job: int
    at: int
    uid: int
    argv: tuple[bytes, ...]


@dataclass(frozen=True)
class AccountingRecord:
    """What accounting has of a job."""

    user: str
    submitted: int
    started: bool
    ended: int  # unix seconds; 0: not


@dataclass(frozen=True)
class SavedJob:
    """What slurmctld had of a job; b"" where nothing is left, or it is somebody else's."""

    script: bytes = b""
    environment: bytes = b""


@dataclass(frozen=True)
class Resubmission:
    """A job that says of itself that it is an earlier one (`old`), submitted again."""

    job: int
    uid: int
    submitted: int
    old: int


@dataclass(frozen=True)
class LostSubmission:
    """A submission that the controller which began at `began` (unix seconds) knew no job of, and where its files may lie."""

    note: SubmissionNote
    began: int
    kept: str


def save_newest_jobs(state: str, kept: str = KEPT) -> None:
    """Called before the controller starts, which deletes what it knows no job of."""
    os.makedirs(kept, mode=0o700, exist_ok=True)
    try:
        saved = os.stat(f"{state}/job_state").st_mtime
    except OSError:
        saved = 0.0  # it has never written one
    for old in [] if os.path.exists(f"{kept}/{DUE}") else glob.glob(f"{kept}/job.*"):
        if os.stat(old).st_mtime < saved - 60:
            shutil.rmtree(old)
    for folder in glob.glob(f"{state}/hash.*/job.*"):
        with contextlib.suppress(OSError):  # one that goes meanwhile
            if os.stat(folder).st_mtime >= saved - UNSAVED_S:
                shutil.copytree(folder, f"{kept}/{os.path.basename(folder)}", dirs_exist_ok=True)
    write_atomically(f"{kept}/{SAVED}", str(saved))


def read_notes(paths: Iterable[str], since: float, now: float) -> list[SubmissionNote]:
    """All that were submitted since then, in their order. A file that is not of the one in whose home it lies counts for
    nothing, nor does a line that can't be read."""
    found: list[SubmissionNote] = []
    for path in paths:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        with os.fdopen(file, "rb") as lines:
            about, home = os.fstat(lines.fileno()), os.stat(os.path.dirname(path))
            if not stat.S_ISREG(about.st_mode) or about.st_uid != home.st_uid or about.st_mtime < since:
                continue
            lines.seek(max(0, about.st_size - _MOST_BYTES))
            mine = (_note(line, about.st_uid) for line in lines.read(_MOST_BYTES).splitlines())
            found += [note for note in mine if note and since <= note.at <= now][-_MOST_NOTES:]
    return sorted(found, key=lambda note: (note.at, note.job))


def _note(line: bytes, uid: int) -> SubmissionNote | None:
    words = line.split()
    try:
        argv = bytes.fromhex(words[2].decode()).rstrip(b"\0").split(b"\0")
        note = SubmissionNote(int(words[0]), int(words[1]), uid, tuple(argv))
    except (ValueError, IndexError, UnicodeDecodeError):
        return None
    return note if 0 < note.job < _MOST_JOB else None


def notes_without_job(notes: Sequence[SubmissionNote], known: Mapping[int, int], began: int) -> list[SubmissionNote]:
    """Those submitted before the controller's start whose job is not there: nobody has its number, or somebody else, or the
    same one since. `known`: whose each job is."""
    since = {note.job for note in notes if note.at > began and known.get(note.job) == note.uid}
    return [note for note in notes if note.at <= began and (known.get(note.job) != note.uid or note.job in since)]


def records_of_submission(
    note: SubmissionNote, records: Iterable[AccountingRecord], user: str, after: int
) -> list[AccountingRecord]:
    """The records of this very submission; `after`: when the same number was submitted again by us, 0 for never."""
    near = (r for r in records if r.user == user and abs(note.at - r.submitted) <= SAME_S and r.submitted > after)
    return sorted(near, key=lambda record: abs(note.at - record.submitted))


def must_not_run_again(note: SubmissionNote, records: Sequence[AccountingRecord], script: bytes, began: int) -> bool:
    """Whether it must not run again: it has ended, or has begun and forbids a second run. An end after the controller's start
    is none: one that finds no state at all has accounting cancel whatever waits."""
    stays = b"--no-requeue" in note.argv or bool(_STAYS.search(script))
    return any(0 < record.ended < began or (record.started and stays) for record in records)


def saved_job(folder: str, owner: pwd.struct_passwd, *, known: bool) -> SavedJob:
    """`known`: accounting says that the job of this number was theirs. Otherwise the environment has to say so: a number in
    somebody's notes proves nothing, and what is kept may be a secret."""
    script, saved = read_bytes(f"{folder}/script").rstrip(b"\0"), read_bytes(f"{folder}/environment")
    theirs = {b"USER=" + owner.pw_name.encode(), b"HOME=" + owner.pw_dir.encode()} <= set(saved[4:].split(b"\0"))
    return SavedJob(script, saved) if known or theirs else SavedJob()


def sbatch_argv(note: SubmissionNote, script: bytes, numbers: Mapping[int, int], path: bytes) -> list[bytes]:
    """The same sbatch. What its owner says of begin and comment counts. `numbers`: what became of those submitted before, for
    jobs that depend on them. `path`: where the script is now."""
    begins = any(word.startswith((b"--begin", b"-b")) for word in note.argv[1:]) or _BEGINS.search(script)
    words = b"%s %d" % (_AGAIN.encode(), note.job)
    first = [b"/usr/bin/sbatch", b"--comment=" + words] + ([] if begins else [b"--begin=now+%d" % BEGIN_S])
    rest = list(note.argv[1:])
    at = script_index(rest)
    if path and at is not None:
        rest[at] = path
    return [*first, *_dependent(rest, numbers)]


def script_index(words: Sequence[bytes]) -> int | None:
    """Which of sbatch's words names the script: the first that is neither an option nor an option's value, nor the `:`
    between two components."""
    n = 0
    while n < len(words):
        word = words[n]
        if word == b"--":
            return n + 1 if n + 1 < len(words) else None
        if word == b":":
            n += 1
            continue
        if not word.startswith(b"-") or word == b"-":
            return n
        if word.startswith(b"--"):
            alone = b"=" in word or word[2:] in _LONG_ALONE or word.startswith(b"--no-")
        else:
            alone = not (word[-1:] in _SHORT_WITH_VALUE and all(c not in _SHORT_WITH_VALUE for c in word[1:-1]))
        n += 1 if alone else 2
    return None


def _dependent(words: Sequence[bytes], numbers: Mapping[int, int]) -> Iterator[bytes]:
    before = b""
    for word in words:
        if word.startswith((b"--dependency=", b"-d")) or before in (b"--dependency", b"-d"):
            yield re.sub(rb"(?<=:)\d+", lambda job: b"%d" % numbers.get(int(job[0]), int(job[0])), word)
        else:
            yield word
        before = word


def submission_environment(saved: bytes, owner: pwd.struct_passwd) -> dict[bytes, bytes]:
    """As sbatch had it; what sbatch itself added for the job goes."""
    pairs = (item.partition(b"=") for item in saved[4:].split(b"\0"))
    found = {key: value for key, mark, value in pairs if mark and not key.startswith(b"SLURM_")}
    home, name = owner.pw_dir.encode(), owner.pw_name.encode()
    return {b"PATH": b"/usr/local/bin:/usr/bin:/bin", b"HOME": home, b"USER": name, b"LOGNAME": name, **found}


class Slurm:
    """The controller and the database, as far as they are asked."""

    def controller_start(self) -> int:
        """When the controller was started, in unix seconds."""
        found = re.search(r"^BOOT_TIME\s*=\s*(\d+)", self._ask("scontrol", "show", "config"), re.MULTILINE)
        return int(found[1]) if found else 0

    def known_jobs(self) -> dict[int, int]:
        """Whose each job is, an array by its own number: those of its tasks may have been another's."""
        rows = self._ask("squeue", "--all", "--noheader", "--states=all", "--format=%F %U").splitlines()
        return {int(job): int(uid) for job, uid in (row.split() for row in rows)}

    def resubmitted_jobs(self) -> list[Resubmission]:
        """Those that were submitted again, as far as their owner gave them no comment."""
        rows = self._ask("squeue", "--all", "--noheader", "--states=all", "--format=%F %U %V %k").splitlines()
        found = (re.match(rf"(\d+) (\d+) (\d+) {_AGAIN} (\d+)$", row.strip()) for row in rows)
        return [Resubmission(*map(int, match.groups())) for match in found if match]

    def records(self, job: int) -> list[AccountingRecord]:
        argv = ("sacct", "-D", "-X", "-a", "-n", "-P", "-o", "User,State,Submit,Start,End", "-j", str(job))
        rows = (line.split("|") for line in self._ask(*argv).splitlines())
        return [
            AccountingRecord(row[0], int(row[2]), row[3].isdigit(), _number(row[4]) if row[1].startswith(_ENDED) else 0)
            for row in rows
            if len(row) == 5 and row[2].isdigit()
        ]

    def submit(self, note: SubmissionNote, owner: pwd.struct_passwd, kept: SavedJob, numbers: Mapping[int, int]) -> str:
        """sbatch's own words. The script is put where only its owner reads it, under its old name: the job is named after it."""
        where = re.search(rb"\0SLURM_SUBMIT_DIR=([^\0]*)", kept.environment)
        cwd = where[1] if where else owner.pw_dir.encode()
        at = script_index(note.argv[1:])
        with tempfile.TemporaryDirectory(prefix="headway-recall-") as folder, tempfile.TemporaryFile() as said:
            path = b""
            if kept.script and at is not None:
                path = os.path.join(folder.encode(), os.path.basename(note.argv[1 + at]))
                _give(path, kept.script, owner)
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
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            try:
                run.wait(_SUBMIT_S)
            except subprocess.TimeoutExpired:  # sbatch --wait: its job is submitted, and it has said so
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
            said.seek(0)
            return said.read(4096).decode(errors="replace").strip()

    def close_records(self) -> None:
        """Accounting takes the runs that nobody knows any more for running: Slurm's own command ends them."""
        subprocess.run(
            ["sacctmgr", "-i", "show", "runawayjobs"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )

    def _ask(self, *argv: str) -> str:
        """Raises CalledProcessError or TimeoutExpired."""
        env = {**os.environ, **_UNIX_TIMES}
        return subprocess.run(argv, env=env, check=True, capture_output=True, text=True, timeout=20).stdout


def note_files(cluster: str) -> str:
    """Where people's sbatch notes what it submits to this cluster."""
    return f"{NOTES}{cluster}"


def takeover_folder(state: str) -> str:
    """Where the second head leaves its list. `state`: the folder of Slurm's state."""
    return f"{os.path.dirname(state)}/{HANDED}"


def lost_submissions(slurm: Slurm, began: int, notes: str, kept: str) -> list[LostSubmission]:
    """What the controller that works since then knows nothing of. Raises CalledProcessError or TimeoutExpired."""
    known = _patiently(slurm.known_jobs)  # before the notes: who submits in between has no job that is missing
    saved = float(read_bytes(f"{kept}/{SAVED}") or began)
    found = notes_without_job(read_notes(glob.glob(notes), saved - UNSAVED_S, time.time()), known, began)
    return [LostSubmission(note, began, kept) for note in found]


def write_takeover_list(found: Iterable[LostSubmission], folder: str) -> None:
    """Adds to the list in this folder, which is carried out on the first head."""
    rows = [
        {"job": note.job, "at": note.at, "uid": note.uid, "argv": b"\0".join(note.argv).hex(), "began": one.began}
        for one in found
        for note in [one.note]
    ]
    there = read_bytes(f"{folder}/{DUE}").decode()
    write_atomically(f"{folder}/{DUE}", there + "".join(f"{json.dumps(row)}\n" for row in rows))


def read_takeover_list(folder: str) -> list[LostSubmission]:
    """That list."""
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
    """Says what it did, job by job. `notes`: the files that sbatch writes. `inherited`: the folder of what the second head hands
    on. Raises TimeoutError where it has not ended its list, or the controller does not take all: it is tried again."""
    slurm = slurm or Slurm()
    ends = time.monotonic() + HAND_S
    while inherited and os.path.exists(f"{inherited}/{SAVED}") and time.monotonic() < ends:
        time.sleep(0.1)
    whole = not os.path.exists(f"{inherited}/{SAVED}")
    listed = [
        *read_takeover_list(kept),
        *(read_takeover_list(inherited) if inherited and whole else []),
    ]  # ours: of a try that did not end
    there = {one.note for one in listed}
    ours = [
        one for one in lost_submissions(slurm, _patiently(slurm.controller_start), notes, kept) if one.note not in there
    ]
    if ours:  # noted before anything is submitted: the next controller takes the seconds of these for saved
        write_takeover_list(ours, kept)
    found = sorted((*listed, *ours), key=lambda one: (one.note.at, one.note.job))
    yield from _again(slurm, found, done)
    if not whole:
        raise TimeoutError(f"the second head has not ended its list in {inherited}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{kept}/{DUE}")
    if inherited:
        shutil.rmtree(inherited, ignore_errors=True)


def _again(slurm: Slurm, found: Sequence[LostSubmission], done: str) -> Iterator[str]:
    """Raises TimeoutError naming what is to be tried again."""
    before: dict[int, list[int]] = {}
    numbers: dict[int, int] = {}
    taken = set[int]()
    notes = {(one.note.job, one.note.at) for one in found}
    for row in map(json.loads, whole_lines(done)):
        before.setdefault(row["job"], []).append(row["at"])
        new = _SUBMITTED.search(row["said"])
        if new:
            taken.add(int(new[1]))
        if new and (row["job"], row["at"]) in notes:
            numbers[row["job"]] = int(new[1])
    due: dict[SubmissionNote, tuple[pwd.struct_passwd, SavedJob, int]] = {}  # what was noted twice is one submission
    for one in found:
        note = one.note
        try:
            owner = pwd.getpwuid(note.uid)
        except KeyError:
            continue
        earlier = [at for at in before.get(note.job, ()) if at < note.at]
        if note.at in before.get(note.job, ()):
            continue
        records = _patiently(functools.partial(slurm.records, note.job))
        records = records_of_submission(note, records, owner.pw_name, max(earlier, default=0))
        files = saved_job(f"{one.kept}/job.{note.job}", owner, known=bool(records))
        if not must_not_run_again(note, records, files.script, one.began):
            due[note] = owner, files, one.began
    if not due:
        return
    slurm.close_records()  # before their numbers are known again
    there = _patiently(slurm.resubmitted_jobs)  # a try before this one may have got further than it could note
    late: list[int] = []
    for note, (owner, files, began) in due.items():
        if tuple(_dependent(note.argv, dict.fromkeys(late, 0))) != note.argv:  # it depends on one of these
            late.append(note.job)
            continue
        mine_again = (a.job for a in there if (a.old, a.uid) == (note.job, note.uid) and a.submitted >= began)
        already = next((job for job in mine_again if job not in taken), 0)
        try:
            said = f"Submitted batch job {already}" if already else slurm.submit(note, owner, files, numbers)
        except (OSError, ValueError) as error:
            said = str(error)
        new = _SUBMITTED.search(said)
        if new:
            numbers[note.job] = int(new[1])
            taken.add(int(new[1]))
        elif _later(note, said):
            late.append(note.job)
            if any(words in said.lower() for words in _AWAY):
                break
            continue
        with open(done, "a") as file:
            file.write(json.dumps({"job": note.job, "at": note.at, "said": said}) + "\n")
        what = "submitted again" if new else "and can't be submitted again"
        yield f"job {note.job} was not saved by the controller before it was killed; {what}: {said}"
    if late:
        raise TimeoutError(f"what the controller did not take is tried again, from job {late[0]} on")


def _later(note: SubmissionNote, said: str) -> bool:
    """Whether it is to be tried again. Where the controller may have taken it, only what can be recognized then is."""
    words = said.lower()
    unsure = not said or any(one in words for one in _UNSURE)
    return any(one in words for one in _AWAY) or (unsure and not any(w.startswith(b"--comment") for w in note.argv))


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def write_atomically(path: str, text: str) -> None:
    """All of it or nothing, also for the other head."""
    with open(f"{path}.new", "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def _give(path: bytes, text: bytes, owner: pwd.struct_passwd) -> None:
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


def read_bytes(path: str) -> bytes:
    """b"" where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""

"""Jobs that were accepted and that the controller does not know any more. slurmctld writes its queue up to five seconds after a
change: killed before that, it comes back without the jobs of those seconds, and gives their numbers away again.

`agent.pyz keep` runs before slurmctld starts: it copies the scripts and environments of the newest jobs, which slurmctld
writes at once and deletes when it comes back without their jobs. `agent.pyz recall` runs after: what people's sbatch noted
(cli_filter.lua), nobody knows any more and accounting has not seen end is submitted again, as its owner, in its old order and so
as a rule by its old number. A run that may still be there is ended by Slurm first, as soon as its node registers."""

from __future__ import annotations

import contextlib
import functools
import glob
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .say import whole_lines

T = TypeVar("T")
STATE = "/srv/headway-state/slurmctld"
KEPT = "/var/lib/headway/recall"
DONE = "/var/lib/headway/recalled.jsonl"
NOTES = "/home/*/.headway-submitted"
YOUNG_S = 60.0  # what is older was saved long ago
BEGIN_S = 10  # until then every node has registered, and Slurm has ended what still ran there
WAIT_S = 120.0  # for the controller and the accounting database to answer
_SUBMIT_S = 30.0
_MOST_BYTES = 256 * 1024
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL", "REVOKED")
_UNIX_TIMES = {"SLURM_TIME_FORMAT": "%s"}
_SUBMITTED = re.compile(r"^(?:Submitted batch job )?(\d+)", re.MULTILINE)  # or --parsable
_BEGINS = re.compile(rb"^#SBATCH\s+(?:.*\s)?(?:--begin|-b)", re.MULTILINE)
_STAYS = re.compile(rb"^#SBATCH\s+(?:.*\s)?--no-requeue", re.MULTILINE)


@dataclass(frozen=True)
class Note:
    """One submission, as its sbatch noted it: its job, when (unix seconds), whose, and its command line."""

    job: int
    at: int
    uid: int
    argv: tuple[bytes, ...]


@dataclass(frozen=True)
class Record:
    """What accounting has of a job."""

    submitted: int
    started: bool
    ended: bool


def keep(state: str = STATE, kept: str = KEPT, now: float | None = None) -> None:
    """Called before the controller deletes what it knows no job of."""
    now = time.time() if now is None else now
    os.makedirs(kept, mode=0o700, exist_ok=True)
    for old in glob.glob(f"{kept}/job.*"):
        if now - os.stat(old).st_mtime > YOUNG_S:
            shutil.rmtree(old)
    for folder in glob.glob(f"{state}/hash.*/job.*"):
        with contextlib.suppress(OSError):  # one that goes meanwhile
            if now - os.stat(folder).st_mtime <= YOUNG_S:
                shutil.copytree(folder, f"{kept}/{os.path.basename(folder)}", dirs_exist_ok=True)


def notes_in(paths: Iterable[str], since: float) -> list[Note]:
    """All that were submitted since then, in their jobs' order. A file that is not of the one in whose home it lies counts for
    nothing, nor does a line that can't be read."""
    found: list[Note] = []
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
            found += [note for note in (_note(line, about.st_uid) for line in lines) if note and note.at >= since]
    return sorted(found, key=lambda note: (note.at, note.job))


def _note(line: bytes, uid: int) -> Note | None:
    words = line.split()
    try:
        argv = bytes.fromhex(words[2].decode()).rstrip(b"\0").split(b"\0")
        return Note(int(words[0]), int(words[1]), uid, tuple(argv))
    except (ValueError, IndexError, UnicodeDecodeError):
        return None


def forgotten(notes: Sequence[Note], known: Mapping[int, int], began: int) -> list[Note]:
    """Those submitted before the controller's start whose job is not there: nobody has its number, or one who submitted since.
    `known`: each job's submission, in unix seconds."""
    since = {note.job for note in notes if note.at > began}
    return [note for note in notes if note.at <= began and (note.job not in known or note.job in since)]


def over(note: Note, records: Iterable[Record], script: bytes) -> bool:
    """Whether it must not run again: it has ended, or has begun and forbids a second run."""
    mine = [record for record in records if 0 <= note.at - record.submitted <= 1]
    stays = b"--no-requeue" in note.argv or bool(_STAYS.search(script))
    return any(record.ended or (record.started and stays) for record in mine)


def command(note: Note, script: bytes, numbers: Mapping[int, int]) -> list[bytes]:
    """The same sbatch. What its owner says of begin and comment counts. `numbers`: what became of those submitted before, for
    jobs that depend on them."""
    begins = any(word.startswith((b"--begin", b"-b")) for word in note.argv[1:]) or _BEGINS.search(script)
    words = b"headway: submitted again, for the controller was killed before it had saved job %d" % note.job
    mine = [b"sbatch", b"--comment=" + words] + ([] if begins else [b"--begin=now+%d" % BEGIN_S])
    return [*mine, *_dependent(note.argv[1:], numbers)]


def _dependent(words: Sequence[bytes], numbers: Mapping[int, int]) -> Iterator[bytes]:
    before = b""
    for word in words:
        if word.startswith((b"--dependency=", b"-d")) or before in (b"--dependency", b"-d"):
            yield re.sub(rb"(?<=:)\d+", lambda job: b"%d" % numbers.get(int(job[0]), int(job[0])), word)
        else:
            yield word
        before = word


def environment(saved: bytes, owner: pwd.struct_passwd) -> dict[bytes, bytes]:
    """As sbatch had it; what sbatch itself added for the job goes."""
    pairs = (item.partition(b"=") for item in saved[4:].split(b"\0"))
    found = {key: value for key, mark, value in pairs if mark and not key.startswith(b"SLURM_")}
    home, name = owner.pw_dir.encode(), owner.pw_name.encode()
    return {b"PATH": b"/usr/local/bin:/usr/bin:/bin", b"HOME": home, b"USER": name, b"LOGNAME": name, **found}


class Slurm:
    """The controller and the database, as far as they are asked."""

    def began(self) -> int:
        """When the controller was started, in unix seconds."""
        found = re.search(r"^BOOT_TIME\s*=\s*(\d+)", self._ask("scontrol", "show", "config"), re.MULTILINE)
        return int(found[1]) if found else 0

    def known(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for line in self._ask("squeue", "--all", "--noheader", "--states=all", "--format=%A %F %V").splitlines():
            job, array, at = line.split()
            found[int(job)] = found[int(array)] = int(at) if at.isdigit() else 0
        return found

    def records(self, job: int) -> list[Record]:
        argv = ("sacct", "-D", "-X", "-a", "-n", "-P", "-o", "State,Submit,Start", "-j", str(job))
        rows = (line.split("|") for line in self._ask(*argv).splitlines())
        return [
            Record(int(row[1]), row[2].isdigit(), row[0].startswith(_ENDED))
            for row in rows
            if len(row) == 3 and row[1].isdigit()
        ]

    def submit(self, note: Note, folder: str, numbers: Mapping[int, int]) -> str:
        """sbatch's own words."""
        owner = pwd.getpwuid(note.uid)
        script, saved = script_in(folder), bytes_of(f"{folder}/environment")
        where = re.search(rb"\0SLURM_SUBMIT_DIR=([^\0]*)", saved)
        cwd = where[1] if where else owner.pw_dir.encode()
        with subprocess.Popen(
            [b"/bin/sh", b"-c", b'cd -- "$1"; shift; exec "$@"', b"sh", cwd, *command(note, script, numbers)],
            user=owner.pw_uid,
            group=owner.pw_gid,
            extra_groups=os.getgrouplist(owner.pw_name, owner.pw_gid),
            env=environment(saved, owner),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as run:
            try:
                said, _ = run.communicate(script, _SUBMIT_S)
            except subprocess.TimeoutExpired:  # sbatch --wait: its job is submitted
                run.kill()
                said, _ = run.communicate()
        return said.decode(errors="replace").strip()

    def close_records(self) -> None:
        """Accounting takes the runs that nobody knows any more for running: Slurm's own command ends them."""
        subprocess.run(
            ["sacctmgr", "-i", "show", "runawayjobs"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )

    def _ask(self, *argv: str) -> str:
        """Raises CalledProcessError or TimeoutExpired."""
        env = {**os.environ, **_UNIX_TIMES}
        return subprocess.run(argv, env=env, check=True, capture_output=True, text=True, timeout=20).stdout


def recall(slurm: Slurm | None = None, notes: str = NOTES, kept: str = KEPT, done: str = DONE) -> Iterator[str]:
    """Says what it did, job by job."""
    slurm = slurm or Slurm()
    began = _patiently(slurm.began)
    found = forgotten(notes_in(glob.glob(notes), began - YOUNG_S), _patiently(slurm.known), began)
    seen = {(row["job"], row["at"]) for row in map(json.loads, whole_lines(done))}
    due = [note for note in found if (note.job, note.at) not in seen]
    folders = {note: f"{kept}/job.{note.job}" for note in due}
    due = [
        one
        for one in due
        if not over(one, _patiently(functools.partial(slurm.records, one.job)), script_in(folders[one]))
    ]
    if due:
        slurm.close_records()  # before their numbers are known again
    numbers: dict[int, int] = {}
    for note in due:
        said = slurm.submit(note, folders[note], numbers)
        new = _SUBMITTED.search(said)
        if new:
            numbers[note.job] = int(new[1])
        with open(done, "a") as file:
            file.write(json.dumps({"job": note.job, "at": note.at, "said": said}) + "\n")
        what = "submitted again" if new else "and can't be submitted again"
        yield f"job {note.job} was not saved by the controller before it was killed; {what}: {said}"


def _patiently(ask: Callable[[], T]) -> T:
    ends = time.monotonic() + WAIT_S
    while True:
        try:
            return ask()
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            if time.monotonic() > ends:
                raise
            time.sleep(0.2)


def script_in(folder: str) -> bytes:
    """As it was submitted: slurmctld ends it with a zero."""
    return bytes_of(f"{folder}/script").rstrip(b"\0")


def bytes_of(path: str) -> bytes:
    """b"" where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""

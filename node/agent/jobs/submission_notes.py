"""Submission notes: what sbatch writes down of each submission, what slurmctld and accounting still have of it, and the sbatch
command that repeats it."""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

BEGIN_S = 10  # by then every node has registered, and Slurm has ended the old runs there
SAME_S = 5  # largest difference between sbatch's note and Slurm's submit time of one submission
_MOST_BYTES = 256 * 1024
_MOST_NOTES = 200  # notes of one user
_MOST_JOB = 2**26
RESUBMITTED = "headway: submitted again, for the controller was killed before it had saved job"
_BEGINS = re.compile(rb"^#SBATCH\s+(?:.*\s)?(?:--begin|-b)", re.MULTILINE)
_STAYS = re.compile(rb"^#SBATCH\s+(?:.*\s)?--no-requeue", re.MULTILINE)
# sbatch's short options that take a value, and its long options that take none.
_SHORT_WITH_VALUE = b"AaBbCcDdeFGiJLMmNnopqStwx"
_LONG_ALONE = frozenset(
    b"contiguous exclusive get-user-env hold ignore-pbs immediate nice no-kill no-requeue oom-kill-step overcommit oversubscribe "
    b"parsable propagate quiet reboot requeue resv-ports spread-job stepmgr test-only use-min-nodes verbose wait x11 "
    b"container-mount-home container-remap-root container-writable container-readonly container-entrypoint".split()
)


@dataclass(frozen=True)
class SubmissionNote:
    """One submission, as the user's sbatch recorded it: job number, Unix time, uid and command line."""

    job: int
    at: int
    uid: int
    argv: tuple[bytes, ...]


@dataclass(frozen=True)
class AccountingRecord:
    """One record of a job in accounting. Times are Unix seconds."""

    user: str
    submitted: int
    started: bool
    ended: int  # 0: it has not ended


@dataclass(frozen=True)
class SavedJob:
    """The files that slurmctld kept of a job; b"" if they are gone or belong to another user."""

    script: bytes = b""
    environment: bytes = b""


def read_notes(paths: Iterable[str], since: float, now: float) -> list[SubmissionNote]:
    """Returns the submissions noted between `since` and `now` (Unix seconds), oldest first. A file that does not belong
    to the home's owner is ignored, and so are unreadable lines."""
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
    """Returns the submissions from before the controller's start `began` that have no job: the number is free, belongs
    to another user, or was given to a later submission of the same user. `known`: job -> uid."""
    since = {note.job for note in notes if note.at > began and known.get(note.job) == note.uid}
    return [note for note in notes if note.at <= began and (known.get(note.job) != note.uid or note.job in since)]


def records_of_submission(
    note: SubmissionNote, records: Iterable[AccountingRecord], user: str, after: int
) -> list[AccountingRecord]:
    """Returns the accounting records of this submission, the closest in time first. `after`: when the number was last
    submitted again by this module, 0 for never."""
    near = (r for r in records if r.user == user and abs(note.at - r.submitted) <= SAME_S and r.submitted > after)
    return sorted(near, key=lambda record: abs(note.at - record.submitted))


def must_not_run_again(note: SubmissionNote, records: Sequence[AccountingRecord], script: bytes, began: int) -> bool:
    """Returns whether the submission must not run again: it has ended, or it has started and forbids a requeue. An end
    after the controller's start does not count, because a controller that finds no state has accounting cancel all
    pending jobs."""
    stays = b"--no-requeue" in note.argv or bool(_STAYS.search(script))
    return any(0 < record.ended < began or (record.started and stays) for record in records)


def saved_job(folder: str, owner: pwd.struct_passwd, *, known: bool) -> SavedJob:
    """Returns the job's saved script and environment if they belong to `owner`. `known`: accounting has the job under
    this user. If not, the environment must name the user: a number in a user's notes proves nothing, and the files may
    hold secrets."""
    script, saved = read_bytes(f"{folder}/script").rstrip(b"\0"), read_bytes(f"{folder}/environment")
    theirs = {b"USER=" + owner.pw_name.encode(), b"HOME=" + owner.pw_dir.encode()} <= set(saved[4:].split(b"\0"))
    return SavedJob(script, saved) if known or theirs else SavedJob()


def sbatch_argv(note: SubmissionNote, script: bytes, numbers: Mapping[int, int], path: bytes) -> list[bytes]:
    """Returns the sbatch command that submits the job again. The user's own --begin and --comment take precedence.
    `numbers`: old -> new job number, for dependencies. `path`: where the script is now."""
    begins = any(word.startswith((b"--begin", b"-b")) for word in note.argv[1:]) or _BEGINS.search(script)
    words = b"%s %d" % (RESUBMITTED.encode(), note.job)
    first = [b"/usr/bin/sbatch", b"--comment=" + words] + ([] if begins else [b"--begin=now+%d" % BEGIN_S])
    rest = list(note.argv[1:])
    at = script_index(rest)
    if path and at is not None:
        rest[at] = path
    return [*first, *dependencies(rest, numbers)]


def script_index(words: Sequence[bytes]) -> int | None:
    """Returns the index of the script among sbatch's arguments, or None. It is the first word that is
    neither an option, nor an option's value, nor the `:` between two components of a heterogeneous job."""
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


def dependencies(words: Sequence[bytes], numbers: Mapping[int, int]) -> Iterator[bytes]:
    """Yields sbatch's words with the job numbers of `--dependency` replaced by those of the jobs' new submissions."""
    before = b""
    for word in words:
        if word.startswith((b"--dependency=", b"-d")) or before in (b"--dependency", b"-d"):
            yield re.sub(rb"(?<=:)\d+", lambda job: b"%d" % numbers.get(int(job[0]), int(job[0])), word)
        else:
            yield word
        before = word


def submission_environment(saved: bytes, owner: pwd.struct_passwd) -> dict[bytes, bytes]:
    """Returns the environment that sbatch had, without the SLURM_ variables that sbatch added for the job."""
    pairs = (item.partition(b"=") for item in saved[4:].split(b"\0"))
    found = {key: value for key, mark, value in pairs if mark and not key.startswith(b"SLURM_")}
    home, name = owner.pw_dir.encode(), owner.pw_name.encode()
    return {b"PATH": b"/usr/local/bin:/usr/bin:/bin", b"HOME": home, b"USER": name, b"LOGNAME": name, **found}


def read_bytes(path: str) -> bytes:
    """Returns the file's content; b"" if it can't be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""

"""Finds the jobs whose files fill a disk. A disk that jobs have filled is not a fault of the machine: it has free space
again when they end."""

from __future__ import annotations

import os
import stat
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from agent.gpu.job_gpus import JOBS
from agent.metrics.host import read_text
from agent.processes import job_of

LOOK_S = 5.0  # time limit for counting, on a disk that may be busy; the whole check has 20 s
CONTAINERS = "/var/lib/headway/containers"
OPEN_TO_ALL = ("/tmp", "/var/tmp")  # sbcast writes to the machine's own /tmp, outside the jobs' private /tmp
_AT_A_TIME = 100
Row = tuple[int, "os.stat_result | None"]  # (job, stat of one of its files; None for files that can't be read)


def jobs_filling_disk(
    place: str,
    lacks_bytes: int,
    lacks_files: int = 0,
    *,
    jobs: str = JOBS,
    containers: str = CONTAINERS,
    others: Iterable[str] = OPEN_TO_ALL,
    owners: Mapping[int, int] | None = None,
    proc: str = "/proc",
) -> list[int]:
    """Returns the jobs whose files fill the disk of `place`, the one with the most first; [] if removing the files of
    all jobs would not free enough. Only jobs with at least a tenth of the jobs' total are listed. `lacks_bytes` and
    `lacks_files` say how much has to be freed. Files that can't be read, or that are too many to count within LOOK_S,
    are assumed to be large enough. `owners` maps a uid to one of the user's jobs; the default is the users who have a
    job on this node."""
    size, devices, walks = _size(place), {_device(place)}, deque[Iterator[Row]]()
    for top in (jobs, containers, *others):
        if _device(top) != _device(place) and _size(top) != size:
            continue
        devices.add(_device(top))
        if top in (jobs, containers):
            walks += [_below(job, f"{top}/{name}") for name in _names(top) if (job := _number(name)) is not None]
        else:
            walks.append(_of_people(top, users_of_jobs(jobs) if owners is None else owners))
    walks.append(_unlinked(devices, proc))
    bytes_by_job: Counter[int] = Counter()
    files: Counter[int] = Counter()
    hidden, ends = set(), time.monotonic() + LOOK_S
    # round robin, so that a job with millions of files does not keep the others from being counted
    while walks and time.monotonic() < ends:
        walk = walks.popleft()
        rows = list(islice(walk, _AT_A_TIME))
        for job, found in rows:
            if found is None:
                hidden.add(job)
            else:
                bytes_by_job[job] += found.st_blocks * 512
                files[job] += 1
        if rows:
            walks.append(walk)
    counts = files if lacks_files > 0 else bytes_by_job
    enough = bytes_by_job.total() >= lacks_bytes and files.total() >= lacks_files
    if not (enough or walks or hidden):
        return []
    return [job for job, count in counts.most_common() if count * 10 >= counts.total()] or sorted(hidden)


def _below(job: int, top: str) -> Iterator[Row]:
    """Yields (job, stat) of `top` and of everything below it on the same file system."""
    device, folders = _device(top), [top]
    with_top = _stat(top)
    if with_top is not None:
        yield job, with_top
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:  # deleted in the meantime
                        continue
                    if found.st_dev != device:
                        continue
                    if stat.S_ISDIR(found.st_mode):
                        folders.append(entry.path)
                    yield job, found
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # for example a folder nested deeper than PATH_MAX
            yield job, None


def users_of_jobs(jobs: str = JOBS) -> dict[int, int]:
    """Returns uid -> one of the user's jobs, for users who have a job on this node."""
    uid_texts = {name: read_text(f"{jobs}/{name}/uid").strip() for name in _names(jobs) if name.isdigit()}
    return {int(uid): int(name) for name, uid in uid_texts.items() if uid.isdigit()}


def _of_people(top: str, has: Mapping[int, int]) -> Iterator[Row]:
    """Yields (job, stat) of what users with a job on this node own in `top`, a folder to which every user may write."""
    for name in _names(top):
        found = _stat(f"{top}/{name}")
        job = has.get(found.st_uid) if found is not None else None
        if job is not None:
            yield from _below(job, f"{top}/{name}")


def _unlinked(devices: set[int], proc: str) -> Iterator[Row]:
    """Yields (job, stat) of deleted files that processes of jobs still have open."""
    seen = set()
    for name in _names(proc):
        process = _stat(f"{proc}/{name}") if name.isdigit() else None
        job = job_of(int(name), process.st_uid, proc) if process is not None else None
        for number in _names(f"{proc}/{name}/fd") if job is not None else ():
            try:
                found = os.stat(f"{proc}/{name}/fd/{number}")
            except OSError:
                continue
            new = (found.st_dev, found.st_ino) not in seen
            if job is not None and new and found.st_nlink == 0 and found.st_dev in devices:
                seen.add((found.st_dev, found.st_ino))
                yield job, found


def _number(name: str) -> int | None:
    """Returns the job's number from a folder's name, also from one that the epilog deletes ("gone-12.345") or will delete
    after another job got the number ("12.former"); None for other names."""
    word = name.removeprefix("gone-").partition(".")[0]
    return int(word) if word.isdigit() else None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _device(path: str) -> int:
    found = _stat(path)
    return found.st_dev if found is not None else 0


def _size(path: str) -> int:
    """Returns the size of the file system in bytes; 0 if it can't be read. Two folders with the same size share their
    space even if their devices differ (layers, subvolumes). The number of files is not compared, because it changes
    with what is written."""
    try:
        stats = os.statvfs(path)
    except OSError:
        return 0
    return stats.f_blocks * stats.f_frsize

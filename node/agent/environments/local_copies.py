"""Copies software environments from network storage to this node's disk, and mounts each copy over its original.

Importing torch opens thousands of small files, which takes long on a network file system. A copy is mounted at the same
path, so that jobs need no change: a job that starts before the copy is complete reads the network storage. Environments
never change, so a copy needs no update. Nothing is copied where the storage is a disk of this machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from agent.log import log

FOLDER = "/environments"
COPIES = "/var/lib/headway/environments"
RECORD = ".headway.json"  # in a version: see node/programs/environment_store.py
MOST_SHARE = 0.1  # of the disk, for all copies together
LEAST_FREE_SHARE = 0.1  # of the disk, after a copy
FIRST_USER = 1000  # user id
COPY_S = 4 * 3600.0
RETRY_S = 3600.0  # after a copy that failed
SPREAD_S = 60.0  # within which the nodes begin to copy a version
READ_S = 300.0  # between two readings of the records if no folder of versions has changed
ABSENT_LOOKS = 20  # a version that is missing for so many looks was removed, and its copy is deleted
COMMAND_S = 60.0
_NETWORK = re.compile(r"nfs4?|cifs|smb3|ceph|lustre|gpfs|beegfs|wekafs|panfs|glusterfs|virtiofs|9p|fuse|fuse\..+")
_NO_DISK = re.compile(rf"tmpfs|ramfs|{_NETWORK.pattern}")
_MOUNTED = re.compile(r"^\d+ \d+ \S+ \S+ (\S+) .* - (\S+) ", re.MULTILINE)  # mount point, type
_USED = re.compile(rf"(?:^|\0)VIRTUAL_ENV={FOLDER}/([^/\0]+)/([1-9][0-9]*)(?:\0|$)")
_QUIETLY = ("nice", "-n", "19", "ionice", "-c", "3")

Run = Callable[[list[str], float], None]


def run_command(argv: list[str], timeout_s: float) -> None:
    """Runs a command. Raises OSError or subprocess.SubprocessError."""
    subprocess.run(argv, check=True, capture_output=True, timeout=timeout_s, stdin=subprocess.DEVNULL)


@dataclass(frozen=True)
class Version:
    """A version of an environment. `published`: Unix seconds."""

    name: str
    number: int
    bytes: int
    published: float

    @property
    def place(self) -> str:
        """Returns its path below FOLDER and COPIES."""
        return f"{self.name}/{self.number}"


def list_versions(folder: str = FOLDER) -> list[Version]:
    """Returns the versions that are published. Raises OSError."""
    found = []
    for name in sorted(os.listdir(folder)):
        if name.startswith("."):
            continue
        try:
            numbers = os.listdir(f"{folder}/{name}")
        except (FileNotFoundError, NotADirectoryError):
            continue
        for number in numbers:
            record = f"{folder}/{name}/{number}/{RECORD}"
            try:
                with open(record) as file:
                    size = int(json.load(file)["bytes"])
                found.append(Version(name, int(number), size, os.stat(record).st_mtime))
            except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
                continue  # it is being removed, or is no version
    return found


def newest_versions(versions: Iterable[Version]) -> list[Version]:
    """Returns the newest version of each environment, the one published last first."""
    last: dict[str, Version] = {}
    for version in versions:
        if version.name not in last or version.number > last[version.name].number:
            last[version.name] = version
    return sorted(last.values(), key=lambda version: -version.published)


def versions_to_keep(versions: Iterable[Version], used_at: Mapping[str, float], most_bytes: float) -> list[Version]:
    """Returns the versions to have on this disk: those that jobs used here, the last used first, then the newest of each
    environment, as many as `most_bytes` allow. `used_at`: place -> Unix seconds. Versions without files of their own are
    left out: those of the node image."""
    versions = [version for version in versions if version.bytes]
    used = sorted((one for one in versions if one.place in used_at), key=lambda one: -used_at[one.place])
    chosen: list[Version] = []
    for version in [*used, *(one for one in newest_versions(versions) if one.place not in used_at)]:
        if sum(one.bytes for one in chosen) + version.bytes <= most_bytes:
            chosen.append(version)
    return chosen


def copy_delay_s(host: str, place: str) -> float:
    """Returns how long a node waits before it copies a version that none of its jobs uses: another time on each node, always
    the same on one."""
    digest = hashlib.sha256(f"{host} {place}".encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32 * SPREAD_S


def used_now(proc: str = "/proc") -> set[str]:
    """Returns the places of the versions that users' processes have activated."""
    found = set()
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            if os.stat(f"{proc}/{pid}").st_uid < FIRST_USER:
                continue
            with open(f"{proc}/{pid}/environ", encoding="utf-8", errors="replace") as file:
                found |= {f"{name}/{number}" for name, number in _USED.findall(file.read())}
        except OSError:  # it has ended
            continue
    return found


def mount_types(text: str) -> dict[str, str]:
    """Returns mount point -> type of file system from the text of /proc/self/mountinfo; of mounts over each other the
    topmost."""
    return dict(_MOUNTED.findall(text))


def delay_here_s(place: str) -> float:
    """Returns `copy_delay_s` of this node."""
    return copy_delay_s(os.uname().nodename, place)


class LocalCopies:
    """The copies on this node. `run_command` runs a command; `clock` returns Unix seconds; `delay_s` returns the seconds by which
    the copy of a version waits for those of other nodes."""

    def __init__(
        self,
        run: Run = run_command,
        clock: Callable[[], float] = time.time,
        folder: str = FOLDER,
        copies: str = COPIES,
        proc: str = "/proc",
        delay_s: Callable[[str], float] = delay_here_s,
    ) -> None:
        self._run, self._clock, self._folder, self._copies, self._proc = run, clock, folder, copies, proc
        self._delay_s = delay_s
        self._fault = ""  # as last logged
        self._absent: dict[str, int] = {}  # place -> number of looks since its version was last there
        self._next_try: dict[str, float] = {}  # place -> Unix seconds, after a copy that failed
        self._turn: dict[str, float] = {}  # place -> Unix seconds: when this node begins to copy it
        self._versions: list[Version] = []  # as last read, at _read_at
        self._read_at = float("-inf")
        self._stamps: dict[str, int] = {}  # folder of versions -> its time of change then
        self._confirmed = False  # the reading before showed the same times

    def look_once(self) -> None:
        """Removes copies of removed versions, mounts those that are there, and makes at most one that is missing. Raises
        OSError when the environments can't be read."""
        there = self._mounts()
        if not _NETWORK.fullmatch(there.get(self._folder, "")) or _NO_DISK.fullmatch(self._kind_of_disk(there)):
            return
        versions = self._published()
        known = {version.place for version in versions}
        used = used_now(self._proc) & known
        self._absent = {place: self._absent.get(place, 0) + 1 for place in self._have() - known}
        for place, looks in self._absent.items():
            if looks >= ABSENT_LOOKS:  # a server that comes back may show an empty folder for a moment
                self._drop(place, there)
        for place in used:
            self._note_use(place)
        disk = shutil.disk_usage(os.path.dirname(self._copies))
        wanted = versions_to_keep(versions, self._used_at(known), MOST_SHARE * disk.total)
        for place in sorted((self._have() & known) - {version.place for version in wanted} - used):
            self._drop(place, there)
        for version in wanted:
            if version.place in self._have() and f"{self._folder}/{version.place}" not in there:
                if self._is_copy(f"{self._copies}/{version.place}", version.place):
                    self._mount(version.place, there)
                else:  # the folder of another cluster, or of a version that was removed and made again
                    self._drop(version.place, there)
        have, now = self._have(), self._clock()
        for version in wanted:
            if version.place in have or self._next_try.get(version.place, now) > now:
                continue
            turn = self._turn.setdefault(version.place, now + self._delay_s(version.place))
            if turn <= now or version.place in used:
                if self._copy(version):
                    self._mount(version.place, there)
                else:
                    self._next_try[version.place] = now + RETRY_S
                return

    def _published(self) -> list[Version]:
        """Returns the versions that are published. Their records are read only if a folder has changed, because all nodes
        ask the same storage. Raises OSError."""
        stamps, now = self._read_stamps(), self._clock()
        if self._confirmed and stamps == self._stamps and 0 <= now - self._read_at < READ_S:
            return self._versions
        self._versions = list_versions(self._folder)
        # Two changes may bear the same time, so one more reading follows each.
        self._confirmed = stamps == self._stamps
        self._stamps, self._read_at = self._read_stamps(), now
        return self._versions

    def _read_stamps(self) -> dict[str, int]:
        names = {"", *(version.name for version in self._versions), *self._stamps}
        found = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found[name] = os.stat(f"{self._folder}/{name}").st_mtime_ns
        return found

    def _kind_of_disk(self, there: Mapping[str, str]) -> str:
        """Returns the type of the file system that holds the copies, "" if it is not known."""
        above = [point for point in there if f"{self._copies}/".startswith(f"{point.rstrip('/')}/")]
        return there[max(above, key=len)] if above else ""

    def _is_copy(self, copy: str, place: str) -> bool:
        """Returns whether the record in the folder is that of the version: it names the build, which is unique. The
        version must not be covered by a mount."""
        try:
            with open(f"{copy}/{RECORD}") as ours, open(f"{self._folder}/{place}/{RECORD}") as theirs:
                return ours.read() == theirs.read()
        except FileNotFoundError:
            return False

    def _mounts(self) -> dict[str, str]:
        with open(f"{self._proc}/self/mountinfo") as file:
            return mount_types(file.read())

    def _have(self) -> set[str]:
        """Returns the places of the complete copies."""
        try:
            names = os.listdir(self._copies)
        except FileNotFoundError:
            return set()
        return {
            f"{name}/{number}"
            for name in names
            if not name.startswith(".")
            for number in os.listdir(f"{self._copies}/{name}")
            if number.isdigit()
        }

    def _used_at(self, known: Iterable[str]) -> dict[str, float]:
        found = {}
        for place in known:
            try:
                found[place] = os.stat(self._mark(place)).st_mtime
            except OSError:
                continue
        return found

    def _note_use(self, place: str) -> None:
        os.makedirs(f"{self._copies}/.used", mode=0o755, exist_ok=True)
        with open(self._mark(place), "w"):
            now = self._clock()
        os.utime(self._mark(place), (now, now))

    def _mark(self, place: str) -> str:
        return f"{self._copies}/.used/{place.replace('/', '@')}"

    def _copy(self, version: Version) -> bool:
        """Copies a version, complete or not at all. Returns whether it is there."""
        place, draft = f"{self._copies}/{version.place}", f"{self._copies}/.draft"
        disk = shutil.disk_usage(os.path.dirname(self._copies))
        if disk.free - version.bytes < LEAST_FREE_SHARE * disk.total:
            return self._report(f"{version.place} is not copied to this disk: too little of it would stay free")
        try:
            delete_folder(draft)
            os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)
            self._run([*_QUIETLY, "cp", "-a", "--", f"{self._folder}/{version.place}", draft], COPY_S)
            # A copy that a power cut left incomplete would have its final name otherwise.
            self._run(["sync", "-f", draft], COPY_S)
            if not self._is_copy(draft, version.place):
                delete_folder(draft)
                return self._report(f"{version.place} is not copied to this disk: it is being removed")
            os.rename(draft, place)
        except (OSError, subprocess.SubprocessError) as error:
            delete_folder(draft)
            return self._report(f"{version.place} could not be copied to this disk: {error}")
        log(f"environment {version.place} is copied to this disk")
        return True

    def _mount(self, place: str, there: dict[str, str]) -> None:
        target = f"{self._folder}/{place}"
        if target in there or os.path.ismount(target):
            return
        try:
            if not any(point.startswith(f"{self._folder}/") for point in there):
                # /environments is often a bind mount of a folder of /scratch. As its peer it would pass the mount on to
                # that folder, writable. Shared again, because the namespaces of jobs follow it.
                for how in ("--make-private", "--make-shared"):
                    self._run(["mount", how, self._folder], COMMAND_S)
            self._run(["mount", "--bind", "-o", "ro,nosuid,nodev", "--", f"{self._copies}/{place}", target], COMMAND_S)
        except (OSError, subprocess.SubprocessError) as error:
            self._report(f"the copy of {place} could not be mounted: {error}")
            return
        there[target] = ""

    def _drop(self, place: str, there: dict[str, str]) -> None:
        """Unmounts and deletes a copy, unless a process uses it."""
        target = f"{self._folder}/{place}"
        if target in there:
            try:
                self._run(["umount", "--", target], COMMAND_S)
            except (OSError, subprocess.SubprocessError):  # in use
                return
            del there[target]
        gone = f"{self._copies}/.gone"
        delete_folder(gone)
        os.rename(f"{self._copies}/{place}", gone)
        delete_folder(gone)

    def _report(self, fault: str) -> bool:
        """Logs a fault once. Returns False."""
        if fault != self._fault:
            log(fault)
        self._fault = fault
        return False


def delete_folder(folder: str) -> None:
    """Deletes a folder whose folders may have no write bits."""
    if os.path.isdir(folder):
        for base, below, _ in os.walk(folder):
            os.chmod(base, 0o755)
            for name in below:
                if not os.path.islink(f"{base}/{name}"):
                    os.chmod(f"{base}/{name}", 0o755)
        shutil.rmtree(folder)

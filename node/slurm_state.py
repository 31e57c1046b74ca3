"""Slurm's state folder, as it was at one moment, to standard output; and back from standard input. Runs on the head, as root.

    slurm_state.py state FOLDER SINCE           a tar of it, compressed. SINCE: unix seconds; what Slurm took on until
    then is in it
    slurm_state.py begin FOLDER PLACE           before the two below; what an earlier restore kept of before it goes
    slurm_state.py take FOLDER                  takes such a tar in FOLDER's place; what was there stays beside it
    slurm_state.py database PLACE               takes a compressed dump in the place of the database that PLACE is
    called like; what was
                                         there stays as a dump beside PLACE
    slurm_state.py end STAMP REF FOLDER PLACE   after them: STAMP says which restore this head's state is of

Between begin and end there is FOLDER.restoring and PLACE.restoring, and slurmctld and slurmdbd don't start
(render/system/systemd_files.py): one of the two may be half there. Whoever begins again finds them, and then what is kept of
before stays as it is.

slurmctld renames each of its files into place, so a second name for each is a copy of one moment that costs nothing. A job's
script is written before the list of jobs says it, and goes after that: scripts are looked at before and after the list.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import time

SAVED_S = 8.0  # slurmctld writes what has changed within five seconds
# agent/jobs/queue_recovery.py submits again what came after the last state that was written: not so what came after a
# backup, for the
# accounting that is put back with it does not know which of that has ended.
AHEAD_S = 20.0
RESTORING = ".restoring"
_BEFORE, _DUMP_BEFORE = ".before-restore", ".before-restore.sql.gz"
_RESTS = ("inactive", "failed")
_IN_PLACE = ("dbd.messages",)  # written over when slurmctld ends


def link(source: str, target: str) -> None:
    """Nothing where the source is gone. A file that another takes the place of at this very moment can't be linked any
    more, though there is one of its name: then that."""
    while not os.path.lexists(target):
        try:
            if os.path.basename(source) in _IN_PLACE:
                shutil.copy2(source, target)
            else:
                os.link(source, target, follow_symlinks=False)
        except FileNotFoundError:
            if not os.path.lexists(source):
                return


def link_all(folder: str, copy: str) -> None:
    """A second name for every file below `folder` that has none in `copy` yet."""
    for place, _, names in os.walk(folder):
        there = os.path.join(copy, os.path.relpath(place, folder))
        os.makedirs(there, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.copystat(place, there)
            info = os.stat(place)
            os.chown(there, info.st_uid, info.st_gid)
        for name in names:
            link(os.path.join(place, name), os.path.join(there, name))


def snapshot(folder: str, copy: str) -> None:
    scripts = [name for name in sorted(os.listdir(folder)) if name.startswith("hash.")]
    os.makedirs(copy, mode=0o700)
    for name in scripts:
        link_all(f"{folder}/{name}", f"{copy}/{name}")
    for name in sorted(os.listdir(folder)):
        if not name.startswith("hash.") and not name.endswith((".new", ".old")):
            if os.path.isdir(f"{folder}/{name}"):
                link_all(f"{folder}/{name}", f"{copy}/{name}")
            else:
                link(f"{folder}/{name}", f"{copy}/{name}")
    for name in sorted(os.listdir(folder)):
        if name.startswith("hash."):
            link_all(f"{folder}/{name}", f"{copy}/{name}")
    info = os.stat(folder)
    os.chown(copy, info.st_uid, info.st_gid)


def wait_saved(folder: str, since: float) -> None:
    """Until the list of jobs was written after `since`, or long enough that it had nothing new to say."""
    ends = since + SAVED_S
    while time.time() < ends:
        with contextlib.suppress(OSError):
            if os.stat(f"{folder}/job_state").st_mtime > since:
                return
        time.sleep(0.1)


def give_state(folder: str, since: float) -> int:
    if not os.path.isdir(folder):
        print(f"there is no {folder}", file=sys.stderr)
        return 1
    if os.path.exists(f"{folder}{RESTORING}"):
        print("a restore was begun here and has not ended", file=sys.stderr)
        return 1
    wait_saved(folder, since)
    copy = f"{folder}.headway-backup"
    shutil.rmtree(copy, ignore_errors=True)
    try:
        snapshot(folder, copy)
        with (
            gzip.GzipFile(fileobj=sys.stdout.buffer, mode="wb", compresslevel=1) as packed,
            tarfile.open(mode="w|", fileobj=packed) as tar,
        ):
            tar.add(copy, arcname=".")
        sys.stdout.buffer.flush()
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return 0


def take_state(folder: str) -> int:
    beside, before = f"{folder}.headway-new", f"{folder}{_BEFORE}"
    shutil.rmtree(beside, ignore_errors=True)
    os.makedirs(beside, mode=0o700)
    with tarfile.open(mode="r|gz", fileobj=sys.stdin.buffer) as tar:
        tar.extraction_filter = lambda member, _: member  # type: ignore[method-assign]  # as they were: looked at here
        for member in tar:
            if not (member.isdir() or member.isreg()) or ".." in member.name.split("/") or member.name.startswith("/"):
                print(f"{member.name} is nothing that slurmctld writes", file=sys.stderr)
                return 1
            tar.extract(member, beside)  # owners by name: this machine may number them otherwise
    ahead = time.time() + AHEAD_S
    if os.path.exists(f"{beside}/job_state"):
        os.utime(f"{beside}/job_state", (ahead, ahead))
    if os.path.isdir(folder) and os.path.exists(before):
        shutil.rmtree(folder)  # of an earlier try
    elif os.path.isdir(folder):
        os.rename(folder, before)
    os.rename(beside, folder)
    return 0


def begin(*places: str) -> int:
    units = ("slurmctld.service", "slurmdbd.service")
    argv = ["systemctl", "show", "--property=ActiveState", "--value", *units]
    states = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    for unit, state in zip(units, states, strict=True):
        if state not in _RESTS:
            print(f"{unit} is {state}: nothing is put back beside it", file=sys.stderr)
            return 1
    for place in places:
        if not os.path.exists(f"{place}{RESTORING}"):
            shutil.rmtree(f"{place}{_BEFORE}", ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{place}{_DUMP_BEFORE}")
            os.makedirs(os.path.dirname(place), exist_ok=True)
            put(f"{place}{RESTORING}", "headway restore\n")
    return 0


def end(stamp: str, ref: str, *places: str) -> int:
    put(stamp, f"{ref}\n")
    for place in places:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{place}{RESTORING}")
    return 0


def put(path: str, text: str) -> None:
    with open(f"{path}.new", "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def keep_database(name: str, place: str) -> int:
    """What was there before the first try stays, as a dump: of nothing where there was nothing."""
    if os.path.exists(place):
        return 0
    # A question that has an answer where there is no such database: any other failure is the server's, and keeps nothing.
    asked = f"select table_name from information_schema.tables where table_schema = '{name}'"
    tables = subprocess.run(["mariadb", "-N", "-e", asked], stdout=subprocess.PIPE, check=False)
    if tables.returncode:
        return tables.returncode
    with open(f"{place}.new", "wb") as file:
        os.chmod(f"{place}.new", 0o600)
        if not tables.stdout.strip():
            file.write(gzip.compress(b""))
            os.replace(f"{place}.new", place)
            return 0
        dump = subprocess.Popen(["mariadb-dump", "--single-transaction", name], stdout=subprocess.PIPE)
        packed = subprocess.run(["gzip", "-1"], stdin=dump.stdout, stdout=file, check=False)
    failed = packed.returncode or dump.wait()
    if not failed:
        os.replace(f"{place}.new", place)
    return failed


def take_database(place: str) -> int:
    name = os.path.basename(place)
    if keep_database(name, f"{place}{_DUMP_BEFORE}"):
        print("the database that is there can't be kept, so it is left as it is", file=sys.stderr)
        return 1
    for sql in (f"drop database if exists {name}", f"create database {name}"):
        subprocess.run(["mariadb", "-e", sql], check=True, timeout=120)
    unpack = subprocess.Popen(["gzip", "-dc"], stdout=subprocess.PIPE)
    done = subprocess.run(["mariadb", name], stdin=unpack.stdout, check=False)
    return done.returncode or unpack.wait()


def main() -> int:
    what, where, *more = sys.argv[1:]
    if what == "state":
        return give_state(where, float(more[0]))
    if what == "begin":
        return begin(where, *more)
    if what == "end":
        return end(where, *more)
    return take_state(where) if what == "take" else take_database(where)


if __name__ == "__main__":
    sys.exit(main())

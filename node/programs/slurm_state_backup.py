"""Copies Slurm's state to standard output, as of one moment, and restores it from standard input. Runs on the head, as root.

    slurm_state_backup.py state FOLDER SINCE        writes a compressed tar of FOLDER, the StateSaveLocation. It includes
                                                  everything that Slurm accepted before SINCE (Unix seconds)
    slurm_state_backup.py begin FOLDER PLACE        runs before the next two; deletes what an earlier restore kept
    slurm_state_backup.py take FOLDER               replaces FOLDER by such a tar; the old folder is kept next to it
    slurm_state_backup.py database PLACE            replaces the database that is named like PLACE's last part by a compressed
                                                  dump; a dump of the old database is kept next to PLACE
    slurm_state_backup.py end STAMP REF FOLDER PLACE  runs after them; writes to the file STAMP which restore this state is from

Between begin and end, FOLDER.restoring and PLACE.restoring exist, and slurmctld and slurmdbd don't start
(render/system/daemon_units.py), because one of the two may be half restored. If begin runs again, it finds these files, and what
was kept from before the first try stays.

slurmctld replaces each of its files by a rename, so hard links to the files are a copy of one moment at no cost. A job's script
is written before the list of jobs names the job, and deleted after the list no longer names it. Scripts are therefore linked
both before and after the list.
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

SAVED_S = 8.0  # slurmctld saves changes within five seconds
# The restored job_state gets a time so far in the future. agent/jobs/queue_recovery.py submits jobs again that are
# newer than the last saved state; after a restore it must not, because the restored accounting does not know which of
# them have ended.
AHEAD_S = 20.0
RESTORING = ".restoring"
_BEFORE, _DUMP_BEFORE = ".before-restore", ".before-restore.sql.gz"
_RESTS = ("inactive", "failed")
_IN_PLACE = ("dbd.messages",)  # files that slurmctld overwrites in place when it ends; they are copied


def link_file(source: str, target: str) -> None:
    """Links `target` to `source`; does nothing if the source does not exist. A file that is being replaced at this moment
    can't be linked although its name exists; it is tried again, and the new file is linked."""
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
    """Links every file below `folder` that is not in `copy` yet."""
    for place, _, names in os.walk(folder):
        there = os.path.join(copy, os.path.relpath(place, folder))
        os.makedirs(there, mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.copystat(place, there)
            info = os.stat(place)
            os.chown(there, info.st_uid, info.st_gid)
        for name in names:
            link_file(os.path.join(place, name), os.path.join(there, name))


def snapshot(folder: str, copy: str) -> None:
    """Makes a copy of the state folder by hard links."""
    scripts = [name for name in sorted(os.listdir(folder)) if name.startswith("hash.")]
    os.makedirs(copy, mode=0o700)
    for name in scripts:
        link_all(f"{folder}/{name}", f"{copy}/{name}")
    for name in sorted(os.listdir(folder)):
        if not name.startswith("hash.") and not name.endswith((".new", ".old")):
            if os.path.isdir(f"{folder}/{name}"):
                link_all(f"{folder}/{name}", f"{copy}/{name}")
            else:
                link_file(f"{folder}/{name}", f"{copy}/{name}")
    for name in sorted(os.listdir(folder)):
        if name.startswith("hash."):
            link_all(f"{folder}/{name}", f"{copy}/{name}")
    info = os.stat(folder)
    os.chown(copy, info.st_uid, info.st_gid)


def wait_saved(folder: str, since: float) -> None:
    """Waits until the list of jobs was saved after `since` (Unix seconds), or SAVED_S have passed, so that nothing
    newer was to be saved."""
    ends = since + SAVED_S
    while time.time() < ends:
        with contextlib.suppress(OSError):
            if os.stat(f"{folder}/job_state").st_mtime > since:
                return
        time.sleep(0.1)


def send_state(folder: str, since: float) -> int:
    """Writes the compressed tar to standard output. Returns the exit status."""
    if not os.path.isdir(folder):
        print(f"there is no {folder}", file=sys.stderr)
        return 1
    if os.path.exists(f"{folder}{RESTORING}"):
        print("a restore was started here and has not finished", file=sys.stderr)
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


def replace_state(folder: str) -> int:
    """Replaces the state folder by the tar on standard input. Returns the exit status."""
    temporary, before = f"{folder}.headway-new", f"{folder}{_BEFORE}"
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary, mode=0o700)
    with tarfile.open(mode="r|gz", fileobj=sys.stdin.buffer) as tar:
        # keep modes and owners; the members are checked here
        tar.extraction_filter = lambda member, _: member  # type: ignore[method-assign]
        for member in tar:
            if not (member.isdir() or member.isreg()) or ".." in member.name.split("/") or member.name.startswith("/"):
                print(f"{member.name} is nothing that slurmctld writes", file=sys.stderr)
                return 1
            tar.extract(member, temporary)  # sets owners by name, because uids may differ on this machine
    ahead = time.time() + AHEAD_S
    if os.path.exists(f"{temporary}/job_state"):
        os.utime(f"{temporary}/job_state", (ahead, ahead))
    if os.path.isdir(folder) and os.path.exists(before):
        shutil.rmtree(folder)  # from an earlier try
    elif os.path.isdir(folder):
        os.rename(folder, before)
    os.rename(temporary, folder)
    return 0


def begin_restore(*places: str) -> int:
    """Marks the places as being restored. Refuses while slurmctld or slurmdbd runs. Returns the exit status."""
    units = ("slurmctld.service", "slurmdbd.service")
    argv = ["systemctl", "show", "--property=ActiveState", "--value", *units]
    states = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    for unit, state in zip(units, states, strict=True):
        if state not in _RESTS:
            print(f"{unit} is {state}: stop it before a restore", file=sys.stderr)
            return 1
    for place in places:
        if not os.path.exists(f"{place}{RESTORING}"):
            shutil.rmtree(f"{place}{_BEFORE}", ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{place}{_DUMP_BEFORE}")
            os.makedirs(os.path.dirname(place), exist_ok=True)
            write_file(f"{place}{RESTORING}", "headway restore\n")
    return 0


def end_restore(stamp: str, ref: str, *places: str) -> int:
    """Records the finished restore and removes the marks. Returns the exit status."""
    write_file(stamp, f"{ref}\n")
    for place in places:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{place}{RESTORING}")
    return 0


def write_file(path: str, text: str) -> None:
    """Replaces the file with `text`, synced to disk."""
    with open(f"{path}.new", "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def keep_database(name: str, place: str) -> int:
    """Dumps the existing database to `place`, unless an earlier try has. If there is none, the dump is empty. Returns
    the exit status."""
    if os.path.exists(place):
        return 0
    # This query also succeeds if there is no such database, so a failure means that the server does not work.
    query = f"select table_name from information_schema.tables where table_schema = '{name}'"
    tables = subprocess.run(["mariadb", "-N", "-e", query], stdout=subprocess.PIPE, check=False)
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


def replace_database(place: str) -> int:
    """Replaces the database by the dump on standard input. Returns the exit status."""
    name = os.path.basename(place)
    if keep_database(name, f"{place}{_DUMP_BEFORE}"):
        print("the existing database can't be dumped, so it is not replaced", file=sys.stderr)
        return 1
    for sql in (f"drop database if exists {name}", f"create database {name}"):
        subprocess.run(["mariadb", "-e", sql], check=True, timeout=120)
    unpack = subprocess.Popen(["gzip", "-dc"], stdout=subprocess.PIPE)
    done = subprocess.run(["mariadb", name], stdin=unpack.stdout, check=False)
    return done.returncode or unpack.wait()


def main() -> int:
    what, where, *more = sys.argv[1:]
    if what == "state":
        return send_state(where, float(more[0]))
    if what == "begin":
        return begin_restore(where, *more)
    if what == "end":
        return end_restore(where, *more)
    return replace_state(where) if what == "take" else replace_database(where)


if __name__ == "__main__":
    sys.exit(main())

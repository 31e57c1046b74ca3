"""The steps that change a machine, each a function `op_NAME`. A step that is already done changes nothing."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from ops import packages, quotas, user_locks, user_processes
from ops.files import (
    BEFORE,
    BEGIN,
    END,
    MANAGED,
    STAMPS,
    StepFailed,
    block_of,
    gid_of,
    is_taken_by_other,
    lock_folder,
    make_parents,
    read_json,
    read_text,
    uid_of,
    without_block,
)

ENVIRONMENTS = "/environments"
# Of the cluster's jobs, on a head; see node/agent/jobs/secret_server.py
JOB_SECRETS_FILE = "/var/lib/headway/job-secrets.json"
SECRET_DELIVERIES_FILE = "/var/lib/headway/job-secret-deliveries.jsonl"
COPIES = "/var/lib/headway/environments"  # see node/agent/environments/local_copies.py


def op_file(step: dict[str, Any]) -> None:
    """Writes a file with the given owner, group and mode, or with "block" only Headway's lines in it."""
    path = step["path"]
    data = base64.b64decode(step["b64"])
    make_parents(path)
    owner = uid_of(step["owner"])
    group = gid_of(step["group"])
    temporary = f"{path}.headway-new"
    if step.get("block"):
        others = without_block(read_text(path))
        data = f"{BEGIN}\n{data.decode()}{END}\n{others}".encode(errors="surrogateescape")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chown(temporary, owner, group)
        os.chmod(temporary, step["mode"])
        os.replace(temporary, path)
    except OSError:  # free the space on a full disk, and leave no incomplete copy of a secret
        os.unlink(temporary)
        raise


def op_remove(step: dict[str, Any]) -> None:
    """Removes a file, or Headway's lines in it, and puts back the file that was there before Headway."""
    path = step["path"]
    text = read_text(path)
    if block_of(text):
        with open(path, "w", errors="surrogateescape") as file:
            file.write(without_block(text))
    elif os.path.isfile(BEFORE + path):
        run_command(["cp", "-a", BEFORE + path, path], 20)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def op_rename(step: dict[str, Any]) -> None:
    """Renames a file if it exists."""
    if os.path.exists(step["path"]):
        os.replace(step["path"], step["to"])


_LOOKED = ".headway-looked.json"  # names the paths that were checked


def op_keep(step: dict[str, Any]) -> None:
    """Copies other owners' files that are about to be replaced. Each path is checked once, before Headway first writes
    there: a file that is there later may be Headway's own."""
    listed = f"{BEFORE}/{_LOOKED}"
    # copies without a list are from an older version, which had checked the same paths
    older = os.path.isdir(BEFORE) and not os.path.exists(listed)
    known = {*step["paths"]} if older else {*read_json(listed, []), *read_json(MANAGED, [])}
    os.makedirs(BEFORE, mode=0o700, exist_ok=True)
    for path in step["paths"]:
        if path not in known and os.path.isfile(path) and not os.path.islink(path):
            os.makedirs(os.path.dirname(BEFORE + path), exist_ok=True)
            run_command(["cp", "-a", path, f"{BEFORE}{path}.headway-new"], 20)
            os.replace(f"{BEFORE}{path}.headway-new", BEFORE + path)
    with open(f"{listed}.new", "w") as file:
        json.dump(sorted(known | {*step["paths"]}), file)
    os.replace(f"{listed}.new", listed)


def op_name(step: dict[str, Any]) -> None:
    """Sets the hostname to the node's name, which slurmd, slurmctld and ssh between nodes use."""
    socket.sethostname(step["name"])
    data = base64.b64encode(f"{step['name']}\n".encode()).decode()
    op_file({"path": "/etc/hostname", "b64": data, "mode": 0o644, "owner": "root", "group": "root"})


def own_units(managed: list[str]) -> list[str]:
    """Returns Headway's own services and sockets among the written files. Stopping those of firewalls and of hidden
    processes sets back what they changed in the kernel. An instance of a template is named by a pattern."""
    found = [
        re.fullmatch(r"/etc/systemd/system/(headway-[a-z-]+@?\.(?:service|socket|timer))", path) for path in managed
    ]
    return [match[1].replace("@.", "@*.") for match in found if match]


def op_leave(step: dict[str, Any]) -> None:
    """Gives a machine back: stops Headway's daemons, removes its files, and puts back the files that were there before.
    Packages stay."""
    managed = read_json(MANAGED, [])
    units = [*step["units"], *own_units(managed)]
    mounts = [os.path.basename(path) for path in managed if path.endswith(".mount")]
    if any(path.startswith("/etc/exports.d/") for path in managed):
        units.append("nfs-server.service")
    if not os.path.exists(f"{BEFORE}/etc/munge/munge.key"):  # MUNGE was installed by Headway
        units.append("munge.service")
    # Units that do not exist only cause a message; the others stop. The folders to delete may be on a volume, so they
    # are deleted before it is unmounted.
    subprocess.run(["systemctl", "stop", *units], capture_output=True, timeout=180, check=False)
    for path in step.get("delete", []):
        shutil.rmtree(path, ignore_errors=True)
    for point in re.findall(
        rf"^\d+ \d+ \S+ \S+ ({ENVIRONMENTS}/\S+) ", read_text("/proc/self/mountinfo"), re.MULTILINE
    ):
        subprocess.run(["umount", "--", point], capture_output=True, timeout=60, check=False)
    if mounts:
        subprocess.run(["systemctl", "stop", *mounts], capture_output=True, timeout=180, check=False)
    for unit in (*units, *mounts):
        subprocess.run(["systemctl", "--no-reload", "disable", unit], capture_output=True, timeout=60, check=False)
    packages.remove_parts()
    left = []
    for path in managed:
        try:
            op_remove({"path": path})
        except (OSError, StepFailed) as error:
            left.append(f"{path}: {error}")
    if left:
        raise StepFailed(f"{len(left)} files can't be restored: {'; '.join(left)[:400]}")
    old = read_text(f"{BEFORE}/etc/hostname").strip()
    if old:
        socket.sethostname(old)
        run_command(["cp", "-a", f"{BEFORE}/etc/hostname", "/etc/hostname"], 20)
    # before the copies: with the list but without them, a second try would delete what was put back
    op_remove({"path": MANAGED})
    # Copies of this cluster's environments must not be mounted in the next cluster. One that is still mounted is read-only.
    for path in (BEFORE, STAMPS, COPIES):
        shutil.rmtree(path, ignore_errors=True)
    remove_job_secrets()
    op_remove({"path": "/etc/headway/held-by"})
    subprocess.run(["systemctl", "daemon-reload"], capture_output=True, timeout=60, check=False)
    subprocess.run(["systemctl", "try-restart", "munge.service"], capture_output=True, timeout=60, check=False)
    subprocess.run(["systemctl", "reload", "ssh.service"], capture_output=True, timeout=60, check=False)


def remove_job_secrets() -> None:
    """Removes the secrets of jobs and the record of their deliveries, also the copies that a kill left."""
    for path in (JOB_SECRETS_FILE, SECRET_DELIVERIES_FILE):
        for suffix in ("", ".new", ".lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path + suffix)


def op_packages(step: dict[str, Any]) -> None:
    """Installs packages."""
    packages.install_packages(step["names"], step["keep_off"])


def op_parts(step: dict[str, Any]) -> None:
    """Builds Headway's own programs on the machine."""
    packages.build_node_parts(base64.b64decode(step["b64"]), step["stamp"])


def op_managed(step: dict[str, Any]) -> None:
    """Records which files are Headway's, so that files that a later version does not need are found and removed. `paths`:
    all of them. `add`: more than are recorded."""
    make_parents(MANAGED)
    with lock_folder(os.path.dirname(MANAGED)):
        paths = step["paths"] if "paths" in step else sorted({*json.loads(read_text(MANAGED) or "[]"), *step["add"]})
        with open(MANAGED + ".new", "w") as file:
            json.dump(paths, file)
        os.replace(MANAGED + ".new", MANAGED)


def op_dir(step: dict[str, Any]) -> None:
    """Creates a folder with the given owner, group and mode. Something else with its name is renamed. Raises StepFailed
    if another user creates it at the same moment."""
    path, owner = step["path"], step.get("owner", "root")
    # looked up before the folder is created, because the owner of an existing folder is not checked again
    uid, gid = uid_of(owner), gid_of(step.get("group", "root"))
    make_parents(path)
    if is_taken_by_other(path, owner):  # it keeps its owner, under another name
        os.rename(path, f"{path}.not-of-{owner}-{time.time_ns()}")
    if not os.path.isdir(path):
        os.mkdir(path, 0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if is_taken_by_other(path, owner):
            raise StepFailed(f"{path} was just created by another program")
        os.fchown(folder, uid, gid)
        os.fchmod(folder, step.get("mode", 0o755))
    finally:
        os.close(folder)


def op_home(step: dict[str, Any]) -> None:
    """Creates a home from /etc/skel; an existing home is left as it is."""
    path, uid = step["path"], step["uid"]
    if os.path.isdir(path):
        return
    temporary = f"{path}.headway-new"
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree("/etc/skel", temporary, symlinks=True)
    for folder, names, files in os.walk(temporary):
        for name in [*names, *files]:
            os.lchown(os.path.join(folder, name), uid, uid)
    os.chown(temporary, uid, uid)
    os.chmod(temporary, 0o700)
    os.rename(temporary, path)


def op_seed(step: dict[str, Any]) -> None:
    """Fills an empty folder with a copy from the image; an interrupted copy is thrown away. `sources`: where images may
    have it."""
    target = step["target"]
    if os.path.isdir(target) and os.listdir(target):
        return
    source = next((path for path in step["sources"] if os.path.isdir(path)), step["sources"][0])
    temporary = f"{target}.headway-new"
    shutil.rmtree(temporary, ignore_errors=True)
    make_parents(target)
    run_command(["cp", "-a", source, temporary], 120)
    if os.path.isdir(target):
        os.rmdir(target)
    os.rename(temporary, target)


def op_own(step: dict[str, Any]) -> None:
    """Gives folders on a volume to their owner: another image may have another uid for the same user. The folder itself
    changes its owner last, so that an interrupted change is begun again."""
    uid, gid = uid_of(step["owner"]), gid_of(step["owner"])
    for path in step["paths"]:
        if not os.path.isdir(path) or os.stat(path).st_uid == uid:
            continue
        for folder, names, files in os.walk(path):
            for name in [*names, *files]:
                os.lchown(os.path.join(folder, name), uid, gid)
        os.chown(path, uid, gid)


def op_quotas(step: dict[str, Any]) -> None:
    """Limits the folder of each user on a volume. Raises StepFailed if its file system has no project quotas."""
    quotas.set_quotas(step["path"], step, step["limits"])


def op_daemon_reload(step: dict[str, Any]) -> None:  # noqa: ARG001
    """Makes systemd read its unit files again."""
    run_command(["systemctl", "daemon-reload"], 60)


def op_units(step: dict[str, Any]) -> None:
    """Runs `action` (start, restart, stop, reload) for `names` in one call, and records the files that each unit has read.
    Raises StepFailed with the end of the journal."""
    names, action = list(step["names"]), step["action"]
    if action == "stop":
        run_command(["systemctl", "disable", "--now", *names], step.get("timeout_s", 90))
        return
    argv = step.get("argv") or ["systemctl", action, *names]
    try:
        run_command(argv, step.get("timeout_s", 90))
    except StepFailed as error:
        raise StepFailed(f"{error}{journal(names)}") from None
    stamp(step.get("stamps", {}))


def stamp(digests: Mapping[str, str]) -> None:
    """Records the files that each unit has read. `digests`: unit -> digest of their content."""
    os.makedirs(STAMPS, exist_ok=True)
    for name, digest in digests.items():
        with open(f"{STAMPS}/{name}", "w") as file:
            file.write(digest)


def journal(names: list[str]) -> str:
    """Returns the last lines of the first unit that did not start. The unit may not be "failed", because systemd still
    tries again."""
    states = subprocess.run(["systemctl", "is-active", *names], capture_output=True, text=True, timeout=20, check=False)
    for name, state in zip(names, states.stdout.split(), strict=False):
        if state != "active":
            # The last output of a program that has just died may not be in the journal yet.
            subprocess.run(["journalctl", "--sync"], capture_output=True, timeout=20, check=False)
            # `-u` misses what systemd itself said of a program that was gone before journald asked for its unit.
            of_unit = [f"_SYSTEMD_UNIT={name}", "+", "_UID=0", f"UNIT={name}"]
            ran = subprocess.run(
                ["journalctl", *of_unit, "-n", "12", "--no-pager", "-o", "cat"],
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
            return f"\n{name}: {ran.stdout.strip()}"
    return ""


def op_run(step: dict[str, Any]) -> None:
    """Runs a command. Raises StepFailed if its exit code is not in `ok`."""
    run_command(step["argv"], step.get("timeout_s", 60), step.get("ok", (0,)))


def _succeeds(argv: list[str]) -> bool:
    try:
        run_command(argv, 20)
    except StepFailed:
        return False
    return True


def op_wait(step: dict[str, Any]) -> None:
    """Runs `argv` until it succeeds. While `busy` succeeds the time limit starts over, up to `most_s` in all. Raises
    StepFailed."""
    began = time.monotonic()
    ends = began + step.get("timeout_s", 60)
    while True:
        try:
            run_command(step["argv"], 20)
            return
        except StepFailed as error:
            now = time.monotonic()
            if step.get("busy") and now < began + step["most_s"] and _succeeds(step["busy"]):
                ends = now + step.get("timeout_s", 60)
            if now > ends:
                raise StepFailed(f"{step.get('message', 'gave up waiting')}: {error}") from None
        time.sleep(0.1)


CANDIDATE_S = 120.0  # for one check of new files; its programs end or are killed after 100 s


def op_candidate(step: dict[str, Any]) -> None:
    """Lets Slurm's own programs read the new files in a folder of their own, before any old file is replaced. Raises
    StepFailed."""
    folder = step["folder"]
    # In the first apply there is no old configuration.
    stays = "; the old one stays" if any(os.path.exists(file["path"]) for file in step["files"]) else ""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder, mode=0o755)
    for file in step["files"]:
        op_file({**file, "path": f"{folder}/{os.path.basename(file['path'])}"})
    for argv in step["checks"]:
        try:
            done = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                timeout=CANDIDATE_S,
                check=False,
                env={**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"},
            )
        except subprocess.TimeoutExpired:
            raise StepFailed(
                f"Slurm's programs did not read the new configuration within {CANDIDATE_S:.0f} s{stays}; "
                "apply it again when the machine is less busy"
            ) from None
        if done.returncode != 0:
            output = (done.stderr + done.stdout).strip()[-800:]
            raise StepFailed(f"Slurm refuses the new configuration{stays}: {output}")
    shutil.rmtree(folder, ignore_errors=True)


_ASIDE = ".headway-aside"  # suffix of a file to be removed, until the daemon is seen to work without it


def op_switch(step: dict[str, Any]) -> None:
    """Replaces files of a running daemon, makes it read them, and probes it. If the probe fails, the old files are put
    back and StepFailed is raised."""
    old = {}
    for file in step["files"]:
        with contextlib.suppress(OSError), open(file["path"], "rb") as handle:
            old[file["path"]] = handle.read()
    for file in step["files"]:
        op_file(file)
    gone = [path for path in step.get("remove", ()) if os.path.exists(path)]
    for path in gone:
        os.rename(path, f"{path}{_ASIDE}")
    of_units = any(
        path.startswith("/etc/systemd/system/") for path in (*(file["path"] for file in step["files"]), *gone)
    )
    try:
        if of_units:
            op_daemon_reload({})
        op_units({**step["take_up"], "stamps": {}})
        op_wait(step["probe"])
        if "then" in step:
            op_run(step["then"])
        stamp(step["take_up"].get("stamps", {}))  # last, so that an apply that is killed before this does it all again
    except StepFailed as error:
        for file in step["files"]:
            if file["path"] in old:
                op_file({**file, "b64": base64.b64encode(old[file["path"]]).decode()})
        for path in gone:
            os.rename(f"{path}{_ASIDE}", path)
        with contextlib.suppress(StepFailed):
            if of_units:
                op_daemon_reload({})
            op_units({**step["take_up"], "action": "restart", "argv": None, "stamps": {}})
        raise StepFailed(f"the new configuration did not work; the old one is restored: {error}") from None
    for path in gone:
        os.unlink(f"{path}{_ASIDE}")


_MOUNTS = "/proc/self/mounts"
# These options keep umount from accessing the file system, which would block while its server is away.
_UNMOUNT = ("umount", "--lazy", "--no-canonicalize", "--internal-only")


def op_unmount(step: dict[str, Any]) -> None:
    """Unmounts and disables a mount unit. Lazily, so that programs keep the files that they have open there."""
    where = run_command(["systemctl", "show", "-p", "Where", "--value", step["unit"]], 20).strip()
    if where in [line.split()[1] for line in read_text(_MOUNTS).splitlines()]:
        run_command([*_UNMOUNT, where], 30)
    run_command(["systemctl", "--no-reload", "disable", step["unit"]], 60, ok=(0, 1))


def op_end_jobs(step: dict[str, Any]) -> None:
    """Cancels every job and waits until Slurm has none left, `timeout_s` at most."""
    listing = ["squeue", "-h", "-a", "-r", "-o", "%A"]
    ends = time.monotonic() + step["timeout_s"]
    while jobs := run_command(listing, 30).split():
        run_command(["scancel", *sorted(set(jobs))[:2000]], 30, ok=(0, 1))
        if time.monotonic() > ends:
            return
        time.sleep(0.2)


def op_end_sessions(step: dict[str, Any]) -> None:
    """Ends the processes outside of jobs of users who have left."""
    for user in step["users"]:
        subprocess.run(["loginctl", "terminate-user", user], capture_output=True, timeout=30, check=False)
        with contextlib.suppress(KeyError):
            uid = pwd.getpwnam(user).pw_uid
            user_processes.end_processes(uid)


def op_lock_user(step: dict[str, Any]) -> None:
    """Refuses a user's sign-in and ends their processes outside of jobs."""
    user_locks.lock(step["user"])
    op_end_sessions({"users": [step["user"]]})


def op_add_user(step: dict[str, Any]) -> None:
    """Adds a user of the cluster, or allows their sign-in again."""
    user_locks.add_user(step["user"], step["uid"], step["home"])


def run_command(argv: list[str], timeout_s: float, ok: Any = (0,)) -> str:
    """Runs a command and returns its standard output. Raises StepFailed if it can't be started, takes too long, or ends
    with an exit code that is not in `ok`."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        raise StepFailed(f"{' '.join(argv)[:200]} did not end within {timeout_s} s") from None
    except OSError as error:
        raise StepFailed(f"{argv[0]}: {error.strerror}") from None
    if done.returncode not in ok:
        raise StepFailed(
            f"{' '.join(argv)[:200]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-800:]}"
        )
    return done.stdout

"""Containers of jobs on one node: `container step ...` is started by the first task of a step (node/image/spank),
`container import|list|remove` by an administrator on the head.

A user's own program: it runs as the user, in the step's cgroup, needs no rights and no daemon.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import json
import os
import pwd
import re
import subprocess
import sys

import image_store
import reference
import sandbox
import syscalls
from messages import Failed, say


def step(asked: argparse.Namespace) -> None:
    """Builds or finds the step's container and becomes the process that keeps it. Reports `ready HOLDER [OTHERS]`, pids;
    raises Failed."""
    environment = dict(os.environ)
    groups = ",".join(str(number) for number in (os.getgid(), *os.getgroups()))
    environment |= {"HEADWAY_UID": str(os.getuid()), "HEADWAY_GROUPS": groups}
    home = environment.setdefault("HOME", "/")
    with contextlib.suppress(KeyError):
        home = environment["HOME"] = pwd.getpwuid(os.getuid()).pw_dir
    mounts = reference.mounts(asked.mounts)
    name = f"name-{asked.name}" if asked.name else f"step-{asked.step}"
    made = sandbox.Sandbox(os.path.join(asked.folder, name), environment)
    made.make()
    lock = os.open(os.path.join(made.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.lockf(lock, fcntl.LOCK_EX)
    running = _running(made.folder) if asked.name else 0
    if running:
        _must_show(asked, made, mounts)
        os.write(asked.report, f"ready {running}\n".encode())
        return
    image = _image(asked, made, environment)
    if asked.name:
        shown = {"home": asked.home, "mounts": [dataclasses.astuple(mount) for mount in mounts]}
        _write(os.path.join(made.folder, "shown"), json.dumps(shown).encode())
    syscalls.own_namespaces()
    made.mount(image)
    words = made.arguments(mounts, home=home, show_home=asked.home, script=asked.script)
    _write(os.path.join(made.folder, "state"), made.state(driver=sandbox.DRIVER_PLACE in " ".join(words)))
    _hold(made, words, asked.report, lock, named=bool(asked.name))


def _image(asked: argparse.Namespace, made: sandbox.Sandbox, environment: dict[str, str]) -> str:
    """Path of the squashfs file; a named container keeps the one it began with."""
    if path := _kept_image(asked, made):
        if not os.path.exists(path):
            raise Failed(f"the image of container {asked.name} is gone: {path}", "use another name")
        return path
    if not asked.image:
        raise Failed(
            f"there is no container {asked.name} in this job on {os.uname().nodename}",
            "give --container-image too, the first time",
        )
    step_name = f"{environment.get('SLURM_JOB_ID')}.{asked.step}.{environment.get('SLURM_RESTART_COUNT', '0')}"
    user = pwd.getpwuid(os.getuid()).pw_name
    kept = image_store.ImageStore(asked.cache.replace("%u", user), asked.shared, environment, step=step_name)
    path = kept.squashfs(reference.parse(asked.image))
    if environment.get("SLURM_NODEID", "0") == "0":
        kept.note(environment.get("SLURM_JOB_ID", ""), asked.image, path)
    if asked.name:
        _write(os.path.join(made.folder, "image"), f"{path}\n{reference.parse(asked.image)}".encode())
    return path


def _kept_image(asked: argparse.Namespace, made: sandbox.Sandbox) -> str:
    """Path of the image that a named container began with, "" where it has none yet. Raises Failed when another is asked for."""
    note = os.path.join(made.folder, "image")
    if not asked.name or not os.path.exists(note):
        return ""
    with open(note, encoding="utf-8") as file:
        path, _, name = file.read().partition("\n")
    if asked.image and name and str(reference.parse(asked.image)) != name:
        raise Failed(f"container {asked.name} was made of {name}, not of {asked.image}", "use another --container-name")
    return path


def _must_show(asked: argparse.Namespace, made: sandbox.Sandbox, mounts: list[reference.Mount]) -> None:
    """Raises Failed for what a container that runs does not show: its steps share its mounts, which stay as they began."""
    _kept_image(asked, made)
    try:
        with open(os.path.join(made.folder, "shown"), encoding="utf-8") as file:
            shown = json.load(file)
    except FileNotFoundError:  # it began before that was noted
        return
    missing = [
        f"{mount.source}:{mount.target}" for mount in mounts if list(dataclasses.astuple(mount)) not in shown["mounts"]
    ]
    missing += ["your home"] if asked.home and not shown["home"] else []
    if missing:
        raise Failed(
            f"container {asked.name} runs already, without {', '.join(missing)}",
            "ask for it at the step that starts the container, or use another --container-name",
        )


def _hold(made: sandbox.Sandbox, words: list[str], report: int, lock: int, *, named: bool) -> None:
    """Starts what keeps the namespaces, and passes its word on; then stays, as squashfuse lives as long as this does."""
    own, theirs = os.pipe()
    hold = os.open(sandbox.HOLD, os.O_RDONLY)
    for handle in (theirs, hold):
        os.set_inheritable(handle, True)
    log = os.path.join(made.folder, "bwrap.log")
    uid, gid = made.environment["HEADWAY_UID"], made.environment["HEADWAY_GROUPS"].split(",")[0]
    argv = [
        "bwrap",
        "--die-with-parent",
        "--unshare-user",
        "--uid",
        uid,
        "--gid",
        gid,
        *words,
        "--",
        f"/proc/self/fd/{hold}",
        str(theirs),
    ]
    child = os.fork()
    if child == 0:
        said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.execv("/usr/bin/bwrap", argv)
    os.close(theirs)
    with os.fdopen(own, "rb") as file:
        line = file.readline()
    if not line.startswith(b"ready "):
        with open(log, encoding="utf-8", errors="replace") as said_there:
            text = said_there.read().strip().splitlines()
        raise Failed(
            f"the container can't be put together: {text[-1] if text else 'bwrap ended'}", "look at its mounts"
        )
    if named:
        pid = int(line.split()[1])
        _write(os.path.join(made.folder, "holder"), json.dumps([pid, _started(pid)]).encode())
    os.write(report, b"%s %d %d\n" % (line.strip(), made.server, child))
    os.close(report)
    os.close(lock)  # from now on other steps enter this container
    null = os.open("/dev/null", os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(null, handle)
    os.waitpid(child, 0)


def _running(folder: str) -> int:
    """pid of the process that holds this container now, 0 where none does."""
    try:
        with open(os.path.join(folder, "holder"), encoding="utf-8") as file:
            pid, started = json.load(file)
    except (OSError, ValueError):
        return 0
    return int(pid) if started and _started(pid) == started else 0


def _started(pid: int) -> str:
    """When a process started, in ticks since boot; "" when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _write(path: str, data: bytes) -> None:
    """Writes a temporary file and renames it, so that no reader sees half of it."""
    temporary = f"{path}.new-{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


# ---- for administrators, on the head

PLUGSTACK = "/etc/slurm/plugstack.conf"


def _shared() -> str:
    """Where images for everybody lie: the plugin's own setting."""
    with open(PLUGSTACK, encoding="utf-8") as file:
        found = re.search(r"^required \S+/container\.so .*\bshared=(\S+)", file.read(), re.MULTILINE)
    if found is None:
        raise Failed("containers are not set up here", f"{PLUGSTACK} names no plugin of Headway's")
    return found[1]


def import_(asked: argparse.Namespace) -> None:
    kept = image_store.ImageStore(asked.shared or _shared(), "", dict(os.environ), own=False)
    path = kept.squashfs(reference.parse(asked.image))
    print(json.dumps({"image": asked.image, "path": path, "bytes": os.path.getsize(path)}))


def list_(asked: argparse.Namespace) -> None:
    rows, shared = [], asked.shared or _shared()
    if os.path.isdir(shared):
        for entry in sorted(os.scandir(shared), key=lambda entry: entry.name):
            if entry.name.endswith(".sqsh") and not entry.name.startswith("."):
                info = entry.stat()
                digest = entry.name.removesuffix(".sqsh").replace("-", ":", 1)
                rows.append({"digest": digest, "bytes": info.st_size, "imported": int(info.st_mtime)})
    print(json.dumps(rows))


def remove(asked: argparse.Namespace) -> None:
    """Steps that run from the image keep it until they end: theirs is an open file."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", asked.image):
        raise Failed(f"{asked.image} is not a digest", "`headway container ls` shows them")
    try:
        os.unlink(os.path.join(asked.shared or _shared(), f"{asked.image.replace(':', '-')}.sqsh"))
    except FileNotFoundError:
        raise Failed(f"there is no shared image {asked.image}", "`headway container ls` shows them") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="container", description=__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("step")
    for option in ("--folder", "--step", "--cache"):
        one.add_argument(option, required=True)
    for option in ("--shared", "--image", "--mounts", "--name", "--script"):
        one.add_argument(option, default="")
    one.add_argument("--home", action="store_true")
    one.add_argument("--report", type=int, required=True)
    one.set_defaults(work=step)
    for name, work in (("import", import_), ("list", list_), ("remove", remove)):
        command = commands.add_parser(name)
        command.add_argument("--shared", default="")
        if name != "list":
            command.add_argument("image")
        command.set_defaults(work=work)
    return parser


def main() -> int:
    asked = _parser().parse_args()
    os.umask(0o022)
    try:
        asked.work(asked)
    except Failed as error:
        say(str(error))
        return 1
    except (OSError, subprocess.SubprocessError) as error:
        say(f"the container can't be started: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Containers of jobs on one node. The first task of a step starts `container step ...` (node/image/spank); Slurm starts
`container oci ...` for bundles (oci.conf); an administrator runs `container import|list|remove` on the head.

`container step` runs as the job's user in the step's cgroup. It needs no privileges and no daemon.
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

import image_reference
import image_store
import mounts_option
import oci_bundles
import sandbox
import syscalls
from messages import Failed, print_message


def step(arguments: argparse.Namespace) -> None:
    """Creates the step's container and stays as the process that holds it, or finds the running container of that name.
    Writes `ready HOLDER [OTHERS]` (pids) to the descriptor `--report`. Raises Failed."""
    environment = dict(os.environ)
    groups = ",".join(str(number) for number in (os.getgid(), *os.getgroups()))
    environment |= {"HEADWAY_UID": str(os.getuid()), "HEADWAY_GROUPS": groups}
    home = environment.setdefault("HOME", "/")
    with contextlib.suppress(KeyError):
        home = environment["HOME"] = pwd.getpwuid(os.getuid()).pw_dir
    mounts = mounts_option.parse_mounts(arguments.mounts)
    name = f"name-{arguments.name}" if arguments.name else f"step-{arguments.step}"
    made = sandbox.Sandbox(os.path.join(arguments.folder, name), environment)
    made.make()
    lock = os.open(os.path.join(made.folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.lockf(lock, fcntl.LOCK_EX)
    running = _running(made.folder) if arguments.name else 0
    if running:
        _must_show(arguments, made, mounts)
        os.write(arguments.report, f"ready {running}\n".encode())
        return
    image = _image(arguments, made, environment)
    if arguments.name:
        shown = {"mounts": [dataclasses.astuple(mount) for mount in mounts]}
        shown |= {name: getattr(arguments, name) for name in ("home", "readonly", "root")}
        _write(os.path.join(made.folder, "shown"), json.dumps(shown).encode())
    syscalls.own_namespaces()
    made.mount(image)
    words = made.arguments(mounts, home=home, show_home=arguments.home, script=arguments.script)
    if arguments.readonly:
        words += ["--remount-ro", "/"]  # not what is mounted below it
    _write(os.path.join(made.folder, "state"), made.state(driver=sandbox.DRIVER_PLACE in " ".join(words)))
    _hold(made, words, arguments, lock)


def _image(arguments: argparse.Namespace, made: sandbox.Sandbox, environment: dict[str, str]) -> str:
    """Returns the path of the squashfs file. A named container keeps its first image. Raises Failed."""
    if path := _kept_image(arguments, made):
        if not os.path.exists(path):
            raise Failed(f"the image of container {arguments.name} was removed: {path}", "use another --container-name")
        return path
    if not arguments.image:
        raise Failed(
            f"this job has no container {arguments.name} on {os.uname().nodename}",
            "give --container-image at its first step",
        )
    step_name = f"{environment.get('SLURM_JOB_ID')}.{arguments.step}.{environment.get('SLURM_RESTART_COUNT', '0')}"
    user = pwd.getpwuid(os.getuid()).pw_name
    kept = image_store.ImageStore(arguments.cache.replace("%u", user), arguments.shared, environment, step=step_name)
    path = kept.squashfs(image_reference.parse(arguments.image))
    if environment.get("SLURM_NODEID", "0") == "0":
        kept.note(environment.get("SLURM_JOB_ID", ""), arguments.image, path)
    if arguments.name:
        _write(os.path.join(made.folder, "image"), f"{path}\n{image_reference.parse(arguments.image)}".encode())
    return path


def _kept_image(arguments: argparse.Namespace, made: sandbox.Sandbox) -> str:
    """Returns the path of a named container's first image, "" if it has none yet. Raises Failed if the step requests
    another image."""
    note = os.path.join(made.folder, "image")
    if not arguments.name or not os.path.exists(note):
        return ""
    with open(note, encoding="utf-8") as file:
        path, _, name = file.read().partition("\n")
    if arguments.image and name and str(image_reference.parse(arguments.image)) != name:
        raise Failed(
            f"container {arguments.name} was made of {name}, not of {arguments.image}", "use another --container-name"
        )
    return path


def _must_show(arguments: argparse.Namespace, made: sandbox.Sandbox, mounts: list[mounts_option.Mount]) -> None:
    """Raises Failed if the running container lacks mounts that this step requests: the mounts of a running container
    can't change."""
    _kept_image(arguments, made)
    try:
        with open(os.path.join(made.folder, "shown"), encoding="utf-8") as file:
            shown = json.load(file)
    except FileNotFoundError:  # an earlier version of this program started it and wrote no such file
        return
    missing = [
        f"{mount.source}:{mount.target}" for mount in mounts if list(dataclasses.astuple(mount)) not in shown["mounts"]
    ]
    missing += ["your home"] if arguments.home and not shown["home"] else []
    missing += [
        f"--container-{flag}"
        for name, flag in (("readonly", "readonly"), ("root", "remap-root"))
        if getattr(arguments, name) and not shown.get(name)
    ]
    if missing:
        raise Failed(
            f"container {arguments.name} runs already, without {', '.join(missing)}",
            "request them at the first step of the container, or use another --container-name",
        )


def _hold(made: sandbox.Sandbox, words: list[str], arguments: argparse.Namespace, lock: int) -> None:
    """Starts the process that holds the namespaces and reports its pid. Then waits for its end, because squashfuse ends
    with this process."""
    own, theirs = os.pipe()
    hold = os.open(sandbox.HOLD, os.O_RDONLY)
    for handle in (theirs, hold):
        os.set_inheritable(handle, True)
    log = os.path.join(made.folder, "bwrap.log")
    uid, gid = made.environment["HEADWAY_UID"], made.environment["HEADWAY_GROUPS"].split(",")[0]
    if arguments.root:
        uid = gid = "0"
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
        log_fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        os.execv("/usr/bin/bwrap", argv)
    os.close(theirs)
    with os.fdopen(own, "rb") as file:
        line = file.readline()
    if not line.startswith(b"ready "):
        with open(log, encoding="utf-8", errors="replace") as said_there:
            text = said_there.read().strip().splitlines()
        raise Failed(
            f"the container can't be assembled: {text[-1] if text else 'bwrap ended'}", "check --container-mounts"
        )
    if arguments.name:
        pid = int(line.split()[1])
        _write(os.path.join(made.folder, "holder"), json.dumps([pid, _started(pid)]).encode())
    os.write(arguments.report, b"%s %d %d\n" % (line.strip(), made.server, child))
    os.close(arguments.report)
    os.close(lock)  # from now on other steps enter this container
    null = os.open("/dev/null", os.O_RDWR)
    for handle in (0, 1, 2):
        os.dup2(null, handle)
    os.waitpid(child, 0)


def _running(folder: str) -> int:
    """Returns the pid of the process that holds this container, 0 if the container does not run."""
    try:
        with open(os.path.join(folder, "holder"), encoding="utf-8") as file:
            pid, started = json.load(file)
    except (OSError, ValueError):
        return 0
    return int(pid) if started and _started(pid) == started else 0


def _started(pid: int) -> str:
    """Returns the start time of a process in clock ticks since boot, "" if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _write(path: str, data: bytes) -> None:
    """Writes a temporary file and renames it, so that no reader sees an incomplete file."""
    temporary = f"{path}.new-{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


# ---- commands of administrators, on the head

PLUGSTACK = "/etc/slurm/plugstack.conf"


def _shared() -> str:
    """Returns the folder of images for all users, from the plugin's line in plugstack.conf. Raises Failed."""
    with open(PLUGSTACK, encoding="utf-8") as file:
        found = re.search(r"^required \S+/container\.so .*\bshared=(\S+)", file.read(), re.MULTILINE)
    if found is None:
        raise Failed("containers are not set up on this machine", f"{PLUGSTACK} does not load Headway's plugin")
    return found[1]


def import_(arguments: argparse.Namespace) -> None:
    """Imports an image for all users and prints it as JSON. Raises Failed."""
    kept = image_store.ImageStore(arguments.shared or _shared(), "", dict(os.environ), own=False)
    path = kept.squashfs(image_reference.parse(arguments.image))
    print(json.dumps({"image": arguments.image, "path": path, "bytes": os.path.getsize(path)}))


def list_(arguments: argparse.Namespace) -> None:
    """Prints the images for all users as a JSON list."""
    rows, shared = [], arguments.shared or _shared()
    if os.path.isdir(shared):
        for entry in sorted(os.scandir(shared), key=lambda entry: entry.name):
            if entry.name.endswith(".sqsh") and not entry.name.startswith("."):
                info = entry.stat()
                digest = entry.name.removesuffix(".sqsh").replace("-", ":", 1)
                rows.append({"digest": digest, "bytes": info.st_size, "imported": int(info.st_mtime)})
    print(json.dumps(rows))


def remove(arguments: argparse.Namespace) -> None:
    """Removes an image for all users. Running steps keep it until they end, because they hold the file open."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", arguments.image):
        raise Failed(f"{arguments.image} is not a digest", "`headway container ls` shows the digests")
    try:
        os.unlink(os.path.join(arguments.shared or _shared(), f"{arguments.image.replace(':', '-')}.sqsh"))
    except FileNotFoundError:
        raise Failed(
            f"there is no shared image {arguments.image}", "`headway container ls` shows the digests"
        ) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="container", description=__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("step")
    for option in ("--folder", "--step", "--cache"):
        one.add_argument(option, required=True)
    for option in ("--shared", "--image", "--mounts", "--name", "--script"):
        one.add_argument(option, default="")
    for flag in ("--home", "--readonly", "--root"):
        one.add_argument(flag, action="store_true")
    one.add_argument("--report", type=int, required=True)
    one.set_defaults(work=step)
    bundle = commands.add_parser("oci")
    bundle.add_argument("bundle")
    bundle.add_argument("container")
    bundle.set_defaults(work=lambda arguments: oci_bundles.run(arguments.bundle, arguments.container))
    query = commands.add_parser("oci-query")
    query.add_argument("container")
    query.set_defaults(work=lambda arguments: oci_bundles.query(arguments.container))
    for name, work in (("import", import_), ("list", list_), ("remove", remove)):
        command = commands.add_parser(name)
        command.add_argument("--shared", default="")
        if name != "list":
            command.add_argument("image")
        command.set_defaults(work=work)
    return parser


def main() -> int:
    arguments = _parser().parse_args()
    os.umask(0o022)
    try:
        arguments.work(arguments)
    except Failed as error:
        print_message(str(error))
        return 1
    except (OSError, subprocess.SubprocessError) as error:
        print_message(f"the container can't be started: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

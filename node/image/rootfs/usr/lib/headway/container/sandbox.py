"""The container of a step: the image's files under a writable layer, the node's devices, and the user's mounts.

All of it is in a user namespace of the user: squashfuse mounts the image, overlayfs adds the writable layer, bubblewrap
adds the other mounts and starts one process (`hold`), whose namespaces all tasks of the step on this node enter.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import re
import stat
import subprocess
import time
from typing import Any

import syscalls
from image_store import CONFIG
from messages import Failed
from mounts_option import Mount

HOLD = "/usr/lib/headway/spank/hold"
SIMULATED_SMI = "/usr/lib/headway/spank/nvidia-smi"
SIMULATED = "/etc/headway/gpus.json"
SIMULATED_MIG = "/run/headway/simulated-mig.json"
MPS = "/run/headway/mps/"  # sockets of MPS control daemons
REPORT, PMIX = "/run/headway/report", "/run/headway/pmix"
SECRETS = "/run/headway/secrets"
MOUNTED_S = 60.0
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DRIVER_LIBRARIES = re.compile(r"lib(cuda|cudadebugger|nvidia-[a-z0-9_-]+|nvcuvid|nvoptix)\.so\.\S+")
DRIVER_PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
DRIVER_PLACE = "/run/headway/nvidia"
# Variables that keep the job's value even if the image sets them.
KEPT = re.compile(
    r"(SLURM|PMIX?|OMPI|HEADWAY|MASTER|CUDA_MPS)_.*|CUDA_VISIBLE_DEVICES|HOME|USER|LOGNAME|SHELL|TERM|TMPDIR|HOSTNAME|PWD"
)


class Sandbox:
    """A container's folder on this node: `lower` (the image), `upper` (the writable layer), `root` (both)."""

    def __init__(self, folder: str, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.server = 0  # squashfuse's pid
        self.lower, self.upper, self.work, self.root = (
            os.path.join(folder, name) for name in ("lower", "upper", "work", "root")
        )

    def make(self) -> None:
        """Creates the folders. A named container keeps the writable layer of its earlier steps."""
        for path in (self.folder, self.lower, self.upper, self.work, self.root):
            os.makedirs(path, mode=0o700, exist_ok=True)
        os.chmod(self.upper, 0o755)

    def mount(self, image: str) -> None:
        """Mounts the image and the writable layer on `root`. Call it in own namespaces. Raises Failed."""
        log = os.path.join(self.folder, "squashfuse.log")
        with open(log, "wb") as output:
            argv = ["/usr/bin/squashfuse", "-f", "-o", "uid=0,gid=0", image, self.lower]
            server = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=syscalls.die_with_parent,
                cwd="/",
            )
        self.server = server.pid
        outside, ends = os.stat(self.folder).st_dev, time.monotonic() + MOUNTED_S
        while os.stat(self.lower).st_dev == outside:
            if server.poll() is not None or time.monotonic() > ends:
                with open(log, encoding="utf-8", errors="replace") as file:
                    text = file.read().strip().splitlines()
                raise Failed(f"{image} can't be opened: {text[-1] if text else 'squashfuse does not answer'}", _WHOLE)
            time.sleep(0.002)
        layers = f"lowerdir={self.lower},upperdir={self.upper},workdir={self.work},userxattr"
        try:
            syscalls.mount("overlay", self.root, layers)
        except OSError as error:
            raise Failed(f"no writable layer over the image: {error.strerror}", "ask your administrator") from None

    # ---- mounts from the node

    def inside(self, path: str) -> str:
        """Returns a path of the container without symbolic links. Links are resolved within `root`, because the image's
        author chose them. Raises Failed for a loop."""
        parts, done, links = [part for part in path.split("/") if part], "", 0
        while parts:
            part = parts.pop(0)
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            if part == ".":
                continue
            here = f"{done}/{part}"
            try:
                target = os.readlink(self.root + here)
            except OSError:
                done = here
                continue
            links += 1
            if links > 40:
                raise Failed(f"{path} in the image is a loop of symbolic links", "use another image")
            parts = [word for word in target.split("/") if word] + parts
            if target.startswith("/"):
                done = ""
        return done or "/"

    def arguments(self, mounts: list[Mount], *, home: str, show_home: bool, script: str) -> list[str]:
        """Returns bubblewrap's options. Raises Failed for a mount whose source can't be read."""
        words = ["--bind", self.root, "/", "--dev-bind", "/dev", "/dev"]
        for path in ("/proc", "/sys", "/tmp"):
            words += ["--bind", path, path]
        for path in ("/etc/hosts", "/etc/resolv.conf"):
            words += self._file(path, path)
        words += self._people()
        if os.path.isdir(REPORT):  # the socket for progress reports
            words += ["--ro-bind", REPORT, REPORT]
        server = self.environment.get("PMIX_SERVER_TMPDIR", "").rstrip("/")
        for path in (server, PMIX) if server else ():  # MPI programs connect to their step's PMIx server there
            if os.path.isdir(path):
                words += ["--bind", path, self.inside(path)]
        mps = self.environment.get("CUDA_MPS_PIPE_DIRECTORY", "")
        if mps.startswith(MPS) and os.path.isdir(mps):
            words += ["--ro-bind", mps, mps]
        if self.environment.get("HEADWAY_SECRETS_DIR") == SECRETS and os.path.isdir(SECRETS):
            words += ["--ro-bind", SECRETS, SECRETS]
        words += self.gpus()
        if show_home and os.path.isdir(home):
            words += ["--bind", home, self.inside(home)]
        elif home.startswith("/"):
            words += ["--dir", self.inside(home)]
        if script:
            words += ["--ro-bind", script, self.inside(script)]
        for mount in mounts:
            words += self._mount(mount)
        return words

    def _file(self, source: str, target: str) -> list[str]:
        if not os.path.isfile(source):
            return []
        place = self.inside(target)
        return ["--ro-bind", source, place]

    def _mount(self, mount: Mount) -> list[str]:
        target = self.inside(mount.target)
        if mount.source == "tmpfs":
            return ["--tmpfs", target]
        try:
            mode = os.stat(mount.source).st_mode
        except OSError as error:
            raise Failed(
                f"--container-mounts: {mount.source} can't be mounted on {os.uname().nodename}: {error.strerror}",
                "name a file or folder that you can read on every node of the job, such as one below /scratch",
            ) from None
        device = stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
        if not device and not os.access(mount.source, os.R_OK):
            raise Failed(
                f"--container-mounts: you may not read {mount.source} on {os.uname().nodename}",
                "ask its owner, or remove the mount",
            )
        kind = "--dev-bind" if device else "--ro-bind" if mount.read_only else "--bind"
        return [kind, mount.source, target]

    def _people(self) -> list[str]:
        """Adds the user and their groups to the image's passwd and group. Returns bubblewrap's options."""
        user = pwd.getpwuid(int(self.environment["HEADWAY_UID"]))
        shell = next(
            (path for path in ("/bin/bash", "/bin/sh") if os.path.exists(self.root + self.inside(path))), "/bin/sh"
        )
        own = f"{user.pw_name}:x:{user.pw_uid}:{user.pw_gid}:{user.pw_gecos}:{user.pw_dir}:{shell}"
        words = self._rows("passwd", [own], {user.pw_name}, {str(user.pw_uid)})
        groups = []
        for number in sorted({user.pw_gid, *map(int, self.environment["HEADWAY_GROUPS"].split(","))}):
            with contextlib.suppress(KeyError):
                group = grp.getgrgid(number)
                groups.append(f"{group.gr_name}:x:{group.gr_gid}:{user.pw_name}")
        names = {row.split(":")[0] for row in groups}
        return words + self._rows("group", groups, names, {row.split(":")[2] for row in groups})

    def _rows(self, name: str, rows: list[str], names: set[str], numbers: set[str]) -> list[str]:
        """Writes the image's rows and `rows` to a file; `rows` replace rows with the same name or number. Returns
        bubblewrap's options."""
        place, kept = self.inside(f"/etc/{name}"), []
        with contextlib.suppress(OSError, UnicodeDecodeError), open(self.root + place, encoding="utf-8") as file:
            for line in file.read(1 << 20).splitlines():
                parts = line.split(":")
                if len(parts) > 2 and parts[0] not in names and parts[2] not in numbers:
                    kept.append(line)
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join([*kept, *rows]) + "\n")
        os.chmod(path, 0o644)
        return ["--ro-bind", path, place]

    def gpus(self) -> list[str]:
        """Returns bubblewrap's options that mount nvidia-smi and the driver's libraries, for steps with GPUs: triples of
        kind, source, target. The devices are in /dev; Slurm's device cgroup denies those of other jobs."""
        if not any(
            self.environment.get(name) for name in ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
        ):
            return []
        if os.path.exists(SIMULATED):
            words = ["--ro-bind", "/usr", "/run/headway/sim", *self._file(SIMULATED, SIMULATED)]
            words += self._file(SIMULATED_MIG, SIMULATED_MIG)
            return [*words, *self._file(SIMULATED_SMI, "/usr/bin/nvidia-smi")]
        words = []
        for path in _driver_libraries():
            words += ["--ro-bind", os.path.realpath(path), f"{DRIVER_PLACE}/{os.path.basename(path)}"]
        for name in DRIVER_PROGRAMS:
            words += self._file(f"/usr/bin/{name}", f"/usr/bin/{name}")
        return words

    # ---- environment of the tasks

    def state(self, *, driver: bool) -> bytes:
        """Returns the tasks' working folder and then NAME=VALUE of each variable, each ended by a NUL."""
        config = self._config()
        values: dict[str, str] = {"PATH": DEFAULT_PATH}
        entries = config.get("Env")
        for entry in entries if isinstance(entries, list) else ():
            name, _, value = str(entry).partition("=")
            if name and not KEPT.fullmatch(name):
                values[name] = value
        if driver and not os.path.exists(SIMULATED):
            # The image's value comes before the user's, as for all variables.
            others = values.get("LD_LIBRARY_PATH") or self.environment.get("LD_LIBRARY_PATH")
            values["LD_LIBRARY_PATH"] = ":".join(filter(None, (DRIVER_PLACE, others)))
        rows = [str(config.get("WorkingDir") or "/"), *(f"{name}={value}" for name, value in values.items())]
        return b"".join(os.fsencode(row.replace("\0", "")) + b"\0" for row in rows)

    def _config(self) -> dict[str, Any]:
        """Returns the image's configuration: as Headway's import stored it, otherwise as Enroot stores it in an image."""
        with (
            contextlib.suppress(OSError, ValueError, TypeError),
            open(self.root + self.inside(f"/{CONFIG}"), encoding="utf-8") as file,
        ):
            return dict(json.load(file))
        with contextlib.suppress(OSError, UnicodeDecodeError):
            with open(self.root + self.inside("/etc/environment"), encoding="utf-8") as file:
                rows = [line.strip() for line in file if "=" in line and not line.startswith("#")]
            return {"Env": [row.replace('"', "") for row in rows]}
        return {}


_WHOLE = "check that the file is complete and made by mksquashfs"


def _driver_libraries() -> list[str]:
    done = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, timeout=20, check=False)
    paths = [line.rpartition("=> ")[2].strip() for line in done.stdout.splitlines() if "=> " in line]
    return [path for path in paths if DRIVER_LIBRARIES.fullmatch(os.path.basename(path)) and "/i386" not in path]

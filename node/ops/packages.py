"""Installs software on a machine that the user owns: packages from its own sources, and Headway's own programs built there."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import shutil
import subprocess
import tarfile
import time
from typing import Any

from ops.files import StepFailed, read_text

OWN = "/usr/lib/headway"
STAMP = f"{OWN}/parts-stamp"
_PROGRAMS = "/usr/local/bin"  # links to OWN
_NAMES = "/etc/nsswitch.conf"
_POLICY = "/usr/sbin/policy-rc.d"
_POLICY_TEXT = "#!/bin/sh\n# Headway: nothing starts while its packages are installed.\nexit 101\n"
# What node/programs/owned_machines/gpu_driver.sh writes besides packages.
DRIVER_HOLDS = "/etc/headway/gpu-driver-packages"
DRIVER_SOURCE = (
    "/etc/apt/sources.list.d/headway-gpu.sources",
    "/etc/apt/keyrings/headway-gpu.asc",
    "/etc/apt/preferences.d/headway-gpu",
    DRIVER_HOLDS,
)
_LOCK = "/var/lib/dpkg/lock-frontend"
_LOCK_S = 900  # unattended upgrades may hold apt's lock for long


def missing_packages(names: Any) -> list[str]:
    """Returns the packages of `names` that are not installed."""
    if not names:
        return []
    query = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package} ${Provides}\\n"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return list(names)
    there: set[str] = set()
    for line in done.stdout.splitlines():
        status, _, rest = line.partition(" ")
        if status.startswith("ii"):
            there.update(word.strip(",") for word in rest.split())
    return [name for name in names if name not in there]


def install_packages(names: list[str], keep_off: list[str]) -> None:
    """Installs the packages that are missing. `keep_off`: units that must not start by themselves, now or at boot,
    unless they were installed before. Raises StepFailed."""
    _remove_policy()
    missing_names = missing_packages(names)
    if not missing_names:
        return
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "NEEDRESTART_MODE": "l"}
    apt = ["apt-get", "--quiet", "-o", f"DPkg::Lock::Timeout={_LOCK_S}", "-o", "Dpkg::Use-Pty=0"]
    old = ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]
    new = [unit for unit in keep_off if not os.path.exists(f"/usr/lib/systemd/system/{unit}")]
    there = os.path.exists(_POLICY)
    if not there:
        with open(_POLICY, "w") as file:
            file.write(_POLICY_TEXT)
        os.chmod(_POLICY, 0o755)
    _wait_for_dpkg()
    try:
        # An earlier try may have been killed while dpkg was configuring packages; finish that first.
        _run(["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"], env, 900)
        _run([*apt, "update"], env, 300)
        _run([*apt, *old, "install", "--yes", "--no-install-recommends", *missing_names], env, 3000)
    finally:
        _remove_policy()
    for unit in new:
        subprocess.run(["systemctl", "disable", "--quiet", unit], capture_output=True, timeout=60, check=False)


def _remove_policy() -> None:
    """Removes Headway's policy-rc.d, also one that a killed try has left. A policy-rc.d of someone else stays."""
    if read_text(_POLICY) == _POLICY_TEXT:
        os.unlink(_POLICY)


def _wait_for_dpkg() -> None:
    """Waits until no other program holds dpkg's lock: an apply that was killed may have left an apt-get running. Raises
    StepFailed."""
    ends = time.monotonic() + _LOCK_S
    with open(_LOCK, "w") as lock:
        while True:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() > ends:
                    raise StepFailed(
                        f"another program has held {_LOCK} for {_LOCK_S} s: check for a stuck upgrade"
                    ) from None
            time.sleep(1)


def build_node_parts(archive: bytes, stamp: str) -> None:
    """Unpacks node/image's parts and builds them, with plugins compiled against the headers of the installed Slurm.
    Raises StepFailed."""
    work = f"{OWN}/parts"
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work, mode=0o755)
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(work)
    _run(["sh", f"{work}/build_parts.sh", "/"], {**os.environ, "LC_ALL": "C.UTF-8"}, 300)
    with open(STAMP + ".new", "w") as file:
        file.write(stamp + "\n")
    os.replace(STAMP + ".new", STAMP)


def remove_parts() -> None:
    """Removes the parts and the references to them."""
    shutil.rmtree(OWN, ignore_errors=True)
    for entry in os.scandir(_PROGRAMS) if os.path.isdir(_PROGRAMS) else ():
        if entry.is_symlink() and os.readlink(entry.path).startswith(OWN + "/"):
            os.unlink(entry.path)
    _remove_policy()
    if held := read_text(DRIVER_HOLDS).split():
        subprocess.run(["apt-mark", "unhold", *held], capture_output=True, timeout=60, check=False)
    for path in DRIVER_SOURCE:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    with contextlib.suppress(OSError):
        with open(_NAMES) as file:
            text = file.read()
        with open(_NAMES, "w") as file:
            file.write(text.replace(" extrausers", ""))


def _run(argv: list[str], env: dict[str, str], timeout_s: float) -> None:
    began = time.monotonic()
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, env=env, check=False)
    except subprocess.TimeoutExpired:
        raise StepFailed(f"{' '.join(argv[:2])} did not end within {timeout_s:g} s") from None
    except OSError as error:
        raise StepFailed(f"{argv[0]}: {error.strerror}: Headway needs Debian or a system based on it") from None
    if done.returncode != 0:
        output = done.stderr + done.stdout
        lines = [line for line in output.splitlines() if line.startswith(("E:", "dpkg: error", "Err"))]
        error_text = "\n".join(lines[-6:]) or output.strip()[-600:]
        raise StepFailed(f"{' '.join(argv[:1])} failed after {time.monotonic() - began:.0f} s: {error_text}")

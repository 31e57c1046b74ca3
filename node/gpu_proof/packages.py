"""Installs the Debian packages of a one-node Slurm, when the user asked for it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from gpu_proof.one_node_slurm import DAEMONS, PACKAGES, PATH, PROGRAMS, SlurmFailed

_LIMIT_S = 600
_POLICY = Path("/usr/sbin/policy-rc.d")  # asked by packages before they start their services
_PROC = Path("/proc")
_FORBID = "#!/bin/sh\nexit 101\n"


def install_packages(folder: str) -> str:
    """Installs Slurm and MUNGE from the *.deb files of a folder, without any network, or for "" from the machine's own
    sources. Their services are not started, and apt-get removes no package. Returns what was installed. Raises SlurmFailed with
    the last error, and if the machine has a Slurm or MUNGE already."""
    if found := _slurm_here():
        raise SlurmFailed(
            f"this machine has a Slurm or MUNGE already: {'; '.join(found)}; nothing was installed: run without --install and "
            f"--packages where all of {', '.join(PACKAGES)} are installed, or use a machine without Slurm"
        )
    files = sorted(str(path) for path in Path(folder).glob("*.deb")) if folder else []
    if folder and not files:
        raise SlurmFailed(f"{folder} has no *.deb files")
    made = not _POLICY.exists()
    if made:
        _POLICY.write_text(_FORBID)
        _POLICY.chmod(0o755)
    try:
        if files:
            _run("dpkg", "--install", "--refuse-downgrade", "--skip-same-version", *files)
            return f"{len(files)} packages of {folder}"
        _run("apt-get", "update", "--quiet")
        keep = ("--no-remove", "--no-upgrade")  # another package could conflict with these
        _run("apt-get", "install", "--yes", "--quiet", *keep, "--no-install-recommends", *PACKAGES)
        return ", ".join(PACKAGES)
    finally:
        if made:
            _POLICY.unlink()


def _slurm_here() -> list[str]:
    """Returns the daemons of Slurm and MUNGE that run on this machine, also in its containers, and the installed programs."""
    running = set()
    for path in _PROC.glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            running.add(path.read_text().strip())
    found = [f"{name} runs" for name in (*DAEMONS, "slurmdbd") if name in running]
    installed = [name for name in PROGRAMS if shutil.which(name, path=PATH)]
    return [*found, f"installed: {', '.join(installed)}"] if installed else found


def _run(*argv: str) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        ran = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SlurmFailed(f"{argv[0]}: {error}") from None
    if ran.returncode:
        text = (ran.stderr or ran.stdout).strip()
        raise SlurmFailed(f"{argv[0]} ended with {ran.returncode}: {text[-400:]}")

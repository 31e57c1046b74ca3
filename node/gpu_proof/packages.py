"""Installs the Debian packages of a one-node Slurm, when the user asked for it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpu_proof.one_node_slurm import PACKAGES, SlurmFailed

_LIMIT_S = 600
_POLICY = Path("/usr/sbin/policy-rc.d")  # asked by packages before they start their services
_FORBID = "#!/bin/sh\nexit 101\n"


def install_packages(folder: str) -> str:
    """Installs Slurm and MUNGE from the *.deb files of a folder, without any network, or for "" from the machine's own
    sources. Their services are not started. Returns what was installed. Raises SlurmFailed with the last error."""
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
        _run("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *PACKAGES)
        return ", ".join(PACKAGES)
    finally:
        if made:
            _POLICY.unlink()


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

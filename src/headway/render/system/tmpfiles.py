"""tmpfiles.d of machines: folders and device nodes that are made at every boot."""

from __future__ import annotations

from collections.abc import Sequence

from headway.domain.machines.site import Site
from headway.render.escaping import path, script
from headway.render.machine_paths import JOB_SECRETS, JOB_SHM, JOB_TMP, PMIX, SECRETS, SLURMD_SPOOL
from headway.render.system.daemon_units import REST_LISTEN, REST_SOCKET

_ENROOT_HOOKS = ("50-slurm-pmi.sh", "50-slurm-pytorch.sh")


def tmpfiles(site: Site, *, head: bool, gpus: int = 0, containers: str = "", more: Sequence[str] = ()) -> str:
    """Returns folders and device nodes that are made at every boot. `gpus`: GPUs of the node; `containers`: what runs
    them, as in `Cluster`."""
    rows = [
        "d /run/headway 0755 root root -",
        "d /var/lib/slurm 0755 slurm slurm -",
        "d /var/lib/headway 0755 root root -",
    ]
    if head:
        rows += [
            "# Scratch for all users; the sticky bit keeps users from removing each other's files.",
            *_shared_folders(site),
            "d /var/log/slurm 0755 slurm slurm -",
            f"L+ {REST_SOCKET} - - - - {REST_LISTEN}",
        ]
    else:
        rows += [
            f"d {SLURMD_SPOOL} 0755 root root -",
            "# Remains of jobs that ran when the machine crashed. Removed only at boot, when no job runs.",
            f"R! {JOB_TMP}/*",
            "R! /var/lib/headway/containers/*",
            "# Sockets of steps: with an old one Slurm does not start the same step of the requeued job here.",
            f"R! {SLURMD_SPOOL}/*_*.[0-9]*",
            f"R! {SLURMD_SPOOL}/*pmix.*",
            f"d {JOB_TMP} 0755 root root -",
            "d /run/headway/hold 0700 root root -",
            "# Only root creates folders here, because their names can be guessed.",
            f"d {PMIX} 0755 root root -",
            f"d {JOB_SHM} 0700 root root -",
            f"d {JOB_SECRETS} 0700 root root -",
            f"d {SECRETS} 0755 root root -",
        ]
        if containers == "builtin":
            rows += [
                "# Containers of jobs mount their image by FUSE, without privileges.",
                "z /dev/fuse 0666 root root -",
            ]
        if containers == "enroot":
            rows += [f"d {place} 0755 root root -" for place in ("/run/enroot", "/run/pyxis", "/var/lib/enroot")]
            rows.append(
                "# Enables Enroot's hooks for MPI by PMIx and for torch over several nodes. Its GPU hook is enabled by default."
            )
            rows += [f"L /etc/enroot/hooks.d/{name} - - - - /usr/share/enroot/hooks.d/{name}" for name in _ENROOT_HOOKS]
        if site.simulated_gpus and gpus:
            rows.append("# Simulated GPUs: device files without GPUs, which Slurm can allocate to jobs.")
            rows += [f"c+ /dev/nvidia{n} 0666 root root - 195:{n}" for n in range(gpus)]
    return script(*rows, *more)


def _shared_folders(site: Site) -> list[str]:
    """Returns rows for the head's shared folders. Folders that every machine already mounts are not touched."""
    if not site.own:
        return ["d /srv/headway/scratch 1777 root root -", "d /srv/headway/home 0755 root root -"]
    return [
        f"d {path(where, 'storage')} {'0755' if where == '/home' else '1777'} root root -" for where in site.own.nfs
    ]

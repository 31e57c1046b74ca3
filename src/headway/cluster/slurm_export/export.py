"""The exported files of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headway.cluster.context import ClusterContext
from headway.cluster.desired_state import read_site
from headway.cluster.owned import machine_claims
from headway.cluster.slurm_export import account_scripts, texts
from headway.cluster.slurm_export.plain_conf import ExportedKey, plain_file, plain_slurm_conf, plain_slurmdbd_conf
from headway.domain.cluster import Cluster
from headway.domain.machines.site import Site
from headway.errors import Refused
from headway.render.files_by_role import render_files

_FOLDER = "/etc/slurm/"
_PREFIX = {"Prolog": "site-prolog-", "Epilog": "site-epilog-"}
_JOB_SUBMIT = "job_submit.lua"
_SAME = ("cgroup.conf", "gres.conf", "topology.conf")
_TMP = """\
# Each job's own /tmp and /dev/shm. It is used with JobContainerType=job_container/tmpfs in slurm.conf; on some Linux kernels
# after 6.12 steps then fail, so try it first.
AutoBasePath=true
BasePath=/var/lib/slurm/job-tmp
"""
_PYXIS = """\
# The --container-* options: Pyxis from Slurm's plugin folder.
required spank_pyxis.so runtime_path=/run/pyxis container_scope=job sbatch_support=1
"""
_PASSWORD = (
    "No StoragePass: MariaDB identifies the user slurm on this machine by its uid. For a database with a password,",
    "set StorageHost and StoragePass here; only the user slurm may read this file.",
)


@dataclass(frozen=True)
class SlurmExport:
    """Plain Slurm files by name, and what they lack: (what, what to do instead)."""

    files: dict[str, str]
    keys: tuple[ExportedKey, ...]
    lost: tuple[tuple[str, str], ...]


async def export_slurm(cluster: Cluster, context: ClusterContext) -> SlurmExport:
    """Returns the files. Raises Refused if the cluster has no machines."""
    seen = await machine_claims.survey_machines(cluster, context)
    place = await context.provider.find(cluster)
    if place is None:
        raise Refused(f"{cluster.name} has no machines", hint="headway apply")
    site = await read_site(
        cluster, context, seen.place(place) if seen else place, give_uids=False, known_uids=seen.uids if seen else None
    )
    # Occurrences that begin within a day are left out: the head's time zone may be another one.
    now = datetime.now(tz=UTC).replace(tzinfo=None) + timedelta(days=1)
    return await asyncio.to_thread(exported_files, cluster, site, now)


def exported_files(cluster: Cluster, site: Site, now: datetime) -> SlurmExport:
    """Returns the files; `now`: in the head's time zone. Pure."""
    rendered = render_files(cluster, site)["head"]
    files: dict[str, str] = {}
    keys: list[ExportedKey] = []

    def add(name: str, make: Callable[[str, Iterable[str]], tuple[str, list[ExportedKey]]], *heading: str) -> None:
        if f"{_FOLDER}{name}" in rendered:
            title = f"{name} of the cluster {cluster.name}. README.md says how Slurm starts with it."
            text, found = make(rendered[f"{_FOLDER}{name}"].text, (title, *heading))
            files[name] = text
            keys.extend(found)

    own = _site_scripts(cluster)
    programs = {
        key: f"/etc/slurm/{prefix}*" for key, prefix in _PREFIX.items() if any(name.startswith(prefix) for name in own)
    }
    add("slurm.conf", lambda text, heading: plain_slurm_conf(text, heading, programs))
    for name in _SAME:
        add(name, lambda text, heading, name=name: plain_file(name, text, heading))  # type: ignore[misc]
    files["job_container.conf"] = _TMP
    if cluster.containers == "enroot":
        files["plugstack.conf"] = _PYXIS
    add("slurmdbd.conf", plain_slurmdbd_conf, *_PASSWORD)
    files |= own
    files["hosts"] = _hosts(cluster, site)
    files[account_scripts.USERS] = account_scripts.users_script(cluster, site)
    files[account_scripts.QOS] = account_scripts.qos_script(cluster)
    files[account_scripts.ACCOUNTS] = account_scripts.accounts_script(cluster)
    if cluster.reservations:
        files[account_scripts.RESERVATIONS] = account_scripts.reservations_script(cluster, now)
    files["README.md"] = texts.readme(cluster, tuple(files))
    files["report.md"] = texts.report(cluster, keys)
    return SlurmExport(files, tuple(keys), tuple(texts.lost_features(cluster)))


def _hosts(cluster: Cluster, site: Site) -> str:
    names = (*cluster.heads, *(name for name in cluster.slot_names if name in site.addresses))
    return "".join(f"{site.addresses[name]} {name}\n" for name in names)


def _site_scripts(cluster: Cluster) -> dict[str, str]:
    """Returns the site's own scripts by name. Slurm runs those of a pattern in alphabetical order."""
    scripts = cluster.scripts
    found = {
        f"{_PREFIX[key]}{number:02d}-{script.name}": script.text
        for key, listed in (("Prolog", scripts.prolog), ("Epilog", scripts.epilog))
        for number, script in enumerate(listed, 1)
    }
    return {**found, **({_JOB_SUBMIT: scripts.job_submit.text} if scripts.job_submit else {})}

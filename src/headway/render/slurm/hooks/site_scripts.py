"""The site's own scripts: prolog and epilog on nodes, job_submit.lua on heads."""

from __future__ import annotations

from collections.abc import Iterable

from headway.domain.machines.managed_file import File
from headway.domain.slurm.site_scripts import SiteScript, SiteScripts

PROLOGS, EPILOGS = "/etc/headway/prolog.d", "/etc/headway/epilog.d"
JOB_SUBMIT = "/etc/slurm/job_submit.lua"


def node_files(scripts: SiteScripts) -> dict[str, File]:
    """Returns the scripts that prolog and epilog run, with numbers that keep their order."""
    return {**_numbered(PROLOGS, scripts.prolog), **_numbered(EPILOGS, scripts.epilog)}


def head_files(scripts: SiteScripts) -> dict[str, File]:
    """Returns the script of slurmctld."""
    return {JOB_SUBMIT: File(scripts.job_submit.text)} if scripts.job_submit else {}


def _numbered(folder: str, scripts: Iterable[SiteScript]) -> dict[str, File]:
    return {
        f"{folder}/{number:02d}-{script.name}": File(script.text, mode=0o700)
        for number, script in enumerate(scripts, 1)
    }

"""What the pages of jobs and arrays read: the job of an address, who may act on it, its script and origin."""

from __future__ import annotations

import contextlib
from typing import Annotated

from fastapi import Path

from headway.api.http.path_numbers import MAX_PATH_NUMBER
from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, NotAllowed, NotFound
from headway.schemas.jobs import ScriptOut
from headway.schemas.lineage.lineage import LineageOut
from headway.services.access.ownership_rights import authorize_action
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs import details
from headway.services.jobs.lineage import get_lineage

JobLabel = Annotated[str, Path(pattern=r"^(0|[1-9][0-9]{0,9})(_[0-9]{1,9})?$", description="104, or 18_3 for a task")]


async def find_job(state: AppState, cluster: Cluster, label: str) -> JobState:
    """Returns the job, or the task of an array, that the address names. Raises NotFound."""
    number, _, task = label.partition("_")
    if int(number) > MAX_PATH_NUMBER:
        raise NotFound(f"no job {number} on {cluster.name}")
    if task:
        return await state.readings.task(cluster, int(number), str(int(task)))
    return await state.readings.job(cluster, int(number))


def is_array(label: str, job: JobState) -> bool:
    """Returns whether the address names a whole array: Slurm gives its number to one of its tasks too."""
    return str(job.array_job_id) == label


async def is_mine(state: AppState, cluster: Cluster, who: Principal, job: JobState) -> bool:
    """Returns whether this person may act on the job and read its log."""
    try:
        await authorize_action(state, cluster, who, job, "")
    except NotAllowed:
        return False
    return True


async def read_script(name: str, job_id: int, state: AppState, who: Principal) -> ScriptOut | None:
    """Returns the submitted script; None if it can't be read."""
    with contextlib.suppress(HeadwayError):
        return await details.get_script(state, who, name, job_id)
    return None


async def read_lineage(name: str, job_id: int, state: AppState, who: Principal) -> LineageOut | None:
    """Returns where the job comes from; None if Headway did not submit it."""
    if await state.store.jobs.get(name, job_id) is None:
        return None
    with contextlib.suppress(HeadwayError):
        return await get_lineage(state, who, name, job_id)
    return None

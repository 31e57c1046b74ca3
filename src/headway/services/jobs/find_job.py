"""Finding a job: in Slurm's present state, by an array's task number, or in Headway's record of its submission."""

from __future__ import annotations

from collections.abc import Mapping

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import NotFound
from headway.jobs.view.array_tasks import tasks_of
from headway.services.access.concurrency_limits import command_slot
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.read_model.snapshot import Snapshot
from headway.store import JobRecord


async def read_job_now(state: AppState, cluster: Cluster, job_id: int, *, snapshot: Snapshot | None = None) -> JobState:
    """Returns the job in Slurm's present state, for code that is about to act on it. `snapshot`: the reading to look in,
    instead of a new one. Raises NotFound."""
    known = (snapshot or await state.readings.refresh(cluster)).by_id.get(job_id)
    return known if known is not None else await state.backend.slurm.job(cluster, job_id)


def slurm_target(state: AppState, cluster: Cluster, job: JobState, job_id: int, task: str) -> tuple[str, list[str]]:
    """Returns (the id to give Slurm, the states of the jobs that it covers).

    With `task` it is that task of the job's array. Without, it is the job itself; the number of an array covers all
    its tasks. Raises NotFound for a task that the array does not have."""
    known = state.live.snapshot(cluster.name).jobs
    if not task:
        return str(job_id), [
            known_job.state for known_job in known if job_id in (known_job.id, known_job.array_job_id)
        ] or [job.state]
    array = job.array_job_id or job_id
    covered = tasks_of(known, array, task)
    if not covered and job.array_task == task:
        covered = [job]
    if not covered:
        raise NotFound(
            f"job {array} on {cluster.name} has no task {task} now", hint=f"headway job {cluster.name} {array}"
        )
    return f"{array}_{task}", [task_job.state for task_job in covered]


async def array_task_states(state: AppState, who: Principal, cluster: Cluster, job_id: int) -> dict[str, str]:
    """Returns the state of each task of an array, by task number; empty for a job that is not an array."""
    with command_slot(state, who):
        return await state.backend.slurm.array_states(cluster, job_id)


def only_task(states: Mapping[str, str], cluster: Cluster, job_id: int, task: str) -> dict[str, str]:
    """Returns the state of only that task, by its number. Raises NotFound."""
    number = str(int(task))
    if number not in states:
        raise NotFound(
            f"job {job_id} on {cluster.name} has no task {task}", hint=f"headway job {cluster.name} {job_id}"
        )
    return {number: states[number]}


async def find_record(state: AppState, cluster: Cluster, job: JobState) -> JobRecord | None:
    """Returns Headway's record of the submission of the job or of its array; None if it was not submitted through
    Headway."""
    return await state.store.jobs.get(cluster.name, job.array_job_id or job.id, job.user)


async def require_record(state: AppState, cluster: Cluster, who: Principal, job_id: int) -> JobRecord:
    """Returns the record of a job as `find_record`, by number. If Slurm no longer knows the job, the person's own job
    of that number comes first. Raises NotFound."""
    try:
        record = await find_record(state, cluster, await state.readings.job(cluster, job_id))
    except NotFound:
        known = state.store.jobs.get
        record = await known(cluster.name, job_id, who.user) or await known(cluster.name, job_id)
    if record is None:
        raise NotFound(
            f"job {job_id} of {cluster.name} was not submitted through Headway, so nothing is recorded about it",
            hint="headway submit and headway run record script, files and settings",
        )
    return record

"""Going back to a kept checkpoint: a new job that continues from a step of an earlier one."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.errors import NotFound, Refused
from headway.jobs.submission.job_folders import user_folders
from headway.jobs.submission.requested_resources import without_dependency
from headway.jobs.submission.resume_point import FOLDER, checkpoint_folder, kept_steps, prepare_resume, without_resume
from headway.jobs.view.array_tasks import with_array
from headway.schemas.submission.reruns import ResumeIn
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.services.access.ownership_rights import authorize_as_owner, cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.find_job import array_task_states, only_task, require_record
from headway.services.jobs.lineage import list_job_files
from headway.services.jobs.reruns import request_with_secrets, require_environments
from headway.services.jobs.submission import new_folder_suffix, submit_and_record
from headway.store import JobRecord

_NAMED = 12  # steps that a message names


async def resume_job(state: AppState, who: Principal, name: str, job_id: int, request: ResumeIn) -> SubmitOut:
    """Submits the same script, arguments, environment and files again in a new folder, with the checkpoint of `request.step`,
    which the new job finds as its own. The first job and its checkpoints stay as they are. Raises NotFound, with the kept
    steps, if there is no such checkpoint."""
    cluster = await cluster_to_work_on(state, name, who)
    record = await require_record(state, cluster, who, job_id)
    await authorize_as_owner(state, cluster, who, record, f"resume job {job_id}")
    await require_environments(state, record)
    stored = SubmitIn.model_validate(record.request)
    sent = without_dependency(without_resume(request_with_secrets(record, request)))
    states = await array_task_states(state, who, cluster, job_id)
    if states and not request.task:
        raise Refused(
            f"job {job_id} is an array", hint=f"name a task: headway job resume {job_id}_0 --from step:{request.step}"
        )
    task = next(iter(only_task(states, cluster, job_id, request.task))) if request.task else ""
    if task:
        sent = with_array(sent, task)
    source = await _checkpoint_folder(state, cluster, record, stored, task)
    listed = await list_job_files(state, cluster, record.user, job_id, source)
    kept, label = kept_steps(listed["checkpoints"]), f"{job_id}_{task}" if task else str(job_id)
    if request.step not in kept:
        raise _no_such_step(label, request.step, [*kept], source)
    prepared = prepare_resume(
        sent,
        record.facts,
        cluster,
        record.user,
        new_folder_suffix(who),
        job_id=job_id,
        task=task,
        step=request.step,
        source=source,
        name=kept[request.step],
    )
    return await submit_and_record(state, who, cluster, prepared, record.user, "resume", parent=job_id)


def _no_such_step(label: str, step: int, kept: list[int], source: str) -> NotFound:
    if not kept:
        return NotFound(f"job {label} has no checkpoints in {source}", hint="see headway job show JOB --lineage")
    few = [*map(str, kept)] if len(kept) <= _NAMED else [str(kept[0]), "...", *map(str, kept[1 - _NAMED :])]
    return NotFound(
        f"job {label} has no checkpoint of step {step}; it keeps {'steps' if len(kept) > 1 else 'step'} {', '.join(few)}",
        hint=f"headway job resume {label} --from step:{min(kept, key=lambda one: abs(one - step))}",
    )


async def _checkpoint_folder(state: AppState, cluster: Cluster, record: JobRecord, stored: SubmitIn, task: str) -> str:
    """Returns the folder of the checkpoints of the job, or of the task of its array. The default folder has the number in its
    name, and Slurm gives each task a number of its own."""
    number, name = record.job_id, ""
    if not stored.env.get(FOLDER) and not record.facts.get("checkpoints"):
        read = state.readings
        job = await (read.task(cluster, number, task) if task else read.job(cluster, number))
        number, name = job.id, job.name
    shared = user_folders(cluster, record.user).shared
    return checkpoint_folder(stored, record.facts, shared, number, name, task)

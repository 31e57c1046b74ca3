"""Submission of a recorded job again: the failed tasks of an array, the whole job, or a changed copy."""

from __future__ import annotations

from headway.domain.access import credential_redaction
from headway.errors import NotAllowed, Refused
from headway.jobs.submission.prepare_job import PreparedJob, prepare_resubmit
from headway.jobs.submission.requested_resources import without_dependency
from headway.jobs.submission.resume_point import without_resume
from headway.jobs.view.array_tasks import incomplete_tasks, with_array
from headway.schemas.submission.reruns import RetryIn
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.services.access.ownership_rights import authorize_as_owner, cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.find_job import array_task_states, only_task, require_record
from headway.services.jobs.submission import new_folder_suffix, submit_and_record
from headway.services.storage.environments import require_present
from headway.store import JobRecord


async def retry_failed_tasks(state: AppState, who: Principal, name: str, job_id: int, request: RetryIn) -> SubmitOut:
    """Submits the failed tasks of an array again, with the same script in the same folder."""
    cluster = await cluster_to_work_on(state, name, who)
    record = await require_record(state, cluster, who, job_id)
    await authorize_as_owner(state, cluster, who, record, f"retry job {job_id}")
    states = await array_task_states(state, who, cluster, job_id)
    if not states:
        raise Refused(f"job {job_id} is not an array", hint=f"headway job rerun {name} {job_id} repeats the whole job")
    if request.task:
        states = only_task(states, cluster, job_id, request.task)
    failed = incomplete_tasks(states)
    if not failed and request.task:
        word, (now,) = f"{job_id}_{request.task}", states.values()
        raise Refused(f"{word} has not failed: it is {now}", hint=f"headway job rerun {name} {word} repeats it")
    if not failed:
        raise Refused(f"job {job_id} has no failed tasks", hint=f"headway job show {name} {job_id}")
    await require_environments(state, record)
    sent = without_dependency(request_with_secrets(record, request))
    launcher, checkpoints = (str(record.facts.get(key, "")) for key in ("launcher", "checkpoints"))
    prepared = PreparedJob(with_array(sent, failed), None, launcher=launcher, checkpoints=checkpoints)
    return await submit_and_record(state, who, cluster, prepared, record.user, "retry", parent=job_id)


async def rerun_job(state: AppState, who: Principal, name: str, job_id: int, request: RetryIn) -> SubmitOut:
    """Submits the same script, arguments, environment and files again in a new folder. With `request.task` only that
    task of an array."""
    cluster = await cluster_to_work_on(state, name, who)
    record = await require_record(state, cluster, who, job_id)
    await authorize_as_owner(state, cluster, who, record, f"run job {job_id} again")
    await require_environments(state, record)
    sent = without_dependency(without_resume(request_with_secrets(record, request)))
    if request.task:
        states = await array_task_states(state, who, cluster, job_id)
        sent = with_array(sent, *only_task(states, cluster, job_id, request.task))
    prepared = prepare_resubmit(sent, record.facts, cluster, record.user, new_folder_suffix(who))
    return await submit_and_record(state, who, cluster, prepared, record.user, "rerun", parent=job_id)


async def rerun_changed(state: AppState, who: Principal, name: str, job_id: int, change: SubmitIn) -> SubmitOut:
    """Submits the person's own job again with another script, arguments and flags, the same environment and files, in a
    new folder. `change.env` gives the secrets that were not stored."""
    cluster = await cluster_to_work_on(state, name, who)
    record = await require_record(state, cluster, who, job_id)
    if record.user != who.user:
        raise NotAllowed(f"{who.person} may not clone job {job_id}: it belongs to {record.user}", hint="ask its owner")
    await authorize_as_owner(state, cluster, who, record, f"clone job {job_id}")
    sent = without_dependency(without_resume(request_with_secrets(record, RetryIn(env=change.env))))
    prepared = prepare_resubmit(sent, record.facts, cluster, record.user, new_folder_suffix(who), change)
    return await submit_and_record(state, who, cluster, prepared, record.user, "rerun", parent=record.job_id)


async def require_environments(state: AppState, record: JobRecord) -> None:
    """Raises Refused when an environment that the job used was removed."""
    used = [(row["name"], int(row["version"])) for row in record.facts.get("environments", [])]
    await require_present(state, record.cluster, used)


def request_with_secrets(record: JobRecord, request: RetryIn) -> SubmitIn:
    """Returns the recorded request with the secret values, which are not stored, from `request`. Raises Refused if one
    is missing."""
    sent = SubmitIn.model_validate(record.request)
    env = {**sent.env, **request.env}
    lost = credential_redaction.lost_secrets(env)
    if lost:
        raise Refused(
            f"the value of {', '.join(lost)} is a secret and was not stored",
            hint=" ".join(f"--env {name}" for name in lost) + " takes it from your environment",
        )
    return sent.model_copy(update={"env": env})

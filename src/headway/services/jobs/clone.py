"""Cloning of a job: the values that prefill the submit form. Only the job's owner gets the values of its secrets."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.access.credential_redaction import lost_secrets as find_lost_secrets
from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import Refused
from headway.jobs.submission.prepare_job import job_own_folder
from headway.jobs.submission.requested_resources import without_dependency
from headway.schemas.jobs import ScriptOut
from headway.schemas.submission.submit_request import SubmitIn
from headway.services.access.ownership_rights import authorize_action, cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.details import mask_script, read_script
from headway.services.jobs.find_job import find_record
from headway.store import JobRecord


@dataclass(frozen=True, slots=True)
class CloneSource:
    """The source of a clone. `job` is the job whose files and variables the clone gets too; 0 if it gets only the
    script."""

    script: ScriptOut
    job: int = 0
    folder: str = ""  # the job's own folder, which the clone does not share; "" if it has none
    lost_secrets: tuple[str, ...] = ()  # environment variables whose values must be given again


async def clone_source(state: AppState, who: Principal, name: str, job_id: int) -> CloneSource:
    """Returns the source of a clone. Raises NotAllowed, and Refused for a job that cannot be cloned."""
    cluster = await cluster_to_work_on(state, name, who)
    found = await state.readings.job(cluster, job_id)
    await authorize_action(state, cluster, who, found, f"read the script of job {job_id}")
    script, record = await read_script(state, who, cluster, found)
    if record is not None and (why := _why_not(record, cluster, who)):
        raise Refused(f"job {job_id} {why}")
    fresh = without_dependency(SubmitIn(args=script.sbatch_args, script=script.text))
    script = script.model_copy(update={"text": fresh.script or "", "sbatch_args": fresh.args})
    if found.user != who.user:
        return CloneSource(mask_script(script))
    if record is None:  # the flags of its sbatch are unknown, but its working folder is known
        return CloneSource(script.model_copy(update={"chdir": found.workdir}))
    request = SubmitIn.model_validate(record.request)
    folder = job_own_folder(request, cluster, record.user)
    if folder:
        script = script.model_copy(update={"chdir": ""})
    return CloneSource(script, record.job_id, folder, tuple(find_lost_secrets(request.env)))


async def can_clone(state: AppState, cluster: Cluster, who: Principal, found: JobState) -> bool:
    """Returns whether the job can be cloned by the person, who may act on it."""
    record = await find_record(state, cluster, found)
    return record is None or not _why_not(record, cluster, who)


def _why_not(record: JobRecord, cluster: Cluster, who: Principal) -> str:
    """Returns why the job cannot be cloned, as the rest of "job 7 ..."; "" if it can."""
    if record.kind == "notebook":
        return "is a notebook: start one on the Notebooks page"
    request = SubmitIn.model_validate(record.request)
    if record.user != who.user and (request.bundle or request.env or job_own_folder(request, cluster, record.user)):
        return f"uses files or variables of {record.user}; only {record.user} can clone it"
    return ""

"""What the form is filled with that clones a job: its own text to its owner, to others without the values of secrets."""

from __future__ import annotations

from dataclasses import dataclass

from headway.api.routers.jobs.job_actions import what_was_sent, without_secrets
from headway.api.routers.jobs.submissions import record_of
from headway.domain.cluster import Cluster
from headway.domain.slurm.state import JobState
from headway.errors import Refused
from headway.jobs.submission.requested_resources import without_dependency
from headway.jobs.submission.run_request import own_folder
from headway.jobs.submission.secret_masking import lost_secrets
from headway.schemas.jobs import ScriptOut
from headway.schemas.submissions import SubmitIn
from headway.services.authorization import authorize_action, cluster_to_work_on
from headway.services.context import AppState
from headway.services.identity import Principal
from headway.store import JobRecord


@dataclass(frozen=True, slots=True)
class Origin:
    """`job`: the one whose files and variables a clone has too; 0 where only the script is known, or is somebody else's."""

    sent: ScriptOut
    job: int = 0
    folder: str = ""  # made for that job alone: a clone gets another
    lost: tuple[str, ...] = ()  # variables that have to be given again


async def origin_of(name: str, job_id: int, state: AppState, who: Principal) -> Origin:
    """Raises Refused for what no clone can be made of."""
    cluster = await cluster_to_work_on(state, name, who)
    found = await state.job(cluster, job_id)
    await authorize_action(state, cluster, who, found, f"read the script of job {job_id}")
    sent, record = await what_was_sent(state, cluster, found, who)
    if record is not None and (why := _unlike(record, cluster, who)):
        raise Refused(f"job {job_id} {why}")
    fresh = without_dependency(SubmitIn(args=sent.sbatch_args, script=sent.text))
    sent = sent.model_copy(update={"text": fresh.script or "", "sbatch_args": fresh.args})
    if found.user != who.user:
        return Origin(without_secrets(sent))
    if record is None:  # what its sbatch was told beside the script is not known, but where it works is
        return Origin(sent.model_copy(update={"chdir": found.workdir}))
    request = SubmitIn.model_validate(record.request)
    folder = own_folder(request, cluster, record.user)
    if folder:
        sent = sent.model_copy(update={"chdir": ""})
    return Origin(sent, record.job_id, folder, tuple(lost_secrets(request.env)))


async def can_clone(state: AppState, cluster: Cluster, who: Principal, found: JobState) -> bool:
    """Of a job that they may touch."""
    record = await record_of(state, cluster, found)
    return record is None or not _unlike(record, cluster, who)


def _unlike(record: JobRecord, cluster: Cluster, who: Principal) -> str:
    """Why a clone would not be like it."""
    if record.kind == "notebook":
        return "is a notebook: one is started on the page of notebooks"
    request = SubmitIn.model_validate(record.request)
    if record.user != who.user and (request.bundle or request.env or own_folder(request, cluster, record.user)):
        return f"works with files or variables of {record.user}, who alone can clone it"
    return ""

"""Actions on one job, or on several at once: cancel, requeue, hold, release."""

from __future__ import annotations

import asyncio

from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.errors import Conflict, HeadwayError, NotAllowed
from headway.parallel_tasks import run_all
from headway.schemas.submission.job_actions import JobAction, JobActionOut, JobsActionIn, JobsActionOut
from headway.services.access.audit import write_audit_line
from headway.services.access.ownership_rights import authorize_action
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.find_job import read_job_now, slurm_target
from headway.services.read_model.snapshot import Snapshot

Action = JobAction
AT_ONCE = 4  # jobs of one request that are acted on in parallel
# Action -> states of Slurm in which it is possible, in the order of the buttons of a job's page
POSSIBLE_IN: dict[Action, frozenset[str]] = {
    "requeue": frozenset(RUNNING),
    "hold": frozenset(WAITING),
    "release": frozenset(WAITING),
    "cancel": frozenset(WAITING | RUNNING),
}
_WHY_NOT = {
    "requeue": "only a running job can be requeued",
    "hold": "only a pending job can be held",
    "release": "only a pending job can be released",
}


async def act_on_job(
    state: AppState,
    who: Principal,
    name: str,
    job_id: int,
    action: Action,
    task: str = "",
    *,
    snapshot: Snapshot | None = None,
) -> None:
    """Carries out the action as the person's user, or as Headway's Slurm operator for a lead or admin. The number of an
    array covers all of its tasks. `snapshot`: a reading made for this request. Raises NotAllowed, and Conflict in a state
    where Slurm would refuse."""
    _, cluster = await state.clusters.get(name)
    job = await read_job_now(state, cluster, job_id, snapshot=snapshot)
    target, states = slurm_target(state, cluster, job, job_id, task)
    as_operator = await authorize_action(state, cluster, who, job, f"{action} job {target}")
    if not POSSIBLE_IN[action].intersection(states):
        message = f"job {target} has ended already: {states[0]}"
        if action != "cancel":
            message = f"job {target} is {states[0]}: {_WHY_NOT[action]}"
        raise Conflict(message, hint=f"headway job {name} {target}")
    if action == "cancel":
        await state.backend.jobs.cancel(cluster, target, who.user, as_operator=as_operator)
    else:
        await state.backend.jobs.control(cluster, target, action, who.user, as_operator=as_operator)
    state.live.request_refresh(name, (job_id,))
    await write_audit_line(state, who, action, name, job=job_id, of=job.user, **({"task": task} if task else {}))


async def act_on_jobs(state: AppState, who: Principal, name: str, request: JobsActionIn) -> JobsActionOut:
    """Carries out the action on each of the jobs as `act_on_job`, and returns the result of each one: a job that cannot be
    acted on does not keep others from it. The queue is read once. Raises NotFound if the cluster does not exist."""
    _, cluster = await state.clusters.get(name)
    snapshot = await state.readings.refresh(cluster)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(job: str) -> JobActionOut:
        number, _, task = job.partition("_")
        try:
            async with slots:
                await act_on_job(state, who, name, int(number), request.action, task, snapshot=snapshot)
        except HeadwayError as error:
            result = "refused" if isinstance(error, NotAllowed) else "failed"
            detail = {"job": job, "why": error.message[:200]}
            await state.store.audit.record(who.person, request.action, name, detail, address=who.address, result=result)
            return JobActionOut(job=job, error=error.first_line, hint=error.hint)
        return JobActionOut(job=job)

    results = await run_all([one(job) for job in dict.fromkeys(request.jobs)])
    return JobsActionOut(action=request.action, done=sum(not one.error for one in results), results=results)

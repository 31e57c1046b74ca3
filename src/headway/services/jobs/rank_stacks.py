"""Where the ranks of a running job are: their Python stacks."""

from __future__ import annotations

from headway.errors import Conflict
from headway.schemas.jobs import JobStacksOut
from headway.services.access.audit import write_audit_line
from headway.services.access.concurrency_limits import command_slot
from headway.services.access.ownership_rights import authorize_action
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.jobs.find_job import read_job_now, slurm_target


async def read_rank_stacks(state: AppState, who: Principal, name: str, job_id: int, task: str = "") -> JobStacksOut:
    """Returns the stacks of a job's ranks to its owner, a lead of its team or an admin. Raises NotAllowed, and Conflict for
    a job that does not run."""
    _, cluster = await state.clusters.get(name)
    job = await read_job_now(state, cluster, job_id)
    target, states = slurm_target(state, cluster, job, job_id, task)
    await authorize_action(state, cluster, who, job, f"read the stacks of job {target}")
    if job.state != "RUNNING":
        raise Conflict(f"job {target} does not run: {states[0]}", hint=f"headway job {name} {target}")
    with command_slot(state, who):
        found = await state.backend.jobs.rank_stacks(cluster, job)
    await write_audit_line(state, who, "job.stacks", name, job=job.id, of=job.user)
    return found

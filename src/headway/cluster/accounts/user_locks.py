"""Locks a Linux user of a running cluster without an apply: new jobs are refused, jobs cancelled, sign-in by SSH refused and
sessions ended. What is changed is what an apply of a file without the user would change, so that the next apply finds it
done; it also changes the nodes, where a user without a job can't sign in anyway."""

from __future__ import annotations

import asyncio
import time

from headway.catalog.node_images import slurm_release
from headway.catalog.slurm_releases import SlurmRelease
from headway.changes.account_changes import lock_changes
from headway.cluster import remote_steps
from headway.cluster.active_head import active_head
from headway.cluster.context import ClusterContext
from headway.cluster.parallel_machines import errors_of_all
from headway.domain.access.user_change_results import UserLockResult
from headway.domain.cluster import Cluster
from headway.domain.machines.machine import Machine, MachineState
from headway.errors import HeadwayError, Unreachable
from headway.slurm import user_jobs
from headway.slurm.accounting import sacctmgr_reader
from headway.slurm.accounting.sacctmgr_commands import apply_account_change

HEAD_S = 30.0
JOBS_END_S = 20.0  # seconds that Slurm gets to cancel the jobs before the lock counts as unfinished
_LOOK_S = 1.0


async def lock_user(cluster: Cluster, context: ClusterContext, user: str) -> UserLockResult:
    """Locks a user and ends what they run. All parts are tried, also if one of them fails. Raises HeadwayError if nothing
    could be tried."""
    machines = await context.machines(cluster.name)
    head = await running_head(cluster, context, machines)
    errors: list[HeadwayError] = []
    try:  # first: jobs that are submitted meanwhile would stay
        observed = await sacctmgr_reader.read_accounts(context.connections, head)
        for change in lock_changes(user, observed):
            await apply_account_change(context.connections, head, change.data)
    except HeadwayError as error:
        errors.append(error)
    errors += await lock_on_heads(cluster, context, machines, user)
    jobs: set[int] = set()
    try:
        await _cancel_jobs(context, head, user, slurm_release(cluster.slurm_version), jobs)
    except HeadwayError as error:
        errors.append(error)
    return UserLockResult(tuple(sorted(jobs)), errors[0].first_line if errors else "")


async def running_head(cluster: Cluster, context: ClusterContext, machines: dict[str, Machine]) -> Machine:
    """Returns the head whose controller is active. Raises Unreachable if no head runs."""
    head = await active_head(cluster, context, machines)
    if head is None:
        raise Unreachable(f"no head of {cluster.name} runs", hint=f"headway status {cluster.name}")
    return head


async def lock_on_heads(
    cluster: Cluster, context: ClusterContext, machines: dict[str, Machine], user: str
) -> list[HeadwayError]:
    """Refuses the user's sign-in on all heads and ends their sessions. Returns the errors of heads that failed or do not run.
    On owned machines the user that Headway signs in as is left alone: Headway would lock itself out."""
    if user in {host.user for host in cluster.hosts}:
        return []

    async def run(name: str) -> None:
        machine = machines.get(name)
        if machine is None or machine.state is not MachineState.RUNNING:
            raise Unreachable(f"{name} does not run", hint=f"headway status {cluster.name}")
        await remote_steps.run_steps(
            context.connections, machine, [{"op": "lock_user", "user": user}], timeout_s=HEAD_S
        )

    return await errors_of_all(map(run, cluster.heads))


async def _cancel_jobs(
    context: ClusterContext, head: Machine, user: str, release: SlurmRelease, cancelled: set[int]
) -> None:
    """Cancels the user's jobs until none is left, and adds their ids to `cancelled`. Raises Unreachable if some do not
    end."""
    ends = time.monotonic() + JOBS_END_S
    while jobs := await user_jobs.list_jobs(context.connections, head, user):
        await user_jobs.cancel_jobs(context.connections, head, user, release)
        cancelled.update(jobs)
        if time.monotonic() > ends:
            raise Unreachable(f"{len(jobs)} jobs of {user} are not cancelled yet: {', '.join(map(str, jobs[:5]))}")
        await asyncio.sleep(_LOOK_S)

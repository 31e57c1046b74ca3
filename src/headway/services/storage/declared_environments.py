"""Builds of the software environments that a cluster file lists, and the default environment of a job."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.environment import FILE_SOURCE, NO_ENVIRONMENT, PYTORCH, request_digest
from headway.domain.operation import EnvironmentParams
from headway.domain.progress import ReportProgress
from headway.schemas.submission.run_options import JobFields
from headway.services.app_state import AppState
from headway.services.cluster.operations import queue_operation
from headway.services.rights import linux_user_of
from headway.services.storage.environments import missing_environments, pin_environment


async def queue_declared_builds(state: AppState, cluster: Cluster, person: str, report: ReportProgress) -> None:
    """Queues the build of each environment of the file whose latest version was not made from what the file says now, or
    whose files are missing, as after a restore. The builds are jobs of the person, or of the cluster's admin if
    the person is no user there."""
    queued, store = [], state.store.environments
    latest = [one for name in cluster.environments if (one := await store.latest(cluster.name, name)) is not None]
    missing = await missing_environments(state, cluster, latest)
    built = {one.name: one.request for one in latest if one not in missing}
    for name, lines in cluster.environments.items():
        text = "".join(f"{line}\n" for line in lines)
        params = EnvironmentParams("add", name, source=FILE_SOURCE, text=text, user=await _user(state, cluster, person))
        if built.get(name) == request_digest(text):
            continue
        if await state.store.operations.active(cluster.name, params.subject) is None:
            await queue_operation(state, cluster.name, person, params)
            queued.append(name)
    if queued:
        await report("environments", f"{', '.join(queued)}: built by operations of their own", done=True)


async def _user(state: AppState, cluster: Cluster, person: str) -> str:
    known = await state.store.people.get(person)
    mine = linux_user_of(known) if known else ""
    users = {user.name: user.admin for user in cluster.users}
    return mine if mine in users else next((name for name, admin in users.items() if admin), next(iter(users), ""))


async def environment_of_command(state: AppState, cluster: Cluster, job: JobFields, user: str) -> str:
    """Returns the environment of a command as NAME@VERSION, "" for none. A command for real GPUs that neither asks for one
    nor has a default gets `pytorch`, if that is there: the system's PyTorch has no CUDA. Raises NotFound."""
    wanted = environment_of(cluster, job, user)
    if wanted or not job.gpus or cluster.simulated_gpus or PYTORCH not in cluster.environments:
        return await pin_environment(state, cluster, wanted)
    latest = await state.store.environments.latest(cluster.name, PYTORCH)
    return latest.label if latest else ""


def environment_of(cluster: Cluster, job: JobFields, user: str) -> str:
    """Returns the environment of a job of `headway run`: its own, else its partition's, its team's or the cluster's; ""
    where none of them names one. A job in a container has none."""
    if job.environment or job.container is not None:
        return job.environment or NO_ENVIRONMENT
    partitions = {one.name: one for one in cluster.partitions}
    default = next((one.name for one in cluster.partitions if one.default), "")
    own = next((one.teams[0] for one in cluster.users if one.name == user and one.teams), "")
    teams = {one.name: one for one in cluster.teams}
    partition, team = partitions.get(job.partition or default), teams.get(job.team or own)
    places = (partition.environment if partition else "", team.environment if team else "", cluster.environment)
    return next(filter(None, places), "")

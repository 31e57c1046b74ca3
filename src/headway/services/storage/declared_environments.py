"""Builds of the software environments that a cluster file lists, and the default environment or container of a
command."""

from __future__ import annotations

from dataclasses import dataclass

from headway.domain.cluster import Cluster
from headway.domain.environment import FILE_SOURCE, PYTORCH, request_digest
from headway.domain.operation_kinds import EnvironmentParams
from headway.domain.operation_progress import ReportProgress
from headway.schemas.submission.run_request import ContainerIn, JobFields
from headway.services.app_state import AppState
from headway.services.cluster.operations import queue_operation
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
    mine = known.linux_user if known else ""
    users = {user.name: user.admin for user in cluster.users}
    return mine if mine in users else next((name for name, admin in users.items() if admin), next(iter(users), ""))


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a command runs in. `environment`: NAME@VERSION, "" for none. `warning`: why its PyTorch can't use its GPUs."""

    environment: str = ""
    container: ContainerIn | None = None
    warning: str = ""


async def runtime_of_command(state: AppState, cluster: Cluster, job: JobFields, user: str) -> Runtime:
    """Returns what a command runs in. A command for real GPUs that neither asks for an environment or a container nor has a
    default gets `pytorch`, with a warning while that is not built: the system's PyTorch has no CUDA. Raises NotFound."""
    if job.container is not None:
        return Runtime(await pin_environment(state, cluster, job.environment), job.container)
    wanted, image = (job.environment, "") if job.environment else default_runtime(cluster, job, user)
    if image:
        return Runtime(container=ContainerIn(image=image))
    if wanted or not job.gpus or cluster.simulated_gpus or PYTORCH not in cluster.environments:
        return Runtime(await pin_environment(state, cluster, wanted))
    latest = await state.store.environments.latest(cluster.name, PYTORCH)
    return Runtime(latest.label) if latest else Runtime(warning=await _why_without_cuda(state, cluster))


async def _why_without_cuda(state: AppState, cluster: Cluster) -> str:
    """Returns a warning about a command for GPUs that gets the node's own PyTorch, because `pytorch` is not there."""
    if await state.store.operations.active(cluster.name, EnvironmentParams("add", PYTORCH).subject):
        why = f"is still being built (headway queue {cluster.name} shows the job environment-{PYTORCH})"
    else:
        why = f"is not there (headway status {cluster.name} shows a build that failed; headway env add builds it)"
    return (
        f"environment {PYTORCH} of {cluster.name} {why}: the job gets the node's own PyTorch, which computes on the CPU; submit "
        "it later, or name an environment or a container"
    )


def default_runtime(cluster: Cluster, job: JobFields, user: str) -> tuple[str, str]:
    """Returns (environment, container image) of a job of `headway run` that names neither: its partition's, else its
    team's, else the cluster's; at most one of the two."""
    partitions = {one.name: one for one in cluster.partitions}
    default = next((one.name for one in cluster.partitions if one.default), "")
    own = next((one.teams[0] for one in cluster.users if one.name == user and one.teams), "")
    teams = {one.name: one for one in cluster.teams}
    places = (partitions.get(job.partition or default), teams.get(job.team or own), cluster)
    return next(
        ((one.environment, one.container_image) for one in places if one and (one.environment or one.container_image)),
        ("", ""),
    )

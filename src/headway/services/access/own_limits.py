"""A person's own limits on a cluster, and what they use of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from headway.domain.cluster import Cluster
from headway.domain.slurm.accounts import AccountShare
from headway.domain.slurm.job_states import ENDED, RUNNING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.domain.storage.quotas import ObservedQuota
from headway.domain.teams import UserLimits
from headway.errors import HeadwayError
from headway.schemas.access.own_limits import LimitOut, LimitsOut
from headway.services.access.role_rights import Principal
from headway.services.access.team_usage import read_shares
from headway.services.app_state import AppState

_MIB = 1024**2
# Field of UserLimits -> what it limits, its unit, and what a job counts
_COUNTED: dict[str, tuple[str, str, Callable[[JobState], int]]] = {
    "running_jobs": ("running jobs", "jobs", lambda job: int(job.state in RUNNING)),
    "submitted_jobs": ("queued jobs", "jobs", lambda _: 1),
    "gpus": ("GPUs", "GPUs", lambda job: job.gpus if job.state in RUNNING else 0),
    "cpus": ("CPUs", "CPUs", lambda job: job.cpus if job.state in RUNNING else 0),
    "nodes": ("nodes", "nodes", lambda job: job.node_count if job.state in RUNNING else 0),
    "memory_mib": ("memory", "bytes", lambda job: job.memory_mib * _MIB if job.state in RUNNING else 0),
}


async def read_own_limits(state: AppState, who: Principal, name: str) -> LimitsOut:
    """Returns the limits of the person's Linux user: in their teams, in partitions, and of their files. Raises
    NotFound."""
    _, cluster = await state.clusters.get(name)
    snapshot = state.live.snapshot(name)
    mine = [job for job in snapshot.jobs if job.user == who.user and job.state not in ENDED]
    stale, shares = snapshot.stale, dict[str, AccountShare]()
    limited = (team.limits_of(who.user) for team in cluster.teams if who.user in team.users)
    if not stale and any(each.recent_gpu_hours for each in limited):
        shares, stale = await read_shares(state, cluster)
    rows = list(_limits(cluster, who.user, mine, shares, known=not snapshot.stale))
    if not snapshot.stale and cluster.storage.quotas:
        try:
            rows += _quotas(await state.readings.quotas(cluster), cluster, who.user)
        except HeadwayError as error:
            stale = stale or error.first_line
    return LimitsOut(cluster=name, user=who.user, limits=rows, stale=stale)


def _quotas(seen: Mapping[str, ObservedQuota], cluster: Cluster, user: str) -> Iterator[LimitOut]:
    """Yields the user's quotas that are enforced."""
    for path in cluster.storage.quotas:
        quota = seen[path].users.get(user) if path in seen else None
        if quota is not None and quota.limit:
            where = f"{path}/{user}"
            yield LimitOut(where=where, what="size of files", unit="bytes", used=quota.used, limit=quota.limit)


def _limits(
    cluster: Cluster, user: str, jobs: Iterable[JobState], shares: dict[str, AccountShare], *, known: bool
) -> Iterator[LimitOut]:
    for team in cluster.teams:
        if user not in team.users:
            continue
        where = f"team {team.name}"
        counted = [job for job in jobs if job.account == team.name]
        each = team.limits_of(user)
        yield from _held(where, each, counted if known else None)
        if each.recent_gpu_hours is not None:
            share = shares.get(team.name)
            used = None if share is None else round(share.user_gpu_hours.get(user, 0.0), 1)
            most = float(each.recent_gpu_hours)
            yield LimitOut(where=where, what="recent GPU-hours", unit="GPU-hours", used=used, limit=most)
    for qos in cluster.qos:
        counted = [job for job in jobs if job.qos == qos.name]
        yield from _held(f"QOS {qos.name}", qos.per_user, counted if known else None)
    for partition in cluster.partitions:
        counted = [job for job in jobs if job.partition == partition.name]
        yield from _held(f"partition {partition.name}", partition.per_user, counted if known else None)


def _held(where: str, limits: UserLimits, jobs: list[JobState] | None) -> Iterator[LimitOut]:
    for field, (what, unit, size) in _COUNTED.items():
        most = getattr(limits, field)
        if most is not None:
            used = None if jobs is None else sum(map(size, jobs))
            most *= _MIB if unit == "bytes" else 1
            yield LimitOut(where=where, what=what, unit=unit, used=used, limit=most)

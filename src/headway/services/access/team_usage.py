"""The share and usage of a cluster's teams: fair share, GPU hours against their cap, jobs. Teams themselves are part of the
cluster file."""

from __future__ import annotations

import asyncio
from fractions import Fraction

from headway.domain.cluster import Cluster
from headway.domain.slurm.accounts import AccountShare
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.domain.teams import Team, parts_of_cluster
from headway.errors import HeadwayError
from headway.schemas.access.team_usage import TeamOut, TeamsOut
from headway.services.access.ownership_rights import may_see_team_usage
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing.budgets import cached_cap_usage

READ_TIMEOUT_S = 10.0


async def read_team_usage(state: AppState, who: Principal, name: str) -> TeamsOut:
    """Returns all teams of the cluster's file; usage only of those whose usage the person may see. Raises NotFound."""
    _, cluster = await state.clusters.get(name)
    shares, stale = await read_shares(state, cluster)
    jobs, capped = state.live.snapshot(name).jobs, await cached_cap_usage(state, cluster)
    parts = parts_of_cluster(cluster.teams)
    return TeamsOut(
        cluster=name,
        teams=[
            _team_out(cluster, who, team, shares.get(team.name), capped.get(team.name), jobs, parts[team.name][0])
            for team in cluster.teams
        ],
        stale=stale,
    )


async def read_shares(state: AppState, cluster: Cluster) -> tuple[dict[str, AccountShare], str]:
    """Returns (shares by account, the reason if there are none)."""
    if away := state.live.snapshot(cluster.name).stale:
        return {}, away
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return {share.account: share for share in await state.readings.shares(cluster)}, ""
    except HeadwayError as error:
        return {}, error.first_line
    except TimeoutError:
        return {}, f"no answer within {READ_TIMEOUT_S:g} s"


def _team_out(
    cluster: Cluster,
    who: Principal,
    team: Team,
    share: AccountShare | None,
    cap_used: Fraction | None,
    jobs: tuple[JobState, ...],
    part: Fraction,
) -> TeamOut:
    mine = [job for job in jobs if job.account == team.name]
    out = TeamOut(
        name=team.name,
        users=list(team.users),
        leads=list(team.leads),
        share=team.share,
        share_fraction=float(part),
        gpu_hours_cap=f"{team.gpu_hours.hours:,f} a {team.gpu_hours.per}" if team.gpu_hours else "",
        jobs_running=sum(job.state in RUNNING for job in mine),
        jobs_pending=sum(job.state in WAITING for job in mine),
        gpus_used=sum(job.gpus for job in mine if job.state in RUNNING),
    )
    if not may_see_team_usage(cluster, who, team.name):
        return out
    out = out.model_copy(update={"gpu_hours_of_cap": None if cap_used is None else round(float(cap_used), 1)})
    if share is None:
        return out
    return out.model_copy(
        update={
            "use_fraction": share.effective_usage,
            "gpu_hours": round(share.gpu_hours, 1),
            "fair_share": share.fair_share,
        }
    )

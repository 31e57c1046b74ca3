"""Teams: their share against what they use."""

from __future__ import annotations

import asyncio
from fractions import Fraction

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, State
from headway.api.http.pagination import ANY, Page, Text, Words, says
from headway.domain.cluster import Cluster, Team
from headway.domain.slurm.accounts import Share
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.state import JobState
from headway.errors import HeadwayError
from headway.schemas.people import TeamOut, TeamsOut, UserOut
from headway.services.authorization import may_see_team_usage
from headway.services.billing.budgets import cached_cap_usage
from headway.services.context import AppState
from headway.services.identity import Principal

router = APIRouter(prefix="/clusters/{name}", tags=["teams"])
READ_TIMEOUT_S = 10.0


@router.get("/teams")
async def teams(name: str, state: State, who: Anyone, page: Page, user: Words = ANY, q: Text = "") -> TeamsOut:
    """The teams of the cluster's file. What a team has used is for its own people, operators and admins."""
    told = await teams_of(name, state, who)
    found = [one for one in told.teams if says(q, one.name) and (not user or not user.isdisjoint(one.users))]
    return told.model_copy(update={"teams": page.cut(found, lambda one: (one.name,))})


@router.get("/users")
async def users(name: str, state: State, _: Anyone, page: Page, team: Words = ANY, q: Text = "") -> list[UserOut]:
    """The Linux users that the cluster's file makes there, with their teams."""
    cluster = await state.known(name)
    leads = {
        user: [one.name for one in cluster.teams if user in one.leads] for one in cluster.teams for user in one.leads
    }
    found = [
        UserOut(name=one.name, teams=list(one.teams), leads=leads.get(one.name, []), admin=one.admin)
        for one in cluster.users
        if says(q, one.name) and (not team or not team.isdisjoint(one.teams))
    ]
    return page.cut(found, lambda one: (one.name,))


async def teams_of(name: str, state: AppState, who: Principal) -> TeamsOut:
    """All of them."""
    _, cluster = await state.cluster(name)
    shares, stale = await _shares(state, cluster)
    jobs, capped = state.live.snapshot(name).jobs, await cached_cap_usage(state, cluster)
    total = sum(team.share for team in cluster.teams)
    return TeamsOut(
        cluster=name,
        teams=[
            _out(cluster, who, team, shares.get(team.name), capped.get(team.name), jobs, total)
            for team in cluster.teams
        ],
        stale=stale,
    )


async def _shares(state: AppState, cluster: Cluster) -> tuple[dict[str, Share], str]:
    """(by account, why there is nothing): the page is there without them too."""
    if away := state.live.snapshot(cluster.name).stale:
        return {}, away
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return {one.account: one for one in await state.shares(cluster)}, ""
    except HeadwayError as error:
        return {}, error.message.splitlines()[0]
    except TimeoutError:
        return {}, f"no answer within {READ_TIMEOUT_S:g} s"


def _out(
    cluster: Cluster,
    who: Principal,
    team: Team,
    used: Share | None,
    of_cap: Fraction | None,
    jobs: tuple[JobState, ...],
    total: int,
) -> TeamOut:
    mine = [job for job in jobs if job.account == team.name]
    told = TeamOut(
        name=team.name,
        users=list(team.users),
        leads=list(team.leads),
        share=team.share,
        share_fraction=team.share / total if total else 0.0,
        gpu_hours_cap=f"{team.gpu_hours.hours:,f} a {team.gpu_hours.per}" if team.gpu_hours else "",
        jobs_running=sum(job.state in RUNNING for job in mine),
        jobs_pending=sum(job.state in WAITING for job in mine),
        gpus_used=sum(job.gpus for job in mine if job.state in RUNNING),
    )
    if not may_see_team_usage(cluster, who, team.name):
        return told
    told = told.model_copy(update={"gpu_hours_of_cap": None if of_cap is None else round(float(of_cap), 1)})
    if used is None:
        return told
    return told.model_copy(
        update={
            "use_fraction": used.effective_usage,
            "gpu_hours": round(used.gpu_hours, 1),
            "fair_share": used.fair_share,
        }
    )

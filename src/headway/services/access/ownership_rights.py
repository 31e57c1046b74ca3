"""Rights that depend on whose a thing is: what a principal may do with a job, by its owner and team, with a team's usage,
and with a cluster that lists its users. Rights that depend on the role alone are in `role_rights`."""

from __future__ import annotations

from typing import Protocol

from headway.domain.cluster import Cluster
from headway.errors import NotAllowed
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState


class Owned(Protocol):
    """A job, a job record, or anything else that belongs to a Linux user. An `account` attribute, if any, names its
    team."""

    @property
    def user(self) -> str:
        """Returns the Linux user who owns it."""
        ...


async def authorize_action(state: AppState, cluster: Cluster, who: Principal, thing: Owned, what: str) -> bool:
    """Checks that the person may act on a job, and returns whether Headway's Slurm operator account must do it for
    them.

    Allowed: the owner (False: Slurm permits it), a lead of the job's team, an admin. `what` names the action as in
    "cancel job 7". Raises NotAllowed."""
    who.require(Right.RUN_JOBS, what)
    if who.may(Right.ADMIN):
        return thing.user != who.user
    await require_still_listed(state, cluster, who)
    if thing.user == who.user:
        return False
    if not _leads_team_of(cluster, who, thing):
        raise NotAllowed(
            f"{who.person} may not {what}: it belongs to {thing.user}",
            hint="ask its owner, a lead of its team or an admin",
        )
    return True


def may_act_on(cluster: Cluster, who: Principal, thing: Owned) -> bool:
    """Returns whether `authorize_action` lets the person act on a job, for lists that show more of such jobs."""
    if who.may(Right.ADMIN):
        return True
    listed = who.user in {user.name for user in cluster.users}
    return who.may(Right.RUN_JOBS) and listed and (thing.user == who.user or _leads_team_of(cluster, who, thing))


async def authorize_log(state: AppState, cluster: Cluster, who: Principal, job: Owned, job_id: int) -> None:
    """Checks that the person may read the job's log: as `authorize_action`. Raises NotAllowed."""
    await authorize_action(state, cluster, who, job, f"read the log of job {job_id}")


async def authorize_as_owner(state: AppState, cluster: Cluster, who: Principal, thing: Owned, what: str) -> None:
    """Checks that the person may run something as the job's user again, as `is_owner_or_admin` and `authorize_action`. Raises
    NotAllowed."""
    if not is_owner_or_admin(who, thing):
        who.require(Right.RUN_JOBS, what)
        raise NotAllowed(f"{who.person} may not {what}: it belongs to {thing.user}", hint="ask its owner or an admin")
    await authorize_action(state, cluster, who, thing, what)


def is_owner_or_admin(who: Principal, thing: Owned) -> bool:
    """Returns whether the person may run something as the job's user again; a lead of the team may not."""
    return thing.user == who.user or who.may(Right.ADMIN)


def _leads_team_of(cluster: Cluster, who: Principal, thing: Owned) -> bool:
    """Returns whether the person leads the job's team. A job without an account belongs to all teams of its user, and
    the person must lead all of them."""
    if not who.may(Right.LEAD_TEAM):
        return False
    account = getattr(thing, "account", "")
    teams = (account,) if account else next((user.teams for user in cluster.users if user.name == thing.user), ())
    led = {team.name for team in cluster.teams if who.user in team.leads}
    return bool(teams) and led.issuperset(teams)


def may_see_team_usage(cluster: Cluster, who: Principal, team: str) -> bool:
    """Returns whether the person may see a team's usage: admins and operators see every team, others the teams they are
    in or lead."""
    if who.may(Right.ADMIN) or who.may(Right.OPERATE_NODES):
        return True
    return any(
        candidate.name == team and who.user in (*candidate.users, *candidate.leads) for candidate in cluster.teams
    )


async def cluster_to_work_on(state: AppState, name: str, who: Principal) -> Cluster:
    """Returns the cluster for a request that runs something on it. Raises NotFound, and NotAllowed as
    `require_still_listed`."""
    _, cluster = await state.clusters.get(name)
    await require_still_listed(state, cluster, who)
    return cluster


async def require_still_listed(state: AppState, cluster: Cluster, who: Principal) -> None:
    """Raises NotAllowed if the cluster's file once listed the person's user and no longer does. Admins always pass."""
    if who.may(Right.ADMIN) or who.user in {user.name for user in cluster.users}:
        return
    if who.user in await state.store.linux_uids.of_cluster(cluster.name):
        raise NotAllowed(f"{who.user} has no access to {cluster.name} any more", hint="ask an admin of the cluster")

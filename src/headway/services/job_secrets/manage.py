"""Lists, sets and removes secrets of jobs. Values only come in: no function here returns one."""

from __future__ import annotations

from headway.domain.access.job_secret import OwnerKind, SecretOwner
from headway.domain.access.job_secret_limits import MOST_PER_OWNER
from headway.domain.cluster import Cluster
from headway.errors import HeadwayError, NotAllowed, NotFound
from headway.schemas.job_secrets import SecretChangedOut, SecretIn, SecretOut
from headway.services.access.audit import write_audit_line
from headway.services.access.ownership_rights import cluster_to_work_on
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.job_secrets.delivery import deliver_secrets
from headway.store import JobSecretRow


async def list_secrets(state: AppState, who: Principal, name: str) -> list[SecretOut]:
    """Returns the names of the person's secrets and of their teams'; for admins those of all users and teams."""
    cluster = await cluster_to_work_on(state, name, who)
    if who.may(Right.ADMIN):
        _, rows = await state.store.job_secrets.of_cluster(name)
        return [_secret_out(row) for row in rows]
    teams = [SecretOwner(OwnerKind.TEAM, team.name) for team in cluster.teams if who.user in (*team.users, *team.leads)]
    mine = SecretOwner(OwnerKind.USER, who.user)
    return [_secret_out(row) for row in await state.store.job_secrets.of_owners(name, mine, *teams)]


async def set_secret(state: AppState, who: Principal, name: str, secret: str, request: SecretIn) -> SecretChangedOut:
    """Stores a secret of the person, or of a team that they lead, and sends it to the heads."""
    cluster = await cluster_to_work_on(state, name, who)
    owner = _owner(cluster, who, request.team, request.user, f"set secrets of team {request.team}")
    row = await state.store.job_secrets.put(name, owner, secret, request.value, who.person, MOST_PER_OWNER)
    await write_audit_line(state, who, "secret.set", name, secret=secret, owner=str(owner))
    return SecretChangedOut(**_secret_out(row).model_dump(), undelivered=await _deliver(state, cluster))


async def remove_secret(
    state: AppState, who: Principal, name: str, secret: str, *, team: str, user: str
) -> SecretChangedOut:
    """Removes a secret, also from the heads: jobs that have not started yet will fail without it. Raises NotFound."""
    cluster = await cluster_to_work_on(state, name, who)
    owner = _owner(cluster, who, team, user, f"remove secrets of team {team}", listed=False)
    row = await state.store.job_secrets.remove(name, owner, secret)
    if row is None:
        raise NotFound(f"{owner} has no secret {secret} on {name}", hint=f"headway secret ls {name}")
    await write_audit_line(state, who, "secret.remove", name, secret=secret, owner=str(owner))
    return SecretChangedOut(**_secret_out(row).model_dump(), undelivered=await _deliver(state, cluster))


def _owner(cluster: Cluster, who: Principal, team: str, user: str, what: str, *, listed: bool = True) -> SecretOwner:
    """Returns the owner that a request names: the person's own user, another user (admins only), or a team that the person
    leads. Raises NotFound for a team that the cluster file does not list, unless `listed` is False."""
    if not team:
        return SecretOwner(OwnerKind.USER, who.user_to_act_as(user))
    found = next((one for one in cluster.teams if one.name == team), None)
    leads = found is not None and who.user in found.leads and who.may(Right.LEAD_TEAM)
    if not leads and not who.may(Right.ADMIN):
        raise NotAllowed(f"{who.person} may not {what}", hint="only a lead of the team or an admin may")
    if found is None and listed:
        raise NotFound(
            f"{cluster.name} has no team {team!r}", hint=f"it has {', '.join(one.name for one in cluster.teams)}"
        )
    return SecretOwner(OwnerKind.TEAM, team)


async def _deliver(state: AppState, cluster: Cluster) -> list[str]:
    """Returns the heads that do not have the change yet."""
    try:
        return list(await deliver_secrets(state, cluster))
    except HeadwayError:  # the change is stored, and the server sends it again
        return list(cluster.heads)


def _secret_out(row: JobSecretRow) -> SecretOut:
    is_team = row.kind is OwnerKind.TEAM
    return SecretOut(
        name=row.name,
        user="" if is_team else row.owner,
        team=row.owner if is_team else "",
        person=row.person,
        at=row.at,
    )

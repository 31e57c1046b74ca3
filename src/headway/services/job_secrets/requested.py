"""Checks that the secrets a job asks for exist, before it is submitted."""

from __future__ import annotations

from headway.domain.access.job_secret import OwnerKind, SecretOwner
from headway.domain.access.job_secret_limits import MOST_PER_JOB
from headway.domain.cluster import Cluster
from headway.errors import Fault, Refused
from headway.jobs.submission.job_secrets import FLAG, requested_secrets
from headway.jobs.submission.requested_resources import requested_resources
from headway.schemas.submission.submit_request import SubmitIn
from headway.services.app_state import AppState


async def require_secrets(state: AppState, cluster: Cluster, request: SubmitIn, user: str) -> None:
    """Raises Refused if the user and the job's team do not have a secret that the job asks for."""
    if faults := await secret_faults(state, cluster, request, user):
        raise Refused("\n".join(fault.message for fault in faults), hint=faults[0].hint)


async def secret_faults(state: AppState, cluster: Cluster, request: SubmitIn, user: str) -> list[Fault]:
    """Returns what is wrong with the secrets that the job asks for."""
    names = requested_secrets(request)
    if not names:
        return []
    if len(names) > MOST_PER_JOB:
        return [Fault("secrets", f"the job requests {len(names)} secrets", f"request {MOST_PER_JOB} or fewer")]
    teams = _teams(cluster, request, user)
    owners = [SecretOwner(OwnerKind.USER, user), *(SecretOwner(OwnerKind.TEAM, team) for team in teams)]
    there = {row.name for row in await state.store.job_secrets.of_owners(cluster.name, *owners)}
    missing = [name for name in names if name not in there]
    if not missing:
        return []
    who = " and ".join([user, *(f"team {team}" for team in teams)])
    return [
        Fault(
            "secrets",
            f"{FLAG} {', '.join(missing)}: {who} {'have' if teams else 'has'} no secret of this name on {cluster.name}",
            f"set it first: headway secret set {cluster.name} {missing[0]}",
        )
    ]


def _teams(cluster: Cluster, request: SubmitIn, user: str) -> list[str]:
    """Returns the teams that the job is charged to: those it names, else the user's first one, as in Slurm."""
    named = {want.options.get("account", "") for want in requested_resources(request)} - {""}
    mine = [team.name for team in cluster.teams if user in team.users]
    return sorted(named) or mine[:1]

"""The accounts, QOS, users and limits that a cluster file requires of Slurm. Pure.

A team is an account under root with its share, and a QOS of the same name with its caps, which is the account's only
QOS. A partition with limits has a QOS too, whose limits Slurm applies in place of the same limits of the job's QOS."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from headway.domain.cluster import Cluster
from headway.domain.machines.gpu_parts import tres_of_part
from headway.domain.slurm.accounts import OPERATOR, Account, Accounts, Association, Qos
from headway.domain.teams import Team, UserLimits


def desired_accounts(cluster: Cluster) -> Accounts:
    """Returns the accounts that the cluster file requires."""
    minutes = {team.name: team.per_user.recent_gpu_hours for team in cluster.teams}
    members = [
        Association(user.name, team, default=team == user.teams[0], gpu_minutes=_minutes(minutes.get(team)))
        for user in cluster.users
        for team in dict.fromkeys(user.teams)
    ]
    return Accounts(
        accounts=tuple(sorted((Account(t.name, t.share) for t in cluster.teams), key=lambda a: a.name)),
        associations=tuple(sorted(members, key=lambda a: (a.user, a.account))),
        qos=tuple(sorted([*map(_team_qos, cluster.teams), *_partition_qos(cluster)], key=lambda q: q.name)),
        operators=(OPERATOR,),
        account_qos={team.name: team.name for team in cluster.teams},
        departed_jobs=cluster.departed_jobs,
    )


def _minutes(hours: Decimal | None) -> int | None:
    return None if hours is None else int(hours * 60)


def _partition_qos(cluster: Cluster) -> Iterator[Qos]:
    """Yields the QOS of each partition with limits."""
    for partition in cluster.partitions:
        if partition.qos:
            yield Qos(partition.qos, _user_limits(partition.per_user), ("NoDecay",))


def _user_limits(each: UserLimits) -> dict[str, str]:
    """Returns the limits of a QOS on each user."""
    plain = {"MaxJobsPerUser": each.running_jobs, "MaxSubmitJobsPerUser": each.submitted_jobs}
    limits = {name: str(most) for name, most in plain.items() if most is not None}
    holds = {name: count for name, count in (("cpu", each.cpus), ("gres/gpu", each.gpus)) if count is not None}
    if holds:
        limits["MaxTRESPerUser"] = ",".join(f"{name}={count}" for name, count in holds.items())
    return limits


def _team_qos(team: Team) -> Qos:
    """Returns the QOS with the team's limits."""
    limits = {}
    if team.running_jobs is not None:
        limits["GrpJobs"] = str(team.running_jobs)
    if team.submitted_jobs is not None:
        limits["GrpSubmitJobs"] = str(team.submitted_jobs)
    held = {} if team.gpus is None else {"gres/gpu": team.gpus}
    held |= {tres_of_part(part): count for part, count in team.gpu_parts.items()}
    if held:
        limits["GrpTRES"] = ",".join(f"{name}={count}" for name, count in sorted(held.items()))
    if team.gpu_hours is not None:
        limits["GrpTRESMins"] = f"gres/gpu={int(team.gpu_hours.hours * 60)}"
    limits |= _user_limits(team.per_user)
    # Without NoDecay usage would decay with PriorityDecayHalfLife, and the cap would become free again bit by bit.
    return Qos(team.name, limits, ("NoDecay",))

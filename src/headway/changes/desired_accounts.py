"""Teams, users, limits and QOS of a cluster file as Slurm accounting must have them. Pure.

A team is an account under root or its parent, with its share, and a QOS of the same name with its caps, which its jobs have
unless they choose another QOS of the file. The limits of a team are those of its account and of its users' associations if
jobs of one of its users may choose, because those count the jobs of all QOS, if it has teams below it, whose jobs an account
counts too, or if single users have limits. Of other teams they are those of the QOS. A user who may choose more QOS than the
team has a list of their own. A partition with limits has a QOS too, whose limits Slurm applies in place of the same limits of
the job's QOS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headway.domain.cluster import Cluster
from headway.domain.jobs.job_qos import JobQos
from headway.domain.machines.gpu_parts import tres_of_part
from headway.domain.slurm.accounts import OPERATOR, Account, Accounts, Association, Qos
from headway.domain.teams import Team, UserLimits

# Use counts until the end of the period. Without NoDecay it would decay with PriorityDecayHalfLife, and the cap would become
# free again bit by bit.
_TEAM_FLAGS = ("NoDecay",)
_PREEMPTED_GRACE_S = 120  # of jobs that choose no QOS, as the default of the file's QOS and partitions
_TRES = {"cpus": "cpu", "gpus": "gres/gpu", "nodes": "node", "memory_mib": "mem"}


def desired_accounts(cluster: Cluster) -> Accounts:
    """Returns the accounts that the cluster file requires."""
    teams = {team.name: team for team in cluster.teams}
    members = [
        Association(
            user.name,
            team,
            default=team == user.teams[0],
            limits=_member_limits(cluster, teams.get(team), user.name),
            qos=_qos_of_user(cluster, teams.get(team), user.name),
        )
        for user in cluster.users
        for team in dict.fromkeys(user.teams)
    ]
    qos = [*(_team_qos(cluster, team) for team in cluster.teams), *map(_job_qos, cluster.qos), *_partition_qos(cluster)]
    return Accounts(
        accounts=tuple(sorted((_account(cluster, team) for team in cluster.teams), key=lambda a: a.name)),
        associations=tuple(sorted(members, key=lambda a: (a.user, a.account))),
        qos=tuple(sorted(qos, key=lambda q: q.name)),
        operators=(OPERATOR,),
        account_qos={team.name: _qos_of_team(cluster, team) for team in cluster.teams},
        departed_jobs=cluster.departed_jobs,
    )


def _counts_by_association(cluster: Cluster, team: Team) -> bool:
    """Returns whether the team's limits are those of its account and associations, instead of its QOS."""
    return (
        bool(team.user_limits)
        or any(other.parent == team.name for other in cluster.teams)
        or any(qos.is_for(user, team.name) for qos in cluster.qos for user in ("", *team.users))
    )


def _qos_of_team(cluster: Cluster, team: Team) -> tuple[str, ...]:
    """Returns the QOS that the team's jobs may have, the default first."""
    names = {qos.name for qos in cluster.qos if team.name in qos.teams}
    names |= {team.name} if team.own_qos else set()
    default = team.default_qos or team.name
    return (default, *sorted(names - {default}))


def _qos_of_user(cluster: Cluster, team: Team | None, user: str) -> tuple[str, ...]:
    """Returns the QOS that the user's jobs in a team may have; () if they are those of the team."""
    if team is None:
        return ()
    of_team = _qos_of_team(cluster, team)
    more = {qos.name for qos in cluster.qos if user in qos.users} - set(of_team)
    return tuple(sorted({*of_team, *more})) if more else ()


def _account(cluster: Cluster, team: Team) -> Account:
    limits = _team_limits(team) if _counts_by_association(cluster, team) else {}
    return Account(team.name, team.share, limits, team.parent)


def _member_limits(cluster: Cluster, team: Team | None, user: str) -> dict[str, str]:
    """Returns the limits of a user's association."""
    if team is None:
        return {}
    each = team.limits_of(user)
    limits = {} if each.recent_gpu_hours is None else {"GrpTRESMins": f"gres/gpu={int(each.recent_gpu_hours * 60)}"}
    if _counts_by_association(cluster, team):
        limits |= _limits(each.running_jobs, each.submitted_jobs, _held_by(each))
    return limits


def _team_limits(team: Team) -> dict[str, str]:
    """Returns the limits of all jobs of the team together, apart from its GPU-hours."""
    parts = {tres_of_part(part): count for part, count in team.gpu_parts.items()}
    return _limits(team.running_jobs, team.submitted_jobs, {**_held_by(team), **parts})


def _limits(running: int | None, submitted: int | None, resources: Mapping[str, int | None]) -> dict[str, str]:
    """Returns limits of a number of jobs together, in sacctmgr's terms."""
    limits = {
        name: str(most) for name, most in (("GrpJobs", running), ("GrpSubmitJobs", submitted)) if most is not None
    }
    held = _counts(resources)
    return {**limits, "GrpTRES": held} if held else limits


def _counts(resources: Mapping[str, int | None]) -> str:
    """Returns limits of resources in sacctmgr's terms, memory in MiB."""
    return ",".join(
        f"{name}={count}{'M' * (name == 'mem')}" for name, count in sorted(resources.items()) if count is not None
    )


def _held_by(limits: Team | UserLimits) -> dict[str, int | None]:
    return {tres: getattr(limits, field) for field, tres in _TRES.items()}


def _user_limits(each: UserLimits) -> dict[str, str]:
    """Returns the limits of a QOS on each user."""
    plain = {"MaxJobsPerUser": each.running_jobs, "MaxSubmitJobsPerUser": each.submitted_jobs}
    limits = {name: str(most) for name, most in plain.items() if most is not None}
    held = _counts(_held_by(each))
    return {**limits, "MaxTRESPerUser": held} if held else limits


def _team_qos(cluster: Cluster, team: Team) -> Qos:
    """Returns the QOS of the team's jobs that choose none."""
    limits = {} if team.gpu_hours is None else {"GrpTRESMins": f"gres/gpu={int(team.gpu_hours.hours * 60)}"}
    if not _counts_by_association(cluster, team):
        limits |= {**_team_limits(team), **_user_limits(team.per_user)}
    preempted = any(team.name in qos.preempts for qos in cluster.qos)
    return Qos(team.name, limits, _TEAM_FLAGS, {"GraceTime": str(_PREEMPTED_GRACE_S)} if preempted else {})


def _job_qos(qos: JobQos) -> Qos:
    """Returns a QOS that jobs choose."""
    limits = _limits(qos.running_jobs, qos.submitted_jobs, _by_tres(qos.resources)) | _user_limits(qos.per_user)
    if qos.per_job:
        limits["MaxTRESPerJob"] = _counts(_by_tres(qos.per_job))
    if qos.max_time_s is not None:
        limits["MaxWall"] = str(max(1, qos.max_time_s // 60))
    settings = {
        "GraceTime": str(qos.grace_s) if qos.grace_s else "",
        "PreemptMode": qos.preempt_mode if qos.preempt_mode != "requeue" else "",  # the cluster's
        "Priority": str(qos.priority) if qos.priority else "",
        "UsageFactor": f"{qos.usage_factor:.6f}" if qos.usage_factor != 1 else "",
    }
    given = {name: value for name, value in settings.items() if value}
    return Qos(qos.name, limits, qos.flags, given, tuple(sorted(qos.preempts)))


def _by_tres(resources: Mapping[str, int]) -> dict[str, int | None]:
    return {_TRES[name]: count for name, count in resources.items()}


def _partition_qos(cluster: Cluster) -> Iterator[Qos]:
    """Yields the QOS of each partition with limits."""
    for partition in cluster.partitions:
        if partition.qos:
            together = partition.limits
            limits = _limits(together.running_jobs, together.submitted_jobs, _by_tres(together.resources))
            limits |= _user_limits(partition.per_user)
            limits |= {"MaxTRESPerJob": _counts(_by_tres(partition.per_job))} if partition.per_job else {}
            yield Qos(partition.qos, limits, _TEAM_FLAGS)

"""Explains limits of teams, users, QOS and partitions that a job waits for: each limit in one sentence, and what would free
enough. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from headway.domain.jobs.job_qos import JobQos
from headway.domain.slurm.job_states import ENDED
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.domain.teams import Team, UserLimits
from headway.jobs.explain.phrases import Phrase, count_of, describe_end, format_duration, join_phrases
from headway.jobs.explain.placement_search import ClusterSnapshot

# QOSMaxGRESPerUser, QOSGrpJobsLimit, AssocMaxWallDurationPerJobLimit, MaxGRESPerAccount, ...
_LIMIT = re.compile(
    r"(?P<of>QOS|Assoc|)(?P<how>Grp|Max|Min)(?P<what>[A-Za-z]+?)"
    r"(?P<over>RunMinutes|Minutes)?(?:Per(?P<per>User|Account|Job|Node))?(?:Limit|NotSatisfied)?"
)
_WHAT = {
    "gres": "GPUs", "cpu": "CPUs", "mem": "memory", "memory": "memory", "node": "nodes", "jobs": "running jobs",
    "submitjobs": "queued jobs", "submitjob": "queued jobs", "wall": "time", "wallduration": "time", "energy": "energy",
    "billing": "billing", "bb": "burst buffer", "license": "licences", "lic": "licences",
}  # fmt: skip


# `headway.slurm.accounting.team_job_hold` sets these limits, and nothing else does.
_BUDGET = ("MaxJobsPerAccount", "AssocGrpCPURunMinutesLimit")

# Limits whose sentence is not made of their name: those of partitions, arrays and Headway's own.
LIMIT_SENTENCES = {
    "JobArrayTaskLimit": "its array runs as many tasks at once as it may",
    "PartitionNodeLimit": "requests more nodes than its partition has",
    "PartitionTimeLimit": "requests more time than its partition allows",
    "MaxMemPerLimit": "requests more memory per CPU or node than its partition allows",
    **dict.fromkeys(_BUDGET, "its team's budget is spent"),
    "QOSUsageThreshold": "its team has used so much that it may not start jobs now",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that Slurm's reason names."""

    resource: str  # "GPUs"
    holder: str  # "team" | "association" | "person" | "job" | "node"
    is_usage: bool = False  # limits usage over time, past or expected (GPU minutes), not what is in use now
    is_minimum: bool = False
    is_budget: bool = False  # the ledger set it for a team whose budget is spent


def parse_limit(reason: str) -> Limit | None:
    """Returns the limit that a word of Slurm's reason names, or None for a word that names none."""
    found = _LIMIT.fullmatch(reason)
    if found is None or found["what"].lower() not in _WHAT:
        return None
    whose = {"User": "person", "Account": "team", "Job": "job", "Node": "node"}.get(found["per"] or "")
    if whose is None:
        own = found["of"] == "Assoc" and found["how"] == "Max"  # the association of the user in that team
        grp = "team" if found["of"] == "QOS" else "association"  # the association of the team, or of the user in it
        whose = "person" if own else grp if found["how"] == "Grp" else "job"
    what = _WHAT[found["what"].lower()]
    if what == "time" and found["how"] == "Max":
        whose = "job"
    return Limit(what, whose, bool(found["over"]), found["how"] == "Min", reason in _BUDGET)


def limit_sentence(reason: str, qos: str = "") -> str:
    """Returns why a job waits for the limit that a word of Slurm's reason names; "" for a word that names none. `qos`: the
    QOS that the job chose."""
    limit = parse_limit(reason)
    return LIMIT_SENTENCES.get(reason) or (describe_limit(limit, qos) if limit else "")


def describe_limit(limit: Limit, qos: str = "") -> str:
    """Returns why the job waits, in one sentence made of the limit's name."""
    if limit.is_minimum:
        return f"requests fewer {limit.resource} than the minimum for a job"
    if limit.holder in ("job", "node"):
        more = (
            "more time"
            if limit.resource == "time"
            else f"more {_hours_of(limit) if limit.is_usage else limit.resource}"
        )
        return f"requests {more} than a job may use{' on each node' if limit.holder == 'node' else ''}"
    of_qos = f"QOS {qos}" if qos else "the team"
    who = {"team": of_qos, "association": "the team, or its user in it,"}.get(limit.holder, "its user")
    if limit.is_usage:
        who = "its user" if limit.holder == "association" else who  # the file limits the hours of teams by their QOS
        return f"{who} has too few {_hours_of(limit)} left for this job"
    if limit.resource == "running jobs":
        return f"{who} has as many jobs running as the limit allows"
    if limit.resource == "queued jobs":
        return f"{who} has as many jobs queued as the limit allows"
    return f"{who} holds as {'much' if limit.resource == 'memory' else 'many'} {limit.resource} as the limit allows"


def _hours_of(limit: Limit) -> str:
    return {"GPUs": "GPU hours", "CPUs": "CPU hours", "nodes": "node hours"}.get(
        limit.resource, f"hours of {limit.resource}"
    )


def explain_limit(limit: Limit, job: JobState, world: ClusterSnapshot) -> Phrase:
    """Returns what would start the job: how much is in use, and which job's end frees enough."""
    team = next((candidate for candidate in world.cluster.teams if candidate.name == job.account), None)
    if limit.is_minimum or limit.holder in ("job", "node"):
        change = f"{'more' if limit.is_minimum else 'less' if limit.resource == 'memory' else 'fewer'} {limit.resource}"
        if limit.resource == "time" or limit.is_usage:
            change = "a shorter --time" + ("" if limit.resource == "time" else f" or {change}")
        return (f"never starts as it is: cancel it and submit with {change}, or have the limit changed",)
    if limit.is_usage and not limit.is_budget:
        return _hours(limit, job, team)
    if limit.resource == "queued jobs":
        return ("needs a job of the same team or user to end",)
    if limit.is_budget and team and team.budget:
        unit = "USD" if team.budget.unit == "usd" else "GPU hours"
        spent = (
            f"the budget of team {team.name} is spent ({team.budget.limit.normalize():,f} {unit} a {team.budget.per})"
        )
        return (f"{spent}: it starts with the next {team.budget.per}, or when the budget is raised",)
    of_partition = _partition_limits(limit, job, world)
    limit = _holder(limit, job, team, world)
    qos = next((one for one in world.cluster.qos if one.name == job.qos and limit.holder in ("team", "person")), None)
    if qos is not None and of_partition is None:
        return _of_qos(limit, job, world, qos)
    mine = [other for other in world.running if _counts(limit, other, job, in_partition=of_partition is not None)]
    known = team if limit.holder == "team" else None
    each = of_partition or (team.limits_of(job.user) if team and limit.holder == "person" else UserLimits())
    place = f" in partition {job.partition}" if of_partition else ""
    if limit.resource in _FIELDS:
        field = _FIELDS[limit.resource]
        most = getattr(known or each, field)
        what, _, size = _COUNTED.get(limit.resource, ("job", "", lambda _: 1))
        return _enough(job, mine, size, most, what, limit, place)
    return join_phrases("needs a running job to end: ", describe_end(mine[0], mine[0].label)) if mine else ()


def _of_qos(limit: Limit, job: JobState, world: ClusterSnapshot, qos: JobQos) -> Phrase:
    """Returns the words for a limit of the QOS that the job chose."""
    of_user, place = limit.holder == "person", f" with --qos {qos.name}"
    mine = [
        other
        for other in world.running
        if other.state not in ENDED and other.qos == qos.name and (not of_user or other.user == job.user)
    ]
    most: int | None = None
    if limit.resource == "running jobs":
        most = qos.per_user.running_jobs if of_user else qos.running_jobs
    elif limit.resource in _COUNTED:
        field = _COUNTED[limit.resource][1]
        most = getattr(qos.per_user, field, None) if of_user else qos.resources.get(field)
    if limit.resource not in ("running jobs", *_COUNTED):
        return join_phrases("needs a running job to end: ", describe_end(mine[0], mine[0].label)) if mine else ()
    what, _, size = _COUNTED.get(limit.resource, ("job", "", lambda _: 1))
    return _enough(job, mine, size, most, what, limit, place if of_user else "", "" if of_user else f"QOS {qos.name}")


# Resource -> one of it, field of limits, and what a job has of it
_COUNTED: dict[str, tuple[str, str, Callable[[JobState], int]]] = {
    "GPUs": ("GPU", "gpus", lambda job: job.gpus),
    "CPUs": ("CPU", "cpus", lambda job: job.cpus),
    "nodes": ("node", "nodes", lambda job: job.node_count),
}


def _holder(limit: Limit, job: JobState, team: Team | None, world: ClusterSnapshot) -> Limit:
    """Returns a limit of an association as one of the user or of the team: Slurm gives the same reason for both."""
    if limit.holder != "association" or team is None or limit.resource not in _FIELDS:
        return limit
    field = _FIELDS[limit.resource]
    size = _COUNTED[limit.resource][2] if limit.resource in _COUNTED else lambda _: 1
    most, of_user = getattr(team.limits_of(job.user), field), replace(limit, holder="person")
    held = sum(size(other) for other in world.running if _counts(of_user, other, job, in_partition=False))
    if most is not None and held + max(1, size(job)) > most:
        return of_user
    return replace(limit, holder="team") if getattr(team, field, None) is not None else limit


# Resource -> field of Team and UserLimits
_FIELDS = {"running jobs": "running_jobs", **{resource: field for resource, (_, field, _) in _COUNTED.items()}}


def _partition_limits(limit: Limit, job: JobState, world: ClusterSnapshot) -> UserLimits | None:
    """Returns the limits of the job's partition if they have the one that the job waits for; they replace the team's."""
    field = _FIELDS.get(limit.resource)
    if limit.holder != "person" or field is None:
        return None
    found = next((partition for partition in world.cluster.partitions if partition.name == job.partition), None)
    return found.per_user if found and getattr(found.per_user, field) is not None else None


def _counts(limit: Limit, other: JobState, job: JobState, *, in_partition: bool) -> bool:
    if in_partition:
        return other.state not in ENDED and (other.user, other.partition) == (job.user, job.partition)
    if other.state in ENDED or other.account != job.account:
        return False
    return limit.holder in ("team", "association") or other.user == job.user


def _enough(
    job: JobState,
    mine: list[JobState],
    size: Callable[[JobState], int],
    most: int | None,
    what: str,
    limit: Limit,
    place: str = "",
    who: str = "",
) -> Phrase:
    """Returns how much is in use, and the job that frees enough when it ends. `mine` are the jobs that count
    towards the limit, ordered by their end."""
    used = sum(map(size, mine))
    wants = max(1, size(job))
    who = who or (job.user if limit.holder == "person" else f"team {job.account}")
    verb = "runs" if what == "job" else "holds"
    if most is not None and wants > most:
        return (f"never starts as it is: it requests {count_of(wants, what)} and {who} may hold {most}{place}",)
    has = f"{who} {verb} {count_of(used, what)}" if most is None else f"{who} {verb} {used} of {count_of(most, what)}"
    has += place
    lacks = wants if most is None else used + wants - most
    if not mine or lacks <= 0:
        return (f"{has}; it should start in the next scheduling cycle",) if lacks <= 0 else (has,)
    needs = f"; this needs {count_of(wants, what)}: " if what != "job" else "; "
    came = 0
    for other in mine:
        came += size(other)
        if came >= lacks:
            return join_phrases(has, needs, describe_end(other, other.label))
    return (has,)


def _hours(limit: Limit, job: JobState, team: Team | None) -> Phrase:
    if limit.holder == "association":
        return _recent_hours(job, team)
    cap = team.gpu_hours if team else None
    if cap is not None and job.gpus and job.time_limit_s is None:
        has = f"team {job.account} has {cap.hours.normalize():f} GPU hours a {cap.per}"
        return (f"never starts as it is: it has no time limit, and {has}; cancel it and submit with --time",)
    if cap is not None and job.gpus * (job.time_limit_s or 0) / 3600 > cap.hours:
        has = f"team {job.account} has {cap.hours.normalize():f} a {cap.per}"
        return (
            f"never starts as it is: it may use {_gpu_hours(job)} GPU hours and {has}; request a shorter --time or fewer GPUs",
        )
    request_text = (
        f" (it may run {format_duration(job.time_limit_s)}, {_gpu_hours(job)} GPU hours)" if job.time_limit_s else ""
    )
    if cap is None:
        return (f"its team has too few hours left{request_text}; an admin can raise the limit",)
    return (
        f"team {job.account} has {cap.hours.normalize():f} GPU hours a {cap.per} and too few of them left{request_text}. "
        f"It starts with the next {cap.per}; a shorter --time may fit now",
    )


def _recent_hours(job: JobState, team: Team | None) -> Phrase:
    """Returns the words for the limit on the user's recent GPU-hours. Slurm's reason does not say how many are left."""
    most = team.limits_of(job.user).recent_gpu_hours if team else None
    if most is None:
        return ("its user has too few hours left; an admin can raise the limit",)
    has = f"{job.user} may use {most.normalize():f} recent GPU hours in team {job.account}"
    if job.gpus and job.time_limit_s is None:
        return (f"never starts as it is: it has no time limit, and {has}; cancel it and submit with --time",)
    wants = f"it may use {_gpu_hours(job)} GPU hours"
    if job.gpus * (job.time_limit_s or 0) / 3600 > most:
        return (f"never starts as it is: {wants} and {has}; request a shorter --time or fewer GPUs",)
    return (f"{has} and has too few left ({wants}). Use fades from day to day; a shorter --time may fit now",)


def _gpu_hours(job: JobState) -> str:
    return f"{job.gpus * (job.time_limit_s or 0) / 3600:,.2f}".rstrip("0").rstrip(".")

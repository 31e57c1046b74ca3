"""Limits of teams, people and QOS that a job waits for: Slurm's reason taken apart, and what would make room. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from headway.domain.cluster import Team
from headway.domain.slurm.job_states import ENDED
from headway.domain.slurm.state import JobState
from headway.jobs.explain.phrases import Words, ends, length, some, words_of
from headway.jobs.explain.placement_search import World
from headway.jobs.view.columns import label

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


@dataclass(frozen=True, slots=True)
class Limit:
    what: str  # "GPUs"
    whose: str  # "team" | "association" | "person" | "job" | "node"
    minutes: bool = False  # of what was used, or will be, over time
    least: bool = False


def limit_of(reason: str) -> Limit | None:
    """The limit that Slurm's word names; None for a word of another kind."""
    found = _LIMIT.fullmatch(reason)
    if found is None or found["what"].lower() not in _WHAT:
        return None
    whose = {"User": "person", "Account": "team", "Job": "job", "Node": "node"}.get(found["per"] or "")
    if whose is None:
        own = found["of"] == "Assoc" and found["how"] == "Max"  # of the person in that team
        grp = "team" if found["of"] == "QOS" else "association"  # which may be the team's, or of its user in it
        whose = "person" if own else grp if found["how"] == "Grp" else "job"
    what = _WHAT[found["what"].lower()]
    if what == "time" and found["how"] == "Max":
        whose = "job"
    return Limit(what, whose, bool(found["over"]), found["how"] == "Min")


def limit_words(limit: Limit) -> str:
    """Why it waits, in one sentence."""
    if limit.least:
        return f"asks for fewer {limit.what} than a job here must"
    if limit.whose in ("job", "node"):
        more = "longer" if limit.what == "time" else f"more {_hours_of(limit) if limit.minutes else limit.what}"
        return f"asks for {more} than a job may{' on each node' if limit.whose == 'node' else ''}"
    who = {"team": "the team", "association": "the team, or its user in it,"}.get(limit.whose, "its user")
    if limit.minutes:
        return f"{_hours_of(limit)} of {who.rstrip(',')} are used up, or would be by this job"
    if limit.what == "running jobs":
        return f"{who} has as many jobs running as the limit allows"
    if limit.what == "queued jobs":
        return f"{who} has as many jobs queued as the limit allows"
    return f"{who} holds as many {limit.what} as the limit allows"


def _hours_of(limit: Limit) -> str:
    return {"GPUs": "GPU hours", "CPUs": "CPU hours", "nodes": "node hours"}.get(limit.what, f"hours of {limit.what}")


def limit_needs(limit: Limit, job: JobState, world: World) -> Words:
    """What would start it: how much is held, and which job's end brings enough."""
    team = next((one for one in world.cluster.teams if one.name == job.account), None)
    if limit.least or limit.whose in ("job", "node"):
        change = f"{'more' if limit.least else 'less' if limit.what == 'memory' else 'fewer'} {limit.what}"
        if limit.what == "time" or limit.minutes:
            change = "a shorter --time" + ("" if limit.what == "time" else f" or {change}")
        return (f"never starts as it is: cancel it and submit with {change}, or have the limit changed",)
    if limit.minutes:
        return _hours(job, team)
    if limit.what == "queued jobs":
        return ("needs another of these jobs to end",)
    if limit.what == "running jobs" and limit.whose == "person" and team and team.budget and team.budget.cap:
        # Of limits this is the one that no file sets: the ledger does, once the budget is spent.
        unit = "USD" if team.budget.unit == "usd" else "GPU hours"
        spent = (
            f"the budget of team {team.name} is spent ({team.budget.limit.normalize():,f} {unit} a {team.budget.per})"
        )
        return (f"{spent}: it starts with the next {team.budget.per}, or when the budget is raised",)
    mine = [other for other in world.running if _counts(limit, other, job)]
    known = team if limit.whose == "team" else None
    if limit.what == "GPUs":
        return _enough(job, mine, lambda one: one.gpus, known.gpus if known else None, "GPU", limit)
    if limit.what == "running jobs":
        return _enough(job, mine, lambda _: 1, known.running_jobs if known else None, "job", limit)
    if limit.what == "nodes":
        return _enough(job, mine, lambda one: one.node_count, None, "node", limit)
    if limit.what == "CPUs":
        return _enough(job, mine, lambda one: one.cpus, None, "CPU", limit)
    return words_of("needs one of these to end: ", ends(mine[0], label(mine[0]))) if mine else ()


def _counts(limit: Limit, other: JobState, job: JobState) -> bool:
    if other.state in ENDED or other.account != job.account:
        return False
    return limit.whose in ("team", "association") or other.user == job.user


def _enough(
    job: JobState,
    mine: list[JobState],
    size: Callable[[JobState], int],
    most: int | None,
    what: str,
    limit: Limit,
) -> Words:
    """`mine`: those that count, the first to end first."""
    held = sum(map(size, mine))
    wants = max(1, size(job))
    who = job.user if limit.whose == "person" else f"team {job.account}"
    verb = "runs" if what == "job" else "holds"
    if most is not None and wants > most:
        return (f"never starts as it is: it asks for {some(wants, what)} and {who} may hold {most}",)
    has = f"{who} {verb} {some(held, what)}" if most is None else f"{who} {verb} {held} of {some(most, what)}"
    lacks = wants if most is None else held + wants - most
    if not mine or lacks <= 0:
        return (f"{has}; it should start with the scheduler's next look",) if lacks <= 0 else (has,)
    needs = f"; this needs {some(wants, what)}: " if what != "job" else "; "
    came = 0
    for other in mine:
        came += size(other)
        if came >= lacks:
            return words_of(has, needs, ends(other, label(other)))
    return (has,)


def _hours(job: JobState, team: Team | None) -> Words:
    cap = team.gpu_hours if team else None
    if cap is not None and job.gpus and job.time_limit_s is None:
        has = f"team {job.account} has {cap.hours.normalize():f} GPU hours a {cap.per}"
        return (f"never starts as it is: without --time it could run for ever, and {has}; cancel it and say --time",)
    if cap is not None and job.gpus * (job.time_limit_s or 0) / 3600 > cap.hours:
        has = f"team {job.account} has {cap.hours.normalize():f} a {cap.per}"
        return (
            f"never starts as it is: it may use {_gpu_hours(job)} GPU hours and {has}; ask for a shorter --time or fewer GPUs",
        )
    asked = f" (it may run {length(job.time_limit_s)}, {_gpu_hours(job)} GPU hours)" if job.time_limit_s else ""
    if cap is None:
        return (f"needs hours of its team that are not used up{asked}; an admin may give more",)
    return (
        f"team {job.account} has {cap.hours.normalize():f} GPU hours a {cap.per}: what is left is not enough{asked}. "
        f"It starts with the next {cap.per}; a shorter --time may fit now",
    )


def _gpu_hours(job: JobState) -> str:
    return f"{job.gpus * (job.time_limit_s or 0) / 3600:,.2f}".rstrip("0").rstrip(".")

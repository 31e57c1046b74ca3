"""Rules about teams, users and the limits of teams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headway.clusterfile import groups
from headway.clusterfile.draft import FileDraft, partitions_of
from headway.clusterfile.models.groups import GroupPart
from headway.clusterfile.models.scheduling.job_limits import JobsLimitsPart
from headway.clusterfile.models.teams import TeamPart
from headway.validation import syntax_rules
from headway.validation.field_types import UNLIMITED


def check_people(draft: FileDraft) -> None:
    """Records faults of teams and users: a user given twice, a lead who is no user, a team named like a user, a user in
    no team."""
    members = set[str]()
    for name, team in draft.file.teams.items():
        users = set[str]()
        for index, user in enumerate(team.users):
            if user in users:
                draft.fault(draft.item(f"teams.{name}.users", index), f"{user} is given twice", "keep one")
            users.add(user)
        members |= users
        for index, user in enumerate(team.leads):
            if user not in users:
                hint = draft.suggest(user, team.users) or f"add it to teams.{name}.users"
                draft.fault(draft.item(f"teams.{name}.leads", index), f"{user} is not a user of {name}", hint)
    for name in draft.file.teams:
        if name == draft.owner or name in members or name in draft.file.users:
            draft.fault(
                f"teams.{name}",
                "is also the name of a user",
                "rename the team: each user has a Linux group of the same name",
            )
    _check_uids(draft)
    if not draft.file.teams or not draft.is_intact("teams"):
        return
    for user in draft.file.users:
        if user not in members and user != draft.owner:
            near = draft.suggest(user, members)
            draft.fault(f"users.{user}", "is in no team", near or "add it to a team's users")


def teams_above(teams: Mapping[str, TeamPart], name: str) -> list[str]:
    """Returns the teams above a team, the nearest first; those of a loop once."""
    found: list[str] = []
    above = teams[name].parent
    while above in teams and above is not None and above not in found:
        found.append(above)
        above = teams[above].parent
    return found


def check_parents(draft: FileDraft) -> None:
    """Records faults of teams below each other: unknown parents, loops, and a budget that would hold the teams below."""
    teams, known = draft.file.teams, draft.names("teams")
    parents = {team.parent for team in teams.values()}
    for name, team in teams.items():
        path = f"teams.{name}.parent"
        if team.parent is not None and team.parent not in known:
            near = draft.suggest(team.parent, known) or "add it under teams"
            draft.fault(path, f"team {syntax_rules.printable(team.parent)} does not exist", near)
        elif name in (above := teams_above(teams, name)):
            draft.fault(path, f"has a cycle ({' -> '.join([name, *above])})", "remove one of them")
        if name not in parents:
            continue
        if team.budget is not None:
            draft.fault(
                f"teams.{name}.budget",
                "counts only its own jobs, and a spent budget would hold the jobs of the teams below it too",
                "give each team below it a budget",
            )
        if team.limits.gpu_hours is not None:
            draft.warn(f"teams.{name}.limits.gpu_hours", "counts only its own jobs, not those of the teams below it")


def _check_uids(draft: FileDraft) -> None:
    first: dict[int, str] = {}
    for name, user in draft.file.users.items():
        if user.uid is not None and first.setdefault(user.uid, name) != name:
            other = first[user.uid]
            draft.fault(f"users.{name}.uid", f"{user.uid} is also the uid of {other}", "give each user another uid")


def check_team_limits(draft: FileDraft) -> None:
    """Records faults and warnings of teams' limits: unknown GPU parts, limits that are never reached, limits that keep
    jobs pending."""
    plans = [(draft.catalogue.get(part.plan), part) for part in groups.parts_of(draft.file).values()]
    known = draft.has_size and all(plan is not None for plan, _ in plans)
    have = sum(plan.gpus * groups.max_nodes(part) for plan, part in plans if plan is not None)
    parts = {name for part in groups.parts_of(draft.file).values() for name in (*part.mig, *_shared(part))}
    for name, team in draft.file.teams.items():
        limits, path = team.limits, f"teams.{name}.limits"
        capped = (
            "gpu_hours" if limits.gpu_hours else "per_user.recent_gpu_hours" * bool(limits.per_user.recent_gpu_hours)
        )
        if capped and draft.is_intact("partitions", "groups", "plan"):
            endless = ", ".join(_endless(draft, name))
            if endless:
                draft.warn(
                    f"{path}.{capped}",
                    f"keeps every GPU job without --time in {endless} pending, because the job has no time limit",
                    f'give {endless} a default_time, such as "1-00:00:00"',
                )
        for unknown in (
            sorted(limits.gpu_parts.keys() - parts) if draft.is_intact("groups", "mig", "shards", "mps") else ()
        ):
            draft.fault(
                f"{path}.gpu_parts.{unknown}",
                "is no part of the cluster's GPUs",
                f"use {syntax_rules.join_words(sorted(parts), 'or')}" if parts else "give mig, shards or mps first",
            )
        if limits.running_jobs and limits.submitted_jobs and limits.submitted_jobs < limits.running_jobs:
            draft.warn(f"{path}.submitted_jobs", "is less than running_jobs, which is then never reached")
        for user, own in limits.users.items():
            if user not in team.users and draft.is_intact(f"teams.{name}.users"):
                hint = draft.suggest(user, team.users) or f"add it to teams.{name}.users"
                draft.fault(f"{path}.users.{user}", f"is not a user of {name}", hint)
            check_user_limits(draft, f"{path}.users.{user}", own)
        each = limits.per_user
        check_user_limits(draft, f"{path}.per_user", each)
        for field, most, of_team in (
            ("running_jobs", each.running_jobs, limits.running_jobs), ("gpus", each.gpus, limits.gpus),
            ("submitted_jobs", each.submitted_jobs, limits.submitted_jobs),
        ):  # fmt: skip
            if most and of_team and most > of_team:
                draft.warn(f"{path}.per_user.{field}", f"is more than the team's {of_team}, so it is never reached")
        if not known:
            continue
        if have == 0 and (limits.gpus or limits.gpu_hours):
            draft.warn(path, f"caps GPUs, and {' and '.join(plan.name for plan, _ in plans if plan)} has none")
        elif limits.gpus and limits.gpus > have:
            draft.warn(f"{path}.gpus", f"is more than the {have} GPUs of the cluster")


def check_user_limits(draft: FileDraft, path: str, limits: JobsLimitsPart) -> None:
    """Records a warning if the limit of running jobs is never reached."""
    if limits.running_jobs and limits.submitted_jobs and limits.submitted_jobs < limits.running_jobs:
        draft.warn(f"{path}.submitted_jobs", "is less than running_jobs, which is then never reached")


def check_partition_limits(draft: FileDraft) -> None:
    """Records a warning for each partition whose limit of running jobs is never reached."""
    for name, part in draft.file.partitions.items():
        check_user_limits(draft, f"partitions.{name}.per_user", part.per_user)
        check_user_limits(draft, f"partitions.{name}.limits", part.limits)


def _shared(part: GroupPart) -> list[str]:
    return [name for name, used in (("shard", part.shards), ("mps", part.mps)) if used]


def _endless(draft: FileDraft, team: str) -> Iterator[str]:
    """Yields partitions with GPUs where a job of this team without --time has no time limit."""
    parts = groups.parts_of(draft.file)
    for name, part in partitions_of(draft.file).items():
        plans = [
            draft.catalogue.get(group_spec.plan)
            for group, group_spec in parts.items()
            if group in (part.groups or parts)
        ]
        ends = any(time not in (None, UNLIMITED) for time in (part.max_time, part.default_time))
        if not ends and team in (part.teams or [team]) and any(plan and plan.gpus for plan in plans):
            yield name

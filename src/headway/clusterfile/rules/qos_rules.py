"""Rules about QOS that jobs choose: names, teams, preemption, limits that they would replace."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable

from headway.clusterfile.draft import FileDraft
from headway.clusterfile.rules.team_rules import check_user_limits, teams_above
from headway.validation import syntax_rules

_DEFAULT_TEAM = "default"


def check_qos(draft: FileDraft) -> None:
    """Records faults of QOS: a name that a team has, unknown or repeated names, loops of preemption, preemption by QOS and
    by partition in one cluster, a team's default that it may not use, caps of GPU-hours that jobs could evade."""
    teams = draft.names("teams") or [_DEFAULT_TEAM]
    for name, part in draft.file.qos.items():
        path = f"qos.{name}"
        if name in teams:
            draft.fault(path, "is also the name of a team", "rename it: each team has a QOS of the same name")
        _check_names(draft, f"{path}.teams", "team", part.teams, teams)
        _check_users(draft, f"{path}.users", part.users)
        _check_names(draft, f"{path}.preempts", "QOS or team", part.preempts, [*draft.names("qos"), *teams])
        check_user_limits(draft, f"{path}.limits", part.limits)
        check_user_limits(draft, f"{path}.limits.per_user", part.limits.per_user)
        for team, fields in draft.file.teams.items():
            offered = _offers(draft, name, team)
            if fields.limits.gpu_hours and (offered or set(part.users) & set(fields.users)):
                draft.fault(
                    f"{path}.teams" if offered else f"{path}.users",
                    f"includes {'' if offered else 'a user of '}{team}, whose limits.gpu_hours count only jobs without --qos",
                    f"list others, or replace the limit by budget: {{gpu_hours: ...}} of {team}, which counts all jobs",
                )
    _check_defaults(draft)
    if draft.is_intact("qos", "partitions"):
        _check_preemption(draft)


def _check_names(draft: FileDraft, path: str, what: str, names: Iterable[str], known: list[str]) -> None:
    seen = set[str]()
    for index, name in enumerate(names):
        if name not in known:
            text = f"{what} {syntax_rules.printable(name)} does not exist"
            draft.fault(draft.item(path, index), text, draft.suggest(name, known))
        elif name in seen:
            draft.fault(draft.item(path, index), f"{name} is given twice", "keep one")
        seen.add(name)


def _check_users(draft: FileDraft, path: str, users: list[str]) -> None:
    """Records users who are in no team, and repeated ones. A file without teams has one team of all users."""
    if draft.file.teams:
        known = sorted({user for team in draft.file.teams.values() for user in team.users})
        _check_names(draft, path, "user", users, known)


def _offers(draft: FileDraft, qos: str, team: str) -> bool:
    """Returns whether the jobs of the team may choose the QOS: it names neither teams nor users, the team, or one above it."""
    named = draft.file.qos[qos].teams
    return not (named or draft.file.qos[qos].users) or any(
        name in named for name in (team, *teams_above(draft.file.teams, team))
    )


def _check_defaults(draft: FileDraft) -> None:
    for name, team in draft.file.teams.items():
        default, path = team.default_qos, f"teams.{name}.default_qos"
        if not team.own_qos and default in (None, name):
            draft.fault(
                f"teams.{name}.own_qos",
                "is false, and default_qos names no other QOS",
                "give default_qos, or leave it out",
            )
        if default is None or default == name:
            continue
        if default not in draft.names("qos"):
            near = (
                draft.suggest(default, draft.names("qos")) or f"add it under qos, or leave it out: {name} has its own"
            )
            draft.fault(path, f"QOS {syntax_rules.printable(default)} does not exist", near)
        elif default in draft.file.qos and not _offers(draft, default, name):
            draft.fault(path, f"{default} is not for {name}", f"add {name} to qos.{default}.teams")


def _check_preemption(draft: FileDraft) -> None:
    file = draft.file
    preempting = [name for name, part in file.qos.items() if part.preempts]
    by_partition = [name for name, part in file.partitions.items() if part.preempts]
    if preempting and by_partition:
        draft.fault(
            f"qos.{preempting[0]}.preempts",
            f"can't be combined with preempts of partition {by_partition[0]}: Slurm preempts by QOS or by partition",
            "remove preempts of all partitions, or of all QOS",
        )
    try:
        graphlib.TopologicalSorter({name: part.preempts for name, part in file.qos.items()}).prepare()
    except graphlib.CycleError as error:
        circle = list(reversed(error.args[1]))
        draft.fault(f"qos.{circle[0]}.preempts", f"has a cycle ({' -> '.join(circle)})", "remove one of them")

"""Teams, users, limits and QOS: the changes that lead from Slurm accounting as it is to the desired one. Pure.

The data of each Change is one command for `headway.slurm.accounting.sacctmgr_commands`; in the given order each command is
valid when it runs. sacctmgr refuses to remove a user whose jobs have not ended: the user is locked first (no new jobs),
and removed by a later ChangeSet. Their past jobs stay in accounting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from graphlib import TopologicalSorter

from headway.domain.billing.cap_periods import period_start
from headway.domain.changeset import Change, Disturbs
from headway.domain.slurm.accounts import Account, Accounts, Association, Qos
from headway.domain.teams import Team

_OPERATOR_ACCOUNT = "root"
# Limits with a value; those of resources (GrpTRES, GrpTRESMins) have one for each resource.
_PLAIN_LIMITS = ("GrpJobs", "GrpSubmitJobs", "MaxJobsPerUser", "MaxSubmitJobsPerUser", "MaxWall")
_RESOURCE_LIMITS = ("GrpTRES", "GrpTRESMins", "MaxTRESPerJob", "MaxTRESPerUser")
_MEMORY, _UNITS = re.compile(r"([0-9]+(?:\.[0-9]+)?)([MGTPE]?)"), "MGTPE"
# Settings of a QOS, with the values that Slurm gives to a new one
_SETTINGS = {"GraceTime": "0", "PreemptMode": "cluster", "Priority": "0", "UsageFactor": "1.000000"}


def account_changes(desired: Accounts, observed: Accounts) -> list[Change]:
    """Returns the changes in the order in which sacctmgr accepts them: additions first, then removals."""
    return [
        *_qos_changes(desired, observed),
        *_wider_lists(desired, observed),
        *_account_changes(desired, observed),
        *_operator_changes(desired, observed),
        *_member_changes(desired, observed),
        *_partition_removals(observed),
        *_removals(desired, observed),
    ]


def lock_changes(user: str, observed: Accounts) -> list[Change]:
    """Returns the changes that keep one user from submitting jobs in any team."""
    return [change for member in observed.associations if member.user == user for change in _lock(member, cancel=False)]


def member_changes(user: str, desired: Accounts, observed: Accounts) -> list[Change]:
    """Returns the changes that let one user submit jobs in their teams of the cluster, and put them out of all others. Teams
    that are not in accounting yet are left to an apply."""
    there = {account.name for account in observed.accounts}
    wanted = tuple(a for a in desired.associations if a.user == user and a.account in there)
    mine = tuple(a for a in observed.associations if a.user == user)
    leaves = _removals(desired, replace(observed, accounts=(), qos=(), associations=mine))
    return [*_member_changes(replace(desired, associations=wanted), observed), *leaves]


def usage_resets_due(teams: Iterable[Team], last: Mapping[str, datetime], now: datetime) -> list[Change]:
    """Returns the usage resets of teams whose period began since their last reset. `last`: team -> time of the last
    reset. A team that is not in it was never reset: the caller records `now` for it without a command, because its
    usage began with it."""
    found = []
    for team in teams:
        if team.gpu_hours is None or team.name not in last:
            continue
        began = period_start(team.gpu_hours.per, now)
        if last[team.name] < began:
            # RawUsage works only alone: sacctmgr ignores other settings in the same command.
            command = _command("modify", "qos", team.name, "RawUsage=0")
            found.append(_change("refill", team.name, f"a new {team.gpu_hours.per} began on {began:%Y-%m-%d}", command))
    return found


def _change(
    what: str, name: str, why: str, command: Mapping[str, object], disturbs: Disturbs = Disturbs.NOTHING
) -> Change:
    return Change(f"account.{what}", "cluster", name, why, disturbs, command)


def _command(verb: str, entity: str, name: str, *settings: str, account: str = "") -> dict[str, object]:
    """Returns the command as `headway.slurm.accounting.sacctmgr_commands.account_change_argv` reads it."""
    command: dict[str, object] = {"verb": verb, "entity": entity, "name": name, "set": list(settings)}
    return {**command, "account": account} if account else command


def _qos_changes(desired: Accounts, observed: Accounts) -> Iterator[Change]:
    have = {qos.name: qos for qos in observed.qos}
    for qos in desired.qos:
        seen, whose = have.get(qos.name), _whose(qos.name, desired)
        if seen is None:
            limits = [f"{name}={value}" for name, value in sorted({**qos.limits, **qos.settings}.items())]
            flags = [f"Flags={','.join(qos.flags)}"] if qos.flags else []
            command = _command("add", "qos", qos.name, *flags, *limits)
            yield _change("qos", qos.name, f"{whose}: {', '.join(limits) or 'none'}", command)
            continue
        words = _limit_words(seen.limits, qos.limits)
        words += [
            f"{name}={qos.settings.get(name, default)}"
            for name, default in _SETTINGS.items()
            if seen.settings.get(name) != qos.settings.get(name)
        ]
        words += [f"Flags={','.join(qos.flags) or '-1'}"] if seen.flags != qos.flags else []
        if words:
            command = _command("modify", "qos", qos.name, *words)
            yield _change("qos", qos.name, f"{whose} change: {', '.join(words)}", command)
    yield from _preempt_changes(desired, have)


def _whose(name: str, desired: Accounts) -> str:
    if name in desired.account_qos:
        return "the team's limits"
    return "limits of jobs in the partition" if "." in name else f"limits and settings of jobs with --qos {name}"


def _preempt_changes(desired: Accounts, have: Mapping[str, Qos]) -> Iterator[Change]:
    """Yields the changes of lists of QOS that a QOS preempts. Names are removed first: sacctmgr refuses a list that makes a
    loop with one that is still there."""
    left: dict[str, tuple[str, ...]] = {}
    for qos in desired.qos:
        seen = have[qos.name].preempts if qos.name in have else ()
        left[qos.name] = tuple(name for name in seen if name in qos.preempts)
        if left[qos.name] != seen:
            yield _preempt_change(qos.name, left[qos.name])
    for qos in desired.qos:
        if left[qos.name] != qos.preempts:
            yield _preempt_change(qos.name, qos.preempts)


def _preempt_change(name: str, preempts: tuple[str, ...]) -> Change:
    command = _command("modify", "qos", name, f"Preempt={','.join(preempts)}")
    return _change("qos", name, f"preempts {', '.join(preempts) or 'no other'}", command)


def _limit_words(seen: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Returns sacctmgr's words that make the limits as wanted; -1 removes a limit. Of a limit of resources, sacctmgr
    changes only the resources that are named."""
    words = [f"{name}={wanted.get(name, '-1')}" for name in _PLAIN_LIMITS if seen.get(name) != wanted.get(name)]
    for name in _RESOURCE_LIMITS:
        have, want = _resources(seen.get(name, "")), _resources(wanted.get(name, ""))
        named = sorted({*have, *want})
        changed = {tres: want.get(tres, "-1") for tres in named if _printed(have, tres) != _printed(want, tres)}
        if changed:
            words.append(f"{name}=" + ",".join(f"{tres}={count}" for tres, count in changed.items()))
    return words


def _resources(text: str) -> dict[str, str]:
    """Returns the values by resource: `gres/gpu=16,gres/shard=8`."""
    return dict(part.rpartition("=")[::2] for part in text.split(",") if part)


def _printed(limits: Mapping[str, str], tres: str) -> str | None:
    """Returns a limit as sacctmgr prints it, which rounds memory: mem=1.50T for mem=1572864M. None without a limit."""
    value = limits.get(tres)
    number = _MEMORY.fullmatch(value) if value is not None and tres == "mem" else None
    if number is None:
        return value
    size, unit = float(number[1]), _UNITS.index(number[2] or "M")
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f}{_UNITS[unit]}" if size.is_integer() else f"{size:.2f}{_UNITS[unit]}"


def _account_changes(desired: Accounts, observed: Accounts) -> Iterator[Change]:
    have = {account.name: account for account in observed.accounts}
    for account in _parents_first(desired.accounts):
        seen = have.get(account.name)
        qos = desired.account_qos.get(account.name, ())
        words = [f"fairshare={account.share}"] if seen is None or seen.share != account.share else []
        if qos and observed.account_qos.get(account.name) != qos:
            words += [f"qos={','.join(qos)}", f"defaultqos={qos[0]}"]
        words += _limit_words(seen.limits if seen else {}, account.limits)
        above = f"parent={account.parent or 'root'}"
        if seen is None:
            command = _command("add", "account", account.name, above, *words)
            below = f" below {account.parent}" if account.parent else ""
            yield _change("team", account.name, f"new team with share {account.share}{below}", command)
            continue
        if seen.parent != account.parent:
            yield _change("team", account.name, above, _command("modify", "account", account.name, above))
        if words:
            command = _command("modify", "account", account.name, *words)
            yield _change("team", account.name, ", ".join(words), command)


def _wider_lists(desired: Accounts, observed: Accounts) -> Iterator[Change]:
    """Yields the changes that add the QOS of an account to the lists of its users that lack its new default: sacctmgr refuses a
    default that a user may not choose. `_member_changes` makes the lists as desired."""
    for member in observed.associations:
        of_account = desired.account_qos.get(member.account, ())
        if member.qos and of_account and of_account[0] not in member.qos:
            names = ",".join(sorted({*member.qos, *of_account}))
            command = _command("modify", "user", member.user, f"qos={names}", account=member.account)
            yield _change("user", member.user, f"may choose the new default QOS of team {member.account}", command)


def _parents_first(accounts: Iterable[Account]) -> list[Account]:
    known = {account.name: account for account in accounts}
    above = {name: [account.parent] if account.parent in known else [] for name, account in known.items()}
    return [known[name] for name in TopologicalSorter(above).static_order()]


def _operator_changes(desired: Accounts, observed: Accounts) -> Iterator[Change]:
    for name in desired.operators:
        if name not in observed.operators:
            command = _command("add", "user", name, "adminlevel=Operator", account=_OPERATOR_ACCOUNT)
            yield _change("operator", name, "account through which Headway acts for leads and admins", command)


def _member_changes(desired: Accounts, observed: Accounts) -> Iterator[Change]:
    have = {(a.user, a.account): a for a in observed.associations}
    known = {a.user for a in observed.associations}
    # sacctmgr makes a user's first association the default.
    for member in sorted(desired.associations, key=lambda a: (a.user, not a.default, a.account)):
        user, team = member.user, member.account
        seen = have.get((user, team))
        first = user not in known
        if seen is None:
            command = _command("add", "user", user, account=team)
            yield _change("user", user, f"joins team {team}", command)
            known.add(user)
        elif seen.locked:
            command = _command("modify", "user", user, "maxsubmitjobs=-1", account=team)
            yield _change("user", user, f"may submit in team {team} again", command)
        words = _limit_words(seen.limits if seen else {}, member.limits)
        if words:
            command = _command("modify", "user", user, *words, account=team)
            yield _change("user", user, f"limits in team {team}: {', '.join(words)}", command)
        if member.qos != (seen.qos if seen else ()):
            command = _command("modify", "user", user, f"qos={','.join(member.qos)}", account=team)
            why = f"may choose QOS {', '.join(member.qos)}" if member.qos else "may choose the QOS of the team"
            yield _change("user", user, f"{why} in team {team}", command)
        if member.default and not first and (seen is None or not seen.default):
            command = _command("modify", "user", user, f"defaultaccount={team}")
            yield _change("user", user, f"team {team} becomes the default", command)


def _partition_removals(observed: Accounts) -> Iterator[Change]:
    """Yields the removals of associations in one partition, as the database of another Slurm has them: members of a team have
    one for all partitions. While the user has jobs there, sacctmgr refuses it: a later ChangeSet removes them."""
    for user, account, partition in observed.of_partitions:
        if (user, account) not in observed.busy:
            command = {**_command("delete", "user", user, account=account), "partition": partition}
            yield _change("user", user, f"an association for partition {partition} alone in team {account}", command)


def _removals(desired: Accounts, observed: Accounts) -> Iterator[Change]:
    desired_pairs = {(a.user, a.account) for a in desired.associations}
    staying = {user for user, _ in desired_pairs} | set(desired.operators)
    gone = [a for a in observed.associations if (a.user, a.account) not in desired_pairs]
    busy_accounts = set()
    ended: dict[str, list[Association]] = {}
    for member in gone:
        if (member.user, member.account) in observed.busy:
            busy_accounts.add(member.account)
            yield from _lock(member, cancel=desired.departed_jobs == "cancel")
        else:
            ended.setdefault(member.user, []).append(member)
    busy_users = {a.user for a in gone if a.account in busy_accounts and (a.user, a.account) in observed.busy}
    for user, members in ended.items():
        if user not in staying and user not in busy_users:
            command = _command("delete", "user", user)
            yield _change("user", user, "is no longer in the cluster file; past jobs stay in accounting", command)
            continue
        for member in members:
            # sacctmgr does not remove a default account while the user has others. A user who stays has another default
            # by now.
            if member.default and user in busy_users and user not in staying:
                busy_accounts.add(member.account)
                yield from _lock(member, cancel=False)
                continue
            command = _command("delete", "user", user, account=member.account)
            yield _change("user", user, f"leaves team {member.account}", command)
    teams = {account.name: account for account in desired.accounts}
    # Accounts of the file are below their parents of the file by now.
    for account in reversed(_parents_first(teams.get(account.name, account) for account in observed.accounts)):
        if account.name in busy_accounts:
            busy_accounts.add(account.parent)  # sacctmgr would remove the accounts below it too
        elif account.name not in teams:
            command = _command("delete", "account", account.name)
            yield _change("team", account.name, "is no longer in the cluster file", command)
    # sacctmgr does not remove the default QOS of an account.
    kept = {qos.name for qos in desired.qos} | busy_accounts
    left = busy_accounts - teams.keys()
    kept |= {observed.account_qos[name][0] for name in left if name in observed.account_qos}
    for qos in observed.qos:
        if qos.name not in kept:
            command = _command("delete", "qos", qos.name)
            yield _change("qos", qos.name, _why_gone(qos.name), command)


def _why_gone(qos: str) -> str:
    return "its partition has no limits in the cluster file" if "." in qos else "is no longer in the cluster file"


def _lock(member: Association, *, cancel: bool) -> Iterator[Change]:
    """Yields the changes that lock a member: no new jobs, and running jobs are cancelled or may end. Jobs of a locked
    member are cancelled too, because the run that locked the member may have been killed before it cancelled them."""
    user, team = member.user, member.account
    if not member.locked:
        command = _command("modify", "user", user, "maxsubmitjobs=0", account=team)
        yield _change("lock", user, f"leaves team {team}: no new jobs; removed when the last has ended", command)
    if cancel:
        command = _command("cancel_jobs", "user", user, account=team)
        yield _change("cancel", user, f"jobs in team {team} are cancelled", command, Disturbs.JOBS)

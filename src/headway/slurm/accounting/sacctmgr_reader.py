"""Reads accounts, users and limits, as they are now, with sacctmgr. `sacctmgr_commands` changes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from headway.domain.machines.machine import Machine
from headway.domain.slurm.accounts import Account, Accounts, Association, Qos
from headway.errors import HeadwayError
from headway.transport.ssh import Remote

_TIMEOUT_S = 30.0
_QUEUE_S = 5.0
# Limits of accounts and of users in them that Headway sets, by their names in sacctmgr's `set`
ASSOCIATION_LIMITS = ("GrpJobs", "GrpSubmitJobs", "GrpTRES", "GrpTRESMins")
_ASSOC = (
    "account",
    "user",
    "parentname",
    "fairshare",
    "qos",
    "defaultqos",
    "maxsubmitjobs",
    "partition",
    *ASSOCIATION_LIMITS,
)
_USER = ("user", "adminlevel", "defaultaccount")
# Limits that Headway sets, by their names in sacctmgr's `set`.
QOS_LIMITS = (
    "GrpJobs", "GrpSubmitJobs", "GrpTRES", "GrpTRESMins", "MaxJobsPerUser", "MaxSubmitJobsPerUser", "MaxTRESPerJob",
    "MaxTRESPerUser", "MaxWall",
)  # fmt: skip
# Settings of a QOS, with the values that Slurm prints for its defaults
_QOS_SETTINGS = {"GraceTime": "00:00:00", "PreemptMode": "cluster", "Priority": "0", "UsageFactor": "1.000000"}
_QOS = ("name", "flags", "preempt", *_QOS_SETTINGS, *QOS_LIMITS)
# Slurm's own entries: never returned, so never changed or removed.
_SLURMS_QOS = frozenset({"normal"})
_SLURMS = frozenset({"root"})


async def read_accounts(connections: Remote, head: Machine) -> Accounts:
    """Returns accounts, users and limits. Raises CommandFailed or Unreachable when slurmdbd or the head does not
    answer."""

    waiting = asyncio.ensure_future(_queue(connections, head))
    try:
        ran = await asyncio.gather(
            *(connections.remote(head, argv, timeout_s=_TIMEOUT_S) for argv in accounts_argv().values())
        )
        found = parse_accounts(*(result.stdout for result in ran))
        return replace(found, busy=found.busy | await waiting)
    finally:
        waiting.cancel()


async def _queue(connections: Remote, head: Machine) -> frozenset[tuple[str, str]]:
    """Returns (user, account) of jobs that are in the queue, perhaps not yet in the database. Empty when the
    controller does not answer."""
    try:
        ran = await connections.remote(head, ["squeue", "-h", "-o", "%u|%a"], timeout_s=_QUEUE_S)
    except HeadwayError:
        return frozenset()
    return frozenset((row["user"], row["account"]) for row in _rows(ran.stdout, ("user", "account")))


def accounts_argv() -> dict[str, list[str]]:
    """Returns the commands, in the order in which `parse_accounts` takes their output."""
    return {
        "associations": _show("assoc", _ASSOC),
        "users": _show("user", _USER),
        "qos": _show("qos", _QOS),
        # sacctmgr itself makes this check before it deletes a user.
        "busy": ["sacct", "-a", "-X", "-n", "-P", "-s", "PENDING,RUNNING,SUSPENDED", "--format=User,Account"],
    }


def parse_accounts(associations: str, users: str, qos: str, busy: str = "") -> Accounts:
    """Returns the accounts from the output of the four commands, all sorted."""
    people = {row["user"]: row for row in _rows(users, _USER)}
    accounts: list[Account] = []
    members: list[Association] = []
    qos_of: dict[str, tuple[str, ...]] = {}
    of_partitions: list[tuple[str, str, str]] = []
    for row in _rows(associations, _ASSOC):
        account, user = row["account"], row["user"]
        if account in _SLURMS:
            continue
        if not user:
            above = "" if row["parentname"] in _SLURMS else row["parentname"]
            accounts.append(Account(account, _share(row["fairshare"]), _limits(row, ASSOCIATION_LIMITS), above))
            if default := row["defaultqos"]:
                qos_of[account] = (default, *(name for name in _names(row["qos"]) if name != default))
            continue
        if row["partition"]:
            of_partitions.append((user, account, row["partition"]))
            continue
        is_default = people.get(user, {}).get("defaultaccount") == account
        locked, limits = row["maxsubmitjobs"] == "0", _limits(row, ASSOCIATION_LIMITS)
        # Slurm prints the list of the account where a user has none.
        may = _names(row["qos"])
        own = () if may == tuple(sorted(qos_of.get(account, may))) else may
        members.append(Association(user, account, is_default, locked, limits, own))
    return Accounts(
        accounts=tuple(sorted(accounts, key=lambda a: a.name)),
        associations=tuple(sorted(members, key=lambda a: (a.user, a.account))),
        qos=tuple(sorted((_qos(r) for r in _rows(qos, _QOS) if r["name"] not in _SLURMS_QOS), key=lambda q: q.name)),
        operators=tuple(sorted(name for name, row in people.items() if row["adminlevel"] == "Operator")),
        account_qos=qos_of,
        of_partitions=tuple(sorted(of_partitions)),
        busy=frozenset((row["user"], row["account"]) for row in _rows(busy, ("user", "account"))),
    )


def _show(what: str, fields: Sequence[str]) -> list[str]:
    return ["sacctmgr", "-n", "-P", "show", what, f"format={','.join(fields)}"]


def _rows(output: str, fields: Sequence[str]) -> Iterator[dict[str, str]]:
    for line in output.splitlines():
        words = line.split("|")
        if len(words) == len(fields):
            yield dict(zip(fields, words, strict=True))


def _share(value: str) -> int:
    return int(value) if value.isdigit() else 1  # "parent"


def _qos(row: dict[str, str]) -> Qos:
    limits = _limits(row, QOS_LIMITS)
    if "MaxWall" in limits:
        limits["MaxWall"] = str(_seconds(limits["MaxWall"]) // 60)
    settings = {name: row[name] for name, default in _QOS_SETTINGS.items() if row[name] not in ("", default)}
    if "GraceTime" in settings:
        settings["GraceTime"] = str(_seconds(settings["GraceTime"]))
    return Qos(row["name"], limits, _names(row["flags"]), settings, _names(row["preempt"]))


def _limits(row: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: row[name] for name in names if row[name]}


def _names(text: str) -> tuple[str, ...]:
    """Returns the names of a list in order of the alphabet."""
    return tuple(sorted(filter(None, text.split(","))))


def _seconds(text: str) -> int:
    """Returns the seconds of a time that sacctmgr prints, such as 2-00:30:00."""
    days, _, clock = text.rpartition("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds

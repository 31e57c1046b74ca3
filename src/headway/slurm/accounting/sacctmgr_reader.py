"""Reads accounts, users and limits, as they are now, with sacctmgr. `sacctmgr_commands` changes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

from headway.domain.machines.machine import Machine
from headway.domain.slurm.accounts import Account, Accounts, Association, Qos
from headway.errors import HeadwayError
from headway.transport.ssh import Remote

_TIMEOUT_S = 30.0
_QUEUE_S = 5.0
_ASSOC = ("account", "user", "fairshare", "qos", "defaultqos", "maxsubmitjobs", "grptresmins")
_USER = ("user", "adminlevel", "defaultaccount")
# Limits that Headway sets, by their names in sacctmgr's `set`.
QOS_LIMITS = (
    "GrpJobs", "GrpSubmitJobs", "GrpTRES", "GrpTRESMins", "MaxJobsPerUser", "MaxSubmitJobsPerUser", "MaxTRESPerUser",
)  # fmt: skip
_QOS = ("name", "flags", *QOS_LIMITS)
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
    defaults: dict[str, str] = {}
    for row in _rows(associations, _ASSOC):
        account, user = row["account"], row["user"]
        if account in _SLURMS:
            continue
        if not user:
            accounts.append(Account(account, _share(row["fairshare"])))
            if row["defaultqos"] and row["qos"] == row["defaultqos"]:
                defaults[account] = row["defaultqos"]
            continue
        is_default = people.get(user, {}).get("defaultaccount") == account
        minutes = dict(part.partition("=")[::2] for part in row["grptresmins"].split(",")).get("gres/gpu", "")
        locked, limit = row["maxsubmitjobs"] == "0", int(minutes) if minutes.isdigit() else None
        members.append(Association(user, account, is_default, locked, limit))
    return Accounts(
        accounts=tuple(sorted(accounts, key=lambda a: a.name)),
        associations=tuple(sorted(members, key=lambda a: (a.user, a.account))),
        qos=tuple(sorted((_qos(r) for r in _rows(qos, _QOS) if r["name"] not in _SLURMS_QOS), key=lambda q: q.name)),
        operators=tuple(sorted(name for name, row in people.items() if row["adminlevel"] == "Operator")),
        account_qos=defaults,
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
    limits = {name: row[name] for name in QOS_LIMITS if row[name]}
    return Qos(row["name"], limits, tuple(sorted(filter(None, row["flags"].split(",")))))

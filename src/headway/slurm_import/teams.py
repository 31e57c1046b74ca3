"""teams and users: accounts of a site with their shares, users and limits."""

from __future__ import annotations

import graphlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from headway.slurm_import import site_names
from headway.slurm_import.accounting import (
    ROOT,
    USER_LIMITS,
    USER_TRES,
    Accounting,
    Association,
    SiteQos,
    chain,
    descendants,
    rest_of_tres,
    user_limits,
)
from headway.slurm_import.values import tres, whole_number
from headway.slurm_import.verdicts import Item, Ledger
from headway.validation import reserved_names, syntax_rules
from headway.validation.field_types import MOST_TEAMS, MOST_USERS

_MOST_SHARE = 1_000_000
_DESCRIPTION = ("a cluster file has no descriptions of teams", "nothing to do")
_PEOPLE = "add the person with headway people, with this role"
_QOS = "the import does not carry QOS that jobs choose"
_QOS_INSTEAD = "add it under qos; see docs/howto/limits.md"
# Limits of an account that count for all its jobs together, and those that each of its users has
_OF_TEAM = {"grpjobs": "running_jobs", "grpsubmitjobs": "submitted_jobs"}
_OF_USER = {"maxjobs": "running_jobs", "maxsubmitjobs": "submitted_jobs"}
_GPU = {"gres/gpu": "gpus"}


@dataclass
class Teams:
    """The sections `teams` and `users`. `of_account`: account of the site -> team."""

    of_account: dict[str, str] = field(default_factory=dict)
    fields: dict[str, dict[str, Any]] = field(default_factory=dict)
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    carried_qos: set[str] = field(default_factory=set)


def make_teams(accounting: Accounting, ledger: Ledger) -> Teams:
    """Returns the teams. Decides on every item of accounts and users; `decide_qos` decides on the QOS."""
    names = _valid_users(accounting, ledger)
    given = site_names.team_names(names)
    below = list(descendants(accounting.accounts))
    members: dict[str, list[Association]] = {}
    for user in accounting.users:
        members.setdefault(user.account, []).append(user)
    parents = {account.parent for account in below}
    kept = [a for a in below if members.get(a.account) or a.account not in parents][:MOST_TEAMS]
    shares = _shares(kept, accounting, members)
    teams = Teams({account.account: given.of(account.account) for account in kept})
    for account in kept:
        _Team(account, teams, accounting, ledger).make(shares[account.account], members.get(account.account, []), names)
    _decide_other_accounts(accounting, teams, ledger)
    teams.fields = _in_order(teams, accounting, names)
    _decide_users(accounting, teams, names, ledger)
    return teams


def _valid_users(accounting: Accounting, ledger: Ledger) -> set[str]:
    """Returns users whose names a cluster file can have. Decides on the others."""
    valid: set[str] = set()
    for user in accounting.users:
        name = user.user
        fault = syntax_rules.user_name_fault(name) or (
            "is the name of a system user" if name in reserved_names.SYSTEM_USERS else ""
        )
        if not fault and (name in valid or len(valid) < MOST_USERS):
            valid.add(name)
            continue
        fault = fault or f"a cluster has at most {MOST_USERS} users"
        for item in (user.head, *user.keys.values()):
            if name == ROOT:
                ledger.same(item, "Slurm's own user")
            else:
                ledger.dropped(item, f"{name} {fault}", "give the person another user name and move the home folder")
    return valid


def _shares(
    kept: Iterable[Association], accounting: Accounting, members: Mapping[str, list[Association]]
) -> dict[str, int]:
    """Returns the share of each team. Accounts below each other become teams of one level: each gets the part of the
    cluster that its place in the tree gives it."""
    accounts = accounting.accounts
    teams = list(kept)
    if all(len(chain(account, accounts)) == 1 for account in teams):
        return {account.account: min(account.share, _MOST_SHARE) for account in teams}
    sums: dict[str, int] = {}
    for account in descendants(accounts):
        sums[account.parent] = sums.get(account.parent, 0) + account.share
    parts: dict[str, Fraction] = {}
    for account in teams:
        part = Fraction(1)
        for one in chain(account, accounts):
            above = sum(user.share for user in members.get(one.parent, ())) if one.parent != ROOT else 0
            part *= Fraction(one.share, sums[one.parent] + above)
        users, children = sum(user.share for user in members.get(account.account, ())), sums.get(account.account, 0)
        parts[account.account] = part * (Fraction(users, users + children) if users and children else 1)
    exact = Fraction(math.lcm(*(part.denominator for part in parts.values())))
    scale = min(exact, Fraction(_MOST_SHARE) / max(parts.values(), default=Fraction(1)))
    return {name: max(1, round(part * scale)) for name, part in parts.items()}


class _Team:
    """One team, and the verdicts on its account's options."""

    def __init__(self, account: Association, teams: Teams, accounting: Accounting, ledger: Ledger) -> None:
        self._account, self._teams, self._accounting, self._ledger = account, teams, accounting, ledger
        self._name = teams.of_account[account.account]
        self._limits: dict[str, Any] = {}

    def make(self, share: int, members: list[Association], valid: set[str]) -> None:
        """Adds the team's fields."""
        account, ledger, place = self._account, self._ledger, f"teams.{self._name}"
        above = chain(account, self._accounting.accounts)[1:]
        path = " below " + ", ".join(a.account for a in above) if above else ""
        renamed = f"under the name {self._name}" if self._name != account.account else ""
        ledger.carried(account.head, place, (renamed + path).strip())
        users = list(dict.fromkeys(user.user for user in members if user.user in valid))
        leads = [user.user for user in members if self._leads(user) and user.user in users]
        fields: dict[str, Any] = {"users": users, "leads": list(dict.fromkeys(leads)), "share": share}
        for key, item in account.keys.items():
            self._option(key, item, share, nested=bool(above))
        own = self._own_qos()
        if own is not None:
            self._take_qos(own)
        fields["limits"] = self._limits
        self._teams.fields[self._name] = {key: value for key, value in fields.items() if value}

    def _leads(self, user: Association) -> bool:
        return self._account.account in user.value("coordinator").split(",")

    def _option(self, key: str, item: Item, share: int, *, nested: bool) -> None:
        ledger, place = self._ledger, f"teams.{self._name}"
        match key:
            case "description" | "organization":
                ledger.dropped(item, *_DESCRIPTION)
            case "fairshare":
                why = f"its part of the whole tree: {item.value} of its parent's accounts" if nested else ""
                same = item.value == "1" and share == 1
                ledger.same(item) if same else ledger.carried(item, f"{place}.share", why)
            case _ if key in _OF_TEAM and whole_number(item.value):
                self._limits[_OF_TEAM[key]] = whole_number(item.value)
                ledger.carried(item, f"{place}.limits.{_OF_TEAM[key]}")
            case _ if key in _OF_USER and whole_number(item.value):
                self._limits.setdefault("per_user", {})[_OF_USER[key]] = whole_number(item.value)
                ledger.carried(item, f"{place}.limits.per_user.{_OF_USER[key]}")
            case "grptres" if tres(item.value).get("gres/gpu"):
                self._limits["gpus"] = tres(item.value)["gres/gpu"]
                self._partly(item, f"{place}.limits.gpus")
            case "qos" | "defaultqos":
                self._qos_option(item)
            case _:
                ledger.dropped(item, *limit_reason(key, item.value))

    def _partly(self, item: Item, place: str) -> None:
        rest = rest_of_tres(item.value, _GPU)
        if rest:
            self._ledger.dropped(
                item, f"{place} has the GPUs; a team has no limit on {rest}", "limit GPUs or running jobs"
            )
        else:
            self._ledger.carried(item, place)

    def _qos_option(self, item: Item) -> None:
        own = self._own_qos()
        if item.value in ("normal", "+normal", ""):
            self._ledger.same(item, "Headway gives each team a QOS of its own")
        elif own is not None and item.value in (own.name, f"normal,{own.name}"):
            self._ledger.carried(item, f"teams.{self._name}.limits")
        else:
            self._ledger.dropped(item, _QOS, _QOS_INSTEAD)

    def _own_qos(self) -> SiteQos | None:
        """Returns the QOS that all jobs of the account have and no other account's: its limits are the team's."""
        default = self._account.value("defaultqos") or self._account.value("qos").removeprefix("+")
        if default in ("", "normal") or default not in self._accounting.qos:
            return None
        for other in self._accounting.accounts.values():
            listed = {*other.value("qos").replace("+", "").split(","), other.value("defaultqos")}
            if other.account != self._account.account and default in listed:
                return None
        return self._accounting.qos[default]

    def _take_qos(self, qos: SiteQos) -> None:
        self._teams.carried_qos.add(qos.name)
        place = f"teams.{self._name}.limits"
        for key, item in qos.keys.items():
            if key in _OF_TEAM or key == "grpsubmit":
                name = _OF_TEAM.get(key, "submitted_jobs")
                if whole_number(item.value):
                    self._limits[name] = whole_number(item.value)
                    self._ledger.carried(item, f"{place}.{name}")
            elif key == "grptres" and tres(item.value).get("gres/gpu"):
                self._limits["gpus"] = tres(item.value)["gres/gpu"]
                self._partly(item, f"{place}.gpus")
        each = user_limits(qos)
        if each:
            self._limits["per_user"] = {**self._limits.get("per_user", {}), **each}


def limit_reason(key: str, value: str) -> tuple[str, str]:
    """Returns why a limit of accounting is not carried, and what to do instead."""
    minutes = tres(value).get("gres/gpu")
    match key:
        case "grptresmins" | "grptresmin" | "grpcpumins" if minutes:
            return (
                "this use fades with PriorityDecayHalfLife; a team's cap counts from the start of a period",
                f"give limits.gpu_hours: {{hours: {max(1, minutes // 60)}, per: month}}",
            )
        case "maxwall" | "maxwalldurationperjob" | "grpwall":
            return "a time limit belongs to the partition", "give the partition max_time"
        case "parent":
            return "teams have one level", "its share is in the team's share"
        case "priority":
            return (
                "a team has no priority of its own",
                "give the team a larger share, or a partition with a higher tier",
            )
        case _:
            return (
                "a cluster file has no such limit",
                "limit GPUs, running jobs, or the partition's max_time, MaxNodes, MaxMemPerNode",
            )


def _decide_other_accounts(accounting: Accounting, teams: Teams, ledger: Ledger) -> None:
    for item in accounting.cluster:
        if item.key.lower() in ("cluster", "fairshare") or item.value in ("normal", "1", ""):
            ledger.same(item, "Headway makes the cluster's entry and the account root")
        elif item.key.lower() in ("qos", "defaultqos"):
            ledger.dropped(item, _QOS, _QOS_INSTEAD)
        else:
            ledger.dropped(item, "a cluster file has no limits of the whole cluster", "limit teams or partitions")
    for item, name in accounting.parents:
        if name == ROOT or name in teams.of_account:
            ledger.carried(item, f"teams.{teams.of_account[name]}.users" if name in teams.of_account else "teams")
        else:
            ledger.carried(item, "teams.*.share", "teams have one level: each gets its part of the tree")
    for account in accounting.accounts.values():
        if account.account in teams.of_account:
            continue
        for item in (account.head, *account.keys.values()):
            if account.account == ROOT:
                ledger.same(item, "Slurm's own account")
            elif item.key.lower() in ("account", "fairshare"):
                ledger.carried(
                    item, "teams.*.share", "an account without users: its share is in those of the teams below"
                )
            elif item.key.lower() in ("description", "organization"):
                ledger.dropped(item, *_DESCRIPTION)
            else:
                ledger.dropped(item, "teams have one level, so no limit holds for several", "limit each team below it")


def _decide_users(accounting: Accounting, teams: Teams, valid: set[str], ledger: Ledger) -> None:
    first: dict[str, str] = {}
    for name, fields in teams.fields.items():
        for user_name in fields.get("users", ()):
            first.setdefault(user_name, name)
    for user in accounting.users:
        if user.user not in valid:
            continue
        team = teams.of_account.get(user.account)
        items = (user.head, *user.keys.values())
        if team is None:
            why = "Slurm's own account" if user.account == ROOT else f"account {user.account} is no team of the file"
            for item in items:
                ledger.dropped(item, f"a user of {user.account}: {why}", "add the user to a team")
            continue
        for item in items:
            if item.key.lower() == "defaultaccount" and teams.of_account.get(item.value) != first[user.user]:
                ledger.dropped(
                    item,
                    f"a user's first team is the default: {first[user.user]}",
                    "users give --account, or order the teams",
                )
            else:
                _user_option(item, team, teams, ledger)


def _user_option(item: Item, team: str, teams: Teams, ledger: Ledger) -> None:
    limits = teams.fields[team].get("limits", {}).get("per_user", {})
    match item.key.lower():
        case "user":
            ledger.carried(item, f"teams.{team}.users")
        case "coordinator":
            led = [teams.of_account[name] for name in item.value.split(",") if name in teams.of_account]
            ledger.carried(item, f"teams.{led[0] if led else team}.leads")
        case "defaultaccount":
            ledger.carried(item, "teams", "a user's first team in the file is the default")
        case "fairshare" if item.value == "1":
            ledger.same(item)
        case "adminlevel" if item.value.lower() in ("none", ""):
            ledger.same(item)
        case "adminlevel":
            ledger.dropped(item, "rights are given by Headway's roles", _PEOPLE)
        case "qos" | "defaultqos" if item.value in ("normal", ""):
            ledger.same(item, "Headway gives each team a QOS of its own")
        case "qos" | "defaultqos":
            ledger.dropped(item, _QOS, _QOS_INSTEAD)
        case "wckeys" | "defaultwckey" if item.value in ("", "*"):
            ledger.same(item)
        case key if key in _OF_USER and limits.get(_OF_USER[key]) == whole_number(item.value):
            ledger.same(item, "the team's limit of each user")
        case key if key in _OF_USER:
            ledger.dropped(
                item, "the import does not carry limits of single users", f"give it under teams.{team}.limits.users"
            )
        case "fairshare":
            ledger.dropped(item, "users of a team have equal shares", "give the user a team of their own")
        case "partition":
            ledger.dropped(item, "a user belongs to a team in all partitions", "give the partition teams: [...]")
        case key:
            ledger.dropped(item, *limit_reason(key, item.value))


def _in_order(teams: Teams, accounting: Accounting, valid: set[str]) -> dict[str, dict[str, Any]]:
    """Returns the teams so that each user's default account comes first, where that is possible."""
    order: dict[str, set[str]] = {name: set() for name in teams.fields}
    for user in accounting.users:
        first = teams.of_account.get(user.value("defaultaccount"))
        team = teams.of_account.get(user.account)
        if (
            user.user in valid
            and first
            and team
            and first != team
            and user.user in teams.fields[first].get("users", ())
        ):
            order[team].add(first)
    try:
        return {name: teams.fields[name] for name in graphlib.TopologicalSorter(order).static_order()}
    except graphlib.CycleError:
        return teams.fields


def decide_qos(accounting: Accounting, teams: Teams, of_partitions: set[str], ledger: Ledger) -> None:
    """Decides on every key of the QOS that has no verdict yet."""
    for qos in accounting.qos.values():
        carried = "teams.*.limits" if qos.name in teams.carried_qos else ""
        carried = "partitions.*.per_user" if qos.name in of_partitions else carried
        for key, item in qos.keys.items():
            if not ledger.is_open(item):
                continue
            _decide_qos_key(key, item, qos, carried, ledger)


_QOS_DEFAULTS = {
    "priority": ("0",), "gracetime": ("00:00:00", "0"), "preemptmode": ("cluster",), "usagefactor": ("1.000000", "1"),
    "usagethres": ("0.000000",), "limitfactor": ("0.000000",), "flags": ("NoDecay",), "id": (),
}  # fmt: skip


def _decide_qos_key(key: str, item: Item, qos: SiteQos, carried: str, ledger: Ledger) -> None:
    if key in ("name", "description") and (carried or qos.name == "normal"):
        ledger.carried(item, carried) if carried else ledger.same(item, "Slurm's own QOS")
    elif item.value in _QOS_DEFAULTS.get(key, ()):
        ledger.same(item)
    elif carried and (key in USER_LIMITS or (key in USER_TRES and not rest_of_tres(item.value))):
        ledger.carried(item, carried)
    elif key in ("maxwall", "maxwalldurationperjob"):
        ledger.dropped(item, *limit_reason(key, item.value))
    elif key == "priority":
        ledger.dropped(item, _QOS, "give priority to the QOS under qos")
    elif key == "preempt":
        ledger.dropped(item, _QOS, "give preempts to the QOS under qos, if no partition preempts")
    elif key == "usagefactor":
        ledger.dropped(item, _QOS, "give usage_factor to the QOS under qos")
    elif key == "name":
        ledger.dropped(item, _QOS, _QOS_INSTEAD)
    else:
        ledger.dropped(item, *(limit_reason(key, item.value) if carried else (_QOS, _QOS_INSTEAD)))

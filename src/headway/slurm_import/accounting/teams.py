"""teams: the tree of accounts of a site with shares, users, leads and limits."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.slurm_import import site_names
from headway.slurm_import.accounting.limit_sections import (
    JOB_COUNTS,
    USER_COUNTS,
    LimitSection,
    limit_reason,
    take_user_limits,
)
from headway.slurm_import.accounting.qos_lists import QosLists, read_qos_lists
from headway.slurm_import.accounting.sacctmgr_files import ROOT, Accounting, Association, chain, descendants
from headway.slurm_import.accounting.users import take_users, valid_users
from headway.slurm_import.verdicts import Item, Ledger
from headway.validation.field_types import MOST_TEAMS

_MOST_SHARE = 1_000_000
_DESCRIPTION = ("a cluster file has no descriptions of teams", "nothing to do")


@dataclass
class Teams:
    """The sections `teams` and `users`. `of_account`: account of the site -> team."""

    of_account: dict[str, str] = field(default_factory=dict)
    fields: dict[str, dict[str, Any]] = field(default_factory=dict)
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    qos: QosLists = field(default_factory=QosLists)


def make_teams(accounting: Accounting, ledger: Ledger) -> Teams:
    """Returns the teams. Decides on accounts and users, apart from the QOS that they may choose."""
    names = valid_users(accounting, ledger)
    given = site_names.team_names(names)
    members: dict[str, list[Association]] = {}
    for user in accounting.users:
        members.setdefault(user.account, []).append(user)
    kept = list(_parents_first(accounting))[:MOST_TEAMS]
    teams = Teams({account.account: given.of(account.account) for account in kept}, qos=read_qos_lists(accounting))
    for account in kept:
        team = _Team(account, teams, accounting, ledger)
        teams.fields[teams.of_account[account.account]] = team.make(members.get(account.account, []), names)
    _decide_cluster(accounting, ledger)
    _decide_other_accounts(accounting, teams, ledger)
    teams.fields = _in_order(teams, accounting, names)
    take_users(accounting, teams.of_account, teams.fields, names, ledger)
    for fields in teams.fields.values():
        if not fields.get("limits", True):
            del fields["limits"]
    return teams


def _parents_first(accounting: Accounting) -> Iterator[Association]:
    """Yields the accounts with a way to root, each after the one above it."""
    below: dict[str, list[Association]] = {}
    for account in descendants(accounting.accounts):
        known = account.parent in accounting.accounts and account.parent != ROOT
        below.setdefault(account.parent if known else ROOT, []).append(account)
    waiting = below.get(ROOT, [])[::-1]
    while waiting:
        account = waiting.pop()
        yield account
        waiting += below.get(account.account, [])[::-1]


class _Team:
    """One team, and the verdicts on its account's options."""

    def __init__(self, account: Association, teams: Teams, accounting: Accounting, ledger: Ledger) -> None:
        self._account, self._teams, self._accounting, self._ledger = account, teams, accounting, ledger
        self._name = teams.of_account[account.account]
        self._place = f"teams.{self._name}"
        self._limits = LimitSection(f"{self._place}.limits", "a team", ledger)
        self._each = LimitSection(f"{self._place}.limits.per_user", "a user", ledger)

    def make(self, members: list[Association], valid: set[str]) -> dict[str, Any]:
        """Returns the team's fields."""
        account = self._account
        renamed = f"under the name {self._name}" if self._name != account.account else ""
        self._ledger.carried(account.head, self._place, renamed)
        users = list(dict.fromkeys(user.user for user in members if user.user in valid))
        leads = [user.user for user in members if self._leads(user) and user.user in users]
        for key, item in account.keys.items():
            self._option(key, item)
        self._inherit()
        own = self._teams.qos.own.get(account.account)
        if own is not None:
            self._take_own_qos(self._accounting.qos[own].keys)
        limits = {**self._limits.values, "per_user": self._each.values}
        fields: dict[str, Any] = {
            "users": users, "leads": list(dict.fromkeys(leads)), "parent": self._teams.of_account.get(account.parent),
            "share": min(account.share, _MOST_SHARE), "limits": {key: value for key, value in limits.items() if value},
        }  # fmt: skip
        return {key: value for key, value in fields.items() if value or key == "limits"}

    def _leads(self, user: Association) -> bool:
        return self._account.account in user.value("coordinator").split(",")

    def _option(self, key: str, item: Item) -> None:
        ledger = self._ledger
        match key:
            case "description" | "organization":
                ledger.dropped(item, *_DESCRIPTION)
            case "fairshare":
                self._share(item)
            case "parent":
                ledger.carried(item, f"{self._place}.parent")
            case _ if key in JOB_COUNTS:
                self._limits.count(item, JOB_COUNTS[key])
            case _ if key in USER_COUNTS:
                self._each.count(item, USER_COUNTS[key])
            case "grptres":
                self._limits.resources(item)
            case "qos" | "defaultqos":
                pass  # make_qos decides
            case _:
                ledger.dropped(item, *limit_reason(key, item.value))

    def _share(self, item: Item) -> None:
        share = str(self._account.share)
        if item.value == "1":
            self._ledger.same(item)
        elif item.value == share:
            self._ledger.carried(item, f"{self._place}.share")
        else:
            why = (
                "a team has a share of its own"
                if item.value == "parent"
                else f"a share is between 1 and {_MOST_SHARE:,}"
            )
            self._ledger.dropped(item, f"{why}; the team's is {share}", f"give {self._place}.share")

    def _inherit(self) -> None:
        """Adds limits of each user that an account above has: those below have them too unless they set their own."""
        above = [dict(one.keys) for one in chain(self._account, self._accounting.accounts)[1:]]
        above.append({item.key.lower(): item for item in self._accounting.cluster})
        for key, name in USER_COUNTS.items():
            if key not in self._account.keys:
                item = next((keys[key] for keys in above if key in keys), None)
                if item is not None:
                    self._each.count(item, name)

    def _take_own_qos(self, keys: Mapping[str, Item]) -> None:
        """Takes the limits of the team's own QOS, which replace the same ones of the account."""
        together, each = (LimitSection(one.place, one.owner, self._ledger) for one in (self._limits, self._each))
        for key, item in keys.items():
            if key in JOB_COUNTS:
                together.count(item, JOB_COUNTS[key])
            elif key == "grptres":
                together.resources(item)
        take_user_limits(keys, each)
        self._limits.values |= together.values
        self._each.values |= each.values


def _decide_cluster(accounting: Accounting, ledger: Ledger) -> None:
    for item in accounting.cluster:
        key = item.key.lower()
        if key in ("qos", "defaultqos") or not ledger.is_open(item):
            continue  # make_qos decides, or each team has it
        if key in ("cluster", "fairshare") or item.value in ("1", ""):
            ledger.same(item, "Headway makes the cluster's entry and the account root")
        else:
            ledger.dropped(item, "a cluster file has no limits of the whole cluster", "limit teams or partitions")


def _decide_other_accounts(accounting: Accounting, teams: Teams, ledger: Ledger) -> None:
    for item, name in accounting.parents:
        if name in teams.of_account:
            ledger.carried(item, f"teams.{teams.of_account[name]}")
        elif name == ROOT:
            ledger.carried(item, "teams")
        else:
            ledger.dropped(item, *_no_team(name, accounting))
    for account in accounting.accounts.values():
        if account.account in teams.of_account:
            continue
        for item in (account.head, *account.keys.values()):
            if account.account == ROOT:
                if item.key.lower() not in ("qos", "defaultqos") and ledger.is_open(item):
                    ledger.same(item, "Slurm's own account")
            else:
                ledger.dropped(item, *_no_team(account.account, accounting))


def _no_team(name: str, accounting: Accounting) -> tuple[str, str]:
    """Returns why an account is no team, and what to do."""
    if name not in accounting.accounts:
        return f"account {name} was not read", "give the whole output of sacctmgr dump"
    if not chain(accounting.accounts[name], accounting.accounts):
        return "the accounts above it form a loop", "correct the accounts' parents and import again"
    return f"a cluster has at most {MOST_TEAMS:,} teams", "leave out accounts that are not used"


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

"""Users of the accounts of a site: whom a cluster file can have, and the limits of single users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.slurm_import.accounting.limit_sections import JOB_COUNTS, USER_COUNTS, LimitSection, limit_reason
from headway.slurm_import.accounting.sacctmgr_files import ROOT, Accounting, Association
from headway.slurm_import.verdicts import Item, Ledger
from headway.validation import reserved_names, syntax_rules
from headway.validation.field_types import MOST_USERS

_COUNTS = {**USER_COUNTS, **JOB_COUNTS}
_LIMITS = (*_COUNTS, "grptres", "grptresmins")
_ROLE = "add the person with headway people, with this role"


def valid_users(accounting: Accounting, ledger: Ledger) -> set[str]:
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


def take_users(
    accounting: Accounting, of_account: Mapping[str, str], fields: Mapping[str, dict[str, Any]], valid: set[str],
    ledger: Ledger,
) -> None:  # fmt: skip
    """Adds the limits of single users to the teams. Decides on the options of users, apart from the QOS that they may
    choose. `of_account`: account -> team; `fields`: those of each team."""
    first: dict[str, str] = {}
    for name, team in fields.items():
        for user_name in team.get("users", ()):
            first.setdefault(user_name, name)
    for user in accounting.users:
        if user.user not in valid:
            continue
        team_name = of_account.get(user.account)
        if team_name is None:
            _decide_lost(user, ledger)
            continue
        for item in (user.head, *user.keys.values()):
            if item.key.lower() == "defaultaccount" and of_account.get(item.value) != first[user.user]:
                why = "another team of the user is above it in the file, and a user's first team is the default"
                ledger.dropped(item, why, "users give --account, or order the teams")
            else:
                _option(item, team_name, of_account, ledger)
        _take_limits(user, team_name, fields[team_name]["limits"], ledger)


def _decide_lost(user: Association, ledger: Ledger) -> None:
    why = "Slurm's own account" if user.account == ROOT else f"account {user.account} is no team of the file"
    for item in (user.head, *user.keys.values()):
        ledger.dropped(item, f"a user of {user.account}: {why}", "add the user to a team")


def _take_limits(user: Association, team: str, limits: dict[str, Any], ledger: Ledger) -> None:
    """Adds the limits of a user that are not those of each user of the team."""
    items = [item for key, item in user.keys.items() if key in _LIMITS]
    if "partition" in user.keys:
        for item in items:
            ledger.dropped(
                item, f"it holds in partition {user.value('partition')} only", "give the partition per_user limits"
            )
        return
    each = limits.get("per_user", {})
    own = LimitSection(f"teams.{team}.limits.users.{user.user}", "a user", ledger)
    for item in items:
        key, one = item.key.lower(), LimitSection(own.place, "a user", Ledger())
        _take_limit(key, item, one)
        if one.values and all(each.get(name) == value for name, value in one.values.items()) and key in _COUNTS:
            ledger.same(item, "the team's limit of each user")
        else:
            _take_limit(key, item, own)
    if own.values:
        limits.setdefault("users", {}).setdefault(user.user, {}).update(own.values)


def _take_limit(key: str, item: Item, section: LimitSection) -> None:
    if key == "grptres":
        section.resources(item)
    elif key == "grptresmins":
        section.recent_gpu_hours(item)
    else:
        section.count(item, _COUNTS[key])


def _option(item: Item, team: str, of_account: Mapping[str, str], ledger: Ledger) -> None:
    match item.key.lower():
        case "user":
            ledger.carried(item, f"teams.{team}.users")
        case "coordinator":
            led = [of_account[name] for name in item.value.split(",") if name in of_account]
            ledger.carried(item, f"teams.{led[0] if led else team}.leads")
        case "defaultaccount":
            ledger.carried(item, "teams", "a user's first team in the file is the default")
        case "fairshare" if item.value == "1":
            ledger.same(item)
        case "adminlevel" if item.value.lower() in ("none", ""):
            ledger.same(item)
        case "adminlevel":
            ledger.dropped(item, "rights are given by Headway's roles", _ROLE)
        case "wckeys" | "defaultwckey" if item.value in ("", "*"):
            ledger.same(item)
        case "qos" | "defaultqos":
            pass  # make_qos decides
        case key if key in _LIMITS:
            pass  # _take_limits decides
        case "fairshare":
            ledger.dropped(item, "users of a team have equal shares", "give the user a team of their own")
        case "partition":
            ledger.dropped(item, "a user belongs to a team in all partitions", "give the partition teams: [...]")
        case key:
            ledger.dropped(item, *limit_reason(key, item.value, "a user"))

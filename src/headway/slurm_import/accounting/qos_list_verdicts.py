"""Verdicts on the lists of QOS that accounts and users of a site may choose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headway.slurm_import.accounting.qos_lists import NORMAL, listed
from headway.slurm_import.accounting.sacctmgr_files import ROOT, Accounting, Association
from headway.slurm_import.accounting.teams import Teams
from headway.slurm_import.verdicts import Item, Ledger

_NOT_READ = ("it was not read", "give the output of sacctmgr -P show qos, or add it under qos")
NOT_BELOW = (
    "a team below may not choose it, and a team in the list of a QOS stands for those below it too",
    "add the team to teams of the QOS if those below may choose it",
)


@dataclass
class QosNames:
    """Names of QOS in lower case. `carried`: -> that in the cluster file; `teams`: -> the teams that may choose it; `users`: ->
    the users who may choose it too; `lost`: -> why it is no QOS of the file, and what to do."""

    carried: dict[str, str] = field(default_factory=dict)
    teams: dict[str, set[str]] = field(default_factory=dict)
    users: dict[str, set[str]] = field(default_factory=dict)
    lost: dict[str, tuple[str, str]] = field(default_factory=dict)


def decide_lists(accounting: Accounting, teams: Teams, names: QosNames, ledger: Ledger) -> None:
    """Decides on the QOS of accounts and users."""
    for item in _items_of_root(accounting):
        if item.key.lower() in ("qos", "defaultqos"):
            _decide_root(item, names, ledger)
    for account in accounting.accounts.values():
        team = teams.of_account.get(account.account)
        if team is None:
            continue
        for key in ("qos", "defaultqos"):
            if key in account.keys:
                _decide_list(account.keys[key], key, account.account, team, teams, names, ledger)
    for user in accounting.users:
        for key in ("qos", "defaultqos"):
            if key in user.keys and ledger.is_open(user.keys[key]):
                _decide_user_list(user.keys[key], key, user, teams, names, ledger)


def _items_of_root(accounting: Accounting) -> Iterable[Item]:
    root = accounting.accounts.get(ROOT)
    return [*accounting.cluster, *(root.keys.values() if root is not None else ())]


def _decide_root(item: Item, names: QosNames, ledger: Ledger) -> None:
    given = listed(item.value, frozenset()) - {NORMAL}
    lost = sorted(given - names.carried.keys())
    if not given:
        ledger.same(item, "Headway gives each team a QOS of its own")
    elif lost:
        ledger.dropped(item, f"{', '.join(lost)}: no QOS of the file", "add it under qos; see docs/howto/limits.md")
    else:
        ledger.carried(item, "qos", "teams without a list have it")


def _decide_list(item: Item, key: str, account: str, team: str, teams: Teams, names: QosNames, ledger: Ledger) -> None:
    allowed, default = teams.qos.allowed[account], teams.qos.default[account]
    given = {default} if key == "defaultqos" else allowed
    own, carried = teams.qos.own.get(account), {qos for qos in given if team in names.teams.get(qos, ())}
    lost = sorted(given - carried - {NORMAL, own})
    members = set(teams.fields[team].get("users", ()))
    by_users = {qos for qos in lost if members and members <= names.users.get(qos, set())}
    if by_users and key == "qos":  # those below may not choose it
        carried, lost = carried | by_users, sorted(set(lost) - by_users)
    if not teams.fields[team].get("users"):  # jobs have an account with users: the teams below have lists of their own
        carried |= {qos for qos in lost if qos in names.teams}
        lost = [qos for qos in lost if qos not in names.teams]
    if lost:
        why, instead = names.lost.get(lost[0], NOT_BELOW if lost[0] in names.teams else _NOT_READ)
        ledger.dropped(item, f"{', '.join(lost)}: {why}", instead)
    elif not carried and own is None:
        ledger.same(item, "Headway gives each team a QOS of its own")
    elif not carried:
        ledger.carried(item, own_place(teams, account))
    elif key == "defaultqos" and team not in names.teams[default]:
        ledger.carried(item, "teams", f"{names.carried[default]} is default_qos of the teams below that may choose it")
    elif key == "defaultqos":
        own = "" if teams.fields[team].get("own_qos", True) else f", teams.{team}.own_qos"
        ledger.carried(item, f"teams.{team}.default_qos{own}")
    else:
        places = (f"qos.{names.carried[qos]}.{'users' if qos in by_users else 'teams'}" for qos in sorted(carried))
        ledger.carried(item, ", ".join(places))


def _decide_user_list(
    item: Item, key: str, user: Association, teams: Teams, names: QosNames, ledger: Ledger
) -> None:  # fmt: skip
    allowed = teams.qos.allowed.get(user.account, frozenset())
    given = listed(item.value, allowed)
    if key == "defaultqos":
        same = item.value.lower() == teams.qos.default.get(user.account)
        ledger.same(item, "the team's") if same else ledger.dropped(
            item, "a default QOS is that of a team", "give the user a team of their own, with default_qos"
        )
        return
    if given == allowed:
        ledger.same(item, "the team's")
        return
    own, team = teams.qos.own.get(user.account), teams.of_account.get(user.account, "")
    carried = sorted(qos for qos in given - allowed if user.user in names.users.get(qos, ()))
    rest = given - allowed - set(carried)
    of_team = {NORMAL} & rest - names.carried.keys()  # jobs in normal have the team's own QOS, if it stands for normal
    lost = sorted(rest - of_team - {own})
    wider = sorted(allowed - given - {NORMAL, own})
    if lost and lost[0] in names.users:
        ledger.dropped(
            item, f"{', '.join(lost)}: the user may choose it in some of their teams only",
            "add the user to users of the QOS, which holds in all of their teams",
        )  # fmt: skip
    elif lost:
        why, instead = names.lost.get(lost[0], _NOT_READ)
        ledger.dropped(item, f"{', '.join(lost)}: {why}", instead)
    elif of_team and own:
        why = f"normal: jobs of the team have the limits of its own QOS, {own}"
        ledger.dropped(item, why, "give the user a team of their own")
    elif of_team and not teams.fields[team].get("own_qos", True):
        default = teams.qos.default[user.account]
        ledger.dropped(
            item, f"normal: the team has no QOS of its own, so jobs without --qos have the limits of {default}",
            f"leave out teams.{team}.own_qos, if all users of the team may have jobs without them",
        )  # fmt: skip
    elif wider or (allowed - given):
        stays = (
            f"the team's other QOS, {', '.join(wider)}, stay allowed" if wider else "the team's own QOS stays allowed"
        )
        ledger.dropped(item, f"a user's QOS add to those of the team: {stays}", "give the user a team of their own")
    else:
        places = [f"qos.{names.carried[qos]}.users" for qos in carried]
        ledger.carried(item, ", ".join([*places, *(f"teams.{team}" for _ in of_team)]))


def own_place(teams: Teams, account: str) -> str:
    """Returns the place of a QOS that is a team's own."""
    team = teams.of_account.get(account, "")
    return f"teams.{team}.limits" if teams.fields.get(team, {}).get("limits") else f"teams.{team}"

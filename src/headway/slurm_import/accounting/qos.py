"""qos: QOS of a site that jobs choose, and the verdicts on the keys of all QOS."""

from __future__ import annotations

import graphlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from headway.clusterfile.models.scheduling.qos import QosFlag
from headway.slurm_import import site_names
from headway.slurm_import.accounting.limit_sections import (
    LimitSection,
    limit_reason,
    take_job_limits,
    take_user_limits,
)
from headway.slurm_import.accounting.qos_list_verdicts import NOT_BELOW, QosNames, decide_lists, own_place
from headway.slurm_import.accounting.qos_lists import DEFAULTS, NORMAL, listed
from headway.slurm_import.accounting.sacctmgr_files import Accounting, SiteQos
from headway.slurm_import.accounting.team_tree import TeamTree
from headway.slurm_import.accounting.teams import Teams
from headway.slurm_import.values import time_text
from headway.slurm_import.verdicts import Item, Ledger
from headway.validation.times_and_sizes import parse_time

_MOST_QOS = 100
_STANDARD = "standard"  # for the site's limits of normal, a name that Slurm keeps for itself
_FLAGS = get_args(QosFlag)
_LONGEST_GRACE_S, _USUAL_GRACE_S = 86_400, 120
_LARGEST_PRIORITY, _LARGEST_FACTOR = 1_000_000_000, 1000.0


@dataclass(frozen=True)
class Preemption:
    """PreemptType and PreemptMode of the site, in lower case."""

    kind: str = ""
    mode: str = ""

    @property
    def by_qos(self) -> bool:
        """Whether jobs of a QOS preempt those of another."""
        return self.kind == "preempt/qos" and self.mode.split(",")[0] not in ("off", "")


def make_qos(
    accounting: Accounting, teams: Teams, of_partitions: Mapping[str, str], preemption: Preemption, ledger: Ledger
) -> dict[str, dict[str, Any]]:
    """Returns the section `qos`, and gives teams their default_qos. Decides on every key of the QOS, and on the QOS of
    accounts and users. `of_partitions`: QOS of partitions -> the place of its limits
    of each user, "" without any."""
    tree = TeamTree(teams.fields)
    names = _choose(accounting, teams, tree, of_partitions)
    for account, default in teams.qos.default.items():
        team = teams.of_account.get(account, "")
        if default in names.carried and team in names.teams[default]:
            teams.fields[team]["default_qos"] = names.carried[default]
            plain = NORMAL in teams.qos.allowed[account] and NORMAL not in names.carried
            if not plain and account not in teams.qos.own:
                teams.fields[team]["own_qos"] = False
    preempts = _preempts(accounting, teams, names) if preemption.by_qos else {}
    preempted = {name for found in preempts.values() for name in found}
    section: dict[str, dict[str, Any]] = {}
    for qos, name in names.carried.items():
        one = _Section(f"qos.{name}", preempts.get(name), preemption, name in preempted, ledger)
        fields = one.make(accounting.qos[qos])
        covered = [] if names.teams[qos] == teams.fields.keys() else tree.shortest(names.teams[qos])
        who = {"teams": covered, "users": sorted(names.users[qos])}
        section[name] = {**{key: found for key, found in who.items() if found}, **fields}
    decide_lists(accounting, teams, names, ledger)
    for qos, site in accounting.qos.items():
        if qos not in names.carried:
            _decide_uncarried(qos, site, teams, of_partitions, names, ledger)
    return section


def _choose(accounting: Accounting, teams: Teams, tree: TeamTree, of_partitions: Mapping[str, str]) -> QosNames:
    """Returns the QOS that become those of the file, with the teams that may choose them."""
    found = QosNames()
    given = site_names.qos_names(teams.of_account.values())
    for qos, site in accounting.qos.items():
        if qos in teams.qos.own.values() or (qos == NORMAL and not _has_fields(site)):
            continue
        accounts = [account for account, allowed in teams.qos.allowed.items() if qos in allowed]
        listed_by = {teams.of_account[account] for account in accounts if account in teams.of_account}
        may = tree.nameable(listed_by)
        users = _further_users(accounting, teams, qos, may)
        if (may or users) and len(found.carried) < _MOST_QOS:
            name = _STANDARD if qos == NORMAL else site.name
            found.carried[qos] = given.new(f"{name}-qos" if name in teams.fields else name)
            found.teams[qos], found.users[qos] = may, users
        elif may or users:
            found.lost[qos] = (f"a cluster file has at most {_MOST_QOS} QOS", "leave out QOS that are not used")
        elif listed_by:
            found.lost[qos] = NOT_BELOW
        elif qos not in of_partitions:
            found.lost[qos] = ("no account may choose it", "add it under qos with its teams")
    return found


def _further_users(accounting: Accounting, teams: Teams, qos: str, given: set[str]) -> set[str]:
    """Returns the users who may choose a QOS in all their teams, and are in a team other than those that it is given to."""
    found: dict[str, bool] = {}  # user -> in all teams so far
    further: set[str] = set()
    for user in accounting.users:
        team = teams.of_account.get(user.account)
        if team is None or "partition" in user.keys or user.user not in teams.fields[team].get("users", ()):
            continue
        may = qos in listed(user.value("qos"), teams.qos.allowed[user.account])
        found[user.user] = found.get(user.user, True) and may
        if team not in given:
            further.add(user.user)
    return {name for name in further if found[name]}


def _has_fields(qos: SiteQos) -> bool:
    """Returns whether a QOS has anything that fields of the cluster file have, apart from what it preempts."""
    return bool(_Section("", None, Preemption(), False, Ledger()).make(qos))


def _preempts(accounting: Accounting, teams: Teams, names: QosNames) -> dict[str, list[str]]:
    """Returns what each QOS of the file preempts, without loops. The name of a team stands for its jobs without --qos."""
    plain = [team for team, fields in teams.fields.items() if "default_qos" not in fields]
    of_own = {qos: teams.of_account[account] for account, qos in teams.qos.own.items() if account in teams.of_account}
    found: dict[str, list[str]] = {}
    for qos, name in names.carried.items():
        wanted: dict[str, None] = {}
        for other in listed(accounting.qos[qos].value("preempt"), frozenset()):
            if other in names.carried:
                wanted[names.carried[other]] = None
            elif other in of_own:
                wanted[of_own[other]] = None
            elif other == NORMAL:
                wanted |= dict.fromkeys(plain)
        found[name] = sorted(wanted)
        try:
            graphlib.TopologicalSorter(found).prepare()
        except graphlib.CycleError:
            del found[name]
    return {name: wanted for name, wanted in found.items() if wanted}


class _Section:
    """The fields of one QOS, and the verdicts on its keys."""

    def __init__(
        self, place: str, preempts: list[str] | None, preemption: Preemption, preempted: bool, ledger: Ledger
    ) -> None:
        self._place, self._ledger = place, ledger
        self._preempts, self._preemption, self._preempted = preempts, preemption, preempted
        self._fields: dict[str, Any] = {}
        self._limits = LimitSection(f"{place}.limits", "a QOS", ledger)
        self._each = LimitSection(f"{place}.limits.per_user", "a QOS on each user", ledger)
        self._job = LimitSection(f"{place}.limits.per_job", "a QOS on each job", ledger)

    def make(self, qos: SiteQos) -> dict[str, Any]:
        """Returns the fields."""
        take_user_limits(qos.keys, self._each)
        take_job_limits(qos.keys, self._limits, self._job)
        for key, item in qos.keys.items():
            if self._ledger.is_open(item):
                self._decide(key, item)
        if self._preempted and self._preemption.mode.split(",")[0] == "cancel":
            self._fields.setdefault("preempt_mode", "cancel")
        limits = {**self._limits.values, "per_user": self._each.values, "per_job": self._job.values}
        limits = {key: value for key, value in limits.items() if value}
        return {**self._fields, **({"limits": limits} if limits else {})}

    def _decide(self, key: str, item: Item) -> None:
        ledger = self._ledger
        match key:
            case "name" | "description":
                ledger.carried(item, self._place)
            case "gracetime":
                self._grace(item)
            case "preempt":
                self._preempt(item)
            case _ if item.value in DEFAULTS.get(key, ()):
                ledger.same(item)
            case "priority":
                self._number(item, "priority", int, _LARGEST_PRIORITY)
            case "usagefactor":
                self._number(item, "usage_factor", float, _LARGEST_FACTOR)
            case "preemptmode" if item.value.lower() in ("requeue", "cancel"):
                self._carry(item, "preempt_mode", item.value.lower())
            case "preemptmode":
                ledger.dropped(item, "Headway requeues or cancels preempted jobs", f"give {self._place}.preempt_mode")
            case "flags":
                self._flags(item)
            case "maxwall" | "maxwalldurationperjob" if time_text(item.value):
                self._carry(item, "max_time", time_text(item.value))
            case _:
                ledger.dropped(item, *qos_reason(key, item.value))

    def _carry(self, item: Item, name: str, value: object) -> None:
        self._fields[name] = value
        self._ledger.carried(item, f"{self._place}.{name}")

    def _number(self, item: Item, name: str, kind: type[int] | type[float], most: float) -> None:
        try:
            value = kind(item.value)
        except ValueError:
            value = kind(-1)
        if 0 <= value <= most:
            self._carry(item, name, value)
        else:
            self._ledger.dropped(item, f"is no number up to {most:,.0f}", f"give {self._place}.{name}")

    def _grace(self, item: Item) -> None:
        try:
            seconds = parse_time(item.value) or 0
        except ValueError:
            seconds = -1
        if not self._preempted:
            nothing = item.value in DEFAULTS["gracetime"]
            self._ledger.same(item) if nothing else self._ledger.dropped(item, "nothing preempts it", "nothing to do")
        elif not 0 <= seconds <= _LONGEST_GRACE_S:
            self._ledger.dropped(item, "is no time up to a day", f"give {self._place}.grace_time")
        else:
            self._carry(item, "grace_time", seconds)

    def _preempt(self, item: Item) -> None:
        if self._preempts:
            self._carry(item, "preempts", self._preempts)
        elif not self._preemption.by_qos:
            why = "the site does not preempt by QOS"
            self._ledger.dropped(item, why, f"give {self._place}.preempts, if no partition preempts")
        else:
            why = "these QOS are not in the file, or preempt it"
            self._ledger.dropped(item, why, f"give {self._place}.preempts")

    def _flags(self, item: Item) -> None:
        given = [flag.strip() for flag in item.value.split(",") if flag.strip()]
        known = {flag.lower(): flag for flag in _FLAGS}
        flags = sorted({known[flag.lower()] for flag in given if flag.lower() in known})
        rest = [flag for flag in given if flag.lower() not in known]
        if flags:
            self._fields["flags"] = flags
        if rest:
            self._ledger.dropped(item, f"a cluster file has no flag {', '.join(rest)}", "limit the QOS by other fields")
        else:
            self._ledger.carried(item, f"{self._place}.flags")


def qos_reason(key: str, value: str) -> tuple[str, str]:
    """Returns why a key of a QOS is not carried, and what to do instead."""
    match key:
        case "maxtrespa" | "maxjobspa" | "maxsubmitpa" | "maxtresperaccount" | "maxjobsperaccount":
            return "a QOS has no limits of each account", "limit the teams: teams.NAME.limits"
        case "mintres" | "mintresperjob" | "mintrespj":
            return (
                "a QOS has no least size of a job",
                "give a partition MinNodes, and the QOS the flag PartitionMinNodes",
            )
        case "preemptexempttime":
            return "a QOS has no time before preemption", "give grace_time to the QOS"
        case "usagethres" | "limitfactor":
            return "a QOS has no such factor", "give limits, or usage_factor"
        case "grptresmins" | "grpwall" | "grptresrunmins":
            return "a QOS has no limit on the time of its jobs together", "give the teams a budget"
        case "maxwall" | "maxwalldurationperjob":
            return "is not a time", "give the QOS max_time"
        case _:
            return limit_reason(key, value, "a QOS")


def _decide_uncarried(
    qos: str, site: SiteQos, teams: Teams, of_partitions: Mapping[str, str], names: QosNames, ledger: Ledger
) -> None:
    """Decides on the keys of a QOS that is no QOS of the file: a team or a partition has its limits, or it is not carried."""
    own = next((own_place(teams, account) for account, name in teams.qos.own.items() if name == qos), "")
    place = own or of_partitions.get(qos, "")
    for key, item in site.keys.items():
        if not ledger.is_open(item):
            continue
        if item.value in DEFAULTS.get(key, ()) or (key == "flags" and item.value == "NoDecay"):
            ledger.same(item)
        elif key in ("name", "description") and place:
            ledger.carried(item, place)
        elif qos == NORMAL and key in ("name", "description"):
            ledger.same(item, "Slurm's own QOS")
        elif qos in names.lost:
            ledger.dropped(item, *names.lost[qos])
        elif own and key == "gracetime":
            why = "jobs without --qos have two minutes when they are preempted"
            ledger.same(item, why) if item.value == "00:02:00" else ledger.dropped(item, why, "nothing to do")
        elif own:
            ledger.dropped(item, *limit_reason(key, item.value))
        elif qos in of_partitions:
            ledger.dropped(item, *_partition_reason(key, item.value))
        else:
            ledger.dropped(item, *qos_reason(key, item.value))


def _partition_reason(key: str, value: str) -> tuple[str, str]:
    """Returns why a key of a partition's QOS is not carried, and what to do instead."""
    match key:
        case "maxwall" | "maxwalldurationperjob":
            return "a partition has a time limit of its own", "give the partition max_time"
        case "priority" | "usagefactor" | "preempt" | "preemptmode":
            return (
                f"a partition's limits have no {key}",
                "give it to a QOS that jobs choose, or order partitions by tier",
            )
        case "flags":
            return "Headway's QOS of partitions has the flag NoDecay only", "give the flags to a QOS that jobs choose"
        case _:
            return qos_reason(key, value)

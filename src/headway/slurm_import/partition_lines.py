"""Partitions of a site: PartitionName lines with their defaults, as partitions of the cluster file.

A key that is carried as it is begins in catalog/allowed_slurm_keys.py, one that is not in keys_not_carried.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.catalog.allowed_slurm_keys import PARTITION_KEYS, key_fault
from headway.clusterfile.partition_tiers import PreemptionRule, assign_tiers
from headway.slurm_import import site_names
from headway.slurm_import.accounting.limit_sections import LimitSection, take_job_limits, take_user_limits
from headway.slurm_import.accounting.sacctmgr_files import SiteQos
from headway.slurm_import.accounting.team_tree import TeamTree
from headway.slurm_import.conf_reader import Record
from headway.slurm_import.keys_not_carried import PARTITION_REASONS
from headway.slurm_import.nodes.node_groups import NodeGroup
from headway.slurm_import.values import node_names, time_text
from headway.slurm_import.verdicts import Item, Ledger

MOST_PARTITIONS = 100
_KEYS = {key.lower(): key for key in PARTITION_KEYS}
# Values with which a key says nothing (slurm.conf(5))
_DEFAULTS = {
    "allowgroups": "all", "allowqos": "all", "allowaccounts": "all", "allowallocnodes": "all", "state": "up", "default": "no",
    "hidden": "no", "rootonly": "no", "reqresv": "no", "lln": "no", "exclusiveuser": "no", "disablerootjobs": "no",
    "oversubscribe": "no", "shared": "no", "maxnodes": "unlimited", "minnodes": "0", "prioritytier": "1",
    "priorityjobfactor": "1", "maxcpuspernode": "unlimited", "maxcpuspersocket": "unlimited", "overtimelimit": "0",
    "qos": "n/a", "defaulttime": "none", "defmempercpu": "0", "maxmempercpu": "0", "maxmempernode": "0", "defmempernode": "0",
}  # fmt: skip


# Keys for the whole cluster that hold in partitions without one of these keys
DEFAULTS_OF_PARTITIONS = {
    "defmempercpu": ("defmempercpu", "defmempernode"), "maxmempercpu": ("maxmempercpu", "maxmempernode"),
    "maxmempernode": ("maxmempercpu", "maxmempernode"), "defcpupergpu": ("defcpupergpu", "jobdefaults"),
    "defmempergpu": ("defmempergpu", "jobdefaults"),
}  # fmt: skip


@dataclass(frozen=True)
class SitePartition:
    """One partition of the site with the keys that hold for it, by their names in lower case."""

    name: str
    keys: Mapping[str, Item]
    nodes: frozenset[str]
    head: Item

    def value(self, *keys: str) -> str:
        """Returns the value of the first of these keys that is there; "" without one."""
        return next((self.keys[key].value for key in keys if key in self.keys), "")


@dataclass
class Surroundings:
    """What the partitions of the cluster file depend on."""

    names: site_names.Names
    groups: Sequence[NodeGroup]
    teams: Mapping[str, str]  # account of the site -> team
    tree: TeamTree
    lists_hold_below: bool  # lists of accounts hold for those below them too
    qos: Mapping[str, SiteQos]
    version: str  # Slurm of the node image
    preempt_type: str = ""
    preempt_mode: str = ""
    defaults: Mapping[str, Item] = field(default_factory=dict)  # those of DEFAULTS_OF_PARTITIONS for the whole cluster
    preempts: Mapping[str, list[str]] | None = None  # partition -> those that it preempts; None: tiers can't express it
    default: str = ""  # the partition of jobs that name none: of several, Slurm takes the last
    used_qos: dict[str, str] = field(default_factory=dict)  # QOS -> the place of its limits, "" without any


def read_partitions(
    records: Sequence[Record], all_nodes: Mapping[str, object], ledger: Ledger
) -> dict[str, SitePartition]:
    """Returns the partitions by name, in the order of the file; a second line of the same name adds to the first."""
    sets = _node_sets(records, all_nodes, ledger)
    defaults: dict[str, Item] = {}
    found: dict[str, SitePartition] = {}
    for record in records:
        if record.kind != "partitionname":
            continue
        head, own = record.items[0], {item.key.lower(): item for item in record.items[1:]}
        for item in record.items[1:]:
            if own[item.key.lower()] is not item:
                ledger.dropped(item, "another value on the same line counts", "remove it")
        if head.value.upper() == "DEFAULT":
            defaults |= own
            ledger.carried(head, "partitions", "holds for the lines that follow")
            continue
        for name in head.value.split(","):
            before = dict(found[name].keys) if name in found else {}
            keys = {**defaults, **before, **own}
            found[name] = SitePartition(name, keys, _members(keys.get("nodes"), all_nodes, sets), head)
    _decide_unused(records, found, ledger)
    return found


def _decide_unused(records: Iterable[Record], found: Mapping[str, SitePartition], ledger: Ledger) -> None:
    used = {item for partition in found.values() for item in partition.keys.values()}
    for record in records:
        if record.kind == "partitionname":
            for item in record.items[1:]:
                if item not in used and ledger.is_open(item):
                    ledger.same(item, "a later line replaces it")


def _node_sets(records: Iterable[Record], all_nodes: Mapping[str, Any], ledger: Ledger) -> dict[str, frozenset[str]]:
    """Returns the nodes of each NodeSet."""
    sets: dict[str, frozenset[str]] = {}
    for record in records:
        if record.kind != "nodeset":
            continue
        nodes, feature = record.get("nodes"), record.get("feature")
        members = set(node_names(nodes.value)) & all_nodes.keys() if nodes is not None else set()
        if feature is not None:
            members |= {name for name, node in all_nodes.items() if feature.value in node.features}
        sets[record.items[0].value] = frozenset(members)
        for item in record.items:
            ledger.carried(item, "partitions.*.groups", "the groups of its nodes")
    return sets


def _members(item: Item | None, all_nodes: Mapping[str, object], sets: Mapping[str, frozenset[str]]) -> frozenset[str]:
    if item is None:
        return frozenset()
    if item.value.upper() == "ALL":
        return frozenset(all_nodes)
    found: set[str] = set()
    for name in node_names(item.value):
        found |= sets.get(name, {name} & all_nodes.keys())
    return frozenset(found)


def make_partitions(found: Mapping[str, SitePartition], around: Surroundings, ledger: Ledger) -> dict[str, Any]:
    """Returns the section `partitions`. Decides on every key of their lines."""
    carried = dict(list(found.items())[:MOST_PARTITIONS])
    for name, partition in found.items():
        if name not in carried or not partition.nodes:
            carried.pop(name, None)
            why, instead = (
                (f"a cluster has at most {MOST_PARTITIONS} partitions", "merge partitions")
                if partition.nodes
                else (
                    "none of its nodes is carried: they have no NodeName line, or are the controller",
                    "correct its Nodes and import again, or give it other groups",
                )
            )
            for item in (partition.head, *partition.keys.values()):
                ledger.dropped(item, why, instead)
    around.preempts = _preempts(carried, around)
    around.default = next((name for name in reversed(carried) if _is_default(carried[name])), "")
    result: dict[str, Any] = {}
    for name, partition in carried.items():
        place = around.names.of(name)
        renamed = f"under the name {place}: names are in lower case" if place != name else ""
        ledger.carried(partition.head, f"partitions.{place}", renamed)
        result[place] = _Fields(partition, f"partitions.{place}", around, ledger).make(
            (around.preempts or {}).get(name, [])
        )
    return result


def _is_default(partition: SitePartition) -> bool:
    return partition.value("default").upper() in ("YES", "TRUE", "1")


def _preempts(found: Mapping[str, SitePartition], around: Surroundings) -> dict[str, list[str]] | None:
    """Returns the partitions that each one preempts; None without preemption by partition, or if the lists contradict
    each other."""
    if around.preempt_type != "preempt/partition_prio":
        return None
    tiers = {name: _tier(part) for name, part in found.items()}
    modes = {name: (part.value("preemptmode") or around.preempt_mode or "off").lower() for name, part in found.items()}
    lists = {
        name: [other for other in found if tiers[other] < tiers[name] and modes[other].split(",")[0] != "off"]
        for name in found
    }
    rules = {name: PreemptionRule(frozenset(lists[name]), tiers[name]) for name in found}
    return None if assign_tiers(rules)[1] else lists


def _tier(partition: SitePartition) -> int:
    text = partition.value("prioritytier", "priority")
    return min(max(int(text), 1), 65000) if text.isdecimal() and len(text) < 9 else 1


class _Fields:
    """The fields of one partition, and the verdicts on its keys."""

    def __init__(self, partition: SitePartition, place: str, around: Surroundings, ledger: Ledger) -> None:
        self._partition, self._place, self._around, self._ledger = partition, place, around, ledger
        self._fields: dict[str, Any] = {}
        self._slurm: dict[str, str] = {}

    def make(self, preempts: list[str]) -> dict[str, Any]:
        """Returns the fields."""
        groups = [
            group.name
            for group in self._around.groups
            if any(node.name in self._partition.nodes for node in group.nodes)
        ]
        if len(groups) < len(self._around.groups):
            self._fields["groups"] = groups
        if preempts:
            self._fields["preempts"] = [self._around.names.of(name) for name in preempts]
        for key, item in self._partition.keys.items():
            if not item.value and key:
                self._ledger.same(item, "it is empty")
            else:
                self._decide(key, item)
        for key, item in self._around.defaults.items():
            if not any(name in self._partition.keys for name in DEFAULTS_OF_PARTITIONS[key]):
                self._default(_KEYS[key], item)
        if self._slurm:
            self._fields["slurm"] = dict(sorted(self._slurm.items()))
        return self._fields

    def _carry(self, item: Item, name: str, value: Any, why: str = "") -> None:
        self._fields[name] = value
        self._ledger.carried(item, f"{self._place}.{name}", why)

    def _decide(self, key: str, item: Item) -> None:
        match key:
            case "nodes":
                self._nodes(item)
            case "default" if self._partition.name == self._around.default:
                self._carry(item, "default", True)
            case "default" if _is_default(self._partition):
                self._ledger.same(item, "of several default partitions, the last one counts")
            case "maxtime":
                self._time(item, "max_time")
            case "defaulttime" if item.value.upper() not in ("NONE", "N/A"):
                self._time(item, "default_time")
            case "prioritytier" | "priority" if item.value.isdecimal() and 1 <= int(item.value[:9]) <= 65000:
                self._carry(item, "tier", int(item.value))
            case "gracetime" if item.value.isdecimal() and int(item.value[:9]) <= 86400:
                self._carry(item, "grace_time", int(item.value))
            case "preemptmode":
                self._preempt_mode(item)
            case "allowaccounts" | "denyaccounts" if item.value.upper() not in ("ALL", "NONE"):
                self._accounts(key, item)
            case "qos" if item.value.upper() not in ("N/A", "NONE"):
                self._qos(item)
            case "shared":
                self._slurm_key("OverSubscribe", item)
            case _ if item.value.lower() == _DEFAULTS.get(key):
                self._ledger.same(item)
            case _ if key in _KEYS:
                self._slurm_key(_KEYS[key], item)
            case _ if key in PARTITION_REASONS:
                self._ledger.dropped(item, *PARTITION_REASONS[key])
            case "state":
                self._ledger.dropped(
                    item, "partitions are always up", "leave the partition out, or give it a team of its own"
                )
            case "":
                self._ledger.dropped(item, "is not key=value", "correct the line and import again")
            case _:
                self._ledger.dropped(
                    item, "is not a key of partitions in Slurm 22.05 to 26.05", "correct its spelling and import again"
                )

    def _nodes(self, item: Item) -> None:
        exact = self._partition.nodes == {
            node.name
            for group in self._around.groups
            if group.name in self._fields.get("groups", [g.name for g in self._around.groups])
            for node in group.nodes
        }
        if not exact:
            why = "the partition has more nodes than here: groups were merged, see the notes"
            self._ledger.dropped(item, why, f"divide the groups of {self._place}.groups by hand")
        elif "groups" in self._fields:
            self._ledger.carried(item, f"{self._place}.groups", f"{len(self._partition.nodes)} nodes")
        else:
            self._ledger.same(item, "a partition has all nodes")

    def _time(self, item: Item, name: str) -> None:
        text = time_text(item.value)
        if text is None:
            self._ledger.dropped(item, "is not a time", f"give {self._place}.{name}")
        elif text == "infinite" and name == "max_time":
            self._ledger.same(item)
        else:
            self._carry(item, name, text)

    def _preempt_mode(self, item: Item) -> None:
        mode = item.value.lower().split(",")[0]
        named = "preempts of the higher partitions"
        if self._around.preempt_type != "preempt/partition_prio":
            self._ledger.dropped(
                item, "the site does not preempt by partition", "give preempts to the higher partition"
            )
        elif self._around.preempts is None:
            self._ledger.dropped(
                item, "its tiers and modes contradict each other", "give preempts to the higher partition"
            )
        elif mode in ("off", "requeue"):
            self._ledger.carried(item, named)
        else:
            self._ledger.dropped(item, f"Headway requeues preempted jobs; it does not {mode} them", f"see {named}")

    def _accounts(self, key: str, item: Item) -> None:
        allows, tree = key == "allowaccounts", self._around.tree
        named = [name.strip() for name in item.value.split(",") if name.strip()]
        listed = {self._around.teams[name] for name in named if name in self._around.teams}
        listed = tree.with_those_below(listed) if self._around.lists_hold_below else listed
        may = listed if allows else set(self._around.teams.values()) - listed
        nameable = tree.nameable(may)
        missing = [name for name in named if name not in self._around.teams]
        lost = tree.with_users(may - nameable)
        if key == "denyaccounts" and "allowaccounts" in self._partition.keys:
            self._ledger.same(item, "AllowAccounts counts")
            return
        if nameable:
            self._fields["teams"] = tree.shortest(nameable)
        if not nameable or (missing and allows):
            opened = "" if nameable else "; without teams the partition is open to all"
            none = "a team stands for those below it, which may not use the partition" if may else "no team may use it"
            lost_names = f"these accounts are no teams of the file: {', '.join(missing[:5])}"
            why = (lost_names if missing else none) + opened
            self._ledger.dropped(item, why, f"give {self._place}.teams")
        elif lost:
            why = f"teams below {', '.join(lost[:5])} may not use the partition, so its own users may not either"
            self._ledger.dropped(item, why, "give these users a team below it, and list that team")
        else:
            self._ledger.carried(item, f"{self._place}.teams", "" if allows else "all other teams")

    def _qos(self, item: Item) -> None:
        qos = self._around.qos.get(item.value.lower())
        if qos is None:
            self._ledger.dropped(item, "the QOS was not read", f"give {self._place}.per_user")
            return
        each = LimitSection(f"{self._place}.per_user", "a partition on each user", self._ledger)
        together = LimitSection(f"{self._place}.limits", "a partition", self._ledger)
        job = LimitSection(f"{self._place}.limits.per_job", "a partition on each job", self._ledger)
        take_user_limits(qos.keys, each)
        take_job_limits(qos.keys, together, job)
        limits = {**together.values, **({"per_job": job.values} if job.values else {})}
        found = {name: values for name, values in (("per_user", each.values), ("limits", limits)) if values}
        places = ", ".join(f"{self._place}.{name}" for name in found)
        self._around.used_qos.setdefault(qos.name.lower(), places)
        self._fields |= found
        if found:
            self._ledger.carried(item, places, "for what is not carried see the QOS")
        else:
            self._ledger.dropped(item, "the QOS has no limits that a partition has", "see the QOS")

    def _default(self, key: str, item: Item) -> None:
        """Gives the partition a key that the site has for the whole cluster, if a cluster file takes its value."""
        if not key_fault(key, item.value, self._around.version, partition=True)[0]:
            self._slurm[key] = item.value
            self._ledger.kept(item, f"partitions.*.slurm.{key}", "of partitions that have no value of their own")

    def _slurm_key(self, key: str, item: Item) -> None:
        value = {"true": "YES", "1": "YES"}.get(item.value.lower(), item.value) if key == "Hidden" else item.value
        value = value.upper() if value.lower() in ("yes", "no", "exclusive", "unlimited") else value
        message, hint = key_fault(key, value, self._around.version, partition=True)
        if message:
            self._ledger.dropped(item, f"{key} {message}", hint or f"leave it out, or give {self._place}.slurm.{key}")
        elif value.lower() == _DEFAULTS.get(key.lower()):
            self._ledger.same(item)
        else:
            self._slurm[key] = value
            self._ledger.kept(item, f"{self._place}.slurm.{key}")

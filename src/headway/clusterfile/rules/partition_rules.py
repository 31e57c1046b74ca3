"""Rules of the section `partitions`: sizes, names of groups and teams, machines in no partition, and preemption."""

from __future__ import annotations

import re

from headway.clusterfile import partition_tiers
from headway.clusterfile.draft import FileDraft
from headway.clusterfile.models.cluster_file import ClusterFile
from headway.validation import syntax_rules
from headway.validation.field_types import UNLIMITED

_LEAVE_OUT = "leave nodes out of one partition: it then has all nodes"


def check_partition_sizes(draft: FileDraft) -> None:
    """Checks numbers of nodes, times, and that one partition at most is the default."""
    defaults = []
    for name, part in draft.file.partitions.items():
        path = f"partitions.{name}"
        have = max(draft.file.nodes or 0, draft.file.max or 0)
        if part.nodes is not None and draft.file.groups:
            draft.fault(f"{path}.nodes", "does not name the group of the nodes", "use groups: [NAME]")
        elif part.nodes is not None and part.groups:
            draft.fault(f"{path}.nodes", "can't be combined with groups", "remove one")
        elif draft.is_intact("nodes", "max") and have and part.nodes is not None and part.nodes > have:
            draft.fault(
                f"{path}.nodes",
                f"is {part.nodes}, and the cluster has {have} nodes",
                f"give {have} or fewer; spares don't count",
            )
        elif part.nodes is not None and part.nodes == draft.file.nodes and draft.total > part.nodes:
            others = "leave it out to include spares and nodes that scaling adds"
            draft.warn(f"{path}.nodes", f"is {part.nodes}, the present number of nodes: {others}")
        if part.default:
            defaults.append(name)
        longest, usual = part.max_time, part.default_time
        if usual is not None and longest not in (None, UNLIMITED) and (usual == UNLIMITED or usual > (longest or 0)):
            draft.fault(f"{path}.default_time", "is longer than max_time", "make it shorter")
    for name in defaults[1:]:
        draft.fault(
            f"partitions.{name}.default", f"{defaults[0]} is the default partition already", "remove one default"
        )


def check_unused_machines(draft: FileDraft) -> None:
    """Warns about machines that are in no partition: they cost money, and no job can use them."""
    file, parts = draft.file, draft.file.partitions.values()
    if not parts or not draft.has_size or not draft.is_intact("partitions"):
        return
    named = {group for part in parts for group in part.groups}
    if file.groups and named <= file.groups.keys() and all(part.groups for part in parts):
        for name in file.groups:
            if name not in named:
                draft.warn(
                    f"groups.{name}",
                    "is in no partition, so no job can use its nodes",
                    "add it to the groups of a partition",
                )
    if file.groups or not all(part.nodes for part in parts):
        return
    reach, nodes = max(part.nodes or 0 for part in parts), file.nodes or 0
    if reach == nodes:  # already reported for that partition
        return
    for where, count in (("nodes", nodes), ("max", file.max or 0)):
        if count > reach:
            draft.warn(where, f"is {count}, and the partitions use only the first {reach}", _LEAVE_OUT)
            break
    if file.spares:
        draft.warn("spares", "are in no partition, so they can't replace a node", _LEAVE_OUT)


def check_partition_names(draft: FileDraft) -> None:
    """Checks references to partitions, groups and teams."""
    partitions, groups_known = dict.fromkeys(draft.names("partitions")), dict.fromkeys(draft.names("groups"))
    teams = dict.fromkeys(draft.names("teams") or ["default"])
    for name, part in draft.file.partitions.items():
        for what, field_name, names, known in (
            ("partition", "preempts", part.preempts, partitions),
            ("group", "groups", part.groups, groups_known),
            ("team", "teams", part.teams, teams),
        ):
            seen = set[str]()
            for index, other in enumerate(names):
                where = draft.item(f"partitions.{name}.{field_name}", index)
                if other == name and what == "partition":
                    draft.fault(where, f"{name} can't preempt itself", "remove it")
                elif other not in known:
                    draft.fault(
                        where, f"{what} {syntax_rules.printable(other)} does not exist", draft.suggest(other, known)
                    )
                elif other in seen:
                    draft.fault(where, f"{other} is given twice", "keep one")
                seen.add(other)


def preemption_rules(file: ClusterFile) -> dict[str, partition_tiers.PreemptionRule]:
    """Returns the preemption settings of each partition, limited to existing names."""
    known = file.partitions
    return {
        name: partition_tiers.PreemptionRule(
            frozenset(item for item in part.preempts if item in known and item != name), part.tier
        )
        for name, part in known.items()
    }


def check_preemption(draft: FileDraft) -> None:
    """Checks that tiers exist in which each partition preempts those that it names."""
    if any(re.fullmatch(r"partitions(\.[^.]+(\.(preempts|tier)(\[\d+\])?)?)?", place) for place in draft.removed):
        return
    for clash in partition_tiers.assign_tiers(preemption_rules(draft.file))[1]:
        draft.fault(f"partitions.{clash.partition}.{clash.field}", clash.message, clash.hint)

"""What the comparison of each subject yields, and what it may look up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headway.slurm_import.comparison.slurm_state import SlurmState
from headway.slurm_import.comparison.verdict_reasons import Reasons

REHEARSAL = "the rehearsal has one node of each group"


@dataclass(frozen=True)
class Difference:
    """One value of the site and of the cluster. `reason`: "" if there is none."""

    section: str
    name: str
    key: str
    old: str
    new: str
    reason: str


@dataclass(frozen=True)
class Finding:
    """One compared value."""

    difference: Difference
    equal: bool

    @property
    def section(self) -> str:
        """Part of the comparison: "config", "partition", ..."""
        return self.difference.section


@dataclass(frozen=True)
class Context:
    """Both sides, with the cluster file and verdicts of the import."""

    spec: Mapping[str, Any]
    reasons: Reasons
    old: SlurmState
    new: SlurmState
    notes: tuple[str, ...]

    @cached_property
    def group_nodes(self) -> dict[str, list[str]]:
        """Nodes of the cluster by group: a node is named CLUSTER-GROUP-..."""
        found: dict[str, list[str]] = {name: [] for name in self.spec["groups"]}
        for node in self.new.nodes:
            for name, nodes in found.items():
                if node.startswith(f"{self.new.config.get('ClusterName', '')}-{name}-"):
                    nodes.append(node)
        return found

    @cached_property
    def rehearsal(self) -> bool:
        """Whether the cluster has one node of each group, and the site has more."""
        sizes = {name: len(nodes) for name, nodes in self.group_nodes.items()}
        wanted = {name: group["nodes"] for name, group in self.spec["groups"].items()}
        return sizes != wanted and set(sizes.values()) == {1}

    def version_reason(self, old: str | None, new: str | None) -> str:
        """Returns why a key that nobody sets differs: the versions of Slurm do; "" if they are the same. None: a side
        does not print the key."""
        one, other = (".".join(state.version.split(".")[:2]) for state in (self.old, self.new))
        if one == other:
            return ""
        if old is None or new is None:
            return f"Slurm {one if old is None else other} does not have it"
        return f"defaults of Slurm {one} and {other} differ"


def finding(section: str, name: str, key: str, old: str, new: str, reason: str, *, equal: bool) -> Finding:
    """Returns one compared value; the reason counts only if both differ."""
    return Finding(Difference(section, name, key, old, new, "" if equal else reason), equal)

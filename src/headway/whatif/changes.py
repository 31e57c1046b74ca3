"""What a what-if changes in a cluster file. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.clusterfile.node_counts import target_node_counts, with_node_counts
from headway.domain.cluster import Cluster
from headway.errors import NotFound, Refused

_NODES = re.compile(r"(?:([a-z0-9-]+)=)?([+-]?)([0-9]{1,5})")
_CAP = re.compile(r"([A-Za-z0-9_.-]+)=([0-9]{1,6}|none)")


@dataclass(frozen=True)
class Changes:
    """`nodes`: "+4", "8" or "GROUP=+4"; `caps`: "TEAM=GPUS", most GPUs that a team has at once, or "TEAM=none"; `policy`: fields
    that replace those of the cluster file, field by field; null removes one."""

    nodes: Sequence[str] = ()
    caps: Sequence[str] = ()
    policy: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.nodes or self.caps or self.policy)

    @property
    def in_words(self) -> list[str]:
        """Returns each change as a person would say it."""
        caps = [one.partition("=")[::2] for one in self.caps]
        return [
            *(f"nodes {one.replace('=', ' ')}" for one in self.nodes),
            *(f"no cap for {team}" if most == "none" else f"at most {most} GPUs for {team}" for team, most in caps),
            *(f"policy: {field}" for field in self.policy),
        ]


def changed_file(spec: Mapping[str, Any], cluster: Cluster, changes: Changes) -> dict[str, Any]:
    """Returns the cluster file's mapping with the changes. Raises Refused and NotFound for those that it has no place for."""
    made: dict[str, Any] = copy.deepcopy(dict(spec))
    counts: dict[str, int] = {}
    for text in changes.nodes:
        match = _NODES.fullmatch(text)
        if match is None:
            raise Refused(f"--nodes {text!r} is no number of nodes", hint="give +4, -2, 12, or GROUP=+4")
        group, sign, number = match[1] or "", match[2], int(match[3])
        name = next(iter(target_node_counts(cluster, {group: 0})))
        before = next(one.nodes for one in cluster.groups if one.name == name)
        counts[name] = before + int(f"{sign}{number}") if sign else number
        if counts[name] < 0:
            raise Refused(f"{name} has {before} nodes, {number} can't be removed", hint=f"give -{before} or fewer")
    if counts:
        made = with_node_counts(made, counts)
    for text in changes.caps:
        match = _CAP.fullmatch(text)
        if match is None:
            raise Refused(f"--cap {text!r} is no limit", hint="give TEAM=GPUS, or TEAM=none")
        _set_cap(made, cluster, match[1], match[2])
    patched: dict[str, Any] = _merged(made, changes.policy)  # last, because its values are not checked yet
    return patched


def _set_cap(made: dict[str, Any], cluster: Cluster, team: str, value: str) -> None:
    parts = made.get("teams") or {}
    if team not in parts:
        named = ", ".join(one.name for one in cluster.teams)
        raise NotFound(f"{cluster.name} has no team {team!r} in its file", hint=f"its teams: {named}")
    part = parts[team] = dict(parts[team] or {})
    limits = part["limits"] = dict(part.get("limits") or {})
    if value == "none":
        limits.pop("gpus", None)
    else:
        limits["gpus"] = int(value)


def _merged(base: Any, patch: Any) -> Any:
    """Returns `base` with the fields of `patch` (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    made = dict(base) if isinstance(base, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = _merged(made.get(key), value)
    return made

"""Changes the number of nodes in a cluster file. No I/O."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from headway.catalog.providers import LOCAL, PROVIDERS
from headway.domain.cluster import MAIN_GROUP, Cluster
from headway.errors import Conflict, HeadwayError, NotFound, Refused

_NODES = re.compile(r"^(nodes:[ \t]*)\d+", re.MULTILINE)


def target_node_counts(cluster: Cluster, counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the requested numbers of nodes by group name; the key "" means the only group.

    Raises NotFound for an unknown group, Conflict for an autoscaled one, and Refused if "" is ambiguous."""
    names = [group.name for group in cluster.groups]
    found: dict[str, int] = {}
    for name, nodes in counts.items():
        if not name and len(names) > 1:
            raise Refused(
                f"{cluster.name} has several groups: {', '.join(names)}", hint=f"name the group: {names[0]}={nodes}"
            )
        group = next((candidate for candidate in cluster.groups if candidate.name == (name or names[0])), None)
        if group is None:
            raise NotFound(f"{cluster.name} has no group {name!r}", hint=f"its groups: {', '.join(names)}")
        if group.idle_s is not None:
            raise Conflict(
                f"{group.name} scales automatically, between {group.nodes} and {group.most} nodes",
                hint="change min and max in the cluster file, then headway apply",
            )
        found[group.name] = nodes
    return found


def with_node_counts(spec: Mapping[str, Any], targets: Mapping[str, int]) -> dict[str, Any]:
    """Returns the file's mapping with these numbers of nodes. Slots stay: with fewer nodes, `max` keeps the number of
    slots. Owned machines need no `max`, because `hosts` lists them."""
    made = copy.deepcopy(dict(spec))
    provider = PROVIDERS[made.get("provider") or LOCAL.name]
    for name, nodes in targets.items():
        part = made if name == MAIN_GROUP else made["groups"][name]
        if not provider.creates_machines:
            part["nodes"] = nodes
            part.pop("max", None)
            continue
        most = max(part.get("max") or 0, part.get("nodes") or 0)
        part["nodes"] = nodes
        if nodes < most:
            part["max"] = most
        elif part.get("max") is not None:
            part["max"] = max(most, nodes)
    return made


def edit_node_counts(text: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Returns the file's text with the numbers replaced and all else as the owner wrote it. Returns the text unchanged
    if the result would not parse to exactly that change."""
    from headway.validation.yaml_parser import parse_yaml

    nodes, most = after.get("nodes"), after.get("max")
    made = _NODES.sub(rf"\g<1>{nodes}", text, count=1)
    if most != before.get("max"):
        made = re.sub(r"^max:.*\n", "", made, flags=re.MULTILINE)
        if most is not None:
            made = re.sub(r"^(nodes:.*)$", rf"\g<1>\nmax: {most}", made, count=1, flags=re.MULTILINE)
    try:
        parsed, old = parse_yaml(made), parse_yaml(text)
    except HeadwayError:
        return text
    rest = {key: value for key, value in old.items() if key != "max"}
    return made if parsed == {**rest, "nodes": nodes, **({} if most is None else {"max": most})} else text

"""Another number of nodes in a cluster's file. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from headway.catalog.providers import LOCAL, PROVIDERS
from headway.domain.cluster import MAIN_GROUP, Cluster
from headway.errors import Conflict, HeadwayError, NotFound, Refused

_NODES = re.compile(r"^(nodes:[ \t]*)\d+", re.MULTILINE)


def target_node_counts(cluster: Cluster, asked: Mapping[str, int]) -> dict[str, int]:
    """What is asked for, by the groups' own names; "" is the one group there is. Raises NotFound, Conflict or Refused."""
    names = [group.name for group in cluster.groups]
    found: dict[str, int] = {}
    for name, nodes in asked.items():
        if not name and len(names) > 1:
            raise Refused(
                f"{cluster.name} has several groups: {', '.join(names)}", hint=f"say which: {names[0]}={nodes}"
            )
        group = next((one for one in cluster.groups if one.name == (name or names[0])), None)
        if group is None:
            raise NotFound(f"{cluster.name} has no group {name!r}", hint=f"there is {', '.join(names)}")
        if group.idle_s is not None:
            raise Conflict(
                f"{group.name} scales by itself, between {group.nodes} and {group.most} nodes",
                hint="change min and max in the cluster file, then headway apply",
            )
        found[group.name] = nodes
    return found


def with_node_counts(spec: Mapping[str, Any], targets: Mapping[str, int]) -> dict[str, Any]:
    """The file's mapping with so many nodes in these groups. Slots stay: with fewer nodes `max` holds their places. Machines
    one owns have none to hold: `hosts` says which there are."""
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
    """The file as its owner wrote it, with the numbers changed, where that is plainly possible; else as it was."""
    from headway.validation.yaml_parser import parse_yaml

    nodes, most = after.get("nodes"), after.get("max")
    made = _NODES.sub(rf"\g<1>{nodes}", text, count=1)
    if most != before.get("max"):
        made = re.sub(r"^max:.*\n", "", made, flags=re.MULTILINE)
        if most is not None:
            made = re.sub(r"^(nodes:.*)$", rf"\g<1>\nmax: {most}", made, count=1, flags=re.MULTILINE)
    try:
        told, old = parse_yaml(made), parse_yaml(text)
    except HeadwayError:
        return text
    rest = {key: value for key, value in old.items() if key != "max"}
    return made if told == {**rest, "nodes": nodes, **({} if most is None else {"max": most})} else text

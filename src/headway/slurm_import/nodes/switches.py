"""fabric: the switches of topology.conf or topology.yaml as a tree of the cluster file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.clusterfile.models.fabric import SwitchPart
from headway.clusterfile.topology import switch_tree_faults
from headway.errors import InvalidSpec
from headway.slurm_import import site_names
from headway.slurm_import.conf_reader import Record, logical_lines
from headway.slurm_import.nodes.node_groups import NodeGroup
from headway.slurm_import.nodes.node_lines import hosts_of
from headway.slurm_import.values import node_names
from headway.slurm_import.verdicts import Item, Ledger
from headway.validation.yaml_parser import parse_yaml

_INSTEAD = "give fabric.switches or fabric.leaf_size"


@dataclass
class Switches:
    """Switches of a site: nodes of leaves, children of others. `items`: what they were read from."""

    leaves: dict[str, list[str]] = field(default_factory=dict)
    above: dict[str, list[str]] = field(default_factory=dict)
    items: list[Item] = field(default_factory=list)
    fault: str = ""

    @property
    def leaf_of(self) -> dict[str, str]:
        """Leaf switch by node."""
        return {node: leaf for leaf, nodes in self.leaves.items() for node in nodes}


def read_topology_conf(records: Iterable[Record], ledger: Ledger) -> Switches:
    """Returns the switches of topology.conf: of a tree, or blocks, which become leaf switches."""
    found = Switches()
    for record in records:
        head, nodes, children = record.items[0], record.get("nodes"), record.get("switches")
        if record.kind not in ("switchname", "blockname"):
            for item in record.items:
                ledger.dropped(item, "a cluster file has no key for it", "nothing to do")
            continue
        if nodes is not None:
            found.leaves.setdefault(head.value, []).extend(hosts_of(nodes, ledger))
        elif children is not None:
            found.above.setdefault(head.value, []).extend(hosts_of(children, ledger))
        for item in record.items:
            if item.key.lower() in ("switchname", "blockname", "nodes", "switches"):
                found.items.append(item)
            else:
                ledger.dropped(item, "Slurm itself does not use it", "nothing to do")
    return found


def read_topology_yaml(path: str, text: str, ledger: Ledger) -> Switches:
    """Returns the switches of the first tree or blocks of topology.yaml. Its lines are the items."""
    found = Switches()
    lines = [ledger.read(Item(path, number, "", body.strip())) for number, body in logical_lines(text)]
    try:
        topologies: Any = parse_yaml(f"topologies:\n{text}", path)["topologies"]
    except (InvalidSpec, KeyError) as error:
        for line in lines:
            ledger.dropped(line, f"the file is not read: {error}"[:200], _INSTEAD)
        return found
    for topology in topologies if isinstance(topologies, list) else []:
        kind = next((name for name in ("tree", "block") if isinstance(topology, dict) and topology.get(name)), "")
        rows = topology[kind].get("switches" if kind == "tree" else "blocks") if kind else []
        if not isinstance(rows, list) or not rows or found.leaves:
            continue
        for row in rows:
            name = str(row.get("switch") or row.get("block")) if isinstance(row, dict) else ""
            for field_name, into in (("nodes", found.leaves), ("children", found.above)):
                if name and row.get(field_name):
                    into[name] = node_names(str(row[field_name]))
    if found.leaves:
        found.items = lines
    for line in () if found.leaves else lines:
        ledger.dropped(line, "it has neither a tree nor blocks", _INSTEAD)
    return found


def make_fabric(switches: Switches, groups: Sequence[NodeGroup], ledger: Ledger) -> dict[str, Any]:
    """Returns the section `fabric`; {} for one switch, or for a tree that a cluster file can't have. Decides on the items."""
    if not switches.leaves:
        return {}
    parts, notes = _parts(switches, groups)
    leaves = [part for part in parts if "nodes" in part]
    if len(leaves) <= 1:
        for item in switches.items:
            ledger.same(item, "one switch is the default")
        return {}
    total = sum(len(group.nodes) for group in groups)
    faults = list(switch_tree_faults([SwitchPart.model_validate(part) for part in parts], total))
    for item in switches.items:
        if faults:
            where, message, hint = faults[0]
            ledger.dropped(item, f"the tree is not valid: {where} {message}".strip(), hint or _INSTEAD)
        else:
            ledger.carried(item, "fabric.switches", notes)
    return {} if faults else {"switches": parts}


def _parts(switches: Switches, groups: Sequence[NodeGroup]) -> tuple[list[dict[str, Any]], str]:
    """Returns the switches in the order of the slots, and a sentence about leaves that became several switches."""
    names, leaf_of = site_names.plain_names(), switches.leaf_of
    runs: list[tuple[str, int]] = []
    for group in groups:
        for node in group.nodes:
            leaf = leaf_of.get(node.name, "")
            # A run may go on from one group to the next: the order of slots is that of the groups.
            if runs and runs[-1][0] == leaf:
                runs[-1] = (leaf, runs[-1][1] + 1)
            else:
                runs.append((leaf, 1))
    own: dict[str, list[str]] = {}
    parts: list[dict[str, Any]] = []
    for leaf, count in runs:
        name = names.new(leaf or "unlisted")
        own.setdefault(leaf, []).append(name)
        parts.append({"name": name, "nodes": count})
    upper = {switch: names.new(switch) for switch in switches.above}
    used: set[str] = set()
    for switch, below in _kept_above(switches, own).items():
        children = [part for child in below for part in own.get(child, [upper[child]] if child in upper else [])]
        children = [child for child in dict.fromkeys(children) if child not in used]
        if children:  # of a switch that is named twice, the first one has them
            used.update(children)
            parts.append({"name": upper[switch], "children": children})
    roots = [part["name"] for part in parts if part["name"] not in used]
    if len(roots) > 1:
        parts.append({"name": names.new("spine"), "children": roots})
    split = [leaf for leaf, given in own.items() if len(given) > 1]
    note = f"leaves with nodes of several groups became several switches: {', '.join(split[:5])}" if split else ""
    return parts, note


def _kept_above(switches: Switches, own: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Returns the upper switches that have a switch with nodes below them."""
    kept = dict(switches.above)
    while True:
        rest = {name: [c for c in below if c in own or c in kept] for name, below in kept.items()}
        rest = {name: below for name, below in rest.items() if below}
        if rest == kept:
            return kept
        kept = rest

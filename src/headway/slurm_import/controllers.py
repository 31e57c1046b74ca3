"""Controllers of a site: the first becomes the head."""

from __future__ import annotations

from headway.slurm_import import cluster_keys
from headway.slurm_import.nodes.node_lines import SiteNode
from headway.slurm_import.verdicts import Item, Ledger
from headway.validation import syntax_rules


def head_and_nodes(
    items: list[Item], nodes: dict[str, SiteNode], ledger: Ledger, notes: list[str]
) -> tuple[str, dict[str, SiteNode]]:
    """Returns the address of the head, and the nodes without it: Headway's head runs no jobs."""
    hosts: list[tuple[str, str, Item]] = []
    for item in cluster_keys.find(items, "slurmctldhost", "controlmachine", "backupcontroller"):
        name, _, address = item.value.partition("(")
        hosts.append((name.strip(), address.rstrip(") ") or name.strip(), item))
    address = cluster_keys.last(items, "controladdr")
    for item in cluster_keys.find(items, "controladdr"):
        ledger.carried(item, "hosts[0].address")
    for item in cluster_keys.find(items, "backupaddr"):
        ledger.dropped(item, "the import makes one head", "add the second head after the move: controllers: 2")
    for index, (_, _, item) in enumerate(hosts):
        if index == 0:
            ledger.carried(item, "hosts[0]", "the head")
        else:
            ledger.dropped(item, "the import makes one head", "add the second head after the move: controllers: 2")
    head, reached = (hosts[0][0], address or hosts[0][1]) if hosts else ("", "head.example.org")
    if syntax_rules.host_fault(reached) or ":" in reached:
        notes.append(
            f"{syntax_rules.printable(reached)} is no address of a machine: replace head.example.org under hosts"
        )
        reached = "head.example.org"
    by_address = {node.address.lower(): node for node in reversed(nodes.values())}
    rest = {
        name: node
        for name, node in nodes.items()
        if name != head and node.address.lower() != reached.lower() and by_address[node.address.lower()] is node
    }
    shared = len(nodes) - len(by_address)
    if shared:
        notes.append(
            f"{shared:,} nodes share the address of another one: a machine is one node, so they are not carried"
        )
    if not hosts:
        notes.append("slurm.conf names no controller: replace head.example.org under hosts")
    if len(rest) < len(nodes) and rest:
        if len(rest) < len(by_address):
            notes.append(
                f"{head} is controller and node: Headway's head runs no jobs, so the cluster has one node less"
            )
        return reached, rest
    if not rest:
        notes.append(f"the only node {head} is also the controller: give another machine for the head under hosts")
        return "head.example.org", {node.name: node for node in by_address.values()}
    return reached, rest

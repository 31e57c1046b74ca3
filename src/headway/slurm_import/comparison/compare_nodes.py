"""scontrol show node of both sides, by group: nodes of the cluster have names of slots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from headway.slurm_import.comparison.differences import REHEARSAL, Context, Finding, finding
from headway.slurm_import.comparison.slurm_state import equal, names

_LEAST_MEMORY = 0.9  # of a machine, which jobs get at least
_MEMORY = "Headway reads the memory of each machine and keeps a part for the system"
_SOCKETS = re.compile(r"\(S:[^)]*\)")


def findings(context: Context) -> Iterator[Finding]:
    """Yields the hardware, features, weight, partitions and number of the nodes of each group."""
    if not context.old.nodes or not context.new.nodes:
        return
    groups = _groups(context)
    grouped = {node for nodes in groups.values() for node in nodes}
    for name in context.old.nodes.keys() - grouped:
        why = next(
            (note for note in context.notes if "address of another" in note or "controller and node" in note), ""
        )
        yield finding("nodes", name, "", "it is there", "", why, equal=False)
    for name, nodes in groups.items():
        old, new = [context.old.nodes[n] for n in nodes], [context.new.nodes[n] for n in context.group_nodes[name]]
        same = len(old) == len(new)
        yield finding("nodes", name, "number", str(len(old)), str(len(new)), REHEARSAL * context.rehearsal, equal=same)
        if new:
            yield from _group(context, name, old, new)


def _groups(context: Context) -> dict[str, list[str]]:
    """Returns the site's nodes by group. Hosts are listed in the order of the groups, after the head."""
    addresses = [host for host in context.spec.get("hosts", ()) if isinstance(host, str)]
    owner: dict[str, str] = {}
    for name, group in context.spec["groups"].items():
        owner |= dict.fromkeys((address.lower() for address in addresses[: group["nodes"]]), name)
        addresses = addresses[group["nodes"] :]
    found: dict[str, list[str]] = {name: [] for name in context.spec["groups"]}
    for node, pairs in context.old.nodes.items():
        group_name = owner.pop(pairs.get("NodeAddr", node).lower(), "")
        if group_name:
            found[group_name].append(node)
    return found


def _group(
    context: Context, name: str, old: Iterable[Mapping[str, str]], new: Iterable[Mapping[str, str]]
) -> Iterator[Finding]:
    for key in ("CPUTot", "RealMemory", "Weight"):
        left, right = _values(old, key), _values(new, key)
        reason = _MEMORY if key == "RealMemory" and _memory_fits(left, right) else ""
        if key == "Weight" and "weight" not in context.spec["groups"][name]:
            reason = "all nodes of the site weigh the same: Headway fills cheap nodes first"
        yield finding("nodes", name, key, left, right, reason, equal=equal(left, right))
    left, right = (_SOCKETS.sub("", _values(side, "Gres")) for side in (old, new))
    yield finding("nodes", name, "Gres", left, right, "", equal=equal(left, right))
    # Headway adds features of its own.
    left, right = _values(old, "AvailableFeatures"), _values(new, "AvailableFeatures")
    lost = {part for part in left.split(",") if part != "(null)"} - set(right.split(","))
    yield finding("nodes", name, "Features", left, right, "", equal=not lost)
    left = names(
        context.reasons.partitions.get(part.lower(), part.lower()) for part in _values(old, "Partitions").split(",")
    )
    right = names(_values(new, "Partitions").split(","))
    yield finding("nodes", name, "Partitions", left, right, "", equal=equal(left, right))


def _values(nodes: Iterable[Mapping[str, str]], key: str) -> str:
    """Returns the value of these nodes; several are separated by " or "."""
    return " or ".join(sorted({node.get(key, "") for node in nodes}))


def _memory_fits(old: str, new: str) -> bool:
    return old.isdecimal() and new.isdecimal() and _LEAST_MEMORY * int(old) <= int(new) < int(old)

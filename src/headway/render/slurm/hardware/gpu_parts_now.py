"""Reads from slurm.conf how the GPUs of nodes are divided now."""

from __future__ import annotations

from collections.abc import Collection

from headway.catalog.mig_profiles import lay_out
from headway.domain.cluster import Cluster
from headway.domain.machines.gpu_parts import GpuParts
from headway.domain.machines.site import Site
from headway.domain.slurm.hostlist import expand
from headway.render.slurm import conf_syntax
from headway.render.slurm.hardware.node_hardware import Hardware, hardware_of

_MOST_NODES = 65536


def parts_now(cluster: Cluster, site: Site, text: str, names: Collection[str]) -> dict[str, GpuParts]:
    """Returns node -> how its GPUs are divided according to the slurm.conf `text`, for those of `names` where the
    cluster file says otherwise. Nodes with another number or type of GPUs are left out. Returns {} for a text that can't
    be read."""
    found: dict[str, GpuParts] = {}
    if not text:
        return found
    try:
        lines = [line for line in conf_syntax.parse_lines(text) if line.first == "nodename"]
        gres = {name: line.get("gres") or "" for line in lines for name in expand(line.pairs[0][1], _MOST_NODES)}
    except ValueError:
        return found
    for name in cluster.slot_names:
        node = hardware_of(cluster, site, name)
        if name not in names or not node.gpus or name not in gres or gres[name] == node.gres:
            continue
        parts = _parts_of(cluster, name, node, gres[name])
        if parts is not None and parts != node.parts:
            found[name] = parts
    return found


def _parts_of(cluster: Cluster, name: str, node: Hardware, gres: str) -> GpuParts | None:
    """Returns what a Gres text says of the node's GPUs; None if they are not the GPUs of the node."""
    words = [word.split(":") for word in gres.split(",") if word]
    shared = {kind: int(rest[-1]) for kind, *rest in words if kind in ("shard", "mps") and rest and rest[-1].isdigit()}
    counts = {rest[0]: int(rest[1]) for kind, *rest in words if kind == "gpu" and len(rest) == 2 and rest[1].isdigit()}
    if counts == {node.gpu_type: node.gpus}:
        return GpuParts(shards=shared.get("shard", 0) // node.gpus, mps="mps" in shared)
    if not counts or any(count % node.gpus for count in counts.values()):
        return None
    instances = lay_out(cluster.group_of[name].plan, {profile: n // node.gpus for profile, n in counts.items()})
    return GpuParts(mig=instances) if instances else None

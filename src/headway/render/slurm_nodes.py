"""The NodeName and PartitionName lines of slurm.conf."""

from __future__ import annotations

import math
from collections.abc import Iterator

from headway.domain.cluster import Cluster, Partition
from headway.domain.hostlist import compress
from headway.render.conf import Line
from headway.render.hardware import Hardware

# Billing units that one whole GPU (or, without GPUs, one CPU) counts for; the rest of a node in proportion.
_BILLING_PER_GPU = 1000


def node_lines(cluster: Cluster, node: Hardware) -> Iterator[Line]:
    """One line a leaf, spares included: they have their place from the start."""
    yield Line(comment="--- nodes, spares included; the name carries the leaf switch")
    leaves: dict[str, list[str]] = {}
    for slot in cluster.slots:
        leaves.setdefault(slot.leaf, []).append(slot.name)
    for leaf, names in leaves.items():
        pairs = [("NodeName", compress(names)), ("CPUs", str(node.cpus)), ("RealMemory", str(node.memory_mib))]
        if node.gpus:
            pairs.append(("Gres", f"gpu:{node.gpu_type}:{node.gpus}"))
        if node.tmp_mib:
            pairs.append(("TmpDisk", str(node.tmp_mib)))
        pairs += [("Feature", f"{cluster.plan.name},{leaf}"), ("State", "UNKNOWN")]
        yield Line(tuple(pairs))


def partition_lines(cluster: Cluster, node: Hardware) -> Iterator[Line]:
    yield Line(comment="--- partitions; a job counts for its largest part of a node, 1000 = one GPU")
    everything = set(cluster.slot_names)
    for partition in cluster.partitions:
        yield _partition(partition, node, everything, preempting=any(p.preempts for p in cluster.partitions))


def _partition(partition: Partition, node: Hardware, everything: set[str], *, preempting: bool) -> Line:
    nodes = "ALL" if set(partition.nodes) == everything else compress(partition.nodes)
    pairs = [
        ("PartitionName", partition.name),
        ("Nodes", nodes),
        ("Default", "YES" if partition.default else "NO"),
        ("State", "UP"),
        ("MaxTime", duration(partition.max_time_s)),
        ("PriorityTier", str(partition.tier)),
    ]
    if partition.default_time_s is not None:
        pairs.append(("DefaultTime", duration(partition.default_time_s)))
    if preempting:
        pairs.append(("PreemptMode", "REQUEUE" if partition.preemptable else "OFF"))
    if partition.preemptable:
        pairs.append(("GraceTime", str(partition.grace_s)))
    if partition.teams:
        pairs.append(("AllowAccounts", ",".join(partition.teams)))
    pairs.append(("TRESBillingWeights", _billing(node)))
    overridden = {key.lower(): (key, text) for key, text in partition.slurm.items()}
    merged = [overridden.pop(key.lower(), (key, text)) for key, text in pairs]
    return Line((*merged, *overridden.values()))


def duration(seconds: int | None) -> str:
    """Slurm's D-HH:MM:SS; None is no limit."""
    if seconds is None:
        return "UNLIMITED"
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02d}:{minute:02d}:{second:02d}"


def _billing(node: Hardware) -> str:
    whole = _BILLING_PER_GPU * (node.gpus or node.cpus)
    # Whole nodes count for their GPUs exactly: sums are cut to whole units, so what is rounded is rounded up by a hair.
    weights = [f"CPU={_weight(whole / node.cpus)}", f"Mem={_weight(whole / (node.memory_mib / 1024))}G"]
    if node.gpus:
        weights.append(f"GRES/gpu={_BILLING_PER_GPU}")
    return ",".join(weights)


def _weight(exact: float) -> str:
    """Six digits behind the point are enough for a terabyte; trailing zeros say nothing."""
    return f"{math.ceil(exact * 1e6) / 1e6:.6f}".rstrip("0").rstrip(".")

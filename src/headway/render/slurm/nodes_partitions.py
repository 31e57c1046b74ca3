"""The NodeName and PartitionName lines of slurm.conf."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from headway.domain.cluster import MAIN_GROUP, Cluster, Group, Partition
from headway.domain.durations import split_duration
from headway.domain.machines.gpu_parts import MPS_PER_GPU, share_of_type
from headway.domain.machines.site import Site
from headway.domain.slurm.hostlist import compress
from headway.render.slurm.conf_syntax import ConfLine
from headway.render.slurm.hardware.default_shares import DefaultShare, smallest_share
from headway.render.slurm.hardware.node_hardware import (
    Hardware,
    distinct_hardware,
    hardware_of,
)

# Billing units of one whole GPU (in a cluster without GPUs, of one CPU); the other resources of a node are weighted in
# proportion.
_BILLING_PER_GPU = 1000


def node_lines(cluster: Cluster, site: Site) -> Iterator[ConfLine]:
    """Yields one line per leaf and kind of node. Spares and slots without a machine are included, so that they exist in
    Slurm from the start."""
    yield ConfLine(comment="--- nodes, spares included; the name carries the leaf switch")
    weights = _weights(cluster)
    if weights:
        yield ConfLine(
            comment="Weight: the group's, or what a node costs in cents an hour, so that cheap ones are filled first."
        )
    kinds: dict[tuple[str, str, Hardware], list[str]] = {}
    for slot in cluster.slots:
        kinds.setdefault((slot.group, slot.leaf, hardware_of(cluster, site, slot.name)), []).append(slot.name)
    for (_, leaf, node), names in kinds.items():
        group = cluster.group_of[names[0]]
        pairs = [("NodeName", compress(names)), ("CPUs", str(node.cpus))]
        if node.sockets:
            words = ("Sockets", "CoresPerSocket", "ThreadsPerCore")
            pairs += [(word, str(count)) for word, count in zip(words, node.sockets, strict=True)]
        pairs.append(("RealMemory", str(node.memory_mib)))
        if node.gpus:
            pairs.append(("Gres", node.gres))
        if node.tmp_mib:
            pairs.append(("TmpDisk", str(node.tmp_mib)))
        if weights:
            pairs.append(("Weight", str(weights[group.name])))
        pairs += [
            ("Feature", ",".join(features(group, leaf))),
            ("State", "UNKNOWN" if group.idle_s is None else "CLOUD"),
        ]
        yield ConfLine(tuple(pairs))


def features(group: Group, leaf: str) -> tuple[str, ...]:
    """Returns the features of nodes, for --constraint."""
    named = () if group.name == MAIN_GROUP else (group.name,)
    return tuple(dict.fromkeys((*named, group.plan.name, leaf, *group.features, *(("spot",) if group.spot else ()))))


def _weights(cluster: Cluster) -> dict[str, int]:
    """Returns Slurm's weight by group; {} if there is only one group, without a weight of its own."""
    if len(cluster.groups) == 1 and cluster.groups[0].weight is None:
        return {}
    return {
        group.name: 1 + int(group.price_usd_per_node_hour * 100) if group.weight is None else group.weight
        for group in cluster.groups
    }


def partition_lines(cluster: Cluster, site: Site) -> Iterator[ConfLine]:
    """Yields the PartitionName lines."""
    yield ConfLine(comment="--- partitions; a job counts for its largest part of a node, 1000 = one GPU")
    everything = set(cluster.slot_names)
    all_kinds = distinct_hardware(cluster, site, cluster.slot_names)
    usual, preempting = smallest_share(all_kinds), any(partition.preempts for partition in cluster.partitions)
    cpu = _cpu(all_kinds)
    for partition in cluster.partitions:
        nodes = distinct_hardware(cluster, site, partition.nodes) or all_kinds
        yield _partition(partition, nodes, usual, cpu, everything, preempting=preempting)


def _partition(
    partition: Partition,
    nodes: Sequence[Hardware],
    usual: DefaultShare,
    cpu: float,
    everything: set[str],
    *,
    preempting: bool,
) -> ConfLine:
    """Returns the line of one partition. `nodes`: its kinds of nodes; `usual`: the cluster-wide defaults; `cpu`:
    billing units of a CPU on nodes without GPUs."""
    pairs = [
        ("PartitionName", partition.name),
        ("Nodes", "ALL" if set(partition.nodes) == everything else compress(partition.nodes)),
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
    if partition.qos:
        pairs.append(("QOS", partition.qos))
    pairs += _defaults(smallest_share(nodes), usual)
    pairs.append(("TRESBillingWeights", _billing(nodes, cpu)))
    overridden = {key.lower(): (key, text) for key, text in partition.slurm.items()}
    merged = [overridden.pop(key.lower(), (key, text)) for key, text in pairs]
    return ConfLine((*merged, *overridden.values()))


def _defaults(own: DefaultShare, usual: DefaultShare) -> list[tuple[str, str]]:
    """Returns the partition's defaults per GPU and CPU where they differ from the cluster's."""
    found = []
    if own.cpus_per_gpu and (own.cpus_per_gpu, own.memory_mib_per_gpu) != (
        usual.cpus_per_gpu,
        usual.memory_mib_per_gpu,
    ):
        found += [("DefCpuPerGPU", str(own.cpus_per_gpu)), ("DefMemPerGPU", str(own.memory_mib_per_gpu))]
    if own.memory_mib_per_cpu != usual.memory_mib_per_cpu:
        found.append(("DefMemPerCPU", str(own.memory_mib_per_cpu)))
    return found


def duration(seconds: int | None) -> str:
    """Returns a time as D-HH:MM:SS; None is UNLIMITED."""
    if seconds is None:
        return "UNLIMITED"
    days, hour, minute, second = split_duration(seconds)
    return f"{days}-{hour:02d}:{minute:02d}:{second:02d}"


def _cpu(kinds: Sequence[Hardware]) -> float:
    """Returns the billing units of a CPU on nodes without GPUs. It is as low as on the cluster's GPU nodes, so that a
    CPU node does not count like a hundred GPUs."""
    return min((_BILLING_PER_GPU * node.gpus / node.cpus for node in kinds if node.gpus), default=_BILLING_PER_GPU)


def _billing(nodes: Sequence[Hardware], per_cpu: float) -> str:
    with_gpus = [node for node in nodes if node.gpus]
    counted = with_gpus or nodes
    # A whole node must count for exactly its GPUs. Slurm truncates sums to whole units, so weights are rounded up
    # slightly. With several kinds of nodes the lowest weight is used, so that none counts for more than its GPUs.
    cpu = min(_whole(node, per_cpu) / node.cpus for node in counted)
    memory = min(_whole(node, per_cpu) / (node.memory_mib / 1024) for node in counted)
    weights = [f"CPU={_weight(cpu)}", f"Mem={_weight(memory)}G"]
    weights += [f"{name}={_weight(_BILLING_PER_GPU * share)}" for name, share in _gpu_shares(with_gpus).items()]
    return ",".join(weights)


def _gpu_shares(nodes: Sequence[Hardware]) -> dict[str, Fraction]:
    """Returns the GPUs that one of each GRES is worth. Without MIG instances all types are alike, and need no weights
    of their own."""
    found = {"GRES/gpu": Fraction(1)} if nodes else {}
    if any(node.parts.mig for node in nodes):
        found = {f"GRES/gpu:{name}": share_of_type(name) for node in nodes for name in node.gpu_counts}
    for node in nodes:
        if node.parts.shards:
            found["GRES/shard"] = Fraction(1, node.parts.shards)
        if node.parts.mps:
            found["GRES/mps"] = Fraction(1, MPS_PER_GPU)
    return found


def _whole(node: Hardware, per_cpu: float) -> float:
    return _BILLING_PER_GPU * node.gpus or per_cpu * node.cpus


def _weight(exact: float | Fraction) -> str:
    """Returns a weight with six decimals, which is enough for a terabyte, without trailing zeros."""
    return f"{math.ceil(exact * 1e6) / 1e6:.6f}".rstrip("0").rstrip(".")

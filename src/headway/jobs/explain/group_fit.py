"""Whether a waiting job can use the nodes of a group, also those that have no machine now. Pure."""

from __future__ import annotations

from headway.domain.cluster import Cluster, Group
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.explain.placement_search import (
    RESOURCE_REASONS,
    NodeResources,
    has_features,
    has_simple_constraint,
    reason_word,
    requested_gpu_types,
    requested_per_node,
)

_NODE_REASONS = RESOURCE_REASONS | {"ReqNodeNotAvail"}


def waits_for_nodes(job: JobState) -> bool:
    """Returns whether the job is pending because no nodes are free, not for a limit, a dependency or a person."""
    return job.state == "PENDING" and reason_word(job.reason) in _NODE_REASONS and not job.reservation


def can_use_group(job: JobState, group: Group, cluster: Cluster) -> bool:
    """Returns whether nodes of the group have what the job requests. A --constraint that can't be evaluated here counts as
    fulfilled."""
    slots, named = set(group.slots), job.partition.split(",")
    if not any(part.name in named and not slots.isdisjoint(part.nodes) for part in cluster.partitions):
        return False
    if 0 < job.node_count <= len(job.required_nodes) and slots.isdisjoint(job.required_nodes):
        return False
    kinds, plan = requested_gpu_types(job), group.plan
    if kinds and plan.gpu_type.lower() not in kinds and not set(kinds) & {kind.lower() for kind in group.gpu_counts}:
        return False
    gpus = sum(group.gpu_counts.values())
    if not requested_per_node(job).fits_in(NodeResources(gpus, plan.cpus, plan.memory_mib)):
        return False
    leaves = {slot.leaf for slot in cluster.slots if slot.name in slots}
    return not has_simple_constraint(job) or any(has_features(job, group, leaf) for leaf in leaves)

"""Compares the number of leaf switches that a job uses with the fewest possible when it started. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from headway.domain.slurm.job_states import RUNNING
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState
from headway.jobs.explain.placement_search import allocated_on_node


def leaves_of(nodes: Iterable[str], leaf_of: Mapping[str, str]) -> dict[str, int]:
    """Returns the number of nodes under each leaf switch."""
    return dict(Counter(leaf_of.get(node, "") for node in nodes))


def fewest_leaves(
    run: JobState, nodes: Iterable[NodeState], others: Iterable[JobState], leaf_of: Mapping[str, str]
) -> int:
    """Returns the fewest leaves that had room for the run's nodes when it started. A node had room where the other
    jobs of that time left as many GPUs as the run uses on a node (for a run without GPUs: as many CPUs)."""
    used = _used_by_others(run, others)
    own = set(run.nodes)
    gpus = -(-run.gpus // max(1, len(run.nodes)))
    cpus = -(-run.cpus // max(1, len(run.nodes)))
    room: Counter[str] = Counter()
    for node in nodes:
        used_gpus, used_cpus = used.get(node.name, (0, 0))
        fits = node.gpus - used_gpus >= gpus if gpus else node.cpus - used_cpus >= cpus
        in_service = node.usable and not node.reservation and run.partition in node.partitions
        if node.name in own or (in_service and fits):
            room[leaf_of.get(node.name, "")] += 1
    needed, count = len(own), 0
    for size in sorted(room.values(), reverse=True):
        if needed <= 0:
            break
        needed -= size
        count += 1
    return count


def _used_by_others(run: JobState, others: Iterable[JobState]) -> dict[str, tuple[int, int]]:
    """Returns node -> (GPUs, CPUs) that other jobs used when the run started."""
    found: dict[str, tuple[int, int]] = {}
    for other in others:
        going = other.state in RUNNING or other.end_time > run.start_time
        if other.id == run.id or not going or not 0 < other.start_time <= run.start_time:
            continue
        for node in other.nodes:
            part = allocated_on_node(other, node)
            gpus, cpus = found.get(node, (0, 0))
            found[node] = (gpus + part.gpus, cpus + part.cpus)
    return found

"""Converts the nodes of a cluster, from its file and its snapshot, to the schema of the API. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from headway.domain.cluster import Cluster, Group
from headway.domain.machines.scale_in_order import choose_slots
from headway.domain.slurm.job_states import RUNNING
from headway.domain.slurm.nodes_and_jobs import FLAKY_NODES, SPARES, JobState, NodeState
from headway.schemas.nodes.nodes import GpuOut, NodeOut
from headway.services.read_model.snapshot import Snapshot


def node_outs(cluster: Cluster, snapshot: Snapshot) -> list[NodeOut]:
    """Returns the head first, then every node that exists or should exist, but not the slots that are only used by a
    larger number of nodes. The list is made once per reading and shared: callers must not change it."""
    known: tuple[Cluster, list[NodeOut]] | None = snapshot.derived.get("nodes")
    if known is None or known[0] is not cluster:
        known = snapshot.derived["nodes"] = cluster, _node_outs(cluster, snapshot)
    return known[1]


def _node_outs(cluster: Cluster, snapshot: Snapshot) -> list[NodeOut]:
    machines = {machine.name: machine for machine in snapshot.machines}
    states = {node.name: node for node in snapshot.nodes}
    holders = _holders(snapshot.jobs)
    spares = _spares(cluster, snapshot)
    seen = snapshot.as_of is not None
    shown = {*choose_slots(cluster, machines), *(name for name in machines if name in cluster.group_of)}

    named = {host.name: host.address for host in cluster.hosts if host.name}  # as the cluster file calls them

    def one(name: str, role: Literal["head", "node", "spare"], leaf: str) -> NodeOut:
        machine, state = machines.get(name), states.get(name)
        word = machine.state.value if machine else ("missing" if seen else "")
        out = NodeOut(name=name, role=role, leaf=leaf, machine=word)
        if machine:
            out.address = machine.address
            out.host = named.get(name, machine.host.address) if machine.host else ""
        if role == "head":
            out.usable = word == "running"
            return out
        group = cluster.group_of[name]
        out.group, out.plan = group.name, group.plan.name
        return _with_slurm(out, state, holders.get(name, {}), group)

    return [
        *(one(name, "head", "") for name in cluster.heads),
        *(one(s.name, "spare" if s.name in spares else "node", s.leaf) for s in cluster.slots if s.name in shown),
    ]


def _with_slurm(out: NodeOut, state: NodeState | None, holders: dict[int, int], group: Group) -> NodeOut:
    count = state.gpus if state and state.gpus else sum(group.gpu_counts.values())
    out.gpus = [GpuOut(index=index, job_id=holders.get(index)) for index in range(count)]
    # Until a roll has divided its GPUs as the file says, Slurm has others.
    if state is None or not state.gpus or (set(state.gpu_types), count) == _types_and_count(group):
        out.gpu_parts = group.parts.description if group.parts else ""
        for gpu, (number, profile) in zip(out.gpus, _instances(group), strict=False):
            gpu.gpu, gpu.part = number, profile
    if state is not None:
        out.states = list(state.states)
        out.reason = state.reason or (
            "fails too often: for jobs in reservation headway_flaky only" if state.reservation == FLAKY_NODES else ""
        )
        out.cpus, out.cpus_used = state.cpus, state.cpus_used
        out.memory_mib, out.memory_used_mib = state.memory_mib, state.memory_used_mib
        out.partitions = list(state.partitions)
        out.usable = state.usable
    return out


def _types_and_count(group: Group) -> tuple[set[str], int]:
    return set(group.gpu_counts), sum(group.gpu_counts.values())


def _instances(group: Group) -> Iterator[tuple[int, str]]:
    """Yields (GPU, profile) of each MIG instance of a node in the order in which Slurm counts them: by profile, then by
    GPU."""
    for profile, count in group.parts.counts.items():
        for gpu in range(group.plan.gpus):
            yield from [(gpu, profile)] * count


def _spares(cluster: Cluster, snapshot: Snapshot) -> set[str]:
    """Returns the nodes in Headway's spare reservation; if no nodes are known, the last slots."""
    reserved = {node.name for node in snapshot.nodes if node.reservation == SPARES}
    if reserved or snapshot.nodes:
        return reserved
    return set(cluster.slot_names[len(cluster.slots) - cluster.spares :]) if cluster.spares else set()


def _holders(jobs: Iterable[JobState]) -> dict[str, dict[int, int]]:
    """Returns node -> GPU number -> job id."""
    found: dict[str, dict[int, int]] = {}
    for job in jobs:
        if job.state not in RUNNING:
            continue
        for node, indexes in job.gpu_indexes.items():
            found.setdefault(node, {}).update(dict.fromkeys(indexes, job.id))
    return found

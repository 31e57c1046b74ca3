"""Searches where a waiting job would fit, and which jobs must end first. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from headway.domain.cluster import Cluster, Group
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.job_states import RUNNING
from headway.domain.slurm.nodes_and_jobs import MAX_PRIORITY, SPARES, JobState, NodeState, Reservation
from headway.jobs.explain.held_slots import describe_held
from headway.jobs.explain.phrases import Moment, Phrase, count_of, describe_end, join_phrases
from headway.render.slurm.nodes_partitions import features

RESOURCE_REASONS = frozenset({"Resources", "Priority", "Prolog", "NodeDown", "None", ""})
_BITS = 32  # of a Slurm job id, for `_queue_key`
_NUMBER = 2**_BITS - 1
_FEATURE = r"[\w.-]+"
_FEATURES = re.compile(rf"{_FEATURE}(?:&{_FEATURE})*|{_FEATURE}(?:\|{_FEATURE})+")  # all of them, or one of them
_TRES = ("tres-per-node", "tres-per-job", "tres-per-task", "tres-per-socket")
# `gres/gpu:h100:8`, `gres:gpu:h100` for one GPU; `gres/gpu:8` names no type
_KIND = re.compile(r"(?:gres[/:])?gpu:(?!\d+$)([^:=]+)(?:[:=]\d+)?")
_SHARES = re.compile(r"(?:gres[/:])?(shard|mps)(?::(?!\d+$)[^:=]+)?(?:[:=](\d+))?")


@lru_cache(maxsize=1024)
def reason_word(reason: str) -> str:
    """Returns the first word: "ReqNodeNotAvail, UnavailableNodes:lab-1-3" -> "ReqNodeNotAvail"; "(Resources)" ->
    "Resources"."""
    return reason.strip().strip("()").partition(",")[0].strip()


@dataclass(frozen=True)
class ClusterSnapshot:
    """The nodes, jobs and reservations of a cluster as last read, indexed for questions about pending jobs."""

    cluster: Cluster
    nodes: tuple[NodeState, ...]
    jobs: tuple[JobState, ...]
    reservations: tuple[Reservation, ...] = ()
    held_slots: tuple[NodeState, ...] = ()  # slots without a machine that Slurm may not power up now
    now: float = 0.0
    leaf_of: Mapping[str, str] = field(default_factory=dict)
    running: tuple[JobState, ...] = ()  # sorted by their end
    # By partition: the sorted `_queue_key`s of jobs that wait there for resources.
    queue_keys: Mapping[str, list[int]] = field(default_factory=dict)
    merged_queue_keys: dict[str, list[int]] = field(default_factory=dict)  # by the partitions "a,b" of a job
    by_id: Mapping[int, JobState] = field(default_factory=dict)
    # Cached answers of `explain_placement`, by request.
    placements: dict[tuple[object, ...], Phrase] = field(default_factory=dict)

    @staticmethod
    def from_readings(
        cluster: Cluster,
        nodes: Iterable[NodeState],
        jobs: Iterable[JobState],
        reservations: Iterable[Reservation] = (),
        now: float = 0.0,
        held_slots: Iterable[NodeState] = (),
    ) -> ClusterSnapshot:
        """Returns the snapshot of these nodes, jobs and reservations."""
        leaves = {slot.name: slot.leaf for slot in cluster.slots}
        empty = ClusterSnapshot(cluster, tuple(nodes), (), tuple(reservations), tuple(held_slots), now, leaves)
        every = tuple(jobs)
        return empty.update(now, every, {job.id: job for job in every}, (), every)

    def update(
        self,
        now: float,
        jobs: tuple[JobState, ...],
        by_id: Mapping[int, JobState],
        removed: Iterable[JobState],
        added: Sequence[JobState],
    ) -> ClusterSnapshot:
        """Returns the snapshot with these jobs: `added` are new or changed, `removed` are their earlier versions.

        It is incremental, because sorting ten thousand jobs on each reading would delay every request."""
        left = {job.id for job in removed}
        running = [job for job in self.running if job.id not in left]
        running += (job for job in added if job.state in RUNNING and job.nodes)
        turns = {partition: list(waiting) for partition, waiting in self.queue_keys.items()}
        for job in removed:
            for partition in _pending_partitions(job):
                waiting = turns[partition]
                del waiting[bisect_left(waiting, _queue_key(job))]
        for job in added:
            for partition in _pending_partitions(job):
                turns.setdefault(partition, []).append(_queue_key(job))
        for waiting in turns.values():
            waiting.sort()
        running.sort(key=_end)
        return replace(
            self,
            now=now,
            jobs=jobs,
            running=tuple(running),
            queue_keys=turns,
            merged_queue_keys={},
            by_id=by_id,
            placements={},
        )

    def jobs_ahead(self, job: JobState) -> tuple[int, JobState | None]:
        """Returns how many jobs are queued before this one, and the first of them."""
        turns = self.queue_keys.get(job.partition) or self.merged_queue_keys.get(job.partition)
        if turns is None:  # the job lists several partitions, or one without waiting jobs
            several = (self.queue_keys.get(partition, ()) for partition in job.partition.split(","))
            turns = self.merged_queue_keys[job.partition] = sorted({turn for waiting in several for turn in waiting})
        count = bisect_left(turns, _queue_key(job))
        return count, self.by_id[turns[0] & _NUMBER] if count else None


@dataclass(frozen=True, slots=True)
class NodeResources:
    """GPUs, CPUs and memory on one node: allocated, requested or free."""

    gpus: int
    cpus: int
    memory_mib: int

    def fits_in(self, other: NodeResources) -> bool:
        """Returns whether `other` is at least as large in GPUs, CPUs and memory."""
        return self.gpus <= other.gpus and self.cpus <= other.cpus and self.memory_mib <= other.memory_mib

    def add(self, other: NodeResources) -> NodeResources:
        """Returns the sum of both."""
        return NodeResources(self.gpus + other.gpus, self.cpus + other.cpus, self.memory_mib + other.memory_mib)

    def __str__(self) -> str:
        if self.gpus:
            return count_of(self.gpus, "GPU")
        return count_of(self.cpus, "CPU") + (
            f" and {-(-self.memory_mib // 1024)} GiB" if self.memory_mib > 1024 else ""
        )


def requested_per_node(job: JobState) -> NodeResources:
    """Returns what the job requests on each node, including CPUs and memory per GPU, which Slurm adds only when
    the job starts."""
    nodes = max(1, job.node_count)
    gpus = -(-job.gpus // nodes)
    cpus = max(-(-job.cpus // nodes), gpus * _per_gpu(job, "cpus-per-tres"))
    return NodeResources(gpus, cpus, max(job.memory_mib // nodes, gpus * _per_gpu(job, "mem-per-tres")))


def allocated_on_node(job: JobState, node: str) -> NodeResources:
    """Returns what a running job has on one of its nodes."""
    nodes = max(1, len(job.nodes))
    gpus = len(job.gpu_indexes.get(node, ())) or job.gpus // nodes
    return NodeResources(gpus, job.cpus // nodes, job.memory_mib // nodes)


def free_on_node(node: NodeState) -> NodeResources:
    """Returns what no job has on the node."""
    return NodeResources(node.gpus - node.gpus_used, node.cpus - node.cpus_used, node.memory_mib - node.memory_used_mib)


def is_exclusive(job: JobState) -> bool:
    """Returns whether the job has its nodes to itself (--exclusive)."""
    return job.more.get("oversubscribe") == "none"


def has_simple_constraint(job: JobState) -> bool:
    """Returns whether the --constraint is one that can be evaluated here: none, a name, `a&b` or `a|b`."""
    return not job.features or _FEATURES.fullmatch(job.features) is not None


def requested_gpu_types(job: JobState) -> tuple[str, ...]:
    """Returns the GPU types that the job names (gpu:TYPE:N), in lower case."""
    parts = (part for name in _TRES for part in str(job.more.get(name, "")).split(","))
    found = (_KIND.fullmatch(part) for part in parts)
    return tuple(dict.fromkeys(match[1].lower() for match in found if match))


def requested_shares(job: JobState) -> tuple[str, int]:
    """Returns what the job requests of a GPU that jobs share: ("shard", 2), ("mps", 30), or ("", 0)."""
    parts = (part for name in _TRES for part in str(job.more.get(name, "")).split(","))
    found = next((match for part in parts if (match := _SHARES.fullmatch(part))), None)
    return (found[1], int(found[2] or 1)) if found else ("", 0)


def explain_placement(job: JobState, world: ClusterSnapshot) -> Phrase:
    """Returns what the job needs, how much of it is free, and which job's end frees the rest.

    Returns () when enough is free, when the constraint can't be evaluated (`has_simple_constraint`), and for shares of
    GPUs that fit, because nodes do not say how much of each GPU is free. Jobs with equal requests share one answer, which
    is computed once."""
    if any(requested_shares(job)):
        return _explain_shares(*requested_shares(job), world.cluster)
    key = (
        requested_per_node(job), is_exclusive(job), job.node_count, job.partition, job.switches, job.reservation,
        job.required_nodes, job.excluded_nodes, job.features, requested_gpu_types(job),
        (job.eligible_time or job.submit_time) if world.held_slots else 0,
    )  # fmt: skip
    if key not in world.placements:
        world.placements[key] = _explain_placement(job, world)
    return world.placements[key]


def _explain_shares(kind: str, count: int, cluster: Cluster) -> Phrase:
    """Slurm takes all shares of a job from one GPU of a node, and lets a job wait that wants more than one has."""
    most = max((group.parts.units_per_gpu for group in cluster.groups if kind in group.parts.names), default=0)
    if not most or count <= most:
        return ()
    what = count_of(count, "shard") if kind == "shard" else f"{count} % by MPS"
    return (f"needs {what} of one GPU, which has {most}: it can never start",)


def _explain_placement(job: JobState, world: ClusterSnapshot) -> Phrase:
    if not has_simple_constraint(job):
        return ()
    need, count = requested_per_node(job), max(1, job.node_count)
    could = [node for node in _candidates(job, world, world.nodes) if need.fits_in(_total(node))]
    held = [node for node in _candidates(job, world, world.held_slots) if need.fits_in(_total(node))]
    if len(could) + len(held) < count:
        only = f"only {count_of(len(could), 'node')} of {job.partition} {'has' if len(could) == 1 else 'have'} that"
        has = only if could else f"no node of {job.partition} has that"
        return join_phrases(f"needs {_describe_request(job, need)}; {has}", _describe_reserved(job, need, world))
    lack = _FreeNodes(job, world, [node for node in could if node.usable])
    if lack.is_enough():
        return ()
    return join_phrases(
        f"needs {_describe_request(job, need)}; {lack.describe()}",
        _next_end(world, lack),
        _describe_out_of_service(could),
        describe_held(job, held, world.cluster),
    )


class _FreeNodes:
    """The free resources of nodes, which grow as jobs are assumed to end. For a job under one leaf switch, the
    leaf with the most fitting nodes counts."""

    def __init__(self, job: JobState, world: ClusterSnapshot, nodes: Sequence[NodeState]) -> None:
        self._need, self._count, self._leaf = requested_per_node(job), max(1, job.node_count), world.leaf_of
        self._one_leaf = job.switches == 1 and self._count > 1
        self._free = {node.name: free_on_node(node) for node in nodes if "COMPLETING" not in node.states}
        self._on = Counter(name for other in world.running for name in other.nodes) if is_exclusive(job) else Counter()
        self._fits = {name for name in self._free if self._may(name)}

    def _may(self, name: str) -> bool:
        return self._need.fits_in(self._free[name]) and not self._on[name]

    def best_count(self) -> tuple[int, str]:
        """Returns (number of nodes that fit, their leaf or "")."""
        if not self._one_leaf:
            return len(self._fits), ""
        leaves: dict[str, int] = defaultdict(int)
        for name in self._fits:
            leaves[self._leaf.get(name, "")] += 1
        return max(((n, leaf) for leaf, n in leaves.items()), default=(0, ""))

    def is_enough(self) -> bool:
        """Returns whether enough nodes fit."""
        return self.best_count()[0] >= self._count

    def describe(self) -> str:
        """Returns how many nodes fit, in words."""
        number, leaf = self.best_count()
        if not number:
            return "none is free"
        return f"{number} {'is' if number == 1 else 'are'} free{f' under {leaf}' if leaf else ''}"

    def release_job(self, job: JobState) -> bool:
        """Frees the resources of the job and returns whether one more node fits now."""
        before = len(self._fits)
        for name in job.nodes:
            if name in self._free:
                self._free[name] = self._free[name].add(allocated_on_node(job, name))
                self._on[name] -= 1 if self._on[name] else 0
                if self._may(name):
                    self._fits.add(name)
        return len(self._fits) > before


def _next_end(world: ClusterSnapshot, lack: _FreeNodes) -> Phrase:
    """Returns the running job that frees enough when it ends, and how many others must end before it."""
    helpful = 0
    for other in world.running:
        helpful += lack.release_job(other)
        if lack.is_enough():
            before = f"; {count_of(helpful, 'job')} must end, the last: " if helpful > 1 else "; "
            return join_phrases(before, describe_end(other, other.label))
    return ()


def _describe_reserved(job: JobState, need: NodeResources, world: ClusterSnapshot) -> Phrase:
    """Returns which nodes would fit but are reserved for others: the first reservation, and its end."""
    fit = [
        node
        for node in _nodes_with_features(job, world, world.nodes)
        if _in_partition(job, node) and need.fits_in(_total(node))
    ]
    names = sorted({node.reservation for node in fit if node.reservation not in ("", job.reservation)})
    if not names:
        return ()
    kept = [node.name for node in fit if node.reservation == names[0]]
    text = f"; {compress(kept)} {'is' if len(kept) == 1 else 'are'} "
    if names[0] == SPARES:
        return (f"{text}kept as {'a spare' if len(kept) == 1 else 'spares'}",)
    until = next((reservation.end_time for reservation in world.reservations if reservation.name == names[0]), 0)
    return join_phrases(f"{text}reserved by {names[0]}", (", which ends ", Moment(until)) if until else ())


def _total(node: NodeState) -> NodeResources:
    return NodeResources(node.gpus, node.cpus, node.memory_mib)


def _in_partition(job: JobState, node: NodeState) -> bool:
    return not set(job.partition.split(",")).isdisjoint(node.partitions)


def _describe_out_of_service(could: Sequence[NodeState]) -> str:
    """Returns which nodes would fit but are out of service."""
    out = [node for node in could if not node.usable]
    if not out:
        return ""
    why = f": {out[0].reason}" if len(out) == 1 and out[0].reason else ""
    return f"; {compress([node.name for node in out])} {'is' if len(out) == 1 else 'are'} out of service{why}"


def _describe_request(job: JobState, need: NodeResources) -> str:
    count = max(1, job.node_count)
    kinds = [kind for kind in (job.features, *requested_gpu_types(job)) if kind]
    leaf = f" of {' and '.join(kinds)}" if kinds else ""
    leaf += " under one leaf switch" if job.switches == 1 and count > 1 else ""
    on = f" (including {compress(job.required_nodes)})" if job.required_nodes else ""
    if 0 < count <= len(job.required_nodes):
        return f"{compress(job.required_nodes)} with {'no other job on it' if is_exclusive(job) else f'{need} free'}"
    each = " each" if count > 1 else ""
    if is_exclusive(job):
        return f"{count_of(count, 'whole node')}{leaf}{on} free"
    return f"{count_of(count, 'node')}{leaf}{on} with {need}{each} free"


def _candidates(job: JobState, world: ClusterSnapshot, nodes: Iterable[NodeState]) -> Iterator[NodeState]:
    """Yields the nodes of the job's partitions that it may use: not excluded, and in no other reservation."""
    for node in _nodes_with_features(job, world, nodes):
        if not _in_partition(job, node) or node.name in job.excluded_nodes:
            continue
        if job.required_nodes and job.node_count <= len(job.required_nodes) and node.name not in job.required_nodes:
            continue
        if node.reservation == job.reservation:
            yield node


def _nodes_with_features(job: JobState, world: ClusterSnapshot, nodes: Iterable[NodeState]) -> Iterator[NodeState]:
    """Yields nodes with the requested features and GPU types. A node that is not in the cluster file counts as
    having the features."""
    kinds = set(requested_gpu_types(job))
    for node in nodes:
        if kinds and kinds.isdisjoint(map(str.lower, node.gpu_types)):
            continue
        group = world.cluster.group_of.get(node.name)
        if not job.features or group is None or has_features(job, group, world.leaf_of[node.name]):
            yield node


def has_features(job: JobState, group: Group, leaf: str) -> bool:
    """Returns whether nodes of the group under this leaf switch have the features of the job's --constraint."""
    required, has = re.findall(_FEATURE, job.features), features(group, leaf)
    enough = any if "|" in job.features else all
    return not required or enough(feature in has for feature in required)


def _per_gpu(job: JobState, key: str) -> int:
    """Returns the number of an amount per GPU: `gpu:8` -> 8. Returns 0 where there is none."""
    tres, _, number = str(job.more.get(key, "")).removeprefix("gres/").rpartition(":")
    return int(number) if tres.startswith("gpu") and number.isdigit() else 0


def _pending_partitions(job: JobState) -> Sequence[str]:
    """Returns the partitions in which the job waits for resources; held and dependent jobs do not delay others."""
    if job.state != "PENDING" or reason_word(job.reason) not in RESOURCE_REASONS:
        return ()
    return job.partition.split(",")


def _queue_key(job: JobState) -> int:
    """Returns the sort key of the queue: higher priority first, then lower job id. One number, because numbers
    sort fast."""
    return (MAX_PRIORITY - job.priority) << _BITS | job.id


def _end(job: JobState) -> tuple[float, int]:
    return (float("inf") if job.time_limit_s is None else job.start_time + job.time_limit_s), job.id

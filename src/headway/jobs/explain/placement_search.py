"""Where a waiting job would fit, and which jobs must end before it does. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from headway.domain.cluster import Cluster
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.job_states import RUNNING
from headway.domain.slurm.state import SPARES, JobState, NodeState, Reservation
from headway.jobs.explain.phrases import At, Words, ends, some, words_of
from headway.jobs.view.columns import MOST_PRIORITY, label
from headway.render.slurm.nodes_partitions import features

WAITS_FOR_ROOM = frozenset({"Resources", "Priority", "Prolog", "NodeDown", "None", ""})
_BITS = 32  # Slurm's numbers of jobs have no more
_NUMBER = 2**_BITS - 1
_FEATURE = r"[\w.-]+"
_FEATURES = re.compile(rf"{_FEATURE}(?:&{_FEATURE})*|{_FEATURE}(?:\|{_FEATURE})+")  # all of them, or one of them
_TRES = ("tres-per-node", "tres-per-job", "tres-per-task", "tres-per-socket")
# `gres/gpu:h100:8`, `gres:gpu:h100` for one; `gres/gpu:8` names no kind
_KIND = re.compile(r"(?:gres[/:])?gpu:(?!\d+$)([^:=]+)(?:[:=]\d+)?")


@lru_cache(maxsize=1024)
def reason_word(reason: str) -> str:
    """ "ReqNodeNotAvail, UnavailableNodes:lab-1-3" -> "ReqNodeNotAvail"; "(Resources)" -> "Resources"."""
    return reason.strip().strip("()").partition(",")[0].strip()


@dataclass(frozen=True)
class World:
    """A cluster as last read."""

    cluster: Cluster
    nodes: tuple[NodeState, ...]
    jobs: tuple[JobState, ...]
    reservations: tuple[Reservation, ...] = ()
    now: float = 0.0
    leaf_of: Mapping[str, str] = field(default_factory=dict)
    running: tuple[JobState, ...] = ()  # those that end first, first
    # Of each partition: what `_turn` says of those that wait there for room, in order.
    turns: Mapping[str, list[int]] = field(default_factory=dict)
    together: dict[str, list[int]] = field(default_factory=dict)  # of several partitions that a job named
    by_id: Mapping[int, JobState] = field(default_factory=dict)
    rooms: dict[tuple[object, ...], Words] = field(default_factory=dict)  # what was found, by what jobs ask for

    @staticmethod
    def of(
        cluster: Cluster,
        nodes: Iterable[NodeState],
        jobs: Iterable[JobState],
        reservations: Iterable[Reservation] = (),
        now: float = 0.0,
    ) -> World:
        leaves = {slot.name: slot.leaf for slot in cluster.slots}
        empty = World(cluster, tuple(nodes), (), tuple(reservations), now, leaves)
        every = tuple(jobs)
        return empty.later(now, every, {job.id: job for job in every}, (), every)

    def later(
        self,
        now: float,
        jobs: tuple[JobState, ...],
        by_id: Mapping[int, JobState],
        gone: Iterable[JobState],
        come: Sequence[JobState],
    ) -> World:
        """With these jobs, of which those that have come are new, and those that have gone no longer as they were. To put
        ten thousand in order for each reading would keep whoever asks waiting."""
        left = {job.id for job in gone}
        running = [job for job in self.running if job.id not in left]
        running += (job for job in come if job.state in RUNNING and job.nodes)
        turns = {partition: list(waiting) for partition, waiting in self.turns.items()}
        for job in gone:
            for partition in _waits_in(job):
                waiting = turns[partition]
                del waiting[bisect_left(waiting, _turn(job))]
        for job in come:
            for partition in _waits_in(job):
                turns.setdefault(partition, []).append(_turn(job))
        for waiting in turns.values():
            waiting.sort()
        running.sort(key=_end)
        return replace(
            self, now=now, jobs=jobs, running=tuple(running), turns=turns, together={}, by_id=by_id, rooms={}
        )

    def ahead(self, job: JobState) -> tuple[int, JobState | None]:
        """How many jobs' turn comes before this one's, and the first of them."""
        turns = self.turns.get(job.partition) or self.together.get(job.partition)
        if turns is None:  # of several partitions; or of one in which nobody waits
            several = (self.turns.get(partition, ()) for partition in job.partition.split(","))
            turns = self.together[job.partition] = sorted({turn for waiting in several for turn in waiting})
        count = bisect_left(turns, _turn(job))
        return count, self.by_id[turns[0] & _NUMBER] if count else None


@dataclass(frozen=True, slots=True)
class Part:
    """What a job takes, or asks for, on each of its nodes."""

    gpus: int
    cpus: int
    memory_mib: int

    def fits(self, other: Part) -> bool:
        return self.gpus <= other.gpus and self.cpus <= other.cpus and self.memory_mib <= other.memory_mib

    def plus(self, other: Part) -> Part:
        return Part(self.gpus + other.gpus, self.cpus + other.cpus, self.memory_mib + other.memory_mib)

    def __str__(self) -> str:
        if self.gpus:
            return some(self.gpus, "GPU")
        return some(self.cpus, "CPU") + (f" and {-(-self.memory_mib // 1024)} GiB" if self.memory_mib > 1024 else "")


def asks(job: JobState) -> Part:
    """Of each node. CPUs and memory that come with a GPU are counted, which Slurm does only when it starts the job."""
    nodes = max(1, job.node_count)
    gpus = -(-job.gpus // nodes)
    cpus = max(-(-job.cpus // nodes), gpus * _per_gpu(job, "cpus-per-tres"))
    return Part(gpus, cpus, max(job.memory_mib // nodes, gpus * _per_gpu(job, "mem-per-tres")))


def holds(job: JobState, node: str) -> Part:
    """Of one of its nodes, where it runs."""
    nodes = max(1, len(job.nodes))
    gpus = len(job.gpu_indexes.get(node, ())) or job.gpus // nodes
    return Part(gpus, job.cpus // nodes, job.memory_mib // nodes)


def free(node: NodeState) -> Part:
    return Part(node.gpus - node.gpus_used, node.cpus - node.cpus_used, node.memory_mib - node.memory_used_mib)


def whole(job: JobState) -> bool:
    """Whether it shares its nodes with nobody (--exclusive)."""
    return job.more.get("oversubscribe") == "none"


def plain(job: JobState) -> bool:
    """Whether it can be said here on which nodes it may run: of --constraint that is a name, `a&b` or `a|b`."""
    return not job.features or _FEATURES.fullmatch(job.features) is not None


def gpu_kinds(job: JobState) -> tuple[str, ...]:
    """Kinds of GPUs that it names, as Slurm calls them: gpu:KIND:N."""
    parts = (part for name in _TRES for part in str(job.more.get(name, "")).split(","))
    found = (_KIND.fullmatch(part) for part in parts)
    return tuple(dict.fromkeys(one[1].lower() for one in found if one))


def room(job: JobState, world: World) -> Words:
    """What it needs, how much of that is there, and what brings the rest; () when nothing seems to lack, and where nobody
    can say (`plain`). Jobs that ask for the same are answered the same, and looked at once."""
    key = (
        asks(job), whole(job), job.node_count, job.partition, job.switches, job.reservation, job.required_nodes,
        job.excluded_nodes, job.features, gpu_kinds(job),
    )  # fmt: skip
    if key not in world.rooms:
        world.rooms[key] = _room(job, world)
    return world.rooms[key]


def _room(job: JobState, world: World) -> Words:
    if not plain(job):
        return ()
    need, count = asks(job), max(1, job.node_count)
    could = [node for node in _candidates(job, world) if need.fits(_all(node))]
    if len(could) < count:
        only = f"only {len(could)} of its nodes {'has' if len(could) == 1 else 'have'} that"
        has = f"{only if could else 'none of its nodes has that'} ({job.partition})"
        return words_of(f"needs {_wanted(job, need)}; {has}", _kept(job, need, world))
    lack = _Lack(job, world, [node for node in could if node.usable])
    if lack.enough():
        return ()
    return words_of(f"needs {_wanted(job, need)}; {lack.said()}", _brings(world, lack), _out(could))


class _Lack:
    """Free parts of nodes, growing as jobs are thought to end. Under one leaf the best leaf counts."""

    def __init__(self, job: JobState, world: World, nodes: Sequence[NodeState]) -> None:
        self._need, self._count, self._leaf = asks(job), max(1, job.node_count), world.leaf_of
        self._one_leaf = job.switches == 1 and self._count > 1
        self._free = {node.name: free(node) for node in nodes if "COMPLETING" not in node.states}
        self._on = Counter(name for other in world.running for name in other.nodes) if whole(job) else Counter()
        self._fits = {name for name in self._free if self._may(name)}

    def _may(self, name: str) -> bool:
        return self._need.fits(self._free[name]) and not self._on[name]

    def best(self) -> tuple[int, str]:
        """(nodes that fit, under which leaf)"""
        if not self._one_leaf:
            return len(self._fits), ""
        leaves: dict[str, int] = defaultdict(int)
        for name in self._fits:
            leaves[self._leaf.get(name, "")] += 1
        return max(((n, leaf) for leaf, n in leaves.items()), default=(0, ""))

    def enough(self) -> bool:
        return self.best()[0] >= self._count

    def said(self) -> str:
        number, leaf = self.best()
        if not number:
            return "none is free"
        return f"{number} {'is' if number == 1 else 'are'} free{f' under {leaf}' if leaf else ''}"

    def end(self, job: JobState) -> bool:
        """Whether its end would bring something; what it held is free from here on."""
        before = len(self._fits)
        for name in job.nodes:
            if name in self._free:
                self._free[name] = self._free[name].plus(holds(job, name))
                self._on[name] -= 1 if self._on[name] else 0
                if self._may(name):
                    self._fits.add(name)
        return len(self._fits) > before


def _brings(world: World, lack: _Lack) -> Words:
    """The job with whose end there is room; before it, how many others."""
    helpful = 0
    for other in world.running:
        helpful += lack.end(other)
        if lack.enough():
            before = f"; {some(helpful, 'job')} must end, the last: " if helpful > 1 else "; "
            return words_of(before, ends(other, label(other)))
    return ()


def _kept(job: JobState, need: Part, world: World) -> Words:
    """Nodes that would do and are reserved for others: by one reservation, and until when."""
    fit = [node for node in _of_kind(job, world) if _of_partition(job, node) and need.fits(_all(node))]
    names = sorted({node.reservation for node in fit if node.reservation not in ("", job.reservation)})
    if not names:
        return ()
    kept = [node.name for node in fit if node.reservation == names[0]]
    said = f"; {compress(kept)} {'is' if len(kept) == 1 else 'are'} "
    if names[0] == SPARES:
        return (f"{said}kept as {'a spare' if len(kept) == 1 else 'spares'}",)
    until = next((one.end_time for one in world.reservations if one.name == names[0]), 0)
    return words_of(f"{said}reserved by {names[0]}", (", which ends ", At(until)) if until else ())


def _all(node: NodeState) -> Part:
    return Part(node.gpus, node.cpus, node.memory_mib)


def _of_partition(job: JobState, node: NodeState) -> bool:
    return not set(job.partition.split(",")).isdisjoint(node.partitions)


def _out(could: Sequence[NodeState]) -> str:
    """Nodes that would do and are out of service."""
    out = [node for node in could if not node.usable]
    if not out:
        return ""
    why = f": {out[0].reason}" if len(out) == 1 and out[0].reason else ""
    return f"; {compress([node.name for node in out])} {'is' if len(out) == 1 else 'are'} out of service{why}"


def _wanted(job: JobState, need: Part) -> str:
    count = max(1, job.node_count)
    kinds = [one for one in (job.features, *gpu_kinds(job)) if one]
    leaf = f" of {' and '.join(kinds)}" if kinds else ""
    leaf += " under one leaf" if job.switches == 1 and count > 1 else ""
    on = f" ({compress(job.required_nodes)} among them)" if job.required_nodes else ""
    if 0 < count <= len(job.required_nodes):
        return f"{compress(job.required_nodes)} with {'nothing else on it' if whole(job) else f'{need} free'}"
    each = " each" if count > 1 else ""
    if whole(job):
        return f"{some(count, 'whole node')}{leaf}{on} free"
    return f"{some(count, 'node')}{leaf}{on} with {need}{each} free"


def _candidates(job: JobState, world: World) -> Iterator[NodeState]:
    """Nodes of its partitions that it may use: not excluded, not somebody else's reservation."""
    for node in _of_kind(job, world):
        if not _of_partition(job, node) or node.name in job.excluded_nodes:
            continue
        if job.required_nodes and job.node_count <= len(job.required_nodes) and node.name not in job.required_nodes:
            continue
        if node.reservation == job.reservation:
            yield node


def _of_kind(job: JobState, world: World) -> Iterator[NodeState]:
    """Nodes that have the features and a kind of GPU that it asks for. Of one that the file does not name nobody knows."""
    wanted, kinds = re.findall(_FEATURE, job.features), set(gpu_kinds(job))
    enough = any if "|" in job.features else all
    for node in world.nodes:
        if kinds and kinds.isdisjoint(map(str.lower, node.gpu_types)):
            continue
        group = world.cluster.group_of.get(node.name)
        has = features(group, world.leaf_of[node.name]) if wanted and group else wanted
        if not wanted or enough(one in has for one in wanted):
            yield node


def _per_gpu(job: JobState, key: str) -> int:
    """`gpu:8` -> 8"""
    tres, _, number = str(job.more.get(key, "")).removeprefix("gres/").rpartition(":")
    return int(number) if tres.startswith("gpu") and number.isdigit() else 0


def _waits_in(job: JobState) -> Sequence[str]:
    """Partitions in which it waits for room alone; held ones and those that follow others are in nobody's way."""
    if job.state != "PENDING" or reason_word(job.reason) not in WAITS_FOR_ROOM:
        return ()
    return job.partition.split(",")


def _turn(job: JobState) -> int:
    """The higher its priority the less, and of two jobs with the same one that of the first: one number, for ten thousand
    of them are put in order with each reading."""
    return (MOST_PRIORITY - job.priority) << _BITS | job.id


def _end(job: JobState) -> tuple[float, int]:
    return (float("inf") if job.time_limit_s is None else job.start_time + job.time_limit_s), job.id

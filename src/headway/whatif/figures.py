"""Waits, utilisation, fragmentation and price of the jobs' runs on a cluster. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headway.domain.cluster import Cluster
from headway.whatif.outcome import JobRun
from headway.whatif.trace import Trace, TraceJob

_SIZES = ((0, "no GPU"), (1, "1 GPU"), (8, "2-8 GPUs"), (64, "9-64 GPUs"), (math.inf, "65+ GPUs"))
_LEAST_WINDOW_S = 3600.0


@dataclass(frozen=True, slots=True)
class Waits:
    """Waits of the jobs of one team and size, in seconds; None without a start. `jobs`: how many started."""

    team: str
    size: str
    jobs: int
    median_s: float | None
    p90_s: float | None


@dataclass(frozen=True)
class Figures:
    """Figures of one replay, or of what really was. Shares are of all GPUs (of CPUs without GPUs), from the first to the last
    submission. `fragmentation`: GPUs that are free on nodes with jobs while jobs wait; None where the nodes are not known.
    `last_end_s`: from the first submission to the end of the last job. `usd`: price of all nodes from the first to the last
    submission; `usd_per_gpu_hour`: of an hour that a GPU was in use."""

    waits: tuple[Waits, ...]
    utilisation: float
    fragmentation: float | None
    last_end_s: float
    usd: float
    usd_per_gpu_hour: float | None


def figures(cluster: Cluster, trace: Trace, runs: Sequence[JobRun]) -> Figures:
    """Returns the figures of these runs on this cluster."""
    first = trace.first
    until = max(trace.last, first + _LEAST_WINDOW_S)
    units = {name: group.plan.gpus or 0 for group in cluster.groups for name in group.slots}
    by_cpu = not any(units.values())
    present = [(group, group.most if group.autoscaled else group.nodes) for group in cluster.groups]
    total = sum((group.plan.cpus if by_cpu else group.plan.gpus) * nodes for group, nodes in present)
    used_s = sum(
        (run.job.cpus * run.job.nodes if by_cpu else run.job.all_gpus)
        * max(0.0, min(run.end, until) - max(run.start, first))
        for run in runs
    )
    hours = (until - first) / 3600
    usd = float(sum(group.price_usd_per_node_hour * (nodes + group.spares) for group, nodes in present)) * hours
    placed = bool(runs) and all(run.nodes for run in runs) and not by_cpu
    return Figures(
        waits=tuple(_waits(runs)),
        utilisation=used_s / (total * (until - first)) if total else 0.0,
        fragmentation=_fragmentation(runs, units, first, until, total) if placed else None,
        last_end_s=max((run.end for run in runs), default=first) - first,
        usd=usd,
        usd_per_gpu_hour=usd / (used_s / 3600) if used_s and not by_cpu else None,
    )


def size_of(job: TraceJob) -> str:
    """Returns the class of a job's size, by its GPUs."""
    return next(name for most, name in _SIZES if job.all_gpus <= most)


def _waits(runs: Iterable[JobRun]) -> Iterable[Waits]:
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        found[run.job.account, size_of(run.job)].append(run.wait_s)
        found["all", "all"].append(run.wait_s)
    order = {name: number for number, (_, name) in enumerate(_SIZES)}
    for (team, size), waits in sorted(
        found.items(), key=lambda item: (item[0][0] == "all", item[0][0], order.get(item[0][1], 9))
    ):
        waits.sort()
        yield Waits(team, size, len(waits), _quantile(waits, 0.5), _quantile(waits, 0.9))


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """Returns the nearest-rank quantile."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _fragmentation(runs: Iterable[JobRun], units: dict[str, int], first: float, until: float, total: int) -> float:
    """Returns the mean share of GPUs that are free on nodes with jobs while jobs wait."""
    events: list[tuple[float, int, JobRun]] = []
    for run in runs:
        events += [(max(run.job.submit, run.job.begin), 0, run), (run.start, 1, run), (run.end, 2, run)]
    events.sort(key=lambda event: event[:2])
    used: dict[str, int] = defaultdict(int)
    waiting = split = 0
    lost = 0.0
    for (at, kind, run), (after, _, _) in pairwise([*events, (until, 3, events[-1][2])]):
        waiting += {0: 1, 1: -1, 2: 0}[kind]
        for node in run.nodes if kind else ():
            before = _free_part(used[node], units.get(node, 0))
            used[node] += run.job.gpus if kind == 1 else -run.job.gpus
            split += _free_part(used[node], units.get(node, 0)) - before
        if waiting > 0:
            lost += split * max(0.0, min(after, until) - max(at, first))
    return lost / (total * (until - first)) if total else 0.0


def _free_part(used: int, of: int) -> int:
    """Returns the free GPUs of a node that has a job; 0 for an idle one."""
    return of - used if 0 < used < of else 0

"""Fragmentation over time: free GPUs on nodes that are partly allocated, as a share of all free GPUs.

Counted for every second of a node with a machine that was neither down, drained nor a spare. Free GPUs are those of the
machine minus those that were allocated according to accounting. Fragmented GPUs are the free ones of a node while at
least one of its GPUs is allocated; a job that needs whole nodes cannot use them. A period's fragmentation is fragmented
/ free GPU-hours. Assumptions: a run on several nodes holds the same number on each; jobs without GPUs block none; idle
GPUs in a reservation other than that of the spares count as free, because past reservations are not stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from headway.billing import intervals
from headway.billing.capacity import Cover, Fragments, Stretches, fragments
from headway.billing.intervals import Span as Stretch
from headway.domain.billing.ledger import MachineLifetime
from headway.domain.cluster import Plan
from headway.domain.machines.gpu_parts import mig_profiles
from headway.services.app_state import AppState
from headway.services.billing.ledger.daily_rollups import load_touched_seconds
from headway.services.billing.reports.report_scope import BilledCluster
from headway.store.billing.run_sums import ReportSpan


async def load_fragmentation(
    state: AppState, billed: BilledCluster, lives: Iterable[MachineLifetime], span: ReportSpan, whole: Cover
) -> dict[str, Callable[[Sequence[float]], Fragments]]:
    """Returns by GPU type a function from the GPU-seconds that were allocated to runs between each two marks to the fragments of
    these intervals."""
    store, until, marks = state.store, min(span.end, span.now), whole.marks
    by_group = gpu_plans_by_group(billed)
    plans = {life.machine: by_group[life.group] for life in lives if life.group in by_group}
    there = gpus_by_node(state, billed)
    has = {node: there.get(node, plan.gpus) for node, plan in plans.items()}
    worked = await _worked(state, billed, [life for life in lives if life.machine in plans], span)
    works, away_allocated, too_much = ({plan.gpu_type: Stretches(marks) for plan in plans.values()} for _ in range(3))
    for node, stretches in worked.items():
        for stretch in stretches:
            works[plans[node].gpu_type].add(*stretch, has[node])
    sets: dict[tuple[str, int], list[str]] = {}
    for node, plan in plans.items():
        sets.setdefault((plan.gpu_type, has[node]), []).append(node)
    touched = {kind: [0.0] * (len(marks) - 1) for kind in works}
    for (kind, gpus), seconds in (await load_touched_seconds(store, billed.name, span, whole, sets)).items():
        touched[kind] = [total + gpus * other for total, other in zip(touched[kind], seconds, strict=True)]
    away = [
        (node, *stretch)
        for node, stretches in worked.items()
        for stretch in intervals.subtract_spans([(span.start, until)], stretches)
    ]
    then: dict[str, list[Stretch]] = {}
    for run in await store.capacity.allocations_on(billed.name, away, span.now):
        if run.units:  # it continued while its node was drained, or after the end of its machine
            plan = plans[run.node]
            away_allocated[plan.gpu_type].add(run.start, run.end, run.units * plan.gpus / run.per_node)
            then.setdefault(run.node, []).append((run.start, run.end))
    for node, stretches in then.items():
        for stretch in intervals.merge_spans(stretches):
            too_much[plans[node].gpu_type].add(*stretch, has[node])
    for kind, mine in too_much.items():
        touched[kind] = [total - other for total, other in zip(touched[kind], mine.seconds(), strict=True)]
    return {
        kind: partial(fragments, works[kind].seconds(), touched[kind], away_allocated[kind].seconds()) for kind in works
    }


def gpus_by_node(state: AppState, billed: BilledCluster) -> dict[str, int]:
    """Returns the GPUs of each node as Slurm counts them; an inventory machine may have fewer than its plan says. Nodes
    whose GPUs Slurm counts as MIG instances are left out."""
    nodes = state.live.snapshot(billed.name).nodes
    return {node.name: node.gpus for node in nodes if not mig_profiles(node.gpu_types)}


def gpu_plans_by_group(billed: BilledCluster) -> dict[str, Plan]:
    """Returns the plan of each group with GPUs, according to the cluster's last known file."""
    return (
        {group.name: group.plan for group in billed.last_known_cluster.groups if group.plan.gpus}
        if billed.last_known_cluster
        else {}
    )


async def _worked(
    state: AppState, billed: BilledCluster, lives: Iterable[MachineLifetime], span: ReportSpan
) -> dict[str, list[Stretch]]:
    """Returns the intervals in which each node had a machine and was neither down, drained nor a spare."""
    there: dict[str, list[Stretch]] = {}
    other: dict[str, list[Stretch]] = {}
    until = min(span.end, span.now)
    for life in lives:
        alive = max(life.began, span.start), min(life.ended or span.now, until)
        there.setdefault(life.machine, []).append(alive)
    for node_span in await state.store.node_spans.between(billed.name, span.start, span.end):
        other.setdefault(node_span.node, []).append((node_span.began, node_span.ended or span.now))
    return {
        node: intervals.subtract_spans(intervals.merge_spans(alive), intervals.merge_spans(other.get(node, ())))
        for node, alive in there.items()
    }

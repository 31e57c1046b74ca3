"""The cost of a job before it is submitted, and whether its team's budget allows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from headway.billing.money import cents, usd
from headway.domain.cluster import Cluster, Group, Partition
from headway.domain.machines.gpu_parts import MPS_PER_GPU, share_of_type
from headway.jobs.submission.node_capacity import NodeCapacity
from headway.jobs.submission.prepare_job import preview_run
from headway.jobs.submission.requested_resources import RequestedResources, parse_time_s, requested_resources
from headway.jobs.submission.submission_check import requested_partitions
from headway.schemas.billing.budgets import BudgetOut
from headway.schemas.billing.cost_estimate import EstimateOut
from headway.schemas.submission.submission_check import CheckJobIn, CheckJobOut
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing.budgets import cached_budgets, unit_label
from headway.services.billing.reports.report_scope import HOUR_S


async def estimate_cost(
    state: AppState,
    who: Principal,
    cluster: Cluster,
    estimate_request: CheckJobIn,
    checked: CheckJobOut,
    offer: NodeCapacity,
) -> EstimateOut:
    """Returns the estimate of a job that was checked without faults. `offer` is the capacity of the cluster's nodes."""
    request = estimate_request.submit or estimate_request.run
    assert request is not None
    user = who.user_to_act_as(request.user)
    submit = estimate_request.submit
    if estimate_request.run is not None:
        plain = estimate_request.run.model_copy(
            update={"environment": "", "stage_in": []}
        )  # their versions do not change the price
        submit, _ = preview_run(plain, cluster, user, offer)
    assert submit is not None
    wants = requested_resources(submit)
    tasks = wants[0].array_size
    # If no partition is named, the first component of the job gets the one that sbatch found, the others the default.
    parts = [
        requested_partitions(want, cluster, "" if number else checked.partition) for number, want in enumerate(wants)
    ]
    choices = [_dearest_group(cluster, want, some) for want, some in zip(wants, parts, strict=True)]
    nodes = [_nodes(*choice) for choice in choices]
    gpus = [_gpus(*choice) for choice in choices]
    rates = [_usd_per_hour(*choice) for choice in choices]
    limits = [_limit_s(want, some) for want, some in zip(wants, parts, strict=True)]
    per_hour = sum(rates, Fraction(0)) * tasks
    gpu_hours = cost = None
    unread = [f"--{option}" for want in wants for option in want.unparsed_options]
    if None not in limits and not unread:
        hours = [Fraction(limit or 0, HOUR_S) for limit in limits]
        gpu_hours = round(
            float(sum(allocated * length for allocated, length in zip(gpus, hours, strict=True)) * tasks), 4
        )
        cost = sum((rate * length for rate, length in zip(rates, hours, strict=True)), Fraction(0)) * tasks
    team = wants[0].options.get("account") or next((t.name for t in cluster.teams if user in t.users), "")
    budget = next((candidate for candidate in await cached_budgets(state, cluster) if candidate.team == team), None)
    waits = budget is not None and _spent(budget)
    return EstimateOut(
        team=team,
        gpus=None if unread else _plain(sum(gpus, Fraction(0))),
        nodes=None if unread else sum(nodes),
        tasks=tasks,
        time_limit_s=None if None in limits else max(limit or 0 for limit in limits),
        gpu_hours=gpu_hours,
        usd=None if cost is None else usd(cents(cost)),
        usd_per_hour=None if unread else usd(cents(per_hour)),
        unread=list(dict.fromkeys(unread)),
        start=max(checked.starts_at, budget.end) if budget is not None and waits else checked.starts_at,
        waits=checked.waits,
        expected_nodes="" if waits else checked.nodes,
        budget=budget,
        warning=_budget_warning(budget, cost, gpu_hours) if budget else "",
    )


def _usd_per_hour(group: Group, want: RequestedResources) -> Fraction:
    return Fraction(group.price_usd_per_node_hour) * _priced_nodes(group, want)


def _nodes(group: Group, want: RequestedResources) -> int:
    """Returns the number of nodes that the job takes; for a range, no more than the group has."""
    most = want.max_nodes_on(sum(group.gpu_counts.values()), group.plan.cpus)
    return min(most, max(want.min_nodes, len(group.slots))) if want.has_node_range else most


def _priced_nodes(group: Group, want: RequestedResources) -> Fraction:
    """Returns how many of the group's nodes the job pays for: 2 of a node's 8 GPUs are a quarter of one."""
    plan, nodes = group.plan, _nodes(group, want)
    if want.exclusive:
        return Fraction(nodes)
    if plan.gpus:
        return _gpus(group, want) / plan.gpus
    return min(Fraction(nodes), Fraction(want.cpus_on(nodes), plan.cpus or 1))


def _gpus(group: Group, want: RequestedResources) -> Fraction:
    """Returns the GPUs that the job holds; parts of GPUs count as their share, the largest that it may get."""
    nodes, parts = _nodes(group, want), group.parts
    if want.exclusive:
        return Fraction(group.plan.gpus * nodes)
    each = max(map(share_of_type, want.gpu_types or group.gpu_counts), default=Fraction(1))
    shared = Fraction(want.gres_of_a_node("shard"), parts.shards or 1) + Fraction(
        want.gres_of_a_node("mps"), MPS_PER_GPU
    )
    return want.gpus_on(nodes) * each + shared * nodes


def _plain(number: Fraction) -> float:
    return int(number) if number.denominator == 1 else round(float(number), 4)


def _spent(budget: BudgetOut) -> bool:
    """Returns whether no job of the team can start before the period ends."""
    return budget.held_back or (budget.cap and budget.left <= 0)


def _budget_warning(budget: BudgetOut, cost: Fraction | None, gpu_hours: float | None) -> str:
    asks = (None if cost is None else float(cost)) if budget.unit == "usd" else gpu_hours
    if _spent(budget):
        return "the team's budget is spent: the job will wait for the next period"
    if asks is not None and asks > budget.left:
        return f"the job may use {asks:,.2f} {unit_label(budget.unit)}, but only {budget.left:,.2f} are left of the team's budget"
    return ""


def _limit_s(want: RequestedResources, partitions: Sequence[Partition]) -> int | None:
    """Returns the longest time in seconds that the job may run in one of these partitions; None without a limit."""
    asked_s = parse_time_s(want.options.get("time", ""))
    if asked_s:
        return asked_s
    # UNLIMITED: up to the partition's limit
    limits = [
        partition.max_time_s if asked_s == 0 else partition.default_time_s or partition.max_time_s
        for partition in partitions
    ]
    return None if None in limits else max((limit or 0 for limit in limits), default=None)


def _dearest_group(
    cluster: Cluster, want: RequestedResources, partitions: Sequence[Partition]
) -> tuple[Group, RequestedResources]:
    """Returns the group where the job would cost most among those that it may run on, and the resources it takes there:
    whole nodes in a partition that allocates exclusively."""
    types = {kind.lower() for kind in want.gpu_types}
    places = [(group, want) for group in cluster.groups]
    if any(partition.nodes for partition in partitions):
        places = [
            (
                group,
                replace(want, options={**want.options, "exclusive": ""}) if _allocates_whole_nodes(partition) else want,
            )
            for partition in partitions
            for group in {cluster.group_of[node].name: cluster.group_of[node] for node in partition.nodes}.values()
        ]
    fit = [
        (group, asks)
        for group, asks in places
        if (not want.gpus or group.plan.gpus)
        and (not types or types & group.gpu_counts.keys())
        and _shares(group, want)
    ]
    if not want.gpus and any(not group.plan.gpus for group, _ in fit):
        fit = [(group, asks) for group, asks in fit if not group.plan.gpus]
    whole = [(group, asks) for group, asks in fit if _nodes(group, asks) <= len(group.slots)]
    every = [(group, want) for group in cluster.groups]
    return max(whole or fit or every, key=lambda choice: _usd_per_hour(*choice))


def _shares(group: Group, want: RequestedResources) -> bool:
    """Returns whether the group has the shards or MPS that the job asks for, if it asks for any."""
    shards, mps = want.gres_of_a_node("shard"), want.gres_of_a_node("mps")
    return (not shards or bool(group.parts.shards)) and (not mps or group.parts.mps)


def _allocates_whole_nodes(partition: Partition) -> bool:
    return partition.slurm.get("OverSubscribe") == "EXCLUSIVE"

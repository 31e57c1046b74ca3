"""What teams may spend, what is left of it, and what a job would cost of it before it is submitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from decimal import Decimal
from fractions import Fraction

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, Member, State
from headway.api.routers.billing.usage import HOUR_S, fresh, teams_seen
from headway.api.routers.jobs import jobs
from headway.api.routers.jobs.submissions import offered
from headway.billing.budgets import Level, Standing
from headway.billing.money import cents, usd
from headway.billing.periods import zone
from headway.changes.slurm_accounts import period_end
from headway.domain.cluster import Cluster, Group, Partition
from headway.errors import Fault, InvalidSpec
from headway.jobs.submission.requested_resources import Asked, asked, seconds
from headway.jobs.submission.run_request import checked_run
from headway.jobs.submission.submission_check import partitions_of
from headway.schemas.billing import BudgetOut, EstimateOut
from headway.schemas.submissions import CheckJobIn, CheckJobOut
from headway.services.billing import invoicing
from headway.services.billing.invoicing import Place, place_of
from headway.services.context import AppState
from headway.services.identity import Principal

router = APIRouter(prefix="/clusters/{name}", tags=["costs"])


@router.get("/budgets")
async def budgets(name: str, state: State, who: Anyone) -> list[BudgetOut]:
    """Of the teams that one sees: what is used in this period, and what is left."""
    place = await place_of(state, name)
    seen = teams_seen(place, who)
    await fresh(state, place)
    return await budgets_seen(state, place, seen)


async def budgets_seen(state: AppState, place: Place, seen: tuple[str, ...] | None) -> list[BudgetOut]:
    return [one for one in await budgets_of(state, place) if seen is None or one.team in seen]


async def budgets_of(state: AppState, place: Place, until: int | None = None) -> list[BudgetOut]:
    """As they stand, or stood just before `until`."""
    if place.cluster is None:
        return []
    found = await invoicing.budget_standings(state, place.cluster, place.now, until)
    return await _budgets_out(state, place.cluster, found)


async def budgets_lately(state: AppState, cluster: Cluster) -> list[BudgetOut]:
    """As they stood a few seconds ago: for pages that everybody has open."""
    return await _budgets_out(state, cluster, await state.standings(cluster))


def near(found: Iterable[BudgetOut]) -> list[BudgetOut]:
    """Those that are spent, or soon will be."""
    return [one for one in found if one.level != Level.OK.value]


async def _budgets_out(state: AppState, cluster: Cluster, found: Iterable[Standing]) -> list[BudgetOut]:
    held_back = await state.store.capped_teams(cluster.name)
    return [
        BudgetOut(
            team=one.team,
            unit=one.budget.unit,
            per=one.budget.per,
            limit=float(one.budget.limit),
            used=float(one.used),
            left=float(one.left),
            warn_at=float(one.budget.limit * Decimal(str(one.budget.warn))),
            level=one.level.value,
            cap=one.budget.cap,
            held_back=one.team in held_back,
            start=one.start,
            end=_end(one, zone(cluster.costs.timezone)),
        )
        for one in found
    ]


def _end(one: Standing, where: tzinfo) -> int:
    return int(period_end(one.budget.per, datetime.fromtimestamp(one.start, where)).timestamp())


# --- before a job is submitted


@router.post("/estimate")
async def estimate(name: str, ask: CheckJobIn, state: State, who: Member) -> EstimateOut:
    """What a job would cost at most, when Slurm would start it, and what is left of its team's budget; nothing is submitted.
    Raises InvalidSpec with all that is wrong with it."""
    told = await jobs.check(name, ask, state, who)
    if told.faults:
        raise InvalidSpec([Fault(one.path, one.message, one.hint) for one in told.faults], "the job")
    return await estimate_of(name, ask, told, state, who)


async def estimate_of(name: str, ask: CheckJobIn, told: CheckJobOut, state: AppState, who: Principal) -> EstimateOut:
    """Of a job that was checked, and is as it should be."""
    _, cluster = await state.cluster(name)
    request = ask.submit or ask.run
    assert request is not None
    user = who.user_to_act_as(request.user)
    submit = ask.submit
    if ask.run is not None:
        submit, _ = checked_run(ask.run, cluster, user, offered(state, cluster))
    assert submit is not None
    wants = asked(submit)
    tasks = wants[0].tasks
    # Where none is named the first is the one that sbatch has found, and all others are the default.
    parts = [partitions_of(want, cluster, "" if number else told.partition) for number, want in enumerate(wants)]
    places = [_place(cluster, want, some) for want, some in zip(wants, parts, strict=True)]
    nodes = [_nodes(*place) for place in places]
    gpus = [_gpus(*place) for place in places]
    rates = [_usd_per_hour(*place) for place in places]
    limits = [_limit_s(want, some) for want, some in zip(wants, parts, strict=True)]
    per_hour = sum(rates, Fraction(0)) * tasks
    gpu_hours = cost = None
    unread = [f"--{option}" for want in wants for option in want.unread]
    if None not in limits and not unread:
        hours = [Fraction(limit or 0, HOUR_S) for limit in limits]
        gpu_hours = round(float(sum(held * length for held, length in zip(gpus, hours, strict=True)) * tasks), 4)
        cost = sum((rate * length for rate, length in zip(rates, hours, strict=True)), Fraction(0)) * tasks
    team = wants[0].options.get("account") or next((t.name for t in cluster.teams if user in t.users), "")
    budget = next((one for one in await budgets_lately(state, cluster) if one.team == team), None)
    waits = budget is not None and _spent(budget)
    return EstimateOut(
        team=team,
        gpus=None if unread else sum(gpus),
        nodes=None if unread else sum(nodes),
        tasks=tasks,
        time_limit_s=None if None in limits else max(limit or 0 for limit in limits),
        gpu_hours=gpu_hours,
        usd=None if cost is None else usd(cents(cost)),
        usd_per_hour=None if unread else usd(cents(per_hour)),
        unread=list(dict.fromkeys(unread)),
        start=max(told.starts_at, budget.end) if budget is not None and waits else told.starts_at,
        waits=told.waits,
        expected_nodes="" if waits else told.nodes,
        budget=budget,
        warning=_over(budget, cost, gpu_hours) if budget else "",
    )


def _usd_per_hour(group: Group, want: Asked) -> Fraction:
    return Fraction(group.price_usd_per_node_hour) * _nodes_held(group, want)


def _nodes(group: Group, want: Asked) -> int:
    """Of a range no more than the group has."""
    said = want.nodes_of(group.plan.gpus, group.plan.cpus)
    return min(said, max(want.least_nodes, len(group.slots))) if want.nodes_range else said


def _nodes_held(group: Group, want: Asked) -> Fraction:
    """Of the group's nodes, as they are paid for: 2 of 8 GPUs are a quarter of one."""
    plan, nodes = group.plan, _nodes(group, want)
    if want.exclusive:
        return Fraction(nodes)
    if plan.gpus:
        return Fraction(want.gpus_on(nodes), plan.gpus)
    return min(Fraction(nodes), Fraction(want.cpus_on(nodes), plan.cpus or 1))


def _gpus(group: Group, want: Asked) -> int:
    nodes = _nodes(group, want)
    return group.plan.gpus * nodes if want.exclusive else want.gpus_on(nodes)


def unit_words(unit: str) -> str:
    return "USD" if unit == "usd" else "GPU-hours"


def _spent(budget: BudgetOut) -> bool:
    """No job of its team starts until the period ends, whatever Slurm expects."""
    return budget.held_back or (budget.cap and budget.left <= 0)


def _over(budget: BudgetOut, cost: Fraction | None, gpu_hours: float | None) -> str:
    asks = (None if cost is None else float(cost)) if budget.unit == "usd" else gpu_hours
    if _spent(budget):
        return "the team's budget is spent: the job waits for the next period"
    if asks is not None and asks > budget.left:
        return f"it may use {asks:,.2f} {unit_words(budget.unit)}; {budget.left:,.2f} are left of the team's budget"
    return ""


def _limit_s(want: Asked, partitions: Sequence[Partition]) -> int | None:
    """Where it may run longest. None: it may run on and on."""
    asked_s = seconds(want.options.get("time", ""))
    if asked_s:
        return asked_s
    # UNLIMITED: as long as the partition lets it
    limits = [one.max_time_s if asked_s == 0 else one.default_time_s or one.max_time_s for one in partitions]
    return None if None in limits else max((limit or 0 for limit in limits), default=None)


def _place(cluster: Cluster, want: Asked, partitions: Sequence[Partition]) -> tuple[Group, Asked]:
    """Of the groups that it may land on the one where it costs most, and what it asks for there: in a partition that gives nodes
    as a whole, whole nodes."""
    types = {kind.lower() for kind in want.gpu_types}
    places = [(group, want) for group in cluster.groups]
    if any(one.nodes for one in partitions):
        places = [
            (group, replace(want, options={**want.options, "exclusive": ""}) if _gives_whole(one) else want)
            for one in partitions
            for group in {cluster.group_of[node].name: cluster.group_of[node] for node in one.nodes}.values()
        ]
    fit = [
        (group, asks)
        for group, asks in places
        if (not want.gpus or group.plan.gpus) and (not types or group.plan.gpu_type in types)
    ]
    if not want.gpus and any(not group.plan.gpus for group, _ in fit):
        fit = [(group, asks) for group, asks in fit if not group.plan.gpus]
    whole = [(group, asks) for group, asks in fit if _nodes(group, asks) <= len(group.slots)]
    every = [(group, want) for group in cluster.groups]
    return max(whole or fit or every, key=lambda place: _usd_per_hour(*place))


def _gives_whole(partition: Partition) -> bool:
    return partition.slurm.get("OverSubscribe") == "EXCLUSIVE"

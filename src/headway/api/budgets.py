"""What teams may spend, what is left of it, and what a job would cost of it before it is submitted."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from fastapi import APIRouter

from headway.api import jobs, reckoning
from headway.api.access import Anyone, Member, State
from headway.api.reckoning import Place, place_of
from headway.api.state import AppState
from headway.api.usage import HOUR_S, fresh, teams_seen
from headway.domain.cluster import Cluster, Group
from headway.errors import Fault, InvalidSpec
from headway.jobs.check import Asked, asked, seconds
from headway.jobs.run import checked_run
from headway.ledger.money import cents, usd
from headway.wire.ledger import BudgetOut, EstimateOut
from headway.wire.work import CheckJobIn

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


async def budgets_of(state: AppState, place: Place) -> list[BudgetOut]:
    if place.cluster is None:
        return []
    held_back = await state.store.capped_teams(place.name)
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
        )
        for one in await reckoning.budget_standings(state, place.cluster, place.now)
    ]


# --- before a job is submitted


@router.post("/estimate")
async def estimate(name: str, ask: CheckJobIn, state: State, who: Member) -> EstimateOut:
    """What a job would cost at most, when Slurm would start it, and what is left of its team's budget; nothing is submitted.
    Raises InvalidSpec with all that is wrong with it."""
    told = await jobs.check(name, ask, state, who)
    if told.faults:
        raise InvalidSpec([Fault(one.path, one.message, one.hint) for one in told.faults])
    place = await place_of(state, name)
    assert place.cluster is not None
    request = ask.submit or ask.run
    assert request is not None
    user = who.acting(request.user)
    submit = ask.submit if ask.submit is not None else checked_run(ask.run, place.cluster, user)[0] if ask.run else None
    assert submit is not None
    want = asked(submit)
    return await _priced(state, place, want, user, told.starts_at, told.nodes, told.partition)


async def _priced(
    state: AppState, place: Place, want: Asked, user: str, at: int, nodes: str, partition: str
) -> EstimateOut:
    cluster = place.cluster
    assert cluster is not None
    limit_s, group = _limit_s(cluster, want, partition), _group(cluster, want, partition)
    count, gpus = want.nodes or 1, want.gpus
    plan = group.plan
    units = gpus if plan.gpus else min(plan.cpus, int(want.options.get("cpus-per-task") or 1)) * count
    per_hour = group.price_usd_per_node_hour * units / (plan.gpus or plan.cpus or 1)
    hours = None if limit_s is None else Fraction(limit_s, HOUR_S)
    team = want.options.get("account") or next((t.name for t in cluster.teams if user in t.users), "")
    cost = None if hours is None else Fraction(per_hour) * hours
    budget = next((one for one in await budgets_of(state, place) if one.team == team), None)
    gpu_hours = None if hours is None else round(float(gpus * hours), 4)
    return EstimateOut(
        team=team,
        gpus=gpus,
        nodes=count,
        time_limit_s=limit_s,
        gpu_hours=gpu_hours,
        usd=None if cost is None else usd(cents(cost)),
        usd_per_hour=usd(cents(Fraction(per_hour))),
        start=at,
        expected_nodes=nodes,
        budget=budget,
        warning=_over(budget.left, budget.unit, cost, gpu_hours) if budget else "",
    )


def unit_words(unit: str) -> str:
    return "USD" if unit == "usd" else "GPU-hours"


def _over(left: float, unit: str, cost: Fraction | None, gpu_hours: float | None) -> str:
    asks = (None if cost is None else float(cost)) if unit == "usd" else gpu_hours
    words = unit_words(unit)
    if left <= 0:
        return "the team's budget is spent: the job waits for the next period"
    if asks is not None and asks > left:
        return f"it may use {asks:,.2f} {words}; {left:,.2f} are left of the team's budget"
    return ""


def _limit_s(cluster: Cluster, want: Asked, partition: str) -> int | None:
    """None: it may run on and on."""
    text = want.options.get("time", "")
    if text and (asked_s := seconds(text)):
        return asked_s
    name = want.options.get("partition", "").split(",")[0] or partition
    found = next((one for one in cluster.partitions if one.name == name or (not name and one.default)), None)
    return None if found is None else found.default_time_s or found.max_time_s


def _group(cluster: Cluster, want: Asked, partition: str) -> Group:
    """The dearest that it may land on: what it costs at most."""
    name = want.options.get("partition", "").split(",")[0] or partition
    found = next((one for one in cluster.partitions if one.name == name or (not name and one.default)), None)
    groups = {cluster.group_of[node].name: cluster.group_of[node] for node in (found.nodes if found else ())}
    fit = [
        group
        for group in groups.values() or cluster.groups
        if (not want.gpus or group.plan.gpus) and (not want.gpu_type or group.plan.gpu_type == want.gpu_type.lower())
    ]
    if not want.gpus and any(not group.plan.gpus for group in fit):
        fit = [group for group in fit if not group.plan.gpus]
    return max(fit or cluster.groups, key=lambda group: group.price_usd_per_node_hour / max(1, group.plan.gpus))

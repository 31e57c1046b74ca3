"""Goodput, energy, capacity, and what a job would cost: by the same ledger and the same rules of who sees what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Annotated

from fastapi import APIRouter, Query

from headway.api import costs, jobs, reckoning
from headway.api.access import Anyone, Member, State
from headway.api.costs import MonthText, fresh, teams_seen
from headway.api.reckoning import Place, place_of
from headway.api.state import AppState
from headway.domain.cluster import Cluster, Group
from headway.domain.ledger import Life
from headway.errors import Fault, InvalidSpec
from headway.jobs.check import Asked, asked, seconds
from headway.jobs.run import checked_run
from headway.ledger import capacity as rules
from headway.ledger import goodput as good
from headway.ledger import spans
from headway.ledger.capacity import Ends
from headway.ledger.energy import Energy
from headway.ledger.goodput import Cause, Parts
from headway.ledger.money import cents, usd
from headway.ledger.periods import Period
from headway.store.usage import Only, RunRow, Span, Total
from headway.wire.ledger import (
    AdviceOut,
    CapacityOut,
    CauseOut,
    EnergyOut,
    EnergyRow,
    EstimateOut,
    GoodputOut,
    HourOut,
    PartsOut,
    TypeOut,
    WaitOut,
)
from headway.wire.work import CheckJobIn

router = APIRouter(prefix="/clusters/{name}", tags=["costs"])
HOUR_S = 3600
MOST_LOSSY = 2000  # runs that are looked at for causes, the dearest
_BLAME_S = 120.0  # between a run's end and the incident that ended it


# --- goodput


@router.get("/goodput")
async def goodput(name: str, state: State, who: Anyone, period: MonthText = "") -> GoodputOut:
    """How much of what was held trained, what took the rest, dearest first."""
    place = await place_of(state, name)
    month, seen = place.month(period), teams_seen(place, who)
    await fresh(state, place)
    return await goodput_of(state, place, month, seen)


async def goodput_of(state: AppState, place: Place, month: Period, seen: tuple[str, ...] | None) -> GoodputOut:
    span, only = Span(month.start, month.end, place.now), Only(seen)
    totals = await state.store.usage(place.name, span, ["team"], only)
    parts = {one.by[0]: _parts(one) for one in totals if one.gpu_s or one.waited_gpu_s}
    whole = Parts(
        *(sum(getattr(one, field) for one in parts.values()) for field in ("productive", "lost", "idle", "waiting"))
    )
    causes = [*await _lost_to(state, place, month, only), *await _queue(state, place, month, whole, seen)]
    return GoodputOut(
        cluster=place.name,
        period=month.name,
        start=month.start,
        end=month.end,
        as_of=place.now,
        simulated=place.cluster.simulated_gpus if place.cluster else False,
        total=_parts_out("", whole),
        teams=[_parts_out(team, one) for team, one in parts.items()],
        causes=[
            CauseOut(
                kind=one.kind, what=one.what, gpu_hours=_hours(one.gpu_s), usd=usd(cents(one.usd)), jobs=list(one.jobs)
            )
            for one in good.ranked(causes)
        ],
        failure_hours=await _failure_hours(state, place, month),
    )


@router.get("/goodput/checkpoints")
async def checkpoints(
    name: str,
    state: State,
    who: Anyone,
    every_s: Annotated[float, Query(gt=0, le=1e7)],
    write_s: Annotated[float, Query(gt=0, le=1e6)],
    nodes: Annotated[int, Query(ge=1, le=100_000)] = 1,
    job: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> AdviceOut:
    """How often a job on so many nodes should write a checkpoint, by how often nodes of this cluster failed lately."""
    place = await place_of(state, name)
    teams_seen(place, who)
    lately = Period("", place.now - 90 * 86_400, place.now)
    hours = await _failure_hours(state, place, lately)
    failure_s = (hours or 24 * 365.0) * HOUR_S / nodes
    told = good.advice(every_s, failure_s, write_s)
    return AdviceOut(
        job=job,
        now_s=every_s,
        best_s=round(told.best_s, 1),
        write_s=write_s,
        failure_s=round(failure_s),
        saves=round(told.saves, 6),
    )


def _parts(one: Total) -> Parts:
    return Parts(one.gpu_s - one.lost_gpu_s - one.idle_gpu_s, one.lost_gpu_s, one.idle_gpu_s, one.waited_gpu_s)


def _parts_out(team: str, one: Parts) -> PartsOut:
    return PartsOut(
        team=team,
        productive_gpu_hours=_hours(one.productive),
        lost_gpu_hours=_hours(one.lost),
        idle_gpu_hours=_hours(one.idle),
        waited_gpu_hours=_hours(one.waiting),
        goodput=None if one.goodput is None else round(one.goodput, 6),
        ettr=None if one.ettr is None else round(one.ettr, 6),
    )


async def _lost_to(state: AppState, place: Place, month: Period, only: Only) -> list[Cause]:
    """What the dearest runs lost and idled, by what took it."""
    span = Span(month.start, month.end, place.now)
    found = await state.store.runs(place.name, span, only, lossy=True, limit=MOST_LOSSY)
    if not found:
        return []
    prices = {
        segment.group: segment.usd_per_second
        for segment in await reckoning.segments(state, place, month, {one.group for one in found})
    }
    blamed = await _incidents(state, place, month)
    notebooks = {one.job_id for one in await state.store.notebooks(place.name)}
    sums: dict[tuple[str, str], list[tuple[int, Fraction, int]]] = {}
    for run in found:
        rate = prices.get(run.group, Fraction(0)) / run.per_node
        for key, amount_s in (
            (_why_lost(run, blamed), run.lost_s),
            (
                ("notebook", "notebooks that idle") if run.job in notebooks else ("idle", "GPUs held that do nothing"),
                run.idle_s,
            ),
        ):
            if amount_s:
                sums.setdefault(key, []).append((run.gpus * amount_s, rate * run.units * amount_s, run.job))
    return [
        Cause(
            kind,
            what,
            sum(gpu_s for gpu_s, _, _ in rows),
            sum((cost for _, cost, _ in rows), Fraction(0)),
            tuple(dict.fromkeys(job for _, _, job in sorted(rows, key=lambda row: -row[1])))[:5],
        )
        for (kind, what), rows in sums.items()
    ]


async def _incidents(state: AppState, place: Place, month: Period) -> dict[int, list[tuple[float, str]]]:
    """Job -> (when an incident sent it back, the incident in words)."""
    found: dict[int, list[tuple[float, str]]] = {}
    for one in await state.store.incidents(place.name, limit=1000):
        if month.start <= one.opened_at < month.end + _BLAME_S:
            whole = await state.store.incident(one.number)
            for job in whole.jobs:
                found.setdefault(job.job, []).append((job.requeued_at, f"{one.what} on {one.node}"))
    return found


def _why_lost(run: RunRow, blamed: dict[int, list[tuple[float, str]]]) -> tuple[str, str]:
    for at, words in blamed.get(run.job, ()):
        if abs(at - run.end) <= _BLAME_S:
            return "fault", words
    if run.state == "PREEMPTED":
        return "preemption", "preemption"
    if run.state == "NODE_FAIL":
        return "fault", f"a node of {run.nodes} failed"
    return "requeue", "requeued by hand or by its own wish"


async def _queue(
    state: AppState, place: Place, month: Period, whole: Parts, seen: tuple[str, ...] | None
) -> list[Cause]:
    """Nobody pays for waiting; what stood idle while jobs waited was paid for. Only who sees the invoice sees that."""
    if seen is not None or not whole.waiting:
        return []
    found = (await reckoning.bill(state, place, month)).found
    idle = sum(one.cents["idle"] for one in found.teams) + sum(
        one.cents for one in found.unassigned if one.what == "idle"
    )
    held = sum(sum(one.cents[column] for column in ("productive", "lost", "held_idle")) for one in found.teams)
    waited = Fraction(held, 100) * whole.waiting / whole.held if whole.held else Fraction(idle, 100)
    return [Cause("queue", "idle while jobs waited, at most", whole.waiting, min(Fraction(idle, 100), waited))]


async def _failure_hours(state: AppState, place: Place, month: Period) -> float | None:
    """Mean time between failures of one node: machine hours by incidents that took a node out; None without any."""
    lives = await state.store.lives(place.name, month.start, month.end)
    hours = sum(_seconds(life, month, place.now) for life in lives) / HOUR_S
    incidents = [
        one
        for one in await state.store.incidents(place.name, limit=1000)
        if one.drained and month.start <= one.opened_at < month.end
    ]
    return round(hours / len(incidents), 2) if incidents and hours else None


def _seconds(life: Life, month: Period, now: int) -> int:
    return max(0, min(life.ended or now, month.end, now) - max(life.began, month.start))


def _hours(seconds_: int) -> float:
    return round(seconds_ / HOUR_S, 4)


# --- energy


@router.get("/energy")
async def energy(name: str, state: State, who: Anyone, period: MonthText = "") -> EnergyOut:
    """Of GPUs as their power was measured, else by their kind (`estimated`), with the site's own share."""
    place = await place_of(state, name)
    month, seen = place.month(period), teams_seen(place, who)
    await fresh(state, place)
    return await energy_of(state, place, month, seen)


async def energy_of(state: AppState, place: Place, month: Period, seen: tuple[str, ...] | None) -> EnergyOut:
    totals = await state.store.usage(
        place.name, Span(month.start, month.end, place.now), ["team", "gpu_type"], Only(seen)
    )
    teams: dict[str, list[Total]] = {}
    for one in totals:
        teams.setdefault(one.by[0], []).append(one)
    price = place.costs.usd_per_kwh
    return EnergyOut(
        cluster=place.name,
        period=month.name,
        start=month.start,
        end=month.end,
        pue=place.costs.pue,
        usd_per_kwh=None if price is None else float(price),
        simulated=place.cluster.simulated_gpus if place.cluster else False,
        total=_energy_row("", totals, place.costs.pue, price),
        teams=[_energy_row(team, parts, place.costs.pue, price) for team, parts in sorted(teams.items())],
    )


def _energy_row(team: str, parts: Iterable[Total], pue: float, price: Decimal | None) -> EnergyRow:
    found = costs.energy_of(parts)
    kwh = found.kwh(pue)
    return EnergyRow(
        team=team,
        kwh=round(kwh, 4),
        measured_kwh=round(Energy(found.measured_j).kwh(pue), 4),
        estimated_kwh=round(Energy(0, found.estimated_j).kwh(pue), 4),
        usd=None if price is None else usd(cents(Fraction(price) * Fraction(kwh))),
    )


# --- capacity


@router.get("/capacity")
async def capacity(name: str, state: State, who: Anyone, period: MonthText = "") -> CapacityOut:
    """Utilisation by hour and GPU type, waits by job size, and whether what is free lies together. The same for all."""
    place = await place_of(state, name)
    teams_seen(place, who)
    await fresh(state, place)
    return await capacity_of(state, place, place.month(period))


async def capacity_of(state: AppState, place: Place, month: Period) -> CapacityOut:
    until = min(month.end, place.now)
    marks = list(range(month.start, max(until, month.start + 1) + HOUR_S - 1, HOUR_S))
    span = Span(month.start, month.end, place.now)
    free = rules.free(
        [
            (node.gpus, node.gpus_used)
            for node in state.live.snapshot(place.name).nodes
            if node.usable and node.gpus and not node.reservation
        ]
    )
    return CapacityOut(
        cluster=place.name,
        period=month.name,
        start=month.start,
        end=month.end,
        types=await _types(state, place, span, marks),
        waits=_waits(await state.store.waits(place.name, span)),
        free_gpus=free.gpus,
        free_whole_node_gpus=free.together,
        fragmentation=round(free.fragmentation, 4),
    )


async def _types(state: AppState, place: Place, span: Span, marks: Sequence[int]) -> list[TypeOut]:
    if len(marks) < 2:
        return []
    begun = await state.store.moments(place.name, span, marks, False)
    ended = await state.store.moments(place.name, span, marks, True)
    there = await _there(state, place, span, marks)
    found = []
    for kind in sorted(begun.keys() | there.keys()):
        ends = [{number: Ends(*sums) for number, sums in moments.get(kind, {}).items()} for moments in (begun, ended)]
        held = rules.held_between(marks, *ends)
        had = there.get(kind, [0] * len(held))
        hours = [
            HourOut(at=at, held=_hours(gpu_s), there=_hours(all_s))
            for at, gpu_s, all_s in zip(marks, held, had, strict=False)
        ]
        found.append(
            TypeOut(gpu_type=kind, utilisation=round(sum(held) / sum(had), 6) if sum(had) else None, hours=hours)
        )
    return found


async def _there(state: AppState, place: Place, span: Span, marks: Sequence[int]) -> dict[str, list[int]]:
    """GPU-seconds that machines had in each hour, by type, as far as the file still says what they have."""
    groups = {group.name: group for group in place.cluster.groups} if place.cluster else {}
    found: dict[str, list[int]] = {}
    for life in await state.store.lives(place.name, span.start, span.end):
        group = groups.get(life.group)
        if group is None or not group.plan.gpus:
            continue
        hours = found.setdefault(group.plan.gpu_type, [0] * (len(marks) - 1))
        alive = [(max(life.began, span.start), min(life.ended or span.now, span.now, span.end))]
        first, last = (max(0, (at - marks[0]) // HOUR_S) for at in alive[0])
        for i in range(first, min(last + 1, len(hours))):
            hours[i] += group.plan.gpus * spans.seconds(spans.common(spans.union(alive), [(marks[i], marks[i + 1])]))
    return found


def _waits(rows: Iterable[tuple[int, int, int]]) -> list[WaitOut]:
    sizes: dict[str, Counter[int]] = {words: Counter() for _, words in rules.SIZES}
    for gpus, waited_s, count in rows:
        sizes[rules.size_of(gpus)][waited_s] += count
    return [
        WaitOut(
            size=words,
            runs=sum(counts.values()),
            **{f"p{which}_s": rules.percentile(counts.items(), which) for which in rules.PERCENTILES},
        )
        for words, counts in sizes.items()
        if counts
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
    budget = next((one for one in await costs.budgets_of(state, place) if one.team == team), None)
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


def _over(left: float, unit: str, cost: Fraction | None, gpu_hours: float | None) -> str:
    asks = (None if cost is None else float(cost)) if unit == "usd" else gpu_hours
    words = "USD" if unit == "usd" else "GPU-hours"
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

"""Figures of services: collects them from the proxy and the replicas, and tells what was counted in a period.

Requests, errors and times are those of the proxy's list of finished requests; tokens are counters that replicas publish at
/metrics, as vLLM, SGLang, TGI and llama.cpp do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from headway.billing.periods import Period
from headway.domain.serving.service_figures import ServiceFigures, percentile_ms, sum_figures
from headway.domain.serving.service_proxy import ReplicaAddress
from headway.schemas.serving.service_metrics import (
    Percentiles,
    ServiceMetricsOut,
    ServiceRates,
    ServiceRatesOfMinute,
)
from headway.services.access.ownership_rights import may_see_team_usage
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing.priced_usage import run_costs
from headway.services.billing.reports.report_scope import load_billed_cluster
from headway.services.serving.stored_service import server_name
from headway.store import ServiceRow
from headway.store.jobs.service_figures import LastReading, ServiceMinute

_ANSWERS = ("serving", "unhealthy", "draining")
MOST_STEPS = 500  # of a course; a longer one has several minutes in each


async def collect_service_metrics(state: AppState, name: str, rows: Sequence[ServiceRow]) -> None:
    """Reads what a cluster's services have done since the last reading, and stores it. Raises Unreachable."""
    _, cluster = await state.clusters.get(name)
    replicas = await state.store.services.replicas(*(row.id for row in rows))
    services = {row.id: row for row in rows}
    known = {(services[one.service].proxy_name, server_name(one)): one for one in replicas}
    asked = [
        ReplicaAddress(*key, one.node, one.port) for key, one in known.items() if one.state in _ANSWERS and one.node
    ]
    last = await state.store.service_figures.last_reading(name)
    if not asked and not last.after:
        return
    reading = await state.backend.proxy.read_service_metrics(cluster, last.after, asked)
    versions = {row.proxy_name: row for row in rows}
    found: dict[tuple[str, int], ServiceFigures] = {}
    counters = dict(last.counters)

    def add(service: str, version: int, figures: ServiceFigures) -> None:
        found[service, version] = found.get((service, version), ServiceFigures()) + figures

    for key, figures in reading.requests.items():
        if (row := versions.get(key[0])) is not None:
            replica = known.get(key)
            add(row.id, replica.version if replica else row.version, figures)
    for key, now in reading.counters.items():
        if (replica := known.get(key)) is not None:
            label = f"{replica.service}/{replica.number}"
            more = now.since(counters.get(label))
            counters[label] = now
            if more != ServiceFigures():
                add(replica.service, replica.version, more)
    left = {f"{one.service}/{one.number}" for one in replicas if one.ended_at is None}
    counters = {label: one for label, one in counters.items() if label in left}
    after = LastReading(reading.after, counters)
    if found or after != last:
        await state.store.service_figures.add(name, int(state.clock() // 60), after, found)


async def recent_figures(state: AppState, service: str, minutes: int, version: int | None = None) -> ServiceFigures:
    """Returns the figures of the last minutes, with the one that runs, of one version or of all."""
    first = int(state.clock() // 60) - minutes
    rows = await state.store.service_figures.since(service, first)
    return sum_figures(one.figures for one in rows if version in (None, one.version))


async def service_metrics(state: AppState, who: Principal, name: str, service: str, minutes: int) -> ServiceMetricsOut:
    """Returns the figures of a service over the last minutes. Those who may see the usage of its team get its cost. Raises
    NotFound."""
    _, cluster = await state.clusters.get(name)
    row = await state.store.services.get(name, service)
    now = state.clock() if row.ended_at is None else min(state.clock(), row.ended_at)
    first = int((now - 60 * minutes) // 60)
    start = max(60.0 * first, row.at)
    seconds = max(1.0, now - start)
    rows = await state.store.service_figures.since(row.id, first)
    found = await asyncio.to_thread(_answer, row.id, rows, start, seconds, -(-minutes // MOST_STEPS))
    if may_see_team_usage(cluster, who, row.team) or who.user == row.user:
        usd = await _cost(state, row, start, now)
        tokens = found.all.generated_tokens + found.all.prompt_tokens
        found.usd = None if usd is None else float(usd)
        found.usd_per_million_tokens = None if usd is None or not tokens else float(usd * 1_000_000 / tokens)
    return found


def _answer(service: str, rows: Sequence[ServiceMinute], start: float, seconds: float, step: int) -> ServiceMetricsOut:
    """Returns the figures of minutes, with a course of steps of so many minutes."""
    versions: dict[int, list[ServiceFigures]] = {}
    steps: dict[int, list[ServiceFigures]] = {}
    for one in rows:
        versions.setdefault(one.version, []).append(one.figures)
        steps.setdefault(one.minute - one.minute % step, []).append(one.figures)
    return ServiceMetricsOut(
        service=service,
        start=start,
        seconds=seconds,
        all=rates(sum_figures(one.figures for one in rows), seconds),
        versions={version: rates(sum_figures(versions[version]), seconds) for version in sorted(versions)},
        by_minute=list(_course(steps, step, start, start + seconds)),
    )


def _course(
    steps: Mapping[int, Iterable[ServiceFigures]], step: int, start: float, end: float
) -> Iterable[ServiceRatesOfMinute]:
    for minute in sorted(steps):
        begin = max(start, 60.0 * minute)
        seconds = max(1.0, min(end, 60.0 * (minute + step)) - begin)
        yield ServiceRatesOfMinute(at=60.0 * minute, minutes=step, rates=rates(sum_figures(steps[minute]), seconds))


async def _cost(state: AppState, row: ServiceRow, start: float, now: float) -> Fraction | None:
    """Returns what the jobs of a service's replicas cost in a period, in USD; None if the ledger has none of them, or
    no price of one."""
    billed = await load_billed_cluster(state, row.cluster)
    jobs = await state.store.services.jobs_of_replicas(row.id, start)
    ends = await state.store.operations.data_deletion_times(row.cluster)
    runs = [run for run in await state.store.usage.runs_of_jobs(row.cluster, jobs) if run.start >= max(ends, default=0)]
    priced = {price.group for price in await state.store.prices.of_cluster(row.cluster)}
    if not runs or any(run.group not in priced for run in runs):
        return None
    return sum(await run_costs(state, billed, runs, Period("", int(start), int(now))), Fraction(0))


def rates(figures: ServiceFigures, seconds: float) -> ServiceRates:
    """Returns figures as rates over a time."""
    return ServiceRates(
        requests=figures.requests,
        requests_per_s=figures.requests / seconds,
        errors=figures.errors,
        error_rate=figures.error_rate,
        aborted=figures.aborted,
        latency_ms=_percentiles(figures.total),
        first_byte_ms=_percentiles(figures.first),
        first_token_ms=_percentiles(figures.first_token),
        prompt_tokens=figures.prompt_tokens,
        generated_tokens=figures.generated_tokens,
        tokens_per_s=figures.generated_tokens / seconds,
    )


def _percentiles(buckets: Mapping[int, int]) -> Percentiles | None:
    p50, p95, p99 = (percentile_ms(buckets, share) for share in (0.5, 0.95, 0.99))
    if p50 is None or p95 is None or p99 is None:
        return None
    return Percentiles(p50=round(p50, 1), p95=round(p95, 1), p99=round(p99, 1))

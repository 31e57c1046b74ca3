"""Which GPUs to own, reserve or rent, from the ledger's usage and known prices."""

from __future__ import annotations

from dataclasses import dataclass

from headway.billing.periods import Period
from headway.billing.purchase_mix import (
    Mix,
    OwnedGpu,
    WayToBuy,
    break_even_hours,
    cheapest_mix,
    sensitivity,
)
from headway.catalog.gpu_types import find_gpu_type
from headway.domain.machines.offer import PurchaseOption
from headway.errors import Refused
from headway.schemas.billing.capacity import HourOut
from headway.schemas.billing.purchase import MixPartOut, PurchaseIn, PurchaseOut, SensitivityOut, WayToBuyOut
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState
from headway.services.billing.ledger.ledger_refresh import load_report_scope
from headway.services.billing.offers import cheapest_offers
from headway.services.billing.reports.capacity import load_capacity
from headway.services.billing.reports.fragmentation import gpu_plans_by_group
from headway.services.billing.reports.report_scope import HOUR_S, BilledCluster, ReportScope, to_hours
from headway.store.billing.run_sums import ReportSpan

_DAY_S = 86_400
# USD of a GPU with its share of server and network. Assumptions, not quotes: a person gives their own price.
_ASSUMED_CAPEX = {"a100": 16_000, "h100": 33_000, "h200": 38_000, "b200": 50_000, "l40s": 12_000}
_USUAL_WATTS = 500.0
_SHORT_H = 28 * 24  # hours of usage that show a season of weeks


@dataclass(frozen=True, slots=True)
class _Priced:
    way: WayToBuy
    origin: str


async def load_purchase(state: AppState, name: str, who: Principal, wanted: PurchaseIn) -> PurchaseOut:
    """Returns the mix of ways to buy that would have served the usage of the last days at the lowest price. Raises Refused
    without usage, or without a price of on-demand machines."""
    scope = await load_report_scope(state, name, who, "")
    now = scope.billed.now
    start = (now - wanted.days * _DAY_S) // HOUR_S * HOUR_S
    capacity = await load_capacity(state, ReportScope(scope.billed, Period("", max(0, start), now), None))
    kinds = {one.gpu_type: one.hours for one in capacity.types if one.gpu_type}
    gpu = wanted.gpu or max(kinds, key=lambda kind: sum(hour.allocated for hour in kinds[kind]), default="")
    hours = _from_first_machine(kinds.get(gpu, []))
    usage = [hour.allocated for hour in hours]
    if not sum(usage):
        raise Refused(
            f"no job of {name} used {gpu or 'a GPU'} in the last {wanted.days} days",
            hint=f"GPU types with usage: {', '.join(sorted(kinds)) or 'none'}; --days looks further back",
        )
    uncounted = await _uncounted_gpu_hours(state, scope.billed, ReportSpan(max(0, start), now, now))
    ways, spot = await _ways(state, gpu, _gpus_per_node(scope, gpu), wanted)
    plain = [one.way for one in ways]
    mix = cheapest_mix(usage, plain, spot.way if spot else None, wanted.spot_share)
    listed = [*ways, *([spot] if spot else [])]
    return PurchaseOut(
        cluster=name,
        gpu=gpu,
        start=hours[0].at,
        hours=len(hours),
        usage_gpu_hours=round(sum(usage), 2),
        present_gpu_hours=round(sum(hour.present for hour in hours), 2),
        peak_gpus=round(max(usage), 2),
        ways=[_way_out(one, ways[0].way) for one in listed],
        mix=[MixPartOut(name=part.name, gpus=part.gpus, gpu_hours=part.gpu_hours, usd=part.usd) for part in mix.parts],
        usd=mix.usd,
        all_on_demand_usd=cheapest_mix(usage, plain[:1]).usd,
        sensitivity=[
            SensitivityOut(
                name=what,
                low_usd=low.usd,
                high_usd=high.usd,
                low_fixed_gpus=_fixed_gpus(low),
                high_fixed_gpus=_fixed_gpus(high),
            )
            for what, (low, high) in sensitivity(usage, plain, spot.way if spot else None, wanted.spot_share).items()
        ],
        assumptions=[
            *([f"only {len(hours)} hours of usage are known"] if len(hours) < _SHORT_H else []),
            *(
                [f"{uncounted:,.0f} GPU-hours on nodes that the cluster file no longer has are not counted"]
                if uncounted
                else []
            ),
            *_assumptions(wanted, owned=any(one.way.name == "owned" for one in ways)),
        ],
    )


async def _uncounted_gpu_hours(state: AppState, billed: BilledCluster, span: ReportSpan) -> float:
    """Returns the GPU-hours on groups that the file no longer has. The GPU type of their machines is unknown."""
    plans = gpu_plans_by_group(billed)
    totals = await state.store.usage.totals(billed.name, span, ["group"])
    return to_hours(sum(total.gpu_s for total in totals if total.by[0] not in plans))


def _gpus_per_node(scope: ReportScope, gpu: str) -> int:
    """Returns the GPUs of the cluster's largest machine of this type; 1 if its file no longer has one."""
    cluster = scope.billed.last_known_cluster
    groups = cluster.groups if cluster else ()
    return max((group.plan.gpus for group in groups if group.plan.gpu_type == gpu), default=1)


def _from_first_machine(hours: list[HourOut]) -> list[HourOut]:
    first = next((place for place, hour in enumerate(hours) if hour.present or hour.allocated), len(hours))
    return hours[first:]


async def _ways(
    state: AppState, gpu: str, gpus_per_node: int, wanted: PurchaseIn
) -> tuple[list[_Priced], _Priced | None]:
    """Returns the ways to buy, on-demand first, and spot."""
    known = await cheapest_offers(state, gpu, gpus_per_node)

    def hourly(option: PurchaseOption, given: float) -> tuple[float, str] | None:
        if given:
            return given, "given"
        offer = known.get(option)
        if offer is None:
            return None
        return float(offer.price_usd_per_gpu_hour), f"{offer.cloud} {offer.instance_type}, of {offer.as_of}"

    rented = hourly(PurchaseOption.ON_DEMAND, wanted.on_demand)
    if rented is None:
        raise Refused(f"no price of {gpu} on demand is known", hint="give --on-demand USD, or headway offers --refresh")
    ways = [_Priced(WayToBuy("on-demand", 0.0, rented[0]), rented[1])]
    if reserved := hourly(PurchaseOption.RESERVED, wanted.reserved):
        ways.append(_Priced(WayToBuy("reserved", reserved[0], 0.0), reserved[1]))
    capex, origin = wanted.capex, "given"
    if not capex and gpu in _ASSUMED_CAPEX:
        capex, origin = float(_ASSUMED_CAPEX[gpu]), "assumption"
    if capex:
        kind = find_gpu_type(gpu)
        owned = OwnedGpu(
            capex, wanted.years, wanted.resale, kind.watts if kind else _USUAL_WATTS, pue=wanted.pue,
            usd_per_kwh=wanted.usd_per_kwh, running_share=wanted.running,
        )  # fmt: skip
        ways.append(_Priced(owned.way(), f"{capex:,.0f} USD a GPU: {origin}"))
    spot = hourly(PurchaseOption.SPOT, wanted.spot)
    if spot is None or not wanted.spot_share:
        return ways, None
    words = f"{spot[1]}; {wanted.spot_loss:.0%} more for repeated work"
    return ways, _Priced(WayToBuy("spot", 0.0, spot[0] * (1 + wanted.spot_loss)), words)


def _way_out(one: _Priced, on_demand: WayToBuy) -> WayToBuyOut:
    hours = None if one.way is on_demand else break_even_hours(one.way, on_demand)
    return WayToBuyOut(
        name=one.way.name,
        fixed_usd_h=one.way.fixed_usd_h,
        used_usd_h=one.way.used_usd_h,
        break_even_h=hours,
        origin=one.origin,
    )


def _fixed_gpus(mix: Mix) -> int:
    return sum(part.gpus for part in mix.parts if part.name in ("owned", "reserved"))


def _assumptions(wanted: PurchaseIn, *, owned: bool) -> list[str]:
    """Returns the assumptions behind the figures, in words."""
    if not owned:
        return ["owned GPUs are left out: give the price of one with --capex"]
    return [
        f"an own GPU is sold after {wanted.years:g} years for {wanted.resale:.0%} of its price",
        f"rent, people and repairs take {wanted.running:.0%} of the price a year",
        f"energy at {wanted.usd_per_kwh:g} USD a kWh with a PUE of {wanted.pue:g}, at the GPU's power limit and 25 % for the "
        "rest of the machine, in used hours only",
        "a GPU that fails is not replaced, and interest is not counted",
    ]

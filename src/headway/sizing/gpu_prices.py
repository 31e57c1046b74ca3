"""The price of a GPU-hour for sizing: the lowest on-demand price that the shipped offers know, else the plan's."""

from __future__ import annotations

from dataclasses import dataclass

from headway.catalog.gpu_types import GpuType
from headway.catalog.offers import shipped_offers
from headway.domain.machines.offer import PurchaseOption

_GIB_OF_A100_40 = 45


@dataclass(frozen=True, slots=True)
class GpuPrice:
    """USD per GPU-hour, and where it is from."""

    usd: float
    origin: str


def lowest_price(gpu: GpuType, gpus_per_node: int) -> GpuPrice | None:
    """Returns the lowest on-demand price of machines with at least `gpus_per_node` GPUs, or that of a plan; None if neither
    is known."""
    name = gpu.name.removesuffix("-40")
    offers = [
        offer for offer in shipped_offers()
        if offer.gpu_type == name and offer.purchase is PurchaseOption.ON_DEMAND and offer.gpus >= min(8, gpus_per_node)
        and (name != "a100" or (0 < offer.gpu_memory_mib / 1024 < _GIB_OF_A100_40) == (gpu.name == "a100-40"))
    ]  # fmt: skip
    if offers:
        best = min(offers, key=lambda offer: offer.price_usd_per_gpu_hour)
        return GpuPrice(
            float(best.price_usd_per_gpu_hour), f"{best.cloud} {best.instance_type}, on demand, of {best.as_of}"
        )
    from headway.catalog.plans import load_catalogue  # imports yaml, which the server's start leaves out

    plans = [plan for plan in load_catalogue().values() if plan.gpu_type == gpu.name and plan.gpus]
    if plans:
        plan = min(plans, key=lambda each: each.price_usd_per_node_hour / each.gpus)
        return GpuPrice(float(plan.price_usd_per_node_hour / plan.gpus), f"plan {plan.name}")
    return None

"""An offer of a cloud: one kind of machine at its price, with the source of the figures."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum


class PurchaseOption(StrEnum):
    """How a machine is bought."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"  # the cloud may take it back at short notice
    RESERVED = "reserved"  # for a fixed term, paid whether used or not


@dataclass(frozen=True, slots=True)
class Offer:
    """One instance type of a cloud at one price. Prices are US dollars per machine and hour, without tax, disks,
    addresses and traffic; memory is MiB. "" and 0 mean that the source does not say."""

    cloud: str  # "aws"
    instance_type: str  # the cloud's own name: "p5.48xlarge"
    gpu_type: str  # as jobs name it: "h100"; "" = a machine without GPUs
    gpus: int
    price_usd_per_node_hour: Decimal
    source: str  # URL at which the price was read
    as_of: date  # the day for which the source gives the price
    purchase: PurchaseOption = PurchaseOption.ON_DEMAND
    region: str = ""
    zone: str = ""
    gpu_product: str = ""  # the GPU as the cloud calls it: "H100 SXM"
    gpu_memory_mib: int = 0  # of one GPU
    cpus: int = 0  # vCPUs
    memory_mib: int = 0
    gpu_link: str = ""  # between the GPUs of a machine: "nvlink"
    network: str = ""  # between machines: "efa", "infiniband"
    network_gbit_s: int = 0  # of one machine, all its adapters together
    note: str = ""  # what qualifies the price: a term, sources that disagree

    @property
    def price_usd_per_gpu_hour(self) -> Decimal:
        """Price of the machine divided by its GPUs, USD; 0 for a machine without GPUs."""
        return self.price_usd_per_node_hour / self.gpus if self.gpus else Decimal(0)


@dataclass(frozen=True, slots=True)
class Quote:
    """What a number of GPUs costs by one offer, in whole machines. `gpus` of all machines together: at least as many as
    were asked for."""

    offer: Offer
    machines: int

    @property
    def gpus(self) -> int:
        """GPUs of all machines together."""
        return self.machines * self.offer.gpus

    @property
    def price_usd_per_hour(self) -> Decimal:
        """Price of all machines together, USD."""
        return self.machines * self.offer.price_usd_per_node_hour


def quote(offer: Offer, gpus: int) -> Quote:
    """Returns the least number of machines of this offer that have `gpus` GPUs together, and their price. Raises
    ValueError for an offer without GPUs, and for fewer GPUs than 1."""
    if not offer.gpus or gpus < 1:
        raise ValueError(f"{gpus} GPUs can't be had from {offer.instance_type}, which has {offer.gpus}")
    return Quote(offer, -(-gpus // offer.gpus))

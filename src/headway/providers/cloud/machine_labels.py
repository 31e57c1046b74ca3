"""What is written at a cloud on everything that Headway makes there: tags or metadata. They alone say what belongs to which
server, cluster and slot. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from headway.domain.machines.rented import InstanceClaim
from headway.domain.slurm.hostlist import expand
from headway.providers.cloud.api import LaunchOrder

SERVER, CLUSTER, MACHINE, NUMBER = "headway:server", "headway:cluster", "headway:machine", "headway:try"
PRICE = "headway:usd-per-hour"  # at its launch
_PRICE = re.compile(r"\d{1,6}(\.\d{1,12})?")
_MOST_TOGETHER = 10_000


def labels_of(order: LaunchOrder) -> dict[str, str]:
    """Returns what is written on the order's instances. Instances that are launched together have the same, with the names of
    all: the number of each in its launch says which it is."""
    return {
        **labels_of_claim(order.claims[0]),
        MACHINE: order.machines,
        **({PRICE: f"{order.usd_per_hour.normalize():f}"} if order.usd_per_hour else {}),
    }


def labels_of_claim(claim: InstanceClaim) -> dict[str, str]:
    """Returns what is written on a thing of one machine."""
    return {SERVER: claim.server, CLUSTER: claim.cluster, MACHINE: claim.machine, NUMBER: str(claim.number)}


def read_claim(labels: Mapping[str, str], launch_index: int | None = None) -> InstanceClaim:
    """Returns who something with these labels belongs to. `launch_index`: the number of an instance in its launch, from 0;
    None: the claim names all machines of the launch. A label that was removed by hand reads as "" or 0."""
    machine, number = labels.get(MACHINE, ""), labels.get(NUMBER, "")
    if launch_index is not None:
        machine = _machine(machine, launch_index)
    count = int(number) if number.isdigit() else 0
    return InstanceClaim(labels.get(SERVER, ""), labels.get(CLUSTER, ""), machine, count)


def read_price(labels: Mapping[str, str]) -> Decimal:
    """Returns the price of an instance for an hour, in USD; 0 if its labels say none that is a price."""
    text = labels.get(PRICE, "")
    return Decimal(text) if _PRICE.fullmatch(text) else Decimal(0)


def _machine(label: str, launch_index: int) -> str:
    """Returns the name of one of the machines that a label names; the label itself if a person has changed it."""
    try:
        names = expand(label, most=_MOST_TOGETHER)
    except ValueError:
        return label
    return names[launch_index] if launch_index < len(names) else label

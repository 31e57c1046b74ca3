"""Tags of what Headway makes at AWS. They alone say what belongs to which server, cluster and slot."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from headway.domain.machines.rented import InstanceClaim
from headway.domain.slurm.hostlist import expand
from headway.providers.cloud.api import LaunchOrder

_MOST_TOGETHER = 10_000
SERVER, CLUSTER, MACHINE, NUMBER = "headway:server", "headway:cluster", "headway:machine", "headway:try"
PRICE = "headway:usd-per-hour"  # at its launch
_PRICE = re.compile(r"\d{1,6}(\.\d{1,12})?")


def tags_of(order: LaunchOrder) -> list[dict[str, str]]:
    """Returns the tags of the order's instances, their disks and network interfaces. Instances that are launched together
    have the same tags, with the names of all: the number of each in its launch says which it is."""
    first = order.claims[0]
    values = {
        "Name": order.machines,
        SERVER: first.server,
        CLUSTER: first.cluster,
        MACHINE: order.machines,
        NUMBER: str(first.number),
        **({PRICE: f"{order.usd_per_hour.normalize():f}"} if order.usd_per_hour else {}),
    }
    return tag_list(values)


def tag_list(values: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns tags in AWS's form."""
    return [{"Key": key, "Value": value} for key, value in values.items()]


def specifications(values: list[dict[str, str]], *kinds: str) -> list[dict[str, Any]]:
    """Returns TagSpecifications for these kinds of resources."""
    return [{"ResourceType": kind, "Tags": values} for kind in kinds]


def filters(server: str, cluster: str = "") -> list[dict[str, Any]]:
    """Returns the filters for what has the tags of a server, and of one of its clusters."""
    wanted = {SERVER: server, **({CLUSTER: cluster} if cluster else {})}
    return [{"Name": f"tag:{key}", "Values": [value]} for key, value in wanted.items()]


def read_tags(tags: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Returns tags as a map."""
    return {tag["Key"]: tag["Value"] for tag in tags}


def read_claim(tags: Mapping[str, str], launch_index: int | None = None) -> InstanceClaim:
    """Returns who something with these tags belongs to. `launch_index`: the number of an instance in its launch, from 0;
    None: the claim names all machines of the launch. A tag that was removed by hand reads as "" or 0."""
    machine, number = tags.get(MACHINE, ""), tags.get(NUMBER, "")
    if launch_index is not None:
        machine = _machine(machine, launch_index)
    return InstanceClaim(tags.get(SERVER, ""), tags.get(CLUSTER, ""), machine, int(number) if number.isdigit() else 0)


def read_price(tags: Mapping[str, str]) -> Decimal:
    """Returns the price of an instance for an hour, in USD; 0 if its tags say none that is a price."""
    text = tags.get(PRICE, "")
    return Decimal(text) if _PRICE.fullmatch(text) else Decimal(0)


def _machine(tag: str, launch_index: int) -> str:
    """Returns the name of one of the machines that a tag names; the tag itself if a person has changed it."""
    try:
        names = expand(tag, most=_MOST_TOGETHER)
    except ValueError:
        return tag
    return names[launch_index] if launch_index < len(names) else tag

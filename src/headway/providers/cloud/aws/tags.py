"""Tags of what Headway makes at AWS. They alone say what belongs to which server, cluster and slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.domain.machines.rented import InstanceClaim

SERVER, CLUSTER, MACHINE, NUMBER = "headway:server", "headway:cluster", "headway:machine", "headway:try"


def tags_of(claim: InstanceClaim) -> list[dict[str, str]]:
    """Returns the tags of an instance, its disk and its network interface."""
    values = {
        "Name": claim.machine,
        SERVER: claim.server,
        CLUSTER: claim.cluster,
        MACHINE: claim.machine,
        NUMBER: str(claim.number),
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


def read_claim(tags: Mapping[str, str]) -> InstanceClaim:
    """Returns who an instance with these tags belongs to. A tag that was removed by hand reads as "" or 0."""
    number = tags.get(NUMBER, "")
    return InstanceClaim(
        tags.get(SERVER, ""), tags.get(CLUSTER, ""), tags.get(MACHINE, ""), int(number) if number.isdigit() else 0
    )

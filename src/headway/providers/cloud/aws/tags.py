"""The labels of what Headway makes at AWS (`providers.cloud.machine_labels`) in the form of AWS's tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.providers.cloud.api import LaunchOrder
from headway.providers.cloud.machine_labels import CLUSTER, SERVER, labels_of


def tags_of(order: LaunchOrder) -> list[dict[str, str]]:
    """Returns the tags of the order's instances, their disks and network interfaces."""
    return tag_list({"Name": order.machines, **labels_of(order)})


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

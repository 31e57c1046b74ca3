"""The section `cloud` of the cluster file: where and which machines are rented."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headway.domain.machines.cloud_settings import DEFAULT_DISK_GIB, DEFAULT_LEASE_S, DEFAULT_NETWORK, CloudSettings
from headway.validation import syntax_rules
from headway.validation.field_types import FileSection, Seconds, checked_by

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
LEAST_LEASE_S = 1800


class CloudPart(FileSection):
    """Rented machines. Credentials are those of the server's user at the cloud (environment, ~/.aws, instance role, or
    clouds.yaml)."""

    region: Word = Field(description="Region.", examples=["eu-central-1"])
    zones: list[Word] = Field(
        default_factory=list,
        max_length=16,
        description="Zones, in the order in which they are tried (default: all of the region).",
        examples=[["eu-central-1a", "eu-central-1b"]],
    )
    types: dict[str, Annotated[list[Word], Field(max_length=16)]] = Field(
        default_factory=dict,
        max_length=50,
        description="Instance types or flavors for a plan, in the order in which they are tried (default: by the catalogue).",
        examples=[{"l40s-4": ["g6e.24xlarge", "g6e.12xlarge"]}],
    )
    head_types: list[Word] = Field(
        default_factory=list,
        max_length=16,
        description="Instance types or flavors for heads (default: 4 vCPUs, 16 GiB).",
    )
    image: Word | None = Field(
        None, description="Machine image (default: the newest official one of the Debian of `image`)."
    )
    subnets: list[Word] = Field(
        default_factory=list,
        max_length=16,
        description="Your subnets, one a zone; of OpenStack the id of one, which is in all zones (default: Headway makes a "
        "network for the cluster, and deletes it with it).",
    )
    network: Annotated[str, checked_by(syntax_rules.network_fault)] = Field(
        DEFAULT_NETWORK, description="Addresses of the network that Headway makes, /16 to /24."
    )
    public_addresses: bool = Field(
        True, description="false: the server reaches the addresses of the subnets, for example by a VPN."
    )
    external_network: Word | None = Field(
        None,
        description="OpenStack: network that public addresses come from (default: the only external one of the cloud).",
        examples=["public"],
    )
    disk_gib: int = Field(
        DEFAULT_DISK_GIB, ge=20, le=16_384, description="Disk of a machine, GiB; it is deleted with the machine."
    )
    lease: Seconds = Field(
        DEFAULT_LEASE_S,
        description="A machine that hears nothing of Headway's server for this long ends itself once its jobs have ended "
        "(a head stops and keeps its disk).",
        examples=["12:00:00"],
    )


def resolve_cloud(part: CloudPart | None) -> CloudSettings | None:
    """Returns the settings, None without the section."""
    if part is None:
        return None
    return CloudSettings(
        region=part.region,
        zones=tuple(part.zones),
        types={plan: tuple(types) for plan, types in part.types.items()},
        head_types=tuple(part.head_types),
        image=part.image or "",
        subnets=tuple(part.subnets),
        network=part.network,
        external_network=part.external_network or "",
        public_addresses=part.public_addresses,
        disk_gib=part.disk_gib,
        lease_s=part.lease,
    )

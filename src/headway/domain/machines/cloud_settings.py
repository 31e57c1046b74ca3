"""What the cluster file says about rented machines, with the defaults of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_LEASE_S = 6 * 3600
DEFAULT_DISK_GIB = 64
DEFAULT_NETWORK = "10.64.0.0/16"


@dataclass(frozen=True, slots=True)
class CloudSettings:
    """The cluster file's section `cloud`."""

    region: str
    zones: tuple[str, ...] = ()  # in the order in which they are tried; () = all of the region
    types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # plan -> instance types, tried in this order
    head_types: tuple[str, ...] = ()
    image: str = ""  # "" = the newest official image of the cluster's Debian
    subnets: tuple[str, ...] = ()  # () = Headway makes a network
    network: str = DEFAULT_NETWORK  # of the network that Headway makes
    external_network: str = ""  # that public addresses come from; "" = the only one of the cloud
    public_addresses: bool = True  # the server connects to public addresses; otherwise to those of the subnet
    disk_gib: int = DEFAULT_DISK_GIB
    lease_s: int = DEFAULT_LEASE_S  # a machine that hears nothing of the server for this long ends itself

"""Addresses of local clusters: one /24 per cluster from 10.64.0.0/10, recorded by the cluster's podman network."""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headway.domain.cluster import Cluster
from headway.errors import Refused
from headway.providers.base import Placement

_RANGE = ipaddress.IPv4Network("10.64.0.0/10")
_COUNT = 1 << (24 - _RANGE.prefixlen)
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1  # linux/sockios.h, net/if.h
HEAD_HOST = 10  # host number of the head in the subnet; slot n has HEAD_HOST + n, the second head HEAD_HOST - 1
MAX_SLOTS = 240


def choose_subnet(seed: str, taken: Iterable[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """Returns the first free /24, starting at the position that `seed` hashes to, so that a recreated cluster tends to
    get the same subnet. Raises Refused if none is free."""
    busy = list(taken)
    first = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") % _COUNT
    for step in range(_COUNT):
        number = int(_RANGE.network_address) + ((first + step) % _COUNT) * 256
        subnet = ipaddress.IPv4Network((number, 24))
        if not any(subnet.overlaps(other) for other in busy):
            return subnet
    raise Refused(f"no free network is left in {_RANGE}", hint="remove clusters that are not needed: headway ls")


def subnet_of(address: str) -> ipaddress.IPv4Network:
    """Returns the network of the cluster that a machine with this address belongs to."""
    return ipaddress.IPv4Network((address, 24), strict=False)


def routed_networks(table: str | None = None) -> list[ipaddress.IPv4Network]:
    """Returns the networks that this host has routes to, except the default route. `table` is the text of
    /proc/net/route."""
    text = Path("/proc/net/route").read_text() if table is None else table
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        destination, mask = (struct.pack("<I", int(fields[place], 16)) for place in (1, 7))
        prefix = bin(int.from_bytes(mask, "big")).count("1")
        if prefix:
            found.append(ipaddress.IPv4Network(f"{socket.inet_ntoa(destination)}/{prefix}", strict=False))
    return found


def listed_networks(found: Iterable[dict[str, Any]]) -> list[ipaddress.IPv4Network]:
    """Returns the IPv4 networks of podman's list of networks, also those without a running container, which have no
    route: podman's default network is one."""
    subnets = [subnet["subnet"] for item in found for subnet in item.get("subnets") or ()]
    return [ipaddress.IPv4Network(subnet) for subnet in subnets if ":" not in subnet]


def machine_addresses(cluster: Cluster, subnet: ipaddress.IPv4Network) -> dict[str, str]:
    """Returns the address of the heads and every slot by name. Raises Refused if there are more slots than addresses."""
    if any(slot.number > MAX_SLOTS for slot in cluster.slots):
        raise Refused(
            f"cluster {cluster.name}: one machine holds at most {MAX_SLOTS} local nodes",
            hint="lower nodes + spares, or use machines of your own: provider ssh",
        )
    found = {name: str(subnet[HEAD_HOST - place]) for place, name in enumerate(cluster.heads)}
    return found | {slot.name: str(subnet[HEAD_HOST + slot.number]) for slot in cluster.slots}


def placement_in(
    cluster: Cluster, subnet: ipaddress.IPv4Network, *, cpus: int, memory_mib: int, tmp_mib: int
) -> Placement:
    """Returns the placement of a cluster in a subnet. CPUs and sizes are the host's."""
    return Placement(
        subnet=str(subnet),
        gateway=str(subnet[1]),
        addresses=machine_addresses(cluster, subnet),
        real_cpus=cpus,
        real_memory_mib=memory_mib,
        real_tmp_mib=tmp_mib,
        gpu_devices=cluster.largest_plan.gpus,
    )


def mac_address(address: str) -> str:
    """Returns a locally administered MAC address derived from the IP address, so that a restarted machine keeps its
    own."""
    return "02:48:" + ":".join(f"{part:02x}" for part in ipaddress.IPv4Address(address).packed)


def set_link(pid: int, *, up: bool) -> None:
    """Takes the network link of the container with the first process `pid` down or up, on the host's end of it.
    Addresses and routes inside the container stay. Raises Refused if the link is not found."""
    try:
        # /sys of a container shows its own network namespace.
        other = Path(f"/proc/{pid}/root/sys/class/net/eth0/iflink").read_text().strip()
        (name,) = (
            path.parent.name for path in Path("/sys/class/net").glob("*/ifindex") if path.read_text().strip() == other
        )
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            ask = struct.pack("16sH14x", name.encode(), 0)
            (flags,) = struct.unpack_from("16xH", fcntl.ioctl(any_socket, _GET_FLAGS, ask))
            flags = flags | _UP if up else flags & ~_UP
            fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", name.encode(), flags))
    except (OSError, ValueError) as error:
        raise Refused(
            f"the machine's network cable can't be found or moved: {error}", hint="check that the machine is running"
        ) from error

"""Addresses of local clusters: one /24 a cluster out of 10.64.0.0/10, kept by podman's network of the cluster."""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from headway.domain.cluster import Cluster
from headway.errors import Refused
from headway.providers.base import Placement

_RANGE = ipaddress.IPv4Network("10.64.0.0/10")
_COUNT = 1 << (24 - _RANGE.prefixlen)
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1  # linux/sockios.h, net/if.h
HEAD_HOST = 10  # the head's place in the subnet; slot n has HEAD_HOST + n, the second head HEAD_HOST - 1
MAX_SLOTS = 240


def choose_subnet(seed: str, taken: Iterable[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """The first free /24 from the place that `seed` hashes to, so a cluster made again tends to get its old one."""
    busy = list(taken)
    first = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") % _COUNT
    for step in range(_COUNT):
        number = int(_RANGE.network_address) + ((first + step) % _COUNT) * 256
        subnet = ipaddress.IPv4Network((number, 24))
        if not any(subnet.overlaps(other) for other in busy):
            return subnet
    raise Refused(f"no free network is left in {_RANGE}", hint="remove clusters that are not needed: headway ls")


def routed_networks(table: str | None = None) -> list[ipaddress.IPv4Network]:
    """Networks this host has routes to (the default route aside); `table` is /proc/net/route's text."""
    text = Path("/proc/net/route").read_text() if table is None else table
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        destination, mask = (struct.pack("<I", int(fields[place], 16)) for place in (1, 7))
        prefix = bin(int.from_bytes(mask, "big")).count("1")
        if prefix:
            found.append(ipaddress.IPv4Network(f"{socket.inet_ntoa(destination)}/{prefix}", strict=False))
    return found


def addresses(cluster: Cluster, subnet: ipaddress.IPv4Network) -> dict[str, str]:
    """Head and every slot -> address."""
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
    return Placement(
        subnet=str(subnet),
        gateway=str(subnet[1]),
        addresses=addresses(cluster, subnet),
        real_cpus=cpus,
        real_memory_mib=memory_mib,
        real_tmp_mib=tmp_mib,
        gpu_devices=cluster.largest_plan.gpus,
    )


def mac_address(address: str) -> str:
    """A locally administered MAC that belongs to the address, so that a restarted machine keeps its own."""
    return "02:48:" + ":".join(f"{part:02x}" for part in ipaddress.IPv4Address(address).packed)


def set_link(pid: int, *, up: bool) -> None:
    """Pulls the cable of the container whose first process is `pid`, or puts it in: this host's end of it. Inside, addresses
    and routes stay as they are. Raises Refused when there is no such end."""
    try:
        # /sys of a container is that of its network.
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
        raise Refused(f"the machine's network cable can't be found or moved: {error}", hint="does it run?") from error

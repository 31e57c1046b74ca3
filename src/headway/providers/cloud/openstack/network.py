"""Networks at OpenStack: made for a cluster with a router and a security group, or those of the cluster file. And public
addresses, which are floating IPs.

What is made for a cluster is found again by its name, which has the ids of server and cluster: unlike a tag, it is there from
the first moment on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.rented import CloudNetwork, Instance, InstanceClaim, RentedThing
from headway.providers.cloud.openstack.session import COMPUTE, NETWORK, OpenStackSession
from headway.providers.cloud.refusals import Rejected

FREE_S = 60  # until the ports of a machine that was ended have left its network
_RETRY_S = 2.0
_OF_ROUTER_SERVICE = ("routers", "floatingips")  # a cloud with provider networks alone does not have them
_ROUTER_INTERFACES = (  # of routers with one host, with a standby, and on all hosts
    "network:router_interface",
    "network:ha_router_replicated_interface",
    "network:router_interface_distributed",
)
_DESCRIPTION = "headway "  # then server, cluster, machine and try


class OpenStackNetworks:
    """The networks and floating IPs of one region."""

    def __init__(self, session: OpenStackSession, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._session = session
        self._sleep = sleep

    async def zones(self, settings: CloudSettings) -> tuple[str, ...]:
        """Returns the zones of the file, else all that are open."""
        if settings.zones:
            return settings.zones
        rows = (await self._session.get(COMPUTE, "/os-availability-zone"))["availabilityZoneInfo"]
        return tuple(sorted(row["zoneName"] for row in rows if row["zoneState"]["available"]))

    async def find(self, server: str, cluster: str, settings: CloudSettings) -> CloudNetwork | None:
        """Returns the cluster's network, None if a part of it does not exist yet."""
        subnet = await self._subnet(_name(server, cluster), settings)
        group = await self._one("security-groups", "security_groups", _name(server, cluster))
        if subnet is None or group is None:
            return None
        # A network of OpenStack is in all zones.
        place = (subnet["id"], subnet["cidr"])
        return CloudNetwork(dict.fromkeys(await self.zones(settings), place), (group["id"],))

    async def make(
        self, server: str, cluster: str, settings: CloudSettings, ssh_from: Sequence[str], others: Sequence[str]
    ) -> CloudNetwork:
        """Creates what is missing. Idempotent."""
        name = _name(server, cluster)
        if not settings.subnets:
            await self._make_network(name, settings)
        await self._make_group(name, cluster, ssh_from, others)
        found = await self.find(server, cluster, settings)
        if found is None:
            raise Rejected(
                "Network", f"the cloud does not list the network of {cluster} that was just made: apply again"
            )
        return found

    async def remove(self, server: str, cluster: str) -> None:
        """Deletes everything that `make` created."""
        name = _name(server, cluster)
        for router in await self._list("routers", name=name):
            for port in await self._list("ports", device_id=router["id"]):
                for address in port.get("fixed_ips", ()) if port["device_owner"] in _ROUTER_INTERFACES else ():
                    way = f"/routers/{router['id']}/remove_router_interface"
                    await self._session.call("PUT", NETWORK, way, {"subnet_id": address["subnet_id"]}, missing_ok=True)
            await self._delete(f"/routers/{router['id']}")
        for subnet in await self._list("subnets", name=name):
            await self._delete(f"/subnets/{subnet['id']}")
        for network in await self._list("networks", name=name):
            await self._delete(f"/networks/{network['id']}")
        for group in await self._list("security-groups", "security_groups", name=name):
            await self._delete(f"/security-groups/{group['id']}")

    async def network_of(self, subnet: str) -> str:
        """Returns the id of a subnet's network."""
        found = await self._session.find(NETWORK, f"/subnets/{subnet}")
        if found is None:
            raise Rejected("NoSubnet", f"there is no subnet {subnet}")
        return str(found["subnet"]["network_id"])

    # ---- public addresses

    async def add_address(self, instance: Instance, settings: CloudSettings) -> None:
        """Gives an instance a floating IP, unless it has one."""
        ports = await self._list("ports", device_id=instance.id)
        if not ports:
            return  # the instance has no port yet: the next call finds it
        there = await self._list("floatingips", port_id=ports[0]["id"])
        mine = [row for row in await self._described() if row[1] == instance.claim and not row[0].get("port_id")]
        if there:
            return
        if mine:  # made by a call whose answer was lost
            path = f"/floatingips/{mine[0][0]['id']}"
            await self._session.call("PUT", NETWORK, path, {"floatingip": {"port_id": ports[0]["id"]}})
            return
        external = await self._external_network(settings)
        if external is None:
            raise Rejected("NoExternalNetwork", "the cloud has no external network: give public_addresses: false")
        wanted = {
            "floating_network_id": external,
            "port_id": ports[0]["id"],
            "description": _describe(instance.claim),
        }
        await self._session.call("POST", NETWORK, "/floatingips", {"floatingip": wanted})

    async def addresses_of(self, instance: str) -> list[str]:
        """Returns the ids of the floating IPs that Headway gave an instance."""
        ports = {port["id"] for port in await self._list("ports", device_id=instance)}
        return [row["id"] for row, _ in await self._described() if row.get("port_id") in ports]

    async def delete_address(self, address: str) -> None:
        """Gives a floating IP back. Does nothing if it is gone."""
        await self._session.delete(NETWORK, f"/floatingips/{address}")

    async def address_things(self, server: str) -> list[RentedThing]:
        """Returns the floating IPs of a server."""
        return [
            RentedThing(
                row["id"], "address", claim.cluster, claim.machine, 0.0, row["floating_ip_address"], "",
                "in-use" if row.get("port_id") else "available", number=claim.number,
            )
            for row, claim in await self._described()
            if claim.server == server
        ]  # fmt: skip

    async def _described(self) -> list[tuple[Mapping[str, Any], InstanceClaim]]:
        """Returns the floating IPs that Headway made, with the instances they were made for."""
        rows = await self._list("floatingips")
        return [(row, claim) for row in rows if (claim := _read_description(row.get("description") or ""))]

    # ----

    async def _list(self, path: str, key: str = "", **query: str) -> list[dict[str, Any]]:
        missing_ok = path in _OF_ROUTER_SERVICE
        answer = await self._session.call("GET", NETWORK, f"/{path}", query=query, missing_ok=missing_ok)
        return [] if answer is None else list(answer[key or path])

    async def _one(self, path: str, key: str, name: str) -> dict[str, Any] | None:
        return next(iter(await self._list(path, key, name=name)), None)

    async def _create(self, path: str, kind: str, **fields: object) -> dict[str, Any]:
        answer = await self._session.call("POST", NETWORK, f"/{path}", {kind: fields})
        made: dict[str, Any] = answer[kind]
        return made

    async def _subnet(self, name: str, settings: CloudSettings) -> dict[str, Any] | None:
        if not settings.subnets:
            return await self._one("subnets", "subnets", name)
        if len(settings.subnets) > 1:
            raise Rejected("Subnets", "a subnet of OpenStack is in all zones: give one in cloud.subnets")
        found = await self._session.find(NETWORK, f"/subnets/{settings.subnets[0]}")
        if found is None:
            raise Rejected("NoSubnet", f"there is no subnet {settings.subnets[0]}: give its id in cloud.subnets")
        subnet: dict[str, Any] = found["subnet"]
        return subnet

    async def _external_network(self, settings: CloudSettings) -> str | None:
        """Returns the id of the network that public addresses come from; None if the cloud has none."""
        rows = await self._list("networks", **{"router:external": "true"})
        if settings.external_network:
            rows = [row for row in rows if settings.external_network in (row["id"], row["name"])]
            if not rows:
                raise Rejected("NoExternalNetwork", f"there is no external network {settings.external_network}")
        if len(rows) > 1:
            names = ", ".join(sorted(row["name"] for row in rows))
            raise Rejected(
                "ExternalNetworks", f"the cloud has the external networks {names}: give cloud.external_network"
            )
        return str(rows[0]["id"]) if rows else None

    async def _make_network(self, name: str, settings: CloudSettings) -> None:
        """Makes a network with a subnet, and a router, by which machines install packages."""
        network = await self._one("networks", "networks", name) or await self._create("networks", "network", name=name)
        subnet = await self._one("subnets", "subnets", name) or await self._create(
            "subnets", "subnet", name=name, network_id=network["id"], ip_version=4, cidr=settings.network
        )
        external = await self._external_network(settings)
        if external is None:
            if settings.public_addresses:
                raise Rejected("NoExternalNetwork", "the cloud has no external network: give public_addresses: false")
            return
        gateway = {"network_id": external}
        router = await self._one("routers", "routers", name) or await self._create(
            "routers", "router", name=name, external_gateway_info=gateway
        )
        ports = await self._list("ports", device_id=router["id"])
        if not any(ip["subnet_id"] == subnet["id"] for port in ports for ip in port.get("fixed_ips", ())):
            way = f"/routers/{router['id']}/add_router_interface"
            await self._session.call("PUT", NETWORK, way, {"subnet_id": subnet["id"]})

    async def _make_group(self, name: str, cluster: str, ssh_from: Sequence[str], others: Sequence[str]) -> None:
        """Makes a security group that lets in exactly the cluster's own machines, `others`, and SSH from `ssh_from`."""
        group = await self._one("security-groups", "security_groups", name) or await self._create(
            "security-groups", "security_group", name=name, description=f"Machines of the Headway cluster {cluster}"
        )
        among: tuple[str | None, ...] = (None, None, group["id"])
        wanted = {among, *(("tcp", network, None) for network in ssh_from or ("0.0.0.0/0",))}
        wanted |= {(None, f"{address}/32", None) for address in others}
        there = {}
        for rule in group.get("security_group_rules", ()):
            if rule["direction"] == "ingress" and rule["ethertype"] == "IPv4":
                there[rule["protocol"], rule["remote_ip_prefix"], rule["remote_group_id"]] = rule["id"]
        for protocol, network, members in sorted(wanted - set(there), key=str):
            ports = {"port_range_min": 22, "port_range_max": 22} if protocol else {}
            try:
                await self._create(
                    "security-group-rules", "security_group_rule", security_group_id=group["id"], direction="ingress",
                    ethertype="IPv4", protocol=protocol, remote_ip_prefix=network, remote_group_id=members, **ports,
                )  # fmt: skip
            except Rejected as error:
                if not error.code.endswith("409"):  # 409: another call has made it
                    raise
        for key in set(there) - wanted:
            await self._session.delete(NETWORK, f"/security-group-rules/{there[key]}")

    async def _delete(self, path: str) -> None:
        """Deletes something of a network, for which the last ports must have left it."""
        for tries_left in reversed(range(int(FREE_S / _RETRY_S))):
            try:
                await self._session.delete(NETWORK, path)
            except Rejected as error:
                if not tries_left or not error.code.endswith("409"):
                    raise
                await self._sleep(_RETRY_S)
            else:
                return


def _name(server: str, cluster: str) -> str:
    return f"headway-{cluster}-{server}"


def _describe(claim: InstanceClaim) -> str:
    return f"{_DESCRIPTION}{claim.server} {claim.cluster} {claim.machine} {claim.number}"


def _read_description(text: str) -> InstanceClaim | None:
    parts = text.removeprefix(_DESCRIPTION).split(" ")
    if not text.startswith(_DESCRIPTION) or len(parts) != 4 or not parts[3].isdigit():
        return None
    return InstanceClaim(parts[0], parts[1], parts[2], int(parts[3]))

"""A cluster's network at AWS: a VPC with a subnet in each zone, or the subnets that the cluster file names; and a security
group that lets in SSH, and everything between its machines."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.rented import CloudNetwork
from headway.errors import HeadwayError
from headway.providers.cloud.aws.clients import AwsClients
from headway.providers.cloud.aws.tags import filters, specifications, tag_list
from headway.providers.cloud.machine_labels import CLUSTER, SERVER
from headway.providers.cloud.refusals import Rejected

SUBNET_BITS = 4  # a network is divided into up to 16 subnets, one a zone
_GONE = frozenset(("InvalidVpcID.NotFound", "InvalidSubnetID.NotFound", "InvalidGroup.NotFound", "InvalidGroupId.Malformed",
                   "InvalidInternetGatewayID.NotFound", "Gateway.NotAttached"))  # fmt: skip


class AwsNetworks:
    """Finds, makes and removes the networks of clusters."""

    def __init__(self, clients: AwsClients) -> None:
        self._aws = clients

    async def find(self, server: str, cluster: str, settings: CloudSettings) -> CloudNetwork | None:
        """Returns the network, None if a part of it does not exist yet."""
        subnets = await self._subnets(server, cluster, settings)
        groups = await self._groups(server, cluster)
        zones = [] if settings.subnets else await self.zones(settings)
        if not subnets or not groups or any(zone not in subnets for zone in zones):
            return None
        return CloudNetwork(subnets, tuple(group["GroupId"] for group in groups))

    async def make(
        self, server: str, cluster: str, settings: CloudSettings, ssh_from: Sequence[str], others: Sequence[str]
    ) -> CloudNetwork:
        """Creates what is missing of the network, and returns it."""
        tags = {"Name": f"headway-{cluster}", SERVER: server, CLUSTER: cluster}
        vpc = await self._vpc_of(settings) if settings.subnets else await self._make_vpc(tags, settings)
        if not settings.subnets:
            await self._make_subnets(vpc, tags, settings)
            await self._make_gateway(vpc, tags)
        await self._make_group(vpc, tags, ssh_from, others)
        found = await self.find(server, cluster, settings)
        if found is None:
            raise Rejected("Network", f"AWS does not show the network of {cluster} that was just made: run apply again")
        return found

    async def remove(self, server: str, cluster: str) -> None:
        """Deletes everything that `make` created."""
        mine = filters(server, cluster)
        for group in await self._groups(server, cluster):
            await self._delete("delete_security_group", GroupId=group["GroupId"])
        for subnet in await self._aws.pages("describe_subnets", "Subnets", Filters=mine):
            await self._delete("delete_subnet", SubnetId=subnet["SubnetId"])
        for gateway in await self._aws.pages("describe_internet_gateways", "InternetGateways", Filters=mine):
            for attached in gateway.get("Attachments", []):
                place = {"InternetGatewayId": gateway["InternetGatewayId"], "VpcId": attached["VpcId"]}
                await self._delete("detach_internet_gateway", **place)
            await self._delete("delete_internet_gateway", InternetGatewayId=gateway["InternetGatewayId"])
        for vpc in await self._aws.pages("describe_vpcs", "Vpcs", Filters=mine):
            await self._delete("delete_vpc", VpcId=vpc["VpcId"])

    async def zones(self, settings: CloudSettings) -> list[str]:
        """Returns the zones of the cluster file's subnets, else those of the file, else all of the region that are
        open."""
        if settings.subnets:
            return list(await self._subnets("", "", settings))
        if settings.zones:
            return list(settings.zones)
        wanted = [{"Name": "state", "Values": ["available"]}, {"Name": "zone-type", "Values": ["availability-zone"]}]
        answer = await self._aws.call("describe_availability_zones", Filters=wanted)
        return sorted(zone["ZoneName"] for zone in answer["AvailabilityZones"])[: 1 << SUBNET_BITS]

    async def _subnets(self, server: str, cluster: str, settings: CloudSettings) -> dict[str, tuple[str, str]]:
        if settings.subnets:
            rows = await self._aws.pages("describe_subnets", "Subnets", SubnetIds=list(settings.subnets))
            order = {name: index for index, name in enumerate(settings.subnets)}
            rows.sort(key=lambda row: order[row["SubnetId"]])
        else:
            rows = await self._aws.pages("describe_subnets", "Subnets", Filters=filters(server, cluster))
        found: dict[str, tuple[str, str]] = {}
        for row in rows:
            found.setdefault(row["AvailabilityZone"], (row["SubnetId"], row["CidrBlock"]))
        return found

    async def _groups(self, server: str, cluster: str) -> list[dict[str, Any]]:
        return await self._aws.pages("describe_security_groups", "SecurityGroups", Filters=filters(server, cluster))

    async def _vpc_of(self, settings: CloudSettings) -> str:
        rows = await self._aws.pages("describe_subnets", "Subnets", SubnetIds=list(settings.subnets))
        vpcs = {row["VpcId"] for row in rows}
        if len(vpcs) != 1:
            raise Rejected("Subnets", f"the subnets {', '.join(settings.subnets)} are in {len(vpcs)} VPCs, not in one")
        return str(vpcs.pop())

    async def _make_vpc(self, tags: Mapping[str, str], settings: CloudSettings) -> str:
        mine = filters(tags[SERVER], tags[CLUSTER])
        for vpc in await self._aws.pages("describe_vpcs", "Vpcs", Filters=mine):
            return str(vpc["VpcId"])
        named = specifications(tag_list(tags), "vpc")
        answer = await self._aws.call("create_vpc", CidrBlock=settings.network, TagSpecifications=named)
        return str(answer["Vpc"]["VpcId"])

    async def _make_subnets(self, vpc: str, tags: Mapping[str, str], settings: CloudSettings) -> None:
        there = await self._subnets(tags[SERVER], tags[CLUSTER], settings)
        taken = {network for _, network in there.values()}
        whole = ipaddress.IPv4Network(settings.network)
        free = (str(part) for part in whole.subnets(prefixlen_diff=SUBNET_BITS) if str(part) not in taken)
        for zone in await self.zones(settings):
            if zone not in there:
                await self._aws.call(
                    "create_subnet",
                    VpcId=vpc,
                    CidrBlock=next(free),
                    AvailabilityZone=zone,
                    TagSpecifications=specifications(tag_list(tags), "subnet"),
                )

    async def _make_gateway(self, vpc: str, tags: Mapping[str, str]) -> None:
        """Gives the VPC a way to the internet, from which machines install packages."""
        mine = filters(tags[SERVER], tags[CLUSTER])
        gateways = await self._aws.pages("describe_internet_gateways", "InternetGateways", Filters=mine)
        if not gateways:
            named = specifications(tag_list(tags), "internet-gateway")
            answer = await self._aws.call("create_internet_gateway", TagSpecifications=named)
            gateways = [answer["InternetGateway"]]
        gateway = gateways[0]["InternetGatewayId"]
        if not gateways[0].get("Attachments"):
            await self._aws.call("attach_internet_gateway", InternetGatewayId=gateway, VpcId=vpc)
        main = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "association.main", "Values": ["true"]}]
        for table in await self._aws.pages("describe_route_tables", "RouteTables", Filters=main):
            if not any(route.get("GatewayId") == gateway for route in table["Routes"]):
                place = {"RouteTableId": table["RouteTableId"], "GatewayId": gateway}
                await self._aws.call("create_route", DestinationCidrBlock="0.0.0.0/0", **place)

    async def _make_group(
        self, vpc: str, tags: Mapping[str, str], ssh_from: Sequence[str], others: Sequence[str]
    ) -> None:
        groups = await self._groups(tags[SERVER], tags[CLUSTER])
        if groups:
            group, rules = groups[0]["GroupId"], groups[0]["IpPermissions"]
        else:
            answer = await self._aws.call(
                "create_security_group",
                GroupName=f"headway-{tags[CLUSTER]}-{tags[SERVER]}",
                Description=f"Machines of the Headway cluster {tags[CLUSTER]}",
                VpcId=vpc,
                TagSpecifications=specifications(tag_list(tags), "security-group"),
            )
            group, rules = answer["GroupId"], []
        if not any(pair["GroupId"] == group for rule in rules for pair in rule.get("UserIdGroupPairs", [])):
            among = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
            await self._aws.call("authorize_security_group_ingress", GroupId=group, IpPermissions=[among])
        ssh = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
        await self._let_in(group, ssh, rules, ssh_from or ("0.0.0.0/0",))
        await self._let_in(group, {"IpProtocol": "-1"}, rules, [f"{address}/32" for address in others])

    async def _let_in(
        self, group: str, what: Mapping[str, object], rules: Sequence[Mapping[str, Any]], networks: Sequence[str]
    ) -> None:
        """Lets exactly these networks reach the machines of a security group by this protocol. `rules`: those of now."""
        same = [rule for rule in rules if all(rule.get(key) == value for key, value in what.items())]
        known, wanted = {ip["CidrIp"] for rule in same for ip in rule.get("IpRanges", [])}, set(networks)
        for do, some in (("authorize", wanted - known), ("revoke", known - wanted)):
            if some:
                rule = {**what, "IpRanges": [{"CidrIp": network} for network in sorted(some)]}
                await self._aws.call(f"{do}_security_group_ingress", GroupId=group, IpPermissions=[rule])

    async def _delete(self, operation: str, **what: str) -> None:
        try:
            await self._aws.call(operation, **what)
        except HeadwayError as error:
            if getattr(error, "code", "") not in _GONE:
                raise

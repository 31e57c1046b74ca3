"""AwsCloud: CloudApi by EC2."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.offer import Offer, PurchaseOption
from headway.domain.machines.rented import CloudNetwork, Instance, InstanceState, Quota, RentedThing
from headway.providers.base import ReclaimNotice
from headway.providers.cloud.api import LaunchOrder
from headway.providers.cloud.aws import prices
from headway.providers.cloud.aws.clients import AwsClients
from headway.providers.cloud.aws.network import AwsNetworks
from headway.providers.cloud.aws.tags import filters, read_tags, specifications, tags_of
from headway.providers.cloud.machine_labels import read_claim, read_price
from headway.providers.cloud.refusals import CloudRefusal, NoCapacity, QuotaExceeded, Rejected

DEBIAN_OWNER = "136693071363"  # the account of Debian's cloud team
RECLAIM_S = 120.0  # EC2 announces the interruption of a spot machine two minutes before
_STATES = {
    "pending": InstanceState.STARTING,
    "running": InstanceState.RUNNING,
    "stopping": InstanceState.STOPPING,
    "stopped": InstanceState.STOPPED,
    "shutting-down": InstanceState.ENDING,
    "terminated": InstanceState.ENDED,
}
_ENDED_FOR_LACK = "Server.InsufficientInstanceCapacity"
_TAKEN_BACK = "Server.SpotInstance"  # EC2's codes: ...Termination, ...Shutdown
_PAID_FOR = (InstanceState.STARTING, InstanceState.RUNNING)
_REASON_TIME = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
_GONE = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")
_TYPES_AT_ONCE = 100
LONGEST_TAG = 256  # characters of a tag's value


@dataclass(frozen=True, slots=True)
class _VcpuQuota:
    """A quota of vCPUs for families of instance types: (name, code in Service Quotas) on demand and for spot."""

    families: tuple[str, ...]
    on_demand: tuple[str, str]
    spot: tuple[str, str]


_QUOTAS = (
    _VcpuQuota(
        ("p",),
        ("Running On-Demand P instances", "L-417A185B"),
        ("All P4, P3 and P2 Spot Instance Requests", "L-7212CCBC"),
    ),
    _VcpuQuota(
        ("g", "vt"),
        ("Running On-Demand G and VT instances", "L-DB2E81BA"),
        ("All G and VT Spot Instance Requests", "L-3819A6DF"),
    ),
    _VcpuQuota(
        ("a", "c", "d", "h", "i", "m", "r", "t", "z"),
        ("Running On-Demand Standard instances", "L-1216C47A"),
        ("All Standard Spot Instance Requests", "L-34B43A08"),
    ),
)


class AwsCloud:
    """One region of EC2. Implements providers.cloud.api.CloudApi."""

    def __init__(self, region: str) -> None:
        self._aws = AwsClients(region)
        self._networks = AwsNetworks(self._aws)
        self._root_devices: dict[str, str] = {}  # image -> device of its system

    async def zones(self, settings: CloudSettings) -> tuple[str, ...]:
        return tuple(await self._networks.zones(settings))

    async def offers(self, types: Sequence[str], zones: Sequence[str], purchase: PurchaseOption) -> tuple[Offer, ...]:
        hardware = await self._hardware(types)
        wanted = [{"Name": "instance-type", "Values": list(types)}]
        rows = await self._aws.pages(
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=wanted,
        )
        sold = sorted((row["Location"], row["InstanceType"]) for row in rows)
        spot = await prices.spot_prices(self._aws, types) if purchase is PurchaseOption.SPOT else {}
        found = []
        for name in types:
            if name not in hardware:
                continue
            base = replace(hardware[name], purchase=purchase)
            if purchase is not PurchaseOption.SPOT:
                base = await self._with_price(base)
            for zone in zones:
                if (zone, name) in sold:
                    usd = spot.get((name, zone), base.price_usd_per_node_hour)
                    found.append(replace(base, zone=zone, price_usd_per_node_hour=usd))
        return tuple(found)

    async def _with_price(self, offer: Offer) -> Offer:
        """Returns the offer with the price of Amazon's list, else with that of the package's offers."""
        listed = await prices.on_demand_price(self._aws, offer.instance_type)
        if listed is not None:
            return replace(offer, price_usd_per_node_hour=listed[0], as_of=listed[1])
        known = prices.shipped_price(offer.instance_type, self._aws.region)
        if known is None:
            return offer
        usd = known.price_usd_per_node_hour
        return replace(offer, price_usd_per_node_hour=usd, as_of=known.as_of, source=known.source, note=known.note)

    async def _hardware(self, types: Sequence[str]) -> dict[str, Offer]:
        """Returns the offer of each type that exists, without zone and price."""
        rows = []
        for at in range(0, len(types), _TYPES_AT_ONCE):
            some = list(types[at : at + _TYPES_AT_ONCE])
            # A filter, unlike InstanceTypes, ignores types that the region does not have.
            kinds = [{"Name": "instance-type", "Values": some}]
            rows += await self._aws.pages("describe_instance_types", "InstanceTypes", Filters=kinds)
        return {row["InstanceType"]: self._offer(row) for row in rows}

    def _offer(self, row: Mapping[str, Any]) -> Offer:
        gpus = [gpu for gpu in (row.get("GpuInfo") or {}).get("Gpus", []) if gpu["Manufacturer"] == "NVIDIA"]
        return Offer(
            cloud=prices.CLOUD,
            instance_type=row["InstanceType"],
            gpu_type=gpus[0]["Name"].lower().replace(" ", "_") if gpus else "",
            gpus=sum(gpu["Count"] for gpu in gpus),
            price_usd_per_node_hour=Decimal(0),
            source=prices.PRICE_LIST,
            as_of=_today(),
            region=self._aws.region,
            gpu_memory_mib=gpus[0]["MemoryInfo"]["SizeInMiB"] if gpus else 0,
            cpus=row["VCpuInfo"]["DefaultVCpus"],
            memory_mib=row["MemoryInfo"]["SizeInMiB"],
        )

    async def quota(self, offer: Offer) -> Quota | None:
        spot = offer.purchase is PurchaseOption.SPOT
        letters = _family(offer.instance_type)
        row = next((row for row in _QUOTAS if letters in row.families), None)
        if row is None:
            return None
        name, code = row.spot if spot else row.on_demand
        try:
            answer = await self._aws.call("get_service_quota", "service-quotas", ServiceCode="ec2", QuotaCode=code)
        except CloudRefusal:  # the right to read quotas is not needed to rent
            return None
        running = await self._aws.pages(
            "describe_instances",
            "Reservations",
            Filters=[{"Name": "instance-state-name", "Values": ["pending", "running", "stopping"]}],
        )
        same = [
            item
            for reservation in running
            for item in reservation["Instances"]
            if _family(item["InstanceType"]) in row.families and (item.get("InstanceLifecycle") == "spot") is spot
        ]
        return Quota(name, float(answer["Quota"]["Value"]), float(await self._vcpus(same)))

    async def _vcpus(self, items: Sequence[Mapping[str, Any]]) -> int:
        hardware = await self._hardware(sorted({item["InstanceType"] for item in items})) if items else {}
        return sum(hardware[item["InstanceType"]].cpus for item in items if item["InstanceType"] in hardware)

    async def find_image(self, debian: str) -> str:
        wanted = [
            {"Name": "name", "Values": [f"debian-{debian}-amd64-*"]},
            {"Name": "state", "Values": ["available"]},
            {"Name": "architecture", "Values": ["x86_64"]},
        ]
        rows = await self._aws.pages("describe_images", "Images", Owners=[DEBIAN_OWNER], Filters=wanted)
        if not rows:
            raise Rejected("NoImage", f"{self._aws.region} has no official image of Debian {debian}: give cloud.image")
        return str(max(rows, key=lambda row: row["CreationDate"])["ImageId"])

    async def find_network(self, server: str, cluster: str, settings: CloudSettings) -> CloudNetwork | None:
        return await self._networks.find(server, cluster, settings)

    async def make_network(
        self, server: str, cluster: str, settings: CloudSettings, ssh_from: Sequence[str], others: Sequence[str] = ()
    ) -> CloudNetwork:
        return await self._networks.make(server, cluster, settings, ssh_from, others)

    async def remove_network(self, server: str, cluster: str) -> None:
        await self._networks.remove(server, cluster)

    async def launch(self, order: LaunchOrder) -> tuple[Instance, ...]:
        offer, named, count = order.offer, tags_of(order), len(order.claims)
        if len(order.machines) > LONGEST_TAG:
            raise Rejected("TagTooLong", f"{count} machines with such different names can't be launched together")
        interface: dict[str, Any] = {
            "DeviceIndex": 0,
            "SubnetId": order.subnet,
            "Groups": list(order.groups),
            "AssociatePublicIpAddress": order.public_address,
            "DeleteOnTermination": True,
        }
        if order.address:
            interface["PrivateIpAddress"] = order.address
        disk = {"VolumeSize": order.disk_gib, "VolumeType": "gp3", "DeleteOnTermination": True, "Encrypted": True}
        more: dict[str, Any] = {}
        if offer.purchase is PurchaseOption.SPOT:
            more["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}
        try:
            answer = await self._aws.call(
                "run_instances",
                ImageId=order.image,
                InstanceType=offer.instance_type,
                MinCount=count,  # all or none
                MaxCount=count,
                ClientToken=order.token,
                UserData=order.user_data,
                NetworkInterfaces=[interface],
                BlockDeviceMappings=[{"DeviceName": await self._root_device(order.image), "Ebs": disk}],
                InstanceInitiatedShutdownBehavior="terminate" if order.ends_when_off else "stop",
                # The user data must not be readable through a proxy or from a container with a network of its own.
                MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
                TagSpecifications=specifications(named, "instance", "volume", "network-interface"),
                **more,
            )
        except NoCapacity as error:
            spot = offer.purchase is PurchaseOption.SPOT
            raise NoCapacity(offer.instance_type, offer.zone, spot=spot) from error
        except QuotaExceeded as error:
            raise QuotaExceeded(f"{error.name} for {offer.instance_type}", error.have, offer.cpus * count) from error
        rows = sorted(answer["Instances"], key=lambda row: int(row.get("AmiLaunchIndex", 0)))
        return tuple(_instance(row) for row in rows)

    async def _root_device(self, image: str) -> str:
        if image not in self._root_devices:
            rows = (await self._aws.call("describe_images", ImageIds=[image]))["Images"]
            if not rows:
                raise Rejected("InvalidAMIID.NotFound", f"there is no image {image} in {self._aws.region}")
            self._root_devices[image] = rows[0].get("RootDeviceName") or "/dev/xvda"
        return self._root_devices[image]

    async def add_public_address(self, instance: Instance) -> None:
        """Does nothing: EC2 gives an address at the launch."""

    async def instances(self, server: str, cluster: str = "") -> tuple[Instance, ...]:
        rows = await self._aws.pages("describe_instances", "Reservations", Filters=filters(server, cluster))
        return tuple(_instance(item) for row in rows for item in row["Instances"])

    async def describe(self, instance: str) -> Instance | None:
        try:
            answer = await self._aws.call("describe_instances", InstanceIds=[instance])
        except Rejected as error:
            if error.code in _GONE:
                return None
            raise
        return next((_instance(item) for row in answer["Reservations"] for item in row["Instances"]), None)

    async def console(self, instance: str) -> str:
        answer = await self._aws.call("get_console_output", InstanceId=instance)
        return str(answer.get("Output") or "")  # boto3 has decoded it

    async def terminate(self, instances: Sequence[str]) -> None:
        for one in instances:  # one unknown id would refuse a request with several
            with _ignoring(_GONE):
                await self._aws.call("terminate_instances", InstanceIds=[one])

    async def start(self, instance: str) -> None:
        await self._aws.call("start_instances", InstanceIds=[instance])

    async def stop(self, instance: str, *, at_once: bool) -> None:
        await self._aws.call("stop_instances", InstanceIds=[instance], Force=at_once)

    async def costly_things(self, server: str) -> tuple[RentedThing, ...]:
        instances = await self.instances(server)
        claims = {one.id: one.claim for one in instances}
        things = [
            RentedThing(
                one.id,
                "instance",
                one.claim.cluster,
                one.claim.machine,
                one.launched_at,
                one.instance_type,
                one.zone,
                one.state.value,
                one.usd_per_hour or None,
                number=one.claim.number,
            )
            for one in instances
            if one.state is not InstanceState.ENDED
        ]
        mine = filters(server)
        for row in await self._aws.pages("describe_volumes", "Volumes", Filters=mine):
            used_by = next((one["InstanceId"] for one in row.get("Attachments", [])), "")
            claim = claims.get(used_by) or read_claim(read_tags(row.get("Tags", [])))
            since = row["CreateTime"].timestamp()
            owner, size, zone = (claim.cluster, claim.machine), f"{row['Size']} GiB", row["AvailabilityZone"]
            things.append(
                RentedThing(row["VolumeId"], "volume", *owner, since, size, zone, row["State"], number=claim.number)
            )
        for row in (await self._aws.call("describe_addresses", Filters=mine))["Addresses"]:
            claim = read_claim(read_tags(row.get("Tags", [])))
            owner, state = (claim.cluster, claim.machine), "in-use" if row.get("AssociationId") else "available"
            things.append(
                RentedThing(
                    row["AllocationId"], "address", *owner, 0.0, row["PublicIp"], "", state, number=claim.number
                )
            )
        return tuple(things)

    async def delete_things(self, things: Sequence[RentedThing]) -> None:
        for thing in things:
            if thing.kind == "volume":
                with _ignoring(("InvalidVolume.NotFound",)):
                    await self._aws.call("delete_volume", VolumeId=thing.id)
            elif thing.kind == "address":
                with _ignoring(("InvalidAllocationID.NotFound",)):
                    await self._aws.call("release_address", AllocationId=thing.id)

    async def notices(self, instances: Sequence[Instance]) -> tuple[ReclaimNotice, ...]:
        spot = {one.id: one for one in instances if one.purchase is PurchaseOption.SPOT and one.exists}
        if not spot:
            return ()
        rows = await self._aws.pages(
            "describe_spot_instance_requests",
            "SpotInstanceRequests",
            Filters=[{"Name": "instance-id", "Values": list(spot)}],
        )
        return tuple(
            ReclaimNotice(spot[row["InstanceId"]].claim.machine, row["Status"]["UpdateTime"].timestamp() + RECLAIM_S)
            for row in rows
            if row.get("InstanceId") in spot and row.get("Status", {}).get("Code") == "marked-for-termination"
        )


@contextlib.contextmanager
def _ignoring(codes: Iterable[str]) -> Any:
    try:
        yield
    except Rejected as error:
        if error.code not in codes:
            raise


def _family(instance_type: str) -> str:
    """Returns the letters of a type's family: "p" of p5.48xlarge, "vt" of vt1.3xlarge."""
    name = instance_type.partition(".")[0]
    return name[: next((at for at, letter in enumerate(name) if letter.isdigit()), len(name))]


def _instance(row: Mapping[str, Any]) -> Instance:
    reason = row.get("StateReason") or {}
    launched, tags = row.get("LaunchTime"), read_tags(row.get("Tags", []))
    state = _STATES[row["State"]["Name"]]
    ended_at = 0.0 if state in _PAID_FOR else _time_of(row.get("StateTransitionReason", ""))
    return Instance(
        id=row["InstanceId"],
        state=state,
        claim=read_claim(tags, row.get("AmiLaunchIndex", 0)),
        instance_type=row["InstanceType"],
        zone=row.get("Placement", {}).get("AvailabilityZone", ""),
        purchase=PurchaseOption.SPOT if row.get("InstanceLifecycle") == "spot" else PurchaseOption.ON_DEMAND,
        private_address=row.get("PrivateIpAddress", ""),
        public_address=row.get("PublicIpAddress", ""),
        launched_at=launched.timestamp() if launched else 0.0,
        why=": ".join(filter(None, (reason.get("Code"), reason.get("Message")))) if reason else "",
        ended_at=ended_at,
        usd_per_hour=read_price(tags),
        taken_back=str(reason.get("Code", "")).startswith(_TAKEN_BACK),
        lacked_capacity=reason.get("Code") == _ENDED_FOR_LACK,
    )


def _time_of(reason: str) -> float:
    """Returns the time in a reason such as "User initiated (2026-11-27 10:00:00 GMT)", unix seconds; 0 if there is none."""
    found = _REASON_TIME.search(reason)
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp() if found else 0.0


def _today() -> date:
    return datetime.now(UTC).date()

"""Renting a machine for one slot: the offers in their order, each try written down before its launch."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from decimal import Decimal

from headway.domain.cluster import Cluster
from headway.domain.machines.machine import MachineRequest
from headway.domain.machines.offer import Offer
from headway.domain.machines.rented import CloudNetwork, CloudSettings, Instance, InstanceClaim, InstanceState
from headway.domain.operation_progress import ReportProgress
from headway.errors import Conflict, Unreachable
from headway.providers.cloud.api import CloudApi, LaunchOrder
from headway.providers.cloud.refusals import TRY_ELSEWHERE, CloudRefusal, NoCapacity, Rejected
from headway.providers.cloud.rental_records import RentalRecord, RentalRecords, RentalTry
from headway.providers.cloud.user_data import user_data

READY_S = 300.0  # until an instance runs and has an address
POLL_S = 1.0
_FIRST_ADDRESS = 16  # clouds and gateways keep the first addresses of a subnet
_OTHER_PARAMETERS, _ADDRESS_TAKEN = "IdempotentParameterMismatch", "InvalidIPAddress.InUse"
_ENDED_FOR_LACK = "InsufficientInstanceCapacity"


class Renting:
    """Rents machines from one cloud."""

    def __init__(
        self,
        api: CloudApi,
        records: RentalRecords,
        settings: CloudSettings,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._api = api
        self._records = records
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._lock = asyncio.Lock()  # from the look at what is rented until the next try is written down

    async def rent(
        self,
        server: str,
        cluster: Cluster,
        request: MachineRequest,
        offers: Sequence[Offer],
        network: CloudNetwork,
        image: str,
        report: ReportProgress,
    ) -> tuple[RentalTry, Instance]:
        """Returns the try that has a running machine, and its instance. Raises CloudRefusal if no offer can be had,
        Conflict if it would cost more than the cluster file allows, Unreachable, and Unanswered: the next call continues
        with the same try."""
        name = request.name
        made = self._records.read(cluster.name).tries.get(name)
        if made is not None and not made.ended:
            found = await self._go_on(server, cluster, made, request, offers, network, report)
            if found is not None:
                return found
        refusals: list[CloudRefusal] = []
        for offer in offers:
            if offer.zone not in network.subnets:
                continue
            address = self._planned_address(cluster, name, network.subnets[offer.zone][1])
            while True:
                made = await self._begin(cluster, request, offer, network, image, address)
                try:
                    return await self._launch(server, cluster, made, request, offer, network, report)
                except TRY_ELSEWHERE as error:
                    await self._end(cluster, name, made)
                    await report(name, f"{error.message}: the next offer is tried", level="warning")
                    refusals.append(error)
                except Rejected as error:
                    await self._end(cluster, name, made)
                    if error.code == _ADDRESS_TAKEN and address:
                        address = ""  # the cloud chooses one
                        continue
                    raise
                except CloudRefusal:
                    await self._end(cluster, name, made)
                    raise
                break
        raise _none_left(name, refusals)

    async def _go_on(
        self,
        server: str,
        cluster: Cluster,
        made: RentalTry,
        request: MachineRequest,
        offers: Sequence[Offer],
        network: CloudNetwork,
        report: ReportProgress,
    ) -> tuple[RentalTry, Instance] | None:
        """Continues a try that an earlier run began. Returns None if its instance is gone: another try follows."""
        name, claim = request.name, InstanceClaim(server, cluster.name, request.name, made.number)
        instances = await self._api.instances(server, cluster.name)
        mine = next((one for one in instances if one.id == made.instance or one.claim == claim), None)
        if mine is None and made.instance:
            mine = await self._api.describe(made.instance)
        if mine is not None and not mine.exists:
            await report(name, f"its instance {mine.id} has ended: {mine.why or 'no reason is given'}", level="warning")
            await self._wait_until_gone(mine)
            await self._end(cluster, name, made)
            return None
        if mine is not None:
            return await self._running(cluster, name, made, mine)
        if not made.user_data:  # it was in use and the cloud has forgotten it
            await self._end(cluster, name, made)
            return None
        base = offers[0]
        offer = replace(base, instance_type=made.instance_type, zone=made.zone, purchase=made.purchase)
        try:
            return await self._launch(server, cluster, made, request, offer, network, report)
        except CloudRefusal as error:
            await self._end(cluster, name, made)
            if isinstance(error, TRY_ELSEWHERE) or getattr(error, "code", "") == _OTHER_PARAMETERS:
                await report(name, f"{error.message}: another try follows", level="warning")
                return None
            raise

    async def _begin(
        self,
        cluster: Cluster,
        request: MachineRequest,
        offer: Offer,
        network: CloudNetwork,
        image: str,
        address: str,
    ) -> RentalTry:
        """Writes a new try down and returns it. Raises Conflict if it would cost too much."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        text = user_data(
            host_key=private,
            host_key_public=public,
            authorized_key=request.authorized_key,
            lease_s=self._settings.lease_s,
            head=request.head,
        )
        name = request.name
        usd = offer.price_usd_per_node_hour or _listed_price(cluster, name)
        async with self._lock:
            record = self._records.read(cluster.name)
            _check_cost(cluster, name, offer, usd, record)
            before = record.tries.get(name)
            made = RentalTry(
                number=before.number + 1 if before else 1,
                instance_type=offer.instance_type,
                zone=offer.zone,
                purchase=offer.purchase,
                usd_per_hour=usd,
                begun_at=self._clock(),
                image=image,
                subnet=network.subnets[offer.zone][0],
                address=address,
                user_data=text,
                host_key=public,
            )
            await asyncio.to_thread(self._records.set_try, cluster.name, name, made)
        return made

    async def _launch(
        self,
        server: str,
        cluster: Cluster,
        made: RentalTry,
        request: MachineRequest,
        offer: Offer,
        network: CloudNetwork,
        report: ReportProgress,
    ) -> tuple[RentalTry, Instance]:
        name = request.name
        order = LaunchOrder(
            claim=InstanceClaim(server, cluster.name, name, made.number),
            offer=offer,
            image=made.image,
            user_data=made.user_data,
            subnet=made.subnet,
            groups=network.groups,
            address=made.address,
            public_address=self._settings.public_addresses,
            disk_gib=self._settings.disk_gib,
            ends_when_off=not request.head,
        )
        instance = await self._api.launch(order)
        usd = f", {made.usd_per_hour:.2f} USD an hour" if made.usd_per_hour else ", at a price that is not known"
        bought = f"{made.instance_type} in {made.zone}, {made.purchase}{usd}"
        await report(name, f"rented: {instance.id}, {bought}")
        return await self._running(cluster, name, made, instance)

    async def _running(
        self, cluster: Cluster, name: str, made: RentalTry, instance: Instance
    ) -> tuple[RentalTry, Instance]:
        """Waits until the instance runs and has an address, and notes both. Raises NoCapacity if the cloud ended it for
        lack of capacity, and Unreachable."""
        ends = self._clock() + READY_S
        made = await self._note(cluster, name, made, instance=instance.id)
        while not (instance.state is InstanceState.RUNNING and self._reachable(instance)):
            if not instance.exists and _ENDED_FOR_LACK in instance.why:
                raise NoCapacity(made.instance_type, made.zone, instance.why)
            if not instance.exists:
                raise Unreachable(
                    f"{name}: instance {instance.id} ended before it ran: {instance.why}",
                    hint="headway apply tries again",
                )
            if self._clock() >= ends:
                raise Unreachable(
                    f"{name}: instance {instance.id} does not run after {READY_S:.0f} s: it is {instance.state}",
                    hint="see its system log at the cloud; end it there, then headway apply rents another one",
                )
            if instance.state is InstanceState.STOPPED:
                await self._api.start(instance.id)
            await self._sleep(POLL_S)
            instance = await self._api.describe(instance.id) or instance  # the cloud may not know it yet
        return await self._note(cluster, name, made, address=instance.private_address), instance

    async def _wait_until_gone(self, instance: Instance) -> None:
        """Waits until an instance that ends has left its address, which the next one gets; READY_S at most."""
        ends = self._clock() + READY_S
        now: Instance | None = instance
        while now is not None and now.state is InstanceState.ENDING and self._clock() < ends:
            await self._sleep(POLL_S)
            now = await self._api.describe(instance.id)

    def _reachable(self, instance: Instance) -> bool:
        return bool(instance.public_address if self._settings.public_addresses else instance.private_address)

    async def _note(self, cluster: Cluster, name: str, made: RentalTry, **fields: str) -> RentalTry:
        noted = await asyncio.to_thread(self._records.update_try, cluster.name, name, made.number, **fields)
        return noted or made

    async def _end(self, cluster: Cluster, name: str, made: RentalTry) -> None:
        fields = {"ended": True, "claimed": False, "user_data": ""}
        await asyncio.to_thread(self._records.update_try, cluster.name, name, made.number, **fields)

    def _planned_address(self, cluster: Cluster, name: str, network: str) -> str:
        """Returns the address of a slot in a subnet: always the same, so that a machine that replaces another one in
        the same zone has its address. "" if the subnet is too small."""
        subnet = ipaddress.IPv4Network(network)
        place = _FIRST_ADDRESS + cluster.machine_names.index(name)
        return str(subnet.network_address + place) if place < subnet.num_addresses - 1 else ""


def _check_cost(cluster: Cluster, name: str, offer: Offer, usd: Decimal, record: RentalRecord) -> None:
    """Raises Conflict if one more machine at this price would cost more than the cluster file allows."""
    limit = cluster.max_usd_per_hour
    others = sum((made.usd_per_hour for n, made in record.tries.items() if n != name and not made.ended), Decimal(0))
    if limit is not None and others + usd > limit:
        raise Conflict(
            f"{name} would cost {usd:.2f} USD an hour as {offer.instance_type}; with the {others:.2f} of what is rented that "
            f"is more than cost.usd_per_hour, {limit.normalize():f}",
            hint="raise cost.usd_per_hour, or give cheaper types in cloud.types",
        )


def _listed_price(cluster: Cluster, name: str) -> Decimal:
    """Returns the price of the group's plan, for an offer whose price is not known; 0 for a head."""
    group = cluster.group_of.get(name)
    return group.price_usd_per_node_hour if group else Decimal(0)


def _none_left(name: str, refusals: Sequence[CloudRefusal]) -> CloudRefusal:
    if not refusals:
        return Rejected("NoOffer", f"the cluster's network has no subnet in a zone that sells a machine for {name}")
    tried = "; ".join(dict.fromkeys(error.message for error in refusals))
    hints = "; ".join(dict.fromkeys(error.hint for error in refusals))
    return CloudRefusal(f"no machine can be had for {name}: {tried}", hint=hints)

"""Renting machines: the offers in their order, each try written down before its launch. Several machines that are of use
only together are launched in one zone, all or none."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from headway.domain.cluster import Cluster
from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.machine import MachineRequest
from headway.domain.machines.offer import Offer, PurchaseOption
from headway.domain.machines.rental_price import owned_slots, rental_price, total_price
from headway.domain.machines.rented import CloudNetwork, Instance, InstanceClaim, InstanceState
from headway.domain.operation_progress import ReportProgress
from headway.domain.slurm.hostlist import compress, expand
from headway.errors import Unreachable
from headway.providers.cloud.api import CloudApi, LaunchOrder
from headway.providers.cloud.refusals import (
    NOT_NOW,
    TRY_ELSEWHERE,
    AddressTaken,
    CloudRefusal,
    NoCapacity,
    OtherOrder,
    Rejected,
    TooExpensive,
    after_launch,
)
from headway.providers.cloud.rental_records import RentalRecord, RentalRecords, RentalTry
from headway.providers.cloud.user_data import user_data

READY_S = 300.0  # until an instance runs and has an address
POLL_S = 1.0
_FIRST_ADDRESS = 16  # clouds and gateways keep the first addresses of a subnet
Rented = dict[str, tuple[RentalTry, Instance]]  # name -> the try that has a running machine, and its instance


@dataclass(frozen=True, slots=True)
class RentalPlan:
    """What machines are rented for, and the places for them."""

    server: str  # id of the server
    cluster: Cluster
    offers: Sequence[Offer]
    network: CloudNetwork
    image: str
    report: ReportProgress


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

    async def rent(self, plan: RentalPlan, requests: Sequence[MachineRequest]) -> Rented:
        """Returns the rented machines by name. Raises CloudRefusal if no offer can be had at a price that the cluster file
        allows, Unreachable, and Unanswered: the next call continues with the same tries."""
        found: Rented = {}
        for request in requests:
            made = self._records.read(plan.cluster.name).tries.get(request.name)
            if made is not None and not made.ended:
                found.update(await self._go_on(plan, made, request))
        left = {request.name: request for request in requests if request.name not in found}
        if not left:
            return found
        offers = _offers_for_the_rest(plan.offers, [made for made, _ in found.values()])
        return found | await self._try_offers(plan, offers, [left[name] for name in expand(compress(left))])

    async def _try_offers(
        self, plan: RentalPlan, offers: Sequence[Offer], requests: Sequence[MachineRequest]
    ) -> Rented:
        names = [request.name for request in requests]
        refusals: list[CloudRefusal] = []
        offers = [offer for offer in offers if offer.zone in plan.network.subnets]
        for number, offer in enumerate(offers):
            if number and offer.purchase is not offers[number - 1].purchase:
                words = f"no {offers[number - 1].purchase} machine was rented: {offer.purchase} is tried"
                await plan.report(compress(names), words, level="warning")
            address = self._planned_address(plan, names, offer.zone)
            while True:
                try:
                    tries = await self._begin(plan, requests, offer, address)
                except TooExpensive as error:
                    await plan.report(compress(names), f"{error.message}: the next offer is tried", level="warning")
                    refusals.append(error)
                    break
                try:
                    return await self._launch(plan, tries, offer)
                except TRY_ELSEWHERE as error:
                    await self._end(plan, tries)
                    await plan.report(compress(names), f"{error.message}: the next offer is tried", level="warning")
                    refusals.append(error)
                except AddressTaken:
                    await self._end(plan, tries)
                    if address:
                        address = ""  # the cloud chooses one
                        continue
                    raise
                except CloudRefusal:
                    await self._end(plan, tries)
                    raise
                break
        raise _none_left(compress(names), refusals)

    async def _go_on(self, plan: RentalPlan, made: RentalTry, request: MachineRequest) -> Rented:
        """Continues a try that an earlier run began. Returns {} if its instance is gone: another try follows."""
        name = request.name
        claim = InstanceClaim(plan.server, plan.cluster.name, name, made.number)
        instances = await self._api.instances(plan.server, plan.cluster.name)
        mine = next((one for one in instances if one.id == made.instance or one.claim == claim), None)
        if mine is None and made.instance:
            mine = await self._api.describe(made.instance)
        if mine is not None and not mine.exists:
            words = f"its instance {mine.id} has ended: {mine.why or 'no reason is given'}"
            await plan.report(name, words, level="warning")
            if mine.state is InstanceState.ENDED:  # one that failed counts in quotas until it is deleted
                await self._api.terminate([mine.id])
            await self._wait_until_gone(mine)
            await self._end(plan, {name: made})
            return {}
        if mine is not None:
            try:
                return {name: await self._running(plan, name, made, mine)}
            except NoCapacity as error:
                await self._api.terminate([mine.id])
                await self._end(plan, {name: made})
                await plan.report(name, f"{error.message}: another try follows", level="warning")
                return {}
            except CloudRefusal as error:
                if made.claimed:  # a machine in use is not ended
                    raise
                refusal = await self._end_refused([name], [mine], error)
                await self._end(plan, {name: made})
                raise refusal from error
        latest = self._records.read(plan.cluster.name).tries
        mates = {mate: latest.get(mate) for mate in made.together or (name,)}
        changed = any(mate is None or mate.ended or mate.number != made.number for mate in mates.values())
        if changed or not made.user_data:  # the launch can't be repeated, or the cloud has forgotten a machine in use
            await self._end(plan, {name: made})
            return {}
        offer = replace(plan.offers[0], instance_type=made.instance_type, zone=made.zone, purchase=made.purchase)
        tries = dict.fromkeys(mates, made)
        try:
            return await self._launch(plan, tries, offer, only=name)
        except NOT_NOW:  # the first launch may have been carried out
            raise
        except CloudRefusal as error:
            await self._end(plan, tries)
            if isinstance(error, (*TRY_ELSEWHERE, OtherOrder)):
                await plan.report(name, f"{error.message}: another try follows", level="warning")
                return {}
            raise

    async def _begin(
        self, plan: RentalPlan, requests: Sequence[MachineRequest], offer: Offer, address: str
    ) -> dict[str, RentalTry]:
        """Writes a new try down for each machine and returns them. Raises TooExpensive if they would cost more than their group
        or the cluster may."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        text = user_data(
            host_key=private,
            host_key_public=public,
            authorized_key=requests[0].authorized_key,
            lease_s=self._settings.lease_s,
            head=requests[0].head,
        )
        cluster, names = plan.cluster, tuple(request.name for request in requests)
        usd = rental_price(cluster.group_of.get(names[0]), offer=offer)
        async with self._lock:
            record = self._records.read(cluster.name)
            if over := _over_limit(cluster, names, usd, record):
                raise TooExpensive(offer.instance_type, offer.zone, over)
            made = RentalTry(
                # Higher than that of all machines: no launch repeats the token of an earlier one.
                number=1 + max((record.tries[name].number for name in names if name in record.tries), default=0),
                instance_type=offer.instance_type,
                zone=offer.zone,
                purchase=offer.purchase,
                usd_per_hour=usd,
                begun_at=self._clock(),
                image=plan.image,
                subnet=plan.network.subnets[offer.zone][0],
                address=address,
                user_data=text,
                host_key=public,
                together=names if len(names) > 1 else (),
            )
            tries = dict.fromkeys(names, made)
            await asyncio.to_thread(self._records.set_tries, cluster.name, tries)
        return tries

    async def _launch(self, plan: RentalPlan, tries: Mapping[str, RentalTry], offer: Offer, only: str = "") -> Rented:
        """Launches the machines of these tries, which are equal, and waits until they run. `only`: the one of them that is
        waited for, after the rest is noted. Raises Unreachable and Unanswered, after which they may run, and a CloudRefusal,
        after which none of them is left."""
        cluster, made = plan.cluster, next(iter(tries.values()))
        order = LaunchOrder(
            claims=tuple(InstanceClaim(plan.server, cluster.name, name, made.number) for name in tries),
            offer=offer,
            image=made.image,
            user_data=made.user_data,
            subnet=made.subnet,
            groups=plan.network.groups,
            address=made.address if len(tries) == 1 else "",
            public_address=self._settings.public_addresses,
            disk_gib=self._settings.disk_gib,
            usd_per_hour=made.usd_per_hour,
            ends_when_off=next(iter(tries)) not in cluster.heads,
        )
        instances = dict(zip(tries, await self._api.launch(order), strict=True))
        usd = f", {made.usd_per_hour:.2f} USD an hour" if made.usd_per_hour else ", at a price that is not known"
        bought = f"{made.instance_type} in {made.zone}, {made.purchase}{usd}{' each' if len(tries) > 1 else ''}"
        await plan.report(compress(tries), f"rented: {', '.join(one.id for one in instances.values())}, {bought}")
        noted = {name: await self._note(plan, name, made, instance=one.id) for name, one in instances.items()}
        waited = (only,) if only else tuple(tries)
        ran = await asyncio.gather(
            *(self._running(plan, name, noted[name], instances[name]) for name in waited), return_exceptions=True
        )
        errors = [one for one in ran if isinstance(one, BaseException)]
        refusals = [error for error in errors if isinstance(error, CloudRefusal)]
        for refusal in sorted(refusals, key=lambda error: not isinstance(error, NoCapacity)):
            raise await self._end_refused(list(tries), list(instances.values()), refusal) from refusal
        for error in errors:
            raise error
        return {name: one for name, one in zip(waited, ran, strict=True) if not isinstance(one, BaseException)}

    async def _end_refused(
        self, names: Sequence[str], instances: Sequence[Instance], refusal: CloudRefusal
    ) -> CloudRefusal:
        """Ends machines that the cloud has launched and that can't be used as they are, and returns the refusal to raise.
        Raises Unanswered, and ends none, if the next call can go on with them."""
        with after_launch():
            if isinstance(refusal, NOT_NOW):
                raise refusal
            await self._api.terminate([one.id for one in instances])
        if isinstance(refusal, NoCapacity):
            return refusal
        # Of a type of its own, so that no other offer is tried: its machine would be refused the same.
        words = f"{compress(names)} was rented and ended again: {refusal.message}"
        return CloudRefusal(words, hint=refusal.hint)

    async def _running(
        self, plan: RentalPlan, name: str, made: RentalTry, instance: Instance
    ) -> tuple[RentalTry, Instance]:
        """Waits until the instance runs and has an address, and notes both. Raises NoCapacity if the cloud ended it for
        lack of capacity, and Unreachable."""
        ends = self._clock() + READY_S
        made = await self._note(plan, name, made, instance=instance.id)
        while not (instance.state is InstanceState.RUNNING and self._reachable(instance)):
            if not instance.exists and instance.lacked_capacity:
                spot = made.purchase is PurchaseOption.SPOT
                raise NoCapacity(made.instance_type, made.zone, instance.why, spot=spot)
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
            elif instance.state is InstanceState.RUNNING and self._settings.public_addresses:
                await self._api.add_public_address(instance)
            await self._sleep(POLL_S)
            instance = await self._api.describe(instance.id) or instance  # the cloud may not know it yet
        return await self._note(plan, name, made, address=instance.private_address), instance

    async def _wait_until_gone(self, instance: Instance) -> None:
        """Waits until an instance that ends has left its address, which the next one gets; READY_S at most."""
        ends = self._clock() + READY_S
        now: Instance | None = instance
        while now is not None and now.state is InstanceState.ENDING and self._clock() < ends:
            await self._sleep(POLL_S)
            now = await self._api.describe(instance.id)

    def _reachable(self, instance: Instance) -> bool:
        return bool(instance.public_address if self._settings.public_addresses else instance.private_address)

    async def _note(self, plan: RentalPlan, name: str, made: RentalTry, **fields: str) -> RentalTry:
        noted = await asyncio.to_thread(self._records.update_try, plan.cluster.name, name, made.number, **fields)
        return noted or made

    async def _end(self, plan: RentalPlan, tries: Mapping[str, RentalTry]) -> None:
        fields = {"ended": True, "claimed": False, "user_data": ""}
        for name, made in tries.items():
            await asyncio.to_thread(self._records.update_try, plan.cluster.name, name, made.number, **fields)

    def _planned_address(self, plan: RentalPlan, names: Sequence[str], zone: str) -> str:
        """Returns the address of a slot in a zone's subnet: always the same, so that a machine that replaces another one
        there has its address. "" for several machines, and if the subnet is too small."""
        subnet = ipaddress.IPv4Network(plan.network.subnets[zone][1])
        place = _FIRST_ADDRESS + plan.cluster.machine_names.index(names[0])
        return str(subnet.network_address + place) if len(names) == 1 and place < subnet.num_addresses - 1 else ""


def _offers_for_the_rest(offers: Sequence[Offer], there: Sequence[RentalTry]) -> Sequence[Offer]:
    """Returns the offers for further machines of a job in the order in which they are tried: only those of the kind that its
    other machines are, unless there is none; first those in the zones of these machines."""
    if not there:
        return offers
    kinds, zones = {made.purchase for made in there}, {made.zone for made in there}
    order = list(dict.fromkeys(offer.purchase for offer in offers))
    same = [offer for offer in offers if offer.purchase in kinds] or offers
    return sorted(same, key=lambda offer: (order.index(offer.purchase), offer.zone not in zones))


def _over_limit(cluster: Cluster, names: Sequence[str], usd: Decimal, record: RentalRecord) -> str:
    """Returns why these further machines at this price would exceed the price limit of their group or of the cluster; "" if
    they would not."""
    group = cluster.group_of.get(names[0])
    if group is not None and group.max_usd_per_hour is not None:
        there = {name for name in record.prices if name in group.slots and name not in names}
        others = total_price(cluster, there, record.prices)
        if others + usd * len(names) > group.max_usd_per_hour:
            return (
                f"{usd * len(names):.2f} USD an hour with the {others:.2f} of the group's other machines is more than "
                f"groups.{group.name}.usd_per_hour, {group.max_usd_per_hour.normalize():f}"
            )
    limit = cluster.max_usd_per_hour
    others = total_price(cluster, {*record.prices, *owned_slots(cluster)} - {*names}, record.prices)
    if limit is not None and others + usd * len(names) > limit:
        return (
            f"{usd * len(names):.2f} USD an hour with the {others:.2f} of all other machines is more than "
            f"cost.usd_per_hour, {limit.normalize():f}"
        )
    return ""


def _none_left(names: str, refusals: Sequence[CloudRefusal]) -> CloudRefusal:
    if not refusals:
        return Rejected("NoOffer", f"the cluster's network has no subnet in a zone that sells a machine for {names}")
    tried = "; ".join(dict.fromkeys(error.message for error in refusals))
    hints = "; ".join(dict.fromkeys(error.hint for error in refusals))
    return CloudRefusal(f"no machine can be had for {names}: {tried}", hint=hints)

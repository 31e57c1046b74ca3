"""CloudProvider: machines that Headway rents from a cloud, and then treats like machines that you own.

The cloud's tags say what exists; the record of tries says what should. `rent` writes a try down, then launches it with a
token made of it: after a lost answer or a killed server the same launch is repeated and gives the same instance."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from headway.catalog.instance_types import types_for
from headway.catalog.node_images import IMAGES
from headway.domain.cluster import Cluster, Host
from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.machine import HostProblem, Machine, MachineRequest, MachineState
from headway.domain.machines.offer import Offer, PurchaseOption
from headway.domain.machines.rented import Instance, InstanceState, Quota, Rental, RentedThing
from headway.domain.machines.site import OwnedSite
from headway.domain.machines.survey import DetectedHardware
from headway.domain.operation_progress import ReportProgress
from headway.domain.provider_traits import ProviderTraits
from headway.domain.storage.folders import Dataset
from headway.errors import Refused, Unreachable
from headway.providers.base import Placement, ReclaimNotice
from headway.providers.cloud.api import CloudApi
from headway.providers.cloud.offer_order import purchases, sort_offers
from headway.providers.cloud.offer_sizes import check_sizes
from headway.providers.cloud.refusals import CloudRefusal, Throttled
from headway.providers.cloud.rental_records import RentalRecord, RentalRecords, RentalTry
from headway.providers.cloud.renting import RentalPlan, Renting
from headway.providers.cloud.unclaimed_things import is_unclaimed
from headway.providers.ssh.machine_records import ClaimedHost, HostRecords
from headway.transport.connect import Dialer, HostKeyChanged, fingerprint

LIST_S = 5.0  # how long a list of instances is used again; a cloud allows few requests a second
CHANGE_S = 300.0  # for an instance to stop, start or end
POLL_S = 1.0
CONSOLE_LINES = 10  # of a machine that does not answer
_NOT_YET = ipaddress.IPv4Address("198.18.0.1")  # placeholders for slots without a machine: a range that is never routed
_STATES = {InstanceState.RUNNING: MachineState.RUNNING, InstanceState.STARTING: MachineState.STARTING}


@dataclass
class _Listing:
    """The last list of a cluster's instances."""

    at: float
    instances: tuple[Instance, ...]


class CloudProvider:
    """A cloud. Implements providers.base.Provider, OwnedMachinesProvider, RentingProvider and ReclaimingProvider."""

    def __init__(
        self,
        traits: ProviderTraits,
        state_dir: Path,
        settings: CloudSettings,
        api: CloudApi,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.traits = traits
        self._settings = settings
        self._api = api
        self._hosts = HostRecords(state_dir.absolute())
        self._records = RentalRecords(state_dir.absolute())
        self._clock = clock
        self._sleep = sleep
        self._lists: dict[str, _Listing] = {}
        self._notices: dict[str, tuple[float, tuple[ReclaimNotice, ...]]] = {}  # cluster -> asked when, answer
        self._noticed: set[str] = set()  # instances with a notice
        self._renting = Renting(api, self._records, settings, clock, sleep)

    @property
    def server_id(self) -> str:
        return self._hosts.server_id()

    # ---- Provider

    async def preflight(self, cluster: Cluster) -> tuple[HostProblem, ...]:  # noqa: ARG002
        """Returns nothing: what a cloud refuses is only known at a launch."""
        return ()

    async def place(self, cluster: Cluster) -> Placement:
        place = await self.find(cluster)
        if place is None:
            raise Refused(f"{cluster.name} has no network at the cloud", hint="headway apply")
        return place

    async def find(self, cluster: Cluster) -> Placement | None:
        """Returns the placement, None if nothing is rented for the cluster yet."""
        record = self._records.read(cluster.name)
        self._check_place(cluster.name, record)
        head = record.tries.get(cluster.head)
        if record.network is None or head is None or head.ended or not head.address:
            return None
        addresses = self.addresses(cluster)
        kept = self._hosts.read_record(cluster.name)
        server = await self._server_address(cluster, head)
        return Placement(
            subnet=_around([network for _, network in record.network.subnets.values()]),
            gateway=server,
            addresses=addresses,
            real_cpus=0,
            real_memory_mib=0,
            real_tmp_mib=0,
            gpu_devices=0,
            found=self.found(cluster),
            own=OwnedSite(operators={"root": ("",)}, server_addresses=(server,), nfs=kept.nfs),
        )

    def addresses(self, cluster: Cluster) -> dict[str, str]:
        """Returns the addresses of the heads and slots, with placeholders for those without a machine."""
        tries, addresses = self._records.read(cluster.name).tries, {}
        for index, name in enumerate(cluster.machine_names):
            made = tries.get(name)
            there = made is not None and not made.ended and made.address
            addresses[name] = made.address if made and there else str(_NOT_YET + index)
        return addresses

    def found(self, cluster: Cluster) -> dict[str, DetectedHardware]:
        """Returns the hardware of the machines, as last surveyed."""
        machines = self._hosts.read_record(cluster.name).machines
        return {name: one.found for name, one in machines.items() if one.found and name in cluster.machine_names}

    def names(self, cluster: str) -> frozenset[str]:
        """Returns the names for which a machine is rented, or its launch has begun."""
        return self._records.read(cluster).unended

    async def list(self, cluster: str) -> tuple[Machine, ...]:
        """Returns the machines that the cluster has taken. While the cloud does not answer, those of the last list."""
        record = self._records.read(cluster)
        if not any(made.claimed and not made.ended for made in record.tries.values()):
            return ()
        self._check_place(cluster, record)
        try:
            instances = await self._instances(cluster)
        except (Unreachable, CloudRefusal):
            if cluster not in self._lists:
                raise
            instances = self._lists[cluster].instances
        there = {one.id: one for one in instances if one.exists}
        return tuple(
            self._machine(cluster, name, made, there[made.instance])
            for name, made in record.tries.items()
            if made.claimed and not made.ended and made.instance in there
        )

    async def create(self, request: MachineRequest) -> Machine:
        """Makes a rented machine a machine of the cluster. Raises Unreachable if none is rented for this name."""
        made, instance = await self._present(request.cluster, request.name)
        machine = self._machine(request.cluster, request.name, made, instance)
        claimed = ClaimedHost(Host(request.name, made.address), machine.host_key)
        await asyncio.to_thread(self._hosts.pin_host_key, request.cluster, request.name, claimed)
        await self._update(request.cluster, request.name, made, claimed=True)
        return machine

    async def start(self, machine: Machine) -> None:
        made, _ = await self._present(machine.cluster, machine.name)
        await self._api.start(made.instance)
        await self._reach(machine.cluster, made.instance, InstanceState.RUNNING)

    async def stop(self, machine: Machine) -> None:
        await self._halt(machine, at_once=False)

    async def fence(self, machine: Machine) -> None:
        """Stops the instance at once. A spot machine can't be stopped and is ended, after which it is gone."""
        await self._halt(machine, at_once=True)

    async def delete(self, machine: Machine) -> None:
        await self.give_up(machine.cluster, machine.name)

    def inspection_hint(self, machine: Machine) -> str:
        made = self._records.read(machine.cluster).tries.get(machine.name)
        return f"see its system log at the cloud: instance {made.instance if made else 'unknown'}"

    async def attach(self, cluster: str, datasets: Sequence[Dataset]) -> None:
        """Does nothing: the machines mount their own storage."""

    async def attached(self, cluster: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    async def release(self, cluster: str, *, delete_data: bool) -> tuple[str, ...]:  # noqa: ARG002
        """Ends everything at the cloud that has the cluster's tags, with its disks, and removes its network. Returns ():
        no data is kept."""
        self._lists.pop(cluster, None)
        instances = await self._instances(cluster)
        left = [one.id for one in instances if one.state is not InstanceState.ENDED]
        await self._api.terminate(left)
        await asyncio.gather(*(self._reach(cluster, one, InstanceState.ENDED) for one in left))
        things = [thing for thing in await self._api.costly_things(self.server_id) if thing.cluster == cluster]
        try:
            await self._api.delete_things(things)
        finally:
            await self._api.remove_network(self.server_id, cluster)
        await asyncio.to_thread(self._records.end_all, cluster)
        await asyncio.to_thread(self._hosts.remove_cluster, cluster)
        self._lists.pop(cluster, None)
        return ()

    # ---- OwnedMachinesProvider

    async def candidate(self, cluster: Cluster, name: str) -> Machine:
        made, instance = await self._present(cluster.name, name)
        return self._machine(cluster.name, name, made, instance)

    async def inventory(self, cluster: Cluster) -> Mapping[str, Host]:
        tries = self._records.read(cluster.name).tries
        return {name: Host(name, made.address, run_in="native") for name, made in tries.items() if not made.ended}

    async def replaced(self, cluster: str) -> frozenset[str]:  # noqa: ARG002
        """Returns nothing: a rented machine that is replaced is ended first."""
        return frozenset()

    async def note(self, cluster: str, found: Mapping[str, DetectedHardware], nfs: Sequence[str]) -> None:
        addresses = {name: made.address for name, made in self._records.read(cluster).tries.items()}
        await asyncio.to_thread(self._hosts.record_survey, cluster, found, addresses, nfs)

    async def exports(self, cluster: str) -> tuple[str, ...]:
        return self._hosts.read_record(cluster).nfs

    # ---- RentingProvider

    async def prepare(self, cluster: Cluster, others: Sequence[str] = ()) -> None:
        """As in RentingProvider. `others`: addresses of the cluster's machines of other providers, which may reach all
        ports."""
        self._check_place(cluster.name, self._records.read(cluster.name))
        ssh_from = [str(ipaddress.IPv4Network(network)) for network in cluster.firewall.ssh_from]  # with a mask
        network = await self._api.make_network(self.server_id, cluster.name, self._settings, ssh_from, others)
        place = (self.traits.name, self._settings.region)
        await asyncio.to_thread(self._records.set_network, cluster.name, *place, network)

    async def offers(self, cluster: Cluster, name: str) -> tuple[Offer, ...]:
        group = cluster.group_of.get(name)
        plan = group.plan.name if group else ""
        wanted = self._settings.types.get(plan, ()) if group else self._settings.head_types
        types = wanted or types_for(self.traits.name, plan)
        zones = await self._api.zones(self._settings)
        found: list[Offer] = []
        for purchase in purchases(group):
            found += sort_offers(await self._api.offers(types, zones, purchase), wanted)
        if not found:
            raise Refused(
                f"{self.traits.name} sells none of {', '.join(types) or 'the types'} for {name} in {', '.join(zones)}",
                hint=f"give cloud.types.{plan}" if group else "give cloud.head_types",
            )
        if group and group.idle_s is not None:
            check_sizes(group.plan, found)
        return tuple(found)

    async def rented(self, cluster: Cluster) -> Mapping[str, Machine]:
        self._lists.pop(cluster.name, None)
        instances = await self._instances(cluster.name)
        machines = {}
        for name, made in self._records.read(cluster.name).tries.items():
            for one in instances:
                if not made.ended and one.exists and one.id == made.instance:
                    machines[name] = self._machine(cluster.name, name, made, one)
        return machines

    async def begun(self, cluster: str) -> frozenset[str]:
        tries = self._records.read(cluster).tries
        return frozenset(name for name, made in tries.items() if not made.ended and not made.claimed)

    async def launch_prices(self, cluster: str) -> Mapping[str, Decimal]:
        return self._records.read(cluster).prices

    async def give_up(self, cluster: str, name: str) -> None:
        made = self._records.read(cluster).tries.get(name)
        if made is not None and not made.ended:
            # An instance whose launch was not answered has no id here, only tags.
            self._lists.pop(cluster, None)
            instances = await self._instances(cluster)
            mine = [one for one in instances if one.id == made.instance or one.claim.machine == name]
            ids = [one.id for one in mine if one.state is not InstanceState.ENDING]  # those that failed too
            await self._api.terminate(ids)
            await asyncio.gather(*(self._reach(cluster, one, InstanceState.ENDED) for one in ids))
            await self._update(cluster, name, made, ended=True, claimed=False, user_data="")
        await asyncio.to_thread(self._hosts.release_host, cluster, name)
        self._lists.pop(cluster, None)

    async def rent(
        self, cluster: Cluster, requests: Sequence[MachineRequest], offers: Sequence[Offer], report: ReportProgress
    ) -> Mapping[str, Machine]:
        network = self._records.read(cluster.name).network
        if network is None:
            raise Refused(f"{cluster.name} has no network at the cloud", hint="headway apply")
        image = self._settings.image or await self._api.find_image(_debian(cluster))
        plan = RentalPlan(self.server_id, cluster, offers, network, image, report)
        found = await self._renting.rent(plan, requests)
        for name, (made, _) in found.items():
            if not made.claimed:  # what another machine of this slot was found to have does not hold for this one
                await asyncio.to_thread(self._hosts.release_host, cluster.name, name)
        self._lists.pop(cluster.name, None)
        return {name: self._machine(cluster.name, name, made, instance) for name, (made, instance) in found.items()}

    async def first_host_key(self, machine: Machine, own: str) -> Machine:
        dialer = Dialer("", 5, 5)
        try:
            shown = await dialer.host_key(machine.address, machine.port, machine.jump)
        finally:
            await dialer.close()
        made = self._records.read(machine.cluster).tries[machine.name]
        for key in (_line(made.host_key), _line(own)):
            if shown == key:
                return replace(machine, host_key=key)
        raise HostKeyChanged(
            f"{machine.name} ({machine.address}) answers with an SSH host key that Headway did not give it, "
            f"{fingerprint(shown)}",
            hint="another machine answers there: do not trust it; headway apply rents another one after the instance is ended",
        )

    async def console(self, machine: Machine) -> str:
        made = self._records.read(machine.cluster).tries.get(machine.name)
        text = await self._api.console(made.instance) if made and made.instance else ""
        lines = ["".join(one for one in line if one.isprintable()).strip() for line in text.splitlines()]
        return "\n".join([line for line in lines if line][-CONSOLE_LINES:])

    async def settle(self, cluster: str, name: str, key: str) -> None:
        made = self._records.read(cluster).tries[name]
        await self._update(cluster, name, made, settled=True, user_data="", host_key=key)

    async def quota(self, offer: Offer) -> Quota | None:
        return await self._api.quota(offer)

    async def things(self) -> tuple[RentedThing, ...]:
        noted = {
            made.instance: made.usd_per_hour
            for cluster in self._records.clusters()
            for made in self._records.read(cluster).tries.values()
            if made.instance
        }
        things = await self._api.costly_things(self.server_id)
        return tuple(
            replace(thing, usd_per_hour=_launch_price(thing.usd_per_hour, noted.get(thing.id))) for thing in things
        )

    async def rentals(self, cluster: str) -> tuple[Rental, ...]:
        names = {
            made.instance: (name, made) for name, made in self._records.read(cluster).tries.items() if made.instance
        }
        found = []
        for one in await self._instances(cluster):
            name, made = names.get(one.id, (one.claim.machine, None))
            usd = _launch_price(one.usd_per_hour, made.usd_per_hour if made else None)
            runs = one.state in (InstanceState.STARTING, InstanceState.RUNNING)
            paid = one.exists if self.traits.charges_while_off else runs
            times = (int(one.launched_at), None if paid else int(one.ended_at))
            taken_back = one.taken_back or one.id in self._noticed
            place = (one.instance_type, one.zone)
            found.append(Rental(self.traits.name, one.id, *times, name, *place, one.purchase, usd, taken_back))
        return tuple(found)

    async def unclaimed(self, cluster: str) -> tuple[RentedThing, ...]:
        things = await self._api.costly_things(self.server_id)
        tries = self._records.read(cluster).tries  # read after: a try is written down before its launch
        return tuple(thing for thing in things if thing.cluster == cluster and is_unclaimed(thing, tries))

    async def end_things(self, things: Sequence[RentedThing]) -> None:
        await self._api.terminate([thing.id for thing in things if thing.kind == "instance"])
        await self._api.delete_things([thing for thing in things if thing.kind != "instance"])

    # ---- ReclaimingProvider

    async def notices(self, cluster: str) -> tuple[ReclaimNotice, ...]:
        """Returns the notices for spot machines; asks the cloud every LIST_S seconds, and not where there are none."""
        named = self._records.read(cluster).tries
        spot = {
            made.instance
            for made in named.values()
            if made.claimed and not made.ended and made.purchase is PurchaseOption.SPOT
        }
        if not spot:
            return ()
        asked_at, known = self._notices.get(cluster, (0.0, ()))
        if not 0 <= self._clock() - asked_at < LIST_S:
            instances = await self._instances(cluster)
            known = await self._api.notices([one for one in instances if one.id in spot and one.exists])
            self._notices[cluster] = self._clock(), known
            self._noticed |= {made.instance for name, made in named.items() if name in {one.machine for one in known}}
        return known

    # ----

    def _check_place(self, cluster: str, record: RentalRecord) -> None:
        """Raises Refused if the cluster's machines are rented elsewhere than its file says now."""
        here = (self.traits.name, self._settings.region)
        there = (record.provider, record.region)
        if record.provider and there != here and any(not made.ended for made in record.tries.values()):
            raise Refused(
                f"the machines of {cluster} are rented from {' '.join(there)}, and its file says {' '.join(here)}",
                hint=f"give that region, or headway down {cluster} --delete-data with the earlier file first",
            )

    async def _instances(self, cluster: str) -> tuple[Instance, ...]:
        """Returns the cluster's instances: those with its tags, and those that it uses although a person removed their
        tags."""
        known = self._lists.get(cluster)
        if known is None or not 0 <= self._clock() - known.at < LIST_S:
            tagged = await self._api.instances(self.server_id, cluster)
            used = {made.instance for made in self._records.read(cluster).tries.values() if not made.ended}
            others = [await self._api.describe(one) for one in sorted(used - {"", *(one.id for one in tagged)})]
            known = _Listing(self._clock(), (*tagged, *(one for one in others if one is not None)))
            self._lists[cluster] = known
        return known.instances

    async def _present(self, cluster: str, name: str) -> tuple[RentalTry, Instance]:
        made = self._records.read(cluster).tries.get(name)
        instance = await self._api.describe(made.instance) if made and made.instance and not made.ended else None
        if made is None or instance is None or not instance.exists:
            why = f": {instance.why}" if instance and instance.why else ""
            raise Unreachable(f"{name} has no rented machine{why}", hint="headway apply rents one")
        return made, instance

    def _machine(self, cluster: str, name: str, made: RentalTry, instance: Instance) -> Machine:
        kept = self._hosts.read_record(cluster).machines.get(name)
        address = instance.public_address if self._settings.public_addresses else instance.private_address
        return Machine(
            name=name,
            cluster=cluster,
            address=address or instance.private_address,
            state=_STATES.get(instance.state, MachineState.STOPPED),
            host_key=_line(made.host_key),
            started_at=instance.launched_at,
            found=kept.found if kept else None,
        )

    async def _halt(self, machine: Machine, *, at_once: bool) -> None:
        made = self._records.read(machine.cluster).tries.get(machine.name)
        instance = await self._api.describe(made.instance) if made and made.instance else None
        if instance is None or not instance.exists or instance.state is InstanceState.STOPPED:
            return
        if instance.purchase is PurchaseOption.SPOT:
            await self._api.terminate([instance.id])
            await self._reach(machine.cluster, instance.id, InstanceState.ENDED)
            return
        await self._api.stop(instance.id, at_once=at_once)
        await self._reach(machine.cluster, instance.id, InstanceState.STOPPED)

    async def _reach(self, cluster: str, instance: str, state: InstanceState) -> None:
        """Waits until an instance is in this state. Raises Unreachable after CHANGE_S."""
        ends = self._clock() + CHANGE_S
        while True:
            try:
                now = await self._api.describe(instance)
            except Throttled:
                now = None
            else:
                if now is None and state is InstanceState.ENDED:
                    break
            if now is not None and now.state is state:
                break
            if self._clock() >= ends:
                raise Unreachable(f"instance {instance} is not {state} after {CHANGE_S:.0f} s", hint="try again")
            await self._sleep(POLL_S)
        self._lists.pop(cluster, None)

    async def _update(self, cluster: str, name: str, made: RentalTry, **fields: object) -> None:
        await asyncio.to_thread(self._records.update_try, cluster, name, made.number, **fields)

    async def _server_address(self, cluster: Cluster, head: RentalTry) -> str:
        """Returns this host's own address on the way to the head."""
        target = head.address
        listing = self._lists.get(cluster.name)
        for one in listing.instances if listing and self._settings.public_addresses else ():
            if one.id == head.instance and one.public_address:
                target = one.public_address
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])


def _launch_price(tagged: Decimal | None, noted: Decimal | None) -> Decimal | None:
    """Returns the price of an instance's launch, USD an hour: as its tags say, else as the record says. None: it is not
    known."""
    return tagged or noted or None


def _line(key: str) -> str:
    return " ".join(key.split()[:2])


def _debian(cluster: Cluster) -> str:
    return IMAGES[cluster.image].name.removeprefix("debian")


def _around(networks: Sequence[str]) -> str:
    """Returns the smallest network that contains all networks."""
    parts = [ipaddress.IPv4Network(network) for network in networks]
    low = min(int(part.network_address) for part in parts)
    high = max(int(part.broadcast_address) for part in parts)
    return str(ipaddress.IPv4Network((low, 32 - (low ^ high).bit_length()), strict=False))

"""MixedProvider: owned machines, the head among them, and groups whose machines are rented from a cloud. Each machine is
handled by its own provider; both keep what they know of the cluster in the same record of hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from headway.domain.cluster import Cluster, Host
from headway.domain.machines.machine import HostProblem, Machine, MachineRequest
from headway.domain.machines.offer import Offer
from headway.domain.machines.rented import Quota, Rental, RentedThing
from headway.domain.machines.survey import DetectedHardware
from headway.domain.operation_progress import ReportProgress
from headway.domain.storage.folders import Dataset
from headway.providers.base import Placement, ReclaimNotice
from headway.providers.cloud.provider import CloudProvider
from headway.providers.ssh.provider import SshProvider


class MixedProvider:
    """Implements providers.base.Provider, OwnedMachinesProvider, RentingProvider and ReclaimingProvider. Its traits are
    those of owned machines; `Cluster.provider_of` has those of each machine."""

    def __init__(self, own: SshProvider, cloud: CloudProvider) -> None:
        self.traits = own.traits
        self._own = own
        self._cloud = cloud

    @property
    def server_id(self) -> str:
        return self._own.server_id

    def _of(self, cluster: str, name: str) -> SshProvider | CloudProvider:
        return self._cloud if name in self._cloud.names(cluster) else self._own

    # ---- Provider

    async def preflight(self, cluster: Cluster) -> tuple[HostProblem, ...]:
        return await self._own.preflight(cluster)

    async def place(self, cluster: Cluster) -> Placement:
        place = await self._own.place(cluster)
        return replace(
            place,
            addresses={**self._cloud.addresses(cluster), **place.addresses},
            found={**self._cloud.found(cluster), **place.found},
        )

    async def find(self, cluster: Cluster) -> Placement | None:
        return await self.place(cluster)

    async def list(self, cluster: str) -> tuple[Machine, ...]:
        rented = await self._cloud.list(cluster)
        names = self._cloud.names(cluster)
        return (*(machine for machine in await self._own.list(cluster) if machine.name not in names), *rented)

    async def create(self, request: MachineRequest) -> Machine:
        return await self._of(request.cluster, request.name).create(request)

    async def start(self, machine: Machine) -> None:
        await self._of(machine.cluster, machine.name).start(machine)

    async def stop(self, machine: Machine) -> None:
        await self._of(machine.cluster, machine.name).stop(machine)

    async def fence(self, machine: Machine) -> None:
        await self._of(machine.cluster, machine.name).fence(machine)

    async def delete(self, machine: Machine) -> None:
        await self._of(machine.cluster, machine.name).delete(machine)

    def inspection_hint(self, machine: Machine) -> str:
        return self._of(machine.cluster, machine.name).inspection_hint(machine)

    async def attach(self, cluster: str, datasets: Sequence[Dataset]) -> None:
        """Does nothing: the machines mount their own storage."""

    async def attached(self, cluster: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    async def release(self, cluster: str, *, delete_data: bool) -> tuple[str, ...]:
        """Ends everything at the cloud that has the cluster's tags, then frees the owned machines. Returns the paths of the
        data that was kept on them."""
        kept = await self._own.release(cluster, delete_data=delete_data)
        await self._cloud.release(cluster, delete_data=delete_data)
        return kept

    # ---- OwnedMachinesProvider

    async def candidate(self, cluster: Cluster, name: str) -> Machine:
        return await self._of(cluster.name, name).candidate(cluster, name)

    async def inventory(self, cluster: Cluster) -> Mapping[str, Host]:
        return {**await self._cloud.inventory(cluster), **await self._own.inventory(cluster)}

    async def replaced(self, cluster: str) -> frozenset[str]:
        return await self._own.replaced(cluster) - self._cloud.names(cluster)

    async def note(self, cluster: str, found: Mapping[str, DetectedHardware], nfs: Sequence[str]) -> None:
        await self._own.note(cluster, found, nfs)

    async def exports(self, cluster: str) -> tuple[str, ...]:
        return await self._own.exports(cluster)

    # ---- RentingProvider and ReclaimingProvider

    async def prepare(self, cluster: Cluster) -> None:
        place = await self._own.place(cluster)
        await self._cloud.prepare(cluster, sorted(set(place.addresses.values())))

    async def offers(self, cluster: Cluster, name: str) -> tuple[Offer, ...]:
        return await self._cloud.offers(cluster, name)

    async def rented(self, cluster: Cluster) -> Mapping[str, Machine]:
        return await self._cloud.rented(cluster)

    async def rent(
        self, cluster: Cluster, requests: Sequence[MachineRequest], offers: Sequence[Offer], report: ReportProgress
    ) -> Mapping[str, Machine]:
        return await self._cloud.rent(cluster, requests, offers, report)

    async def begun(self, cluster: str) -> frozenset[str]:
        return await self._cloud.begun(cluster)

    async def launch_prices(self, cluster: str) -> Mapping[str, Decimal]:
        return await self._cloud.launch_prices(cluster)

    async def give_up(self, cluster: str, name: str) -> None:
        await self._cloud.give_up(cluster, name)

    async def first_host_key(self, machine: Machine, own: str) -> Machine:
        return await self._cloud.first_host_key(machine, own)

    async def console(self, machine: Machine) -> str:
        return await self._cloud.console(machine)

    async def quota(self, offer: Offer) -> Quota | None:
        return await self._cloud.quota(offer)

    async def things(self) -> tuple[RentedThing, ...]:
        return await self._cloud.things()

    async def rentals(self, cluster: str) -> tuple[Rental, ...]:
        return await self._cloud.rentals(cluster)

    async def unclaimed(self, cluster: str) -> tuple[RentedThing, ...]:
        return await self._cloud.unclaimed(cluster)

    async def end_things(self, things: Sequence[RentedThing]) -> None:
        await self._cloud.end_things(things)

    async def settle(self, cluster: str, name: str, key: str) -> None:
        await self._cloud.settle(cluster, name, key)

    async def notices(self, cluster: str) -> tuple[ReclaimNotice, ...]:
        return await self._cloud.notices(cluster)

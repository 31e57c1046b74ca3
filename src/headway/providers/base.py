"""The provider Protocol: all operations that Headway needs from a provider.

Work inside a machine goes over SSH and is the same for all providers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol, runtime_checkable

from headway.domain.cluster import Cluster, Host
from headway.domain.machines.machine import HostProblem, Machine, MachineRequest
from headway.domain.machines.offer import Offer
from headway.domain.machines.rented import Quota, Rental, RentedThing
from headway.domain.machines.site import OwnedSite
from headway.domain.machines.survey import DetectedHardware
from headway.domain.operation_progress import ReportProgress
from headway.domain.provider_traits import ProviderTraits
from headway.domain.storage.folders import Dataset


@dataclass(frozen=True, slots=True)
class Placement:
    """Addresses and hardware of a cluster's machines. The provider decides once; every later call returns the same
    addresses."""

    subnet: str
    gateway: str
    addresses: dict[str, str]  # head and every slot
    real_cpus: int
    real_memory_mib: int
    real_tmp_mib: int  # size of the disk with the jobs' private /tmp; 0 = not known
    gpu_devices: int
    found: Mapping[str, DetectedHardware] = field(default_factory=dict)  # owned machines: real hardware
    own: OwnedSite | None = None  # owned machines
    cgroup_v1: bool = False  # as in Site.cgroup_v1


@dataclass(frozen=True, slots=True)
class ReclaimNotice:
    """Announces that the provider will take a machine back, also one with running jobs. `at`: unix seconds."""

    machine: str
    at: float


@runtime_checkable
class ReclaimingProvider(Protocol):
    """A provider that may take machines back at short notice."""

    async def notices(self, cluster: str) -> tuple[ReclaimNotice, ...]:
        """Returns the current notices. A notice is returned each time until its machine is gone or deleted."""
        ...


@runtime_checkable
class KeyRotatingProvider(Protocol):
    """A provider that controls which keys may sign in to its machines as root."""

    async def admit(self, machine: Machine, authorized_keys: str) -> None:
        """Replaces the accepted public keys, one per line, for new connections. Open connections stay."""
        ...


@runtime_checkable
class FaultInjectingProvider(Protocol):
    """A provider that can inject faults into its machines and repair them."""

    async def kill(self, machine: Machine) -> None:
        """Switches the machine off like a power cut, without a shutdown."""
        ...

    async def freeze(self, machine: Machine) -> None:
        """Freezes the machine; it keeps its addresses."""
        ...

    async def thaw(self, machine: Machine) -> None:
        """Continues a frozen machine. Does nothing if it is not frozen."""
        ...

    async def cut(self, machine: Machine) -> None:
        """Disconnects the machine from the network; it continues to run."""
        ...

    async def join(self, machine: Machine) -> None:
        """Reconnects the machine to the network. Does nothing if it is connected."""
        ...

    async def reclaim(self, machine: Machine, at: float) -> None:
        """Takes the machine back at unix time `at`; until then `notices` returns a notice."""
        ...


@runtime_checkable
class OwnedMachinesProvider(Protocol):
    """A provider of machines that were set up without Headway. They are surveyed before Headway uses them."""

    @property
    def server_id(self) -> str:
        """The id of this server in the marks on machines."""
        ...

    async def candidate(self, cluster: Cluster, name: str) -> Machine:
        """Returns the host for the head or a slot, whether Headway uses it already or not. Raises Unreachable if it
        shows no host key."""
        ...

    async def inventory(self, cluster: Cluster) -> Mapping[str, Host]:
        """Returns the entry of the inventory for the head and each slot that has one."""
        ...

    async def replaced(self, cluster: str) -> frozenset[str]:
        """Returns the names of machines in `list` for which the inventory has another machine, or that were
        reinstalled. The next apply uses the machine that the inventory names."""
        ...

    async def note(self, cluster: str, found: Mapping[str, DetectedHardware], nfs: Sequence[str]) -> None:
        """Saves the hardware of machines, and the volumes that the head exports, for `place`."""
        ...

    async def exports(self, cluster: str) -> tuple[str, ...]:
        """Returns the saved list of volumes that the head exports."""
        ...


@runtime_checkable
class RentingProvider(Protocol):
    """A provider whose machines cost money from their launch on. A rented machine is no machine of the cluster (`list`)
    until `create` is called for it, after which it is treated like one that the user owns."""

    async def prepare(self, cluster: Cluster) -> None:
        """Creates what is missing of the cluster's network. Idempotent."""
        ...

    async def offers(self, cluster: Cluster, name: str) -> tuple[Offer, ...]:
        """Returns the offers for the head or a slot, in the order in which they are tried."""
        ...

    async def rented(self, cluster: Cluster) -> Mapping[str, Machine]:
        """Returns the machines that are rented now, by name, also those that are not in `list` yet. Asks the cloud each
        time."""
        ...

    async def rent(
        self, cluster: Cluster, requests: Sequence[MachineRequest], offers: Sequence[Offer], report: ReportProgress
    ) -> Mapping[str, Machine]:
        """Launches machines by the first offer that can be had, all of them in one zone or none, except those that are
        rented already, and waits until they have an address. Reports each offer that can't be had. Returns them by name.
        Raises CloudRefusal if no offer can be had."""
        ...

    async def begun(self, cluster: str) -> frozenset[str]:
        """Returns the names for which a machine is rented, or its launch has begun, that is no machine of the cluster yet.
        Asks the cloud nothing."""
        ...

    async def launch_prices(self, cluster: str) -> Mapping[str, Decimal]:
        """Returns the price of each machine that is rented or whose launch has begun, by name, USD an hour; 0 = not known.
        Asks the cloud nothing."""
        ...

    async def give_up(self, cluster: str, name: str) -> None:
        """Ends what is rented for this name, also where it is no machine of the cluster yet. Does nothing if nothing is."""
        ...

    async def first_host_key(self, machine: Machine, own: str) -> Machine:
        """Returns the machine with the host key that it shows now: the one of its user data, or `own`, the public key
        that replaces it. Raises HostKeyChanged for any other."""
        ...

    async def console(self, machine: Machine) -> str:
        """Returns the last lines of the machine's console, for a person; "" if the cloud has none."""
        ...

    async def quota(self, offer: Offer) -> Quota | None:
        """Returns the account's limit that holds for an offer, None if it is not known."""
        ...

    async def things(self) -> tuple[RentedThing, ...]:
        """Returns everything of this server that costs money in the provider's region."""
        ...

    async def rentals(self, cluster: str) -> tuple[Rental, ...]:
        """Returns when the cluster's instances ran: those of now, and those that ended a short while ago."""
        ...

    async def unclaimed(self, cluster: str) -> tuple[RentedThing, ...]:
        """Returns what has the cluster's tags and belongs to no present try to rent a machine, for example after a
        launch whose answer was lost."""
        ...

    async def end_things(self, things: Sequence[RentedThing]) -> None:
        """Ends instances and deletes volumes and addresses."""
        ...

    async def settle(self, cluster: str, name: str, key: str) -> None:
        """Records that the machine answers with its own host key, `key`."""
        ...


class Provider(Protocol):
    """A provider of machines."""

    traits: ProviderTraits

    async def preflight(self, cluster: Cluster) -> tuple[HostProblem, ...]:
        """Returns everything that is missing for this cluster, in one list."""
        ...

    async def place(self, cluster: Cluster) -> Placement:
        """Returns addresses for the head and each slot; creates the cluster's network if it is missing. Idempotent.
        `find` does the same read-only, also for a cluster that does not exist."""
        ...

    async def find(self, cluster: Cluster) -> Placement | None:
        """Returns the same as `place` without creating anything; None if there is no network yet."""
        ...

    async def list(self, cluster: str) -> tuple[Machine, ...]:
        """Returns the existing machines of a cluster, running or not."""
        ...

    async def create(self, request: MachineRequest) -> Machine:
        """Creates and boots a machine. One that an earlier failed try left behind is replaced."""
        ...

    async def start(self, machine: Machine) -> None:
        """Starts an existing machine that is switched off. Raises Unreachable if the provider can't start it."""
        ...

    async def stop(self, machine: Machine) -> None:
        """Shuts the machine down. It keeps its disk and address."""
        ...

    async def fence(self, machine: Machine) -> None:
        """Switches the machine off at once, without a shutdown. Does nothing if it is off."""
        ...

    async def delete(self, machine: Machine) -> None:
        """Deletes the machine and its disk. Does nothing if it is gone."""
        ...

    def inspection_hint(self, machine: Machine) -> str:
        """Returns advice for a person: how to see what a machine does that does not answer SSH."""
        ...

    async def attach(self, cluster: str, datasets: Sequence[Dataset]) -> None:
        """Makes exactly these datasets (besides home, scratch and the head's state) appear under /srv/headway in the
        machines."""
        ...

    async def attached(self, cluster: str) -> tuple[str, ...]:
        """Returns the names of the datasets that are attached now."""
        ...

    async def release(self, cluster: str, *, delete_data: bool) -> tuple[str, ...]:
        """Removes network and mounts of a cluster without machines. Returns the paths of the data that was kept."""
        ...

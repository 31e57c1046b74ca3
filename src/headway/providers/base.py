"""The provider Protocol: everything Headway asks of a kind of machine.

What happens inside a machine goes by SSH, for all alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from headway.domain.cluster import Cluster, Dataset, OwnedSite
from headway.domain.machine import Gap, Machine, MachineRequest
from headway.domain.provider_traits import ProviderTraits
from headway.domain.survey import DetectedHardware


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a cluster's machines live: decided once by the provider, the same on every later call."""

    subnet: str
    gateway: str
    addresses: dict[str, str]  # head and every slot
    real_cpus: int
    real_memory_mib: int
    real_tmp_mib: int  # the disk that jobs' own /tmp is on; 0 = not known
    gpu_devices: int
    found: Mapping[str, DetectedHardware] = field(default_factory=dict)  # of machines one owns: what each really has
    own: OwnedSite | None = None  # machines one owns
    cgroup_v1: bool = False  # as Site.cgroup_v1


@dataclass(frozen=True, slots=True)
class ReclaimNotice:
    """A machine that its provider takes back, whatever runs on it. `at`: when, in unix seconds."""

    machine: str
    at: float


@runtime_checkable
class ReclaimingProvider(Protocol):
    """A provider that may take machines back at short notice."""

    async def notices(self, cluster: str) -> tuple[ReclaimNotice, ...]:
        """Those that stand now; the same each time, until their machine is gone or given back."""
        ...


@runtime_checkable
class KeyRotatingProvider(Protocol):
    """A provider that says itself which keys sign in to its machines as root."""

    async def admit(self, machine: Machine, authorized_keys: str) -> None:
        """These public keys, a line each, from the next connection on; connections that are open stay."""
        ...


@runtime_checkable
class FaultInjectingProvider(Protocol):
    """A provider whose machines may be broken on purpose, and mended."""

    async def kill(self, machine: Machine) -> None:
        """As a power cut: nothing on it is told."""
        ...

    async def freeze(self, machine: Machine) -> None:
        """It stands still, its addresses stay."""
        ...

    async def thaw(self, machine: Machine) -> None:
        """It goes on where it stood still; nothing happens to one that does not."""
        ...

    async def cut(self, machine: Machine) -> None:
        """It works on, but nothing from it reaches anybody, and nothing reaches it."""
        ...

    async def join(self, machine: Machine) -> None:
        """It is on the network again; nothing happens to one that is."""
        ...

    async def reclaim(self, machine: Machine, at: float) -> None:
        """It is taken back at that time; until then there is a notice."""
        ...


@runtime_checkable
class OwnedMachinesProvider(Protocol):
    """A provider of machines that somebody else set up: they are looked at before they are taken."""

    @property
    def server_id(self) -> str:
        """What the marks on machines call this server."""
        ...

    async def candidate(self, cluster: Cluster, name: str) -> Machine:
        """The machine for the head or a slot, taken or not. Raises Unreachable when it shows no host key."""
        ...

    async def replaced(self, cluster: str) -> frozenset[str]:
        """Names of those of `list` whose place the inventory gives to another machine, or that were installed anew: an apply
        takes what is there now in their place."""
        ...

    async def note(self, cluster: str, found: Mapping[str, DetectedHardware], nfs: Sequence[str]) -> None:
        """Keeps what machines have, and which volumes the head exports, for `place`."""
        ...

    async def exports(self, cluster: str) -> tuple[str, ...]:
        """The volumes that the head exports, as kept."""
        ...


class Provider(Protocol):
    traits: ProviderTraits

    async def preflight(self, cluster: Cluster) -> tuple[Gap, ...]:
        """Everything that is missing for this cluster, at once."""
        ...

    async def place(self, cluster: Cluster) -> Placement:
        """Addresses for the head and each slot; makes or finds the cluster's network. Idempotent.
        For the read-only question "where would it be" of a cluster that does not exist, see `find`."""
        ...

    async def find(self, cluster: Cluster) -> Placement | None:
        """As `place`, without making anything; None when there is no network yet."""
        ...

    async def list(self, cluster: str) -> tuple[Machine, ...]:
        """The machines that exist for the cluster of this name, running or not."""
        ...

    async def create(self, request: MachineRequest) -> Machine:
        """Makes and boots a machine; one left half-made by an earlier try is replaced."""
        ...

    async def start(self, machine: Machine) -> None: ...

    async def stop(self, machine: Machine) -> None: ...

    async def fence(self, machine: Machine) -> None:
        """Off at once, whatever it does; nothing happens to one that is off."""
        ...

    async def delete(self, machine: Machine) -> None: ...

    def look_inside(self, machine: Machine) -> str:
        """For a person: how to see what a machine does that does not answer SSH."""
        ...

    async def attach(self, cluster: str, datasets: Sequence[Dataset]) -> None:
        """Makes exactly these datasets (and home, scratch, head state) appear under /srv/headway in the machines."""
        ...

    async def attached(self, cluster: str) -> tuple[str, ...]:
        """Names of the datasets that are attached now."""
        ...

    async def release(self, cluster: str, *, delete_data: bool) -> tuple[str, ...]:
        """Removes network and mounts of a cluster without machines; returns the paths of the data that was kept."""
        ...

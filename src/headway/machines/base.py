"""The provider Protocol: everything Headway asks of a kind of machine.

What happens inside a machine goes by SSH, for all alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.domain.cluster import Cluster, Dataset
from headway.domain.machine import Gap, Machine, MachineRequest


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cluster's machines live: decided once by the provider, the same on every later call."""

    subnet: str
    gateway: str
    addresses: dict[str, str]  # head and every slot
    real_cpus: int
    real_memory_mib: int
    real_tmp_mib: int  # the disk that jobs' own /tmp is on; 0 = not known
    gpu_devices: int


class Provider(Protocol):
    name: str

    async def preflight(self, cluster: Cluster) -> tuple[Gap, ...]:
        """Everything that is missing for this cluster, at once."""
        ...

    async def place(self, cluster: Cluster) -> Place:
        """Addresses for the head and each slot; makes or finds the cluster's network. Idempotent.
        For the read-only question "where would it be" of a cluster that does not exist, see `find`."""
        ...

    async def find(self, cluster: Cluster) -> Place | None:
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

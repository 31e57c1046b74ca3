"""Machines you already own, from the inventory in the cluster file (`hosts`): they have the packages and answer SSH.

The first host is the head, the others take the slots in order. Headway neither makes nor removes such machines:
`create` checks that one answers and pins its host key; the rest of the Protocol has nothing to do and says so.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from headway.domain.cluster import Cluster, Dataset, Host
from headway.domain.machine import Gap, Machine, MachineRequest, MachineState
from headway.errors import Refused, Unreachable
from headway.machines.base import Place
from headway.machines.podman import locked
from headway.machines.ssh import fingerprint, read_host_key


class SshProvider:
    """Provider `ssh`. Pinned host keys are kept in the state folder, one file a cluster."""

    name = "ssh"

    def __init__(self, state_dir: Path, hosts: Sequence[Host]) -> None:
        self.state_dir = state_dir.absolute()
        self._hosts = {host.name: host for host in hosts}

    async def preflight(self, cluster: Cluster) -> tuple[Gap, ...]:
        wanted = (cluster.head, *cluster.slot_names)
        return tuple(
            Gap(f"hosts: no machine for {name}", "add one to the inventory, or lower nodes and spares")
            for name in wanted
            if name not in self._hosts
        )

    async def place(self, cluster: Cluster) -> Place:
        wanted = (cluster.head, *cluster.slot_names)
        missing = [name for name in wanted if name not in self._hosts]
        if missing:
            raise Refused(f"hosts names no machine for {', '.join(missing)}", hint="the first host is the head")
        addresses = {name: await _address(self._hosts[name].address) for name in wanted}
        return Place(
            subnet=_around(list(addresses.values())),
            gateway=_source_address(addresses[cluster.head]),
            addresses=addresses,
            real_cpus=0,
            real_memory_mib=0,
            real_tmp_mib=0,
            gpu_devices=0,
        )

    async def find(self, cluster: Cluster) -> Place | None:
        return await self.place(cluster)

    async def list(self, cluster: str) -> tuple[Machine, ...]:
        """The inventory's machines whose host key is pinned; whether one answers is for `Connections` to find out."""
        pins = self._pins(cluster)
        return tuple([await self._machine(cluster, name, pins[name]) for name in self._hosts if name in pins])

    async def create(self, request: MachineRequest) -> Machine:
        """Checks that the machine answers, and pins its host key at first contact. Raises Unreachable when it does not,
        or answers with another key than the one pinned before."""
        host = self._host(request.name)
        key = await read_host_key(host.address, host.port)
        pinned = await asyncio.to_thread(self._pin, request.cluster, request.name, key)
        if pinned != key:
            raise Unreachable(
                f"{request.name} ({host.address}) answers with another SSH host key, {fingerprint(key)}, "
                f"than the one pinned, {fingerprint(pinned)}",
                hint=f"if it was reinstalled, remove its line from {self._pin_file(request.cluster)} and apply again",
            )
        return await self._machine(request.cluster, request.name, key)

    async def start(self, machine: Machine) -> None:
        """Headway can't switch on a machine it did not make; raises Unreachable unless it answers already."""
        host = self._host(machine.name)
        try:
            await read_host_key(host.address, host.port)
        except Unreachable as error:
            raise Unreachable(error.message, hint="switch the machine on: provider ssh can't do that") from error

    async def stop(self, machine: Machine) -> None:
        """Nothing: a machine you own is yours to switch off."""

    async def delete(self, machine: Machine) -> None:
        """The machine stays; only its pinned host key is forgotten."""
        await asyncio.to_thread(self._pin, machine.cluster, machine.name, "")

    def look_inside(self, machine: Machine) -> str:
        return f"is {machine.address} on, and does its SSH server run? look at its console"

    async def attach(self, cluster: str, datasets: Sequence[Dataset]) -> None:
        """Nothing: machines you own mount their own storage, under /srv/headway."""

    async def attached(self, cluster: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    async def release(self, cluster: str, *, delete_data: bool) -> tuple[str, ...]:  # noqa: ARG002
        """Forgets the pinned host keys. Data lies on your own storage and is never deleted from here."""
        await asyncio.to_thread(self._pin_file(cluster).unlink, missing_ok=True)
        return tuple(f"{host.address}:/srv/headway" for host in self._hosts.values())

    async def watch(self, cluster: str) -> AsyncIterator[tuple[str, str]]:  # noqa: ARG002
        """No news ever: nobody tells when a machine of yours goes away; Slurm's own ping does. Ends when cancelled."""
        await asyncio.Event().wait()
        yield "", ""

    def _host(self, name: str) -> Host:
        if name not in self._hosts:
            raise Refused(f"hosts names no machine for {name}", hint="add one to the inventory")
        return self._hosts[name]

    async def _machine(self, cluster: str, name: str, key: str) -> Machine:
        host = self._hosts[name]
        return Machine(
            name=name,
            cluster=cluster,
            address=await _address(host.address),
            state=MachineState.RUNNING,
            host_key=key,
            user=host.user,
            port=host.port,
            key_path=host.key,
        )

    def _pin_file(self, cluster: str) -> Path:
        return self.state_dir / "hosts" / f"{cluster}.json"

    def _pins(self, cluster: str) -> dict[str, str]:
        try:
            return dict(json.loads(self._pin_file(cluster).read_text()))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise Refused(
                f"{self._pin_file(cluster)} is damaged: {error}", hint="remove it; keys are pinned anew"
            ) from error

    def _pin(self, cluster: str, name: str, key: str) -> str:
        """Pins a key unless one is pinned already, or with "" forgets it; returns the pinned one. Machines are created
        side by side, so reading and writing are one step under a lock."""
        path = self._pin_file(cluster)
        with locked(path.with_suffix(".lock")):
            pins = self._pins(cluster)
            pinned = pins.setdefault(name, key) if key else pins.pop(name, "")
            draft = path.with_suffix(".draft")
            draft.write_text(json.dumps(pins, indent=1, sort_keys=True) + "\n")
            draft.replace(path)
        return pinned


async def _address(name: str) -> str:
    """IPv4 address of a host name or address. Raises Unreachable."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, family=socket.AF_INET)
    except OSError as error:
        raise Unreachable(f"host {name} has no address: {error}", hint="use its address in the inventory") from error
    return str(found[0][4][0])


def _around(addresses: Sequence[str]) -> str:
    """The smallest network that holds all addresses."""
    numbers = [int(ipaddress.IPv4Address(address)) for address in addresses]
    prefix = 32 - (min(numbers) ^ max(numbers)).bit_length()
    return str(ipaddress.IPv4Network((min(numbers), prefix), strict=False))


def _source_address(target: str) -> str:
    """Our own address on the way to a machine; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((target, 9))
        return str(probe.getsockname()[0])

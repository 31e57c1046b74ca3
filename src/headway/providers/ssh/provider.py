"""Owned machines from the inventory in the cluster file (`hosts`). They already run and answer SSH.

Headway neither creates nor removes such machines: `create` checks that a machine answers and pins its host key. From
then on the machine keeps its slot, in any order of the inventory. The other methods of the Protocol do nothing or
raise Refused. `cluster.owned.machine_claims` surveys and changes the machines.

Where a host runs another system than the node image, the machine of its slot is a system container of that image on the
host (`cluster.owned.host_containers`): `candidate` returns the host, `list` the machine in the container."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from headway.catalog.providers import SSH
from headway.domain.cluster import Cluster, Host
from headway.domain.machines.machine import HostProblem, Machine, MachineRequest, MachineState
from headway.domain.machines.site import OwnedSite
from headway.domain.machines.survey import DetectedHardware
from headway.domain.storage.folders import Dataset
from headway.errors import HeadwayError, Refused, Unreachable
from headway.images import local_images
from headway.providers.base import Placement
from headway.providers.ssh.machine_records import ClaimedHost, HostRecords, MachineContainer
from headway.transport.connect import Dialer, HostKeyChanged, fingerprint, public_of


class SshProvider:
    """The provider `ssh`. Implements providers.base.Provider and providers.base.OwnedMachinesProvider."""

    traits = SSH

    def __init__(self, state_dir: Path, hosts: Sequence[Host]) -> None:
        self._hosts = tuple(hosts)
        self._kept = HostRecords(state_dir.absolute())

    @property
    def server_id(self) -> str:
        return self._kept.server_id()

    async def preflight(self, cluster: Cluster) -> tuple[HostProblem, ...]:
        hosts = self._places(cluster.name, _names(cluster))
        return tuple(
            HostProblem(f"hosts: no machine for {name}", "add one to the inventory, or lower nodes and spares")
            for name in _names(cluster)
            if name not in hosts
        )

    async def place(self, cluster: Cluster) -> Placement:
        names = _names(cluster)
        self._kept.check_head(cluster.name, cluster.head, self._hosts)
        hosts = self._places(cluster.name, names)
        missing = [name for name in names if name not in hosts]
        if missing:
            raise Refused(f"hosts names no machine for {', '.join(missing)}", hint="the first host is the head")
        kept = self._kept.read_record(cluster.name)
        found = await asyncio.gather(*(_reached_at(hosts[name], kept.machines.get(name)) for name in names))
        addresses = dict(zip(names, found, strict=True))
        ports = {name: port for name in names if (port := _port(hosts[name], kept.machines.get(name))) != 22}
        gateway = _source_address(addresses[cluster.head])
        return Placement(
            subnet=_around(list(addresses.values())),
            gateway=gateway,
            addresses=addresses,
            real_cpus=0,
            real_memory_mib=0,
            real_tmp_mib=0,
            gpu_devices=0,
            found={
                name: claimed.found for name, claimed in kept.machines.items() if claimed.found and name in addresses
            },
            own=OwnedSite(
                operators=_operators(hosts.values()),
                ssh_ports=tuple(sorted({host.port for host in hosts.values()} | set(ports.values()))),
                machine_ports=ports,
                known_as={name: hosts[name].address for name in names if hosts[name].address != addresses[name]},
                server_addresses=await _ways_in(gateway, hosts.values()),
                nfs=kept.nfs,
            ),
        )

    async def find(self, cluster: Cluster) -> Placement | None:
        return await self.place(cluster)

    async def list(self, cluster: str) -> tuple[Machine, ...]:
        """Returns the machines that have a slot; `Connections` finds out whether one answers. A machine keeps its slot
        until an apply gives the slot to another one, because its jobs run there, even if the inventory has changed. If its
        name can't be resolved, the name is returned as its address, so that the other machines are still listed."""
        places = self._named(cluster)
        machines = {}
        for name, claimed in self._kept.read_record(cluster).machines.items():
            host = places.get(name, claimed.host)
            machines[name] = replace(claimed, host=host) if _same(host, claimed) else claimed
        addresses = await asyncio.gather(*(_known_at(claimed) for claimed in machines.values()))
        found = zip(machines.items(), addresses, strict=True)
        return tuple(
            _machine(cluster, name, claimed, address or claimed.host.address) for (name, claimed), address in found
        )

    async def inventory(self, cluster: Cluster) -> Mapping[str, Host]:
        return self._places(cluster.name, _names(cluster))

    async def replaced(self, cluster: str) -> frozenset[str]:
        places = self._named(cluster)
        kept = self._kept.read_record(cluster).machines
        return frozenset(name for name, claimed in kept.items() if name in places and not _same(places[name], claimed))

    async def candidate(self, cluster: Cluster, name: str) -> Machine:
        host = self._host(cluster.name, _names(cluster), name)
        kept = self._kept.read_record(cluster.name).machines.get(name)
        pinned = kept.key if kept and _at(kept.host) == _at(host) else ""
        key = _line(host.host_key) or pinned or await self._shown(host)
        return _host_machine(cluster.name, name, ClaimedHost(host, key), await _reached_at(host, kept))

    async def create(self, request: MachineRequest) -> Machine:
        """Checks that the host answers, and pins its host key at the first contact. Raises Unreachable if it does not
        answer or shows another key than the pinned one."""
        host = self._host(request.cluster, [host.name for host in self._hosts if host.name], request.name)
        key = await self._shown(host)
        claimed = ClaimedHost(host, _line(host.host_key) or key, container=await _container(request))
        pinned = await asyncio.to_thread(self._kept.pin_host_key, request.cluster, request.name, claimed)
        if pinned != key:
            raise HostKeyChanged(
                f"{request.name} ({host.address}) answers with another SSH host key, {fingerprint(key)}, "
                f"than the one pinned, {fingerprint(pinned)}",
                hint="if it was reinstalled, give its new key in the inventory (host_key); otherwise another machine answers "
                "there: do not trust it",
            )
        return _machine(request.cluster, request.name, claimed, await _address(host.address))

    async def note(self, cluster: str, found: Mapping[str, DetectedHardware], nfs: Sequence[str]) -> None:
        machines = {
            name: claimed for name, claimed in self._kept.read_record(cluster).machines.items() if name in found
        }
        addresses = await asyncio.gather(*(_known_at(claimed) for claimed in machines.values()))
        known = dict(zip(machines, addresses, strict=True))
        await asyncio.to_thread(self._kept.record_survey, cluster, found, known, nfs)

    async def exports(self, cluster: str) -> tuple[str, ...]:
        return self._kept.read_record(cluster).nfs

    async def start(self, machine: Machine) -> None:
        """Raises Unreachable unless the machine already answers: Headway can't switch on an owned machine. (Its
        container is started by `cluster.owned.host_containers`.)"""
        dialer = Dialer("", 5, 5)
        try:
            await dialer.host_key(machine.address, machine.port, machine.jump)
        except Unreachable as error:
            raise Unreachable(error.message, hint="switch the machine on: provider ssh can't do that") from error
        finally:
            await dialer.close()

    async def stop(self, machine: Machine) -> None:
        """Does nothing: the owner switches an owned machine off."""

    async def fence(self, machine: Machine) -> None:
        raise Refused(f"switch {machine.name} off yourself: provider ssh can't do that")

    async def delete(self, machine: Machine) -> None:
        """Frees the machine's slot; the machine itself stays."""
        await asyncio.to_thread(self._kept.release_host, machine.cluster, machine.name)

    def inspection_hint(self, machine: Machine) -> str:
        if machine.host is not None:
            return f"on the host {machine.address}: systemctl status headway-machine"
        return f"check on its console that {machine.address} and its SSH server are running"

    async def attach(self, cluster: str, datasets: Sequence[Dataset]) -> None:
        """Does nothing: owned machines mount their own storage."""

    async def attached(self, cluster: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    async def release(self, cluster: str, *, delete_data: bool) -> tuple[str, ...]:
        """Deletes the records of the cluster. Home and scratch belong to the owner and are never deleted."""
        kept = [host.address for host in self._hosts if host.name == f"{cluster}-head"]
        await asyncio.to_thread(self._kept.remove_cluster, cluster)
        return (f"{kept[0]}:/srv/headway-state",) if kept and not delete_data else ()

    def _places(self, cluster: str, names: Sequence[str]) -> dict[str, Host]:
        return self._kept.assign_hosts(cluster, names, self._hosts)

    def _named(self, cluster: str) -> dict[str, Host]:
        return self._places(cluster, [host.name for host in self._hosts if host.name])

    def _host(self, cluster: str, names: Sequence[str], name: str) -> Host:
        hosts = self._places(cluster, names)
        if name not in hosts:
            raise Refused(f"hosts names no machine for {name}", hint="add one to the inventory")
        return hosts[name]

    async def _shown(self, host: Host) -> str:
        dialer = Dialer("", 5, 5)
        try:
            return await dialer.host_key(await _address(host.address), host.port, host.jump)
        finally:
            await dialer.close()


def _machine(cluster: str, name: str, claimed: ClaimedHost, address: str) -> Machine:
    """Returns the machine of a slot: the host itself, or the machine in its container."""
    machine, container = _host_machine(cluster, name, claimed, address), claimed.container
    if container is None:
        return machine
    return replace(
        machine,
        host_key=container.key,
        user="root",
        port=container.port,
        key_path="",
        password_path="",
        image=container.image,
        host=machine,
    )


async def _container(request: MachineRequest) -> MachineContainer | None:
    if not request.container_port:
        return None
    image = (await local_images.get_image(request.image_tag)).id
    return MachineContainer(request.container_port, _line(request.host_key_public), image)


def _port(host: Host, claimed: ClaimedHost | None) -> int:
    """Returns the SSH port of the slot's machine."""
    return claimed.container.port if claimed and claimed.container and _same(host, claimed) else host.port


def _host_machine(cluster: str, name: str, claimed: ClaimedHost, address: str) -> Machine:
    host = claimed.host
    return Machine(
        name=name,
        cluster=cluster,
        address=address,
        state=MachineState.RUNNING,
        host_key=claimed.key,
        user=host.user,
        port=host.port,
        key_path=host.key,
        password_path=host.sudo_password,
        jump=host.jump,
        found=claimed.found,
    )


def _names(cluster: Cluster) -> tuple[str, ...]:
    """Returns the heads and slots with owned machines; those of groups with another provider are left out."""
    rented = {name for group in cluster.groups if group.provider is not None for name in group.slots}
    return tuple(name for name in cluster.machine_names if name not in rented)


def _at(host: Host) -> tuple[str, int]:
    return host.address, host.port


def _same(host: Host, claimed: ClaimedHost) -> bool:
    """Returns whether the inventory names the machine that has the slot. A new host key in the inventory means that the
    machine was reinstalled."""
    return _at(host) == _at(claimed.host) and _line(host.host_key) in ("", claimed.key)


def _line(key: str) -> str:
    return " ".join(key.split()[:2])


def _operators(hosts: Iterable[Host]) -> dict[str, tuple[str, ...]]:
    files: dict[str, set[str]] = {}
    for host in hosts:
        files.setdefault(host.user, set()).add(host.key)
    public = {key: public_of(key) for keys in files.values() for key in keys}
    return {
        user: tuple(dict.fromkeys(public[key] for key in sorted(keys) if public[key] or not key))
        for user, keys in sorted(files.items())
    }


async def _ways_in(gateway: str, hosts: Iterable[Host]) -> tuple[str, ...]:
    """Returns the addresses from which Headway's server connects to the machines."""
    jumps = {host.jump.address for host in hosts if host.jump}
    found = {gateway}
    for jump in sorted(jumps):
        try:
            found.add(await _address(jump))
        except HeadwayError:
            continue  # the name can only be resolved elsewhere; open connections stay open anyway
    return tuple(sorted(found))


async def _address(name: str) -> str:
    """Returns the IPv4 address of a host name or address. Raises Unreachable."""
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, family=socket.AF_INET)
    except OSError as error:
        raise Unreachable(f"host {name} has no address: {error}", hint="use its address in the inventory") from error
    return str(found[0][4][0])


async def _reached_at(host: Host, kept: ClaimedHost | None) -> str:
    """Returns the host's address; if its name can't be resolved now, the address at the last apply. Raises Unreachable
    if there is none."""
    try:
        return await _address(host.address)
    except Unreachable:
        if kept is None or not kept.address or _at(kept.host) != _at(host):
            raise
        return kept.address


async def _known_at(claimed: ClaimedHost) -> str:
    """Returns the same as `_reached_at`, or "" instead of raising."""
    try:
        return await _reached_at(claimed.host, claimed)
    except Unreachable:
        return ""


def _around(addresses: Sequence[str]) -> str:
    """Returns the smallest network that contains all addresses."""
    numbers = [int(ipaddress.IPv4Address(address)) for address in addresses]
    prefix = 32 - (min(numbers) ^ max(numbers)).bit_length()
    return str(ipaddress.IPv4Network((min(numbers), prefix), strict=False))


def _source_address(target: str) -> str:
    """Returns this host's own address on the route to a machine; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((target, 9))
        return str(probe.getsockname()[0])

"""The site of a cluster: what its provider chose for it, and facts about owned machines. Rendering needs it together with
the Cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.domain.machines.gpu_parts import GpuParts
from headway.domain.machines.survey import DetectedHardware


@dataclass(frozen=True, slots=True)
class OwnedSite:
    """Facts about a cluster of owned machines."""

    # User who signs in for Headway -> public keys; "" is the cluster's own key while they are not known.
    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ssh_ports: tuple[int, ...] = (22,)
    known_as: Mapping[str, str] = field(default_factory=dict)  # machine name -> its name in the inventory
    # Addresses that Headway connects from: those of the server and of jump hosts
    server_addresses: tuple[str, ...] = ()
    # The paths of home and scratch that the head exports; the other machines already have the rest
    nfs: tuple[str, ...] = ()
    machine_ports: Mapping[str, int] = field(default_factory=dict)  # machine name -> its SSH port, unless that is 22


@dataclass(frozen=True)
class Site:
    """The provider's choices for this cluster: networks, addresses, real hardware."""

    subnet: str  # "10.87.3.0/24"
    gateway: str  # the server's own address as the machines see it
    head_address: str
    addresses: Mapping[str, str]  # machine name -> address, head included, every slot
    uids: Mapping[str, int]  # user -> uid, departed users included
    departed: tuple[str, ...] = ()  # users who were once in the file: their names and uids stay, locked
    simulated_gpus: bool = False
    gpu_devices: int = 0  # the most device nodes that a local machine makes at boot
    real_cpus: int = 0  # the machine's real CPUs; 0 = as in the plan
    real_memory_mib: int = 0
    host_keys: Mapping[str, str] = field(default_factory=dict)  # machine name -> public key, where it is known
    members: tuple[str, ...] | None = None  # slots that have or will have a machine, in slot order; None: all
    real_tmp_mib: int = 0  # size of the disk with the jobs' private /tmp; 0 = not known
    found: Mapping[str, DetectedHardware] = field(
        default_factory=dict
    )  # provider ssh: machine name -> its real hardware
    own: OwnedSite | None = None  # provider ssh
    cgroup_v1: bool = False  # local machines on a host with cgroup v1
    # Node -> how its GPUs are shared now, where that is not yet as the cluster file says: a roll changes it
    parts_now: Mapping[str, GpuParts] = field(default_factory=dict)

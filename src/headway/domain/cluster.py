"""What a cluster is once defaults and catalogue are filled in. All frozen; imports nothing of Headway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Plan:
    """A catalogue entry: what one node of a kind has and costs."""

    name: str
    gpu_type: str  # "h100"; "" for a CPU plan
    gpus: int
    gpu_memory_mib: int
    cpus: int
    memory_mib: int
    price_usd_per_node_hour: Decimal
    gpu_product: str = ""  # "NVIDIA H100 80GB HBM3", as nvidia-smi names it


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for a node. Its name carries the leaf it hangs on; a machine is made for a slot, never the reverse."""

    name: str  # "lab-1-3": leaf 1, place 3
    leaf: str  # "leaf1"
    number: int  # 1.. over the whole cluster, fixes the address


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch of the fabric. A leaf has nodes, every other has children."""

    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    nodes: tuple[str, ...]  # slot names
    default: bool
    tier: int
    max_time_s: int | None  # None: unlimited
    default_time_s: int | None
    preempts: tuple[str, ...]  # partition names
    preemptable: bool  # some partition lists this one
    grace_s: int
    teams: tuple[str, ...]  # () = every team
    slurm: Mapping[str, str] = field(default_factory=dict)  # allowlisted keys


@dataclass(frozen=True, slots=True)
class GpuHourCap:
    """A team's GPU-hours per period; refilled at the period's start, never by decay."""

    hours: Decimal
    per: str  # "day" | "week" | "month" | "quarter" | "year"


@dataclass(frozen=True, slots=True)
class Team:
    """Becomes a Slurm account and a QOS of the same name."""

    name: str
    users: tuple[str, ...]
    share: int
    gpu_hours: GpuHourCap | None = None
    running_jobs: int | None = None
    submitted_jobs: int | None = None
    gpus: int | None = None  # GPUs held at once


@dataclass(frozen=True, slots=True)
class User:
    """A person on the machines. The uid is the server's to give: same on every machine, never used again."""

    name: str
    ssh_keys: tuple[str, ...]  # public keys, one line each
    teams: tuple[str, ...]  # the first is the default account
    admin: bool = False  # the person who applied


@dataclass(frozen=True, slots=True)
class Dataset:
    name: str
    source: str  # absolute path on the server's machine ("" where the machines mount it themselves)
    mount: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Storage:
    home: str = "/home"
    scratch: str = "/scratch"
    datasets: tuple[Dataset, ...] = ()


@dataclass(frozen=True, slots=True)
class Host:
    """A machine you own, from an inventory (provider ssh)."""

    name: str  # head or a slot name, given by position
    address: str
    user: str = "root"
    port: int = 22
    key: str = ""  # path of a private key on the server's machine; "" = the cluster's bootstrap key


@dataclass(frozen=True)
class Cluster:
    """A resolved cluster file: everything that rendering and diffing need, apart from addresses and secrets."""

    name: str
    provider: str  # "local" | "ssh"
    image: str  # "debian13" | "debian12"
    slurm_version: str  # "24.11" | "22.05": what the image carries
    plan: Plan
    nodes: int
    spares: int
    slots: tuple[Slot, ...]  # nodes + spares, in leaf order
    switches: tuple[Switch, ...]  # () = one switch, no topology plugin
    storage: Storage
    partitions: tuple[Partition, ...]
    teams: tuple[Team, ...]
    users: tuple[User, ...]
    slurm: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[Host, ...] = ()  # provider ssh
    departed_jobs: str = "cancel"  # what happens to running jobs of a removed user: "cancel" | "finish"
    mail_relay: str = ""  # host:port that --mail-type mail goes to; "" = none
    containers: str = ""  # what runs --container-image: "builtin" | "enroot" | "" = nothing does

    @property
    def head(self) -> str:
        """Name of the machine that runs the controller, the database and user logins."""
        return f"{self.name}-head"

    @cached_property
    def slot_names(self) -> tuple[str, ...]:
        return tuple(slot.name for slot in self.slots)

    @property
    def simulated_gpus(self) -> bool:
        """Local machines have no GPU device; every surface that shows one says SIMULATED."""
        return self.provider == "local" and self.plan.gpus > 0


@dataclass(frozen=True)
class Site:
    """What a provider decided for this cluster: where the machines are. Rendering takes it beside the Cluster."""

    subnet: str  # "10.87.3.0/24"
    gateway: str  # the server's own address as the machines see it
    head_address: str
    addresses: Mapping[str, str]  # machine name -> address, head included, every slot
    uids: Mapping[str, int]  # user -> uid, departed users included
    departed: tuple[str, ...] = ()  # users once in the file: their names and uids stay, locked
    simulated_gpus: bool = False
    gpu_devices: int = 0  # device nodes made at boot on local machines
    real_cpus: int = 0  # what a machine really has; 0 = as the plan says
    real_memory_mib: int = 0
    host_keys: Mapping[str, str] = field(default_factory=dict)  # machine name -> public key, as far as known
    real_tmp_mib: int = 0  # the disk that jobs' own /tmp is on; 0 = not known

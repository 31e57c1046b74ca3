"""Survey of an owned machine: the hardware and software found on it, without judgement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.domain.machines.gpu_driver import DetectedDriver


@dataclass(frozen=True, slots=True)
class DetectedGpu:
    """One GPU of a machine."""

    product: str  # "NVIDIA H100 80GB HBM3"; "" without a driver
    memory_mib: int
    bus: str  # "0000:3b:00.0"
    cores: tuple[int, ...] = ()  # nearest cores, numbered as Slurm does: from 0 over all sockets; () = all or not known
    minor: int = -1  # N of /dev/nvidiaN; -1 = no driver


@dataclass(frozen=True, slots=True)
class DetectedNic:
    """A port of the fabric: InfiniBand or RoCE."""

    name: str  # "mlx5_0"
    kind: str  # "InfiniBand" | "Ethernet"
    gbps: int
    up: bool
    numa: int = -1


@dataclass(frozen=True, slots=True)
class DetectedHardware:
    """The hardware of one machine."""

    cpus: int
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int
    tmp_mib: int = 0  # size of the disk with /var
    gpus: tuple[DetectedGpu, ...] = ()
    nics: tuple[DetectedNic, ...] = ()

    @property
    def topology(self) -> tuple[int, int, int]:
        """Sockets, cores per socket, threads per core."""
        return self.sockets, self.cores_per_socket, self.threads_per_core

    @property
    def usable_gpus(self) -> tuple[DetectedGpu, ...]:
        """GPUs that have a driver."""
        return tuple(gpu for gpu in self.gpus if gpu.minor >= 0)


@dataclass(frozen=True, slots=True)
class DetectedMount:
    """The file system of one folder."""

    source: str  # "" = a folder on the root file system
    kind: str  # file system type
    mark: str  # the same on all machines that see the same folder
    at: str = ""  # mount point, where another folder was examined
    server: str = ""  # address of the file server, where the kernel reports it


@dataclass(frozen=True, slots=True)
class MachineClaim:
    """The mark on a machine that says which cluster and which server use it."""

    cluster: str
    server: str  # id of the server's state folder
    machine: str  # the machine's name on that server


@dataclass(frozen=True)
class Survey:
    """Facts about one machine, collected before anything is changed on it."""

    machine: str  # head or slot name
    address: str
    found: DetectedHardware
    system: str  # "debian13"
    system_name: str  # "Debian GNU/Linux 13 (trixie)"
    kernel: str
    hostname: str
    clock_off_s: float
    listening: frozenset[int] = frozenset()  # TCP ports
    free_mib: int = 0  # free space where packages are installed
    packages: Mapping[str, str] = field(default_factory=dict)  # installed: name -> version
    units: frozenset[str] = frozenset()  # running daemons of Slurm and related packages
    slurm_cluster: str = ""  # ClusterName in an existing slurm.conf
    mounts: Mapping[str, DetectedMount] = field(default_factory=dict)  # by examined path
    nfs_server: bool = False  # whether its kernel supports it
    nfs_client: bool = False
    firewall: bool = False  # whether its kernel supports nf_tables
    claim: MachineClaim | None = None
    users: Mapping[str, int] = field(default_factory=dict)  # of the examined names, those with a local user -> uid
    # Users' folders below the examined paths -> uid of the owner
    homes: Mapping[str, int] = field(default_factory=dict)
    owners: Mapping[int, str] = field(default_factory=dict)  # of the examined uids, those with a local user -> name
    driver: DetectedDriver = field(default_factory=DetectedDriver)
    identity: str = ""  # id of its boot: the same for one machine under two addresses
    state: DetectedMount | None = None  # file system with the folder for Slurm's state
    addresses: frozenset[str] = frozenset()  # the machine's own IPv4 addresses
    seen_from: str = ""  # the IPv4 address of this connection's other end, as the machine saw it
    architecture: str = "x86_64"
    systemd: bool = True  # whether systemd is its first process
    container_runtimes: tuple[str, ...] = ()  # of podman, runc and systemd-nspawn, those that it has
    cgroup_v1: bool = False  # whether controllers belong to cgroup v1: in the legacy and in the hybrid layout
    missing_controllers: tuple[
        str, ...
    ] = ()  # controllers of cgroup v2 that Slurm or the container needs and the host lacks
    selinux_enforcing: bool = False
    amended: frozenset[str] = frozenset()  # CVE ids that the changelogs of its packages list as fixed


@dataclass(frozen=True, slots=True)
class Difference:
    """A disagreement between plan and machine; Headway uses what the machine has."""

    machine: str
    what: str  # "GPUs", "memory", ...
    plan: str
    found: str

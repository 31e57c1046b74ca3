"""Survey of an owned machine: the hardware and software found on it, without judgement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DetectedGpu:
    product: str  # "NVIDIA H100 80GB HBM3"; "" where no driver says
    memory_mib: int
    bus: str  # "0000:3b:00.0"
    cores: tuple[int, ...] = ()  # cores beside it, counted as Slurm does: 0.. over all sockets; () = all or not known
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
    tmp_mib: int = 0  # of the disk that /var is on
    gpus: tuple[DetectedGpu, ...] = ()
    nics: tuple[DetectedNic, ...] = ()

    @property
    def topology(self) -> tuple[int, int, int]:
        """Sockets, cores of each, threads of each."""
        return self.sockets, self.cores_per_socket, self.threads_per_core

    @property
    def usable_gpus(self) -> tuple[DetectedGpu, ...]:
        """Those a driver answers for."""
        return tuple(gpu for gpu in self.gpus if gpu.minor >= 0)


@dataclass(frozen=True, slots=True)
class DetectedMount:
    source: str  # "" = a folder of the root file system's
    kind: str  # file system type
    mark: str  # the same on all machines that see the same folder
    at: str = ""  # where it is mounted, when another folder was asked about
    server: str = ""  # its address, where the kernel tells it


@dataclass(frozen=True, slots=True)
class MachineClaim:
    """Who has a machine: the mark that is on it."""

    cluster: str
    server: str  # id of the server's state folder
    machine: str  # the name it has there


@dataclass(frozen=True)
class Survey:
    """One look at one machine, before anything is changed there."""

    machine: str  # head or slot name
    address: str
    found: DetectedHardware
    system: str  # "debian13"
    system_name: str  # "Debian GNU/Linux 13 (trixie)"
    kernel: str
    hostname: str
    clock_off_s: float
    listening: frozenset[int] = frozenset()  # TCP ports
    free_mib: int = 0  # where packages go
    packages: Mapping[str, str] = field(default_factory=dict)  # installed: name -> version
    units: frozenset[str] = frozenset()  # daemons of Slurm and its kind that run
    slurm_cluster: str = ""  # ClusterName of a slurm.conf that is there
    mounts: Mapping[str, DetectedMount] = field(default_factory=dict)  # of the paths asked for
    nfs_server: bool = False  # whether its kernel has it
    nfs_client: bool = False
    firewall: bool = False  # whether its kernel has nf_tables
    held: MachineClaim | None = None
    users: Mapping[str, int] = field(default_factory=dict)  # of the names asked for, those it knows itself -> uid
    homes: Mapping[str, int] = field(default_factory=dict)  # folders of users below the paths asked for -> owner's uid
    owners: Mapping[int, str] = field(default_factory=dict)  # of the uids asked for, those it knows itself -> name
    driver: str = ""  # of NVIDIA
    identity: str = ""  # its boot's id: the same machine under two addresses has the same
    state: DetectedMount | None = None  # what the folder for Slurm's state lies on
    addresses: frozenset[str] = frozenset()  # IPv4, its own
    seen_from: str = ""  # the IPv4 address that this look came from, as the machine saw it
    amended: frozenset[str] = frozenset()  # CVE ids that its packages' own changelogs name as mended


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the plan and a machine disagree; what is there is what counts."""

    machine: str
    what: str  # "GPUs", "memory", ...
    plan: str
    found: str

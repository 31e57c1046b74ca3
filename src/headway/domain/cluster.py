"""A resolved cluster: the cluster file with defaults and catalogue filled in. Frozen; imports nothing else of Headway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property

from headway.domain.provider_traits import ProviderTraits
from headway.domain.survey import DetectedHardware

MAIN_GROUP = "main"  # the one group of a file without groups
SHARED_FOLDER = ".headway"  # Headway's own, on the scratch of machines one owns
SLURM_STATE_FOLDER = "/srv/headway-state/slurmctld"  # Slurm's own state, unless the file names a place
STATE_VERSION_FILE = "slurm-version"  # beside them on the head's volume: which Slurm has written them
ACCOUNTING_FOLDER = "/srv/headway-state/slurm_acct_db"  # beside it: what a restore keeps of the database that was there
RESTORING_SUFFIX = ".restoring"  # beside either while a restore has not ended: one of them may be half there


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
    expects: Mapping[str, float] = field(default_factory=dict)  # figure of a test -> what a sound node reaches at least


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for a node. Its name carries the leaf it hangs on; a machine is made for a slot, never the reverse."""

    name: str  # "lab-1-3": leaf 1, place 3; in a group of its own name "lab-gpu-1-3"
    leaf: str  # "leaf1"
    number: int  # 1.. over the whole cluster, its place in a list of hosts or addresses
    group: str = MAIN_GROUP


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one plan. It has more slots than machines where it may grow: which have one is no part of the file."""

    name: str
    plan: Plan
    nodes: int  # machines for work; of a group that scales by itself, the least
    most: int  # slots for them
    spares: int = 0
    slots: tuple[str, ...] = ()  # names of `most` + `spares`
    idle_s: int | None = None  # it scales by itself: a node idle for so long goes; None: by people alone
    spot: bool = False  # the provider may take a machine back at short notice
    reserved: bool = False  # its machines are paid for whether they are there or not
    price_usd_per_node_hour: Decimal = Decimal(0)

    @property
    def min_machines(self) -> int:
        """Machines that there should be at least."""
        return self.nodes + self.spares

    @property
    def autoscaled(self) -> bool:
        """Whether Headway itself creates and deletes its machines: on Slurm's demand, or to replace reclaimed spot machines."""
        return self.idle_s is not None or self.spot


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
class Budget:
    """What a team's jobs may hold in one period. `unit`: "usd" | "gpu_hours"."""

    unit: str
    limit: Decimal
    per: str  # as of a GpuHourCap
    warn: float = 0.8  # share of the limit
    cap: bool = True  # once it is spent no further job starts


@dataclass(frozen=True, slots=True)
class Costs:
    """How money is reckoned. `idle`, `spare`, `broken`: who pays for capacity that no job held, "use" | "share" |
    "centre:NAME"."""

    timezone: str = "UTC"
    idle: str = "use"
    spare: str = "share"
    broken: str = "share"
    pue: float = 1.3
    usd_per_kwh: Decimal | None = None


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
    leads: tuple[str, ...] = ()  # of its users: who may act on all its jobs
    budget: Budget | None = None


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
    # Holds versions (`headway dataset add`): it stands in no file, and Headway keeps `source`, with provider ssh on the machines.
    versioned: bool = False


@dataclass(frozen=True, slots=True)
class Volume:
    """A file system that every machine mounts from elsewhere: NFS, Lustre, BeeGFS, WekaFS, FUSE."""

    name: str
    path: str  # where it appears
    type: str  # "nfs4", "lustre", "fuse.sshfs"; "none" with the option bind
    source: str
    options: tuple[str, ...] = ()

    @property
    def read_only(self) -> bool:
        return "ro" in self.options


@dataclass(frozen=True, slots=True)
class Storage:
    home: str = "/home"
    scratch: str = "/scratch"
    datasets: tuple[Dataset, ...] = ()
    volumes: tuple[Volume, ...] = ()
    state: str = ""  # folder of a file system that all heads mount; "" = the provider gives them one

    @property
    def paths(self) -> tuple[str, ...]:
        """Of everything that people keep files on."""
        return self.home, self.scratch, *(volume.path for volume in self.volumes)


@dataclass(frozen=True, slots=True)
class JumpHost:
    """A machine that the way to others leads through."""

    address: str
    user: str = "root"
    port: int = 22
    key: str = ""  # as in Host
    host_key: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine you own, from an inventory (provider ssh)."""

    name: str  # head or a slot name, given by position; "" = a reserve, for when the cluster grows
    address: str
    user: str = "root"  # another one becomes root by sudo
    port: int = 22
    key: str = ""  # path of a private key on the server's machine; "" = the cluster's bootstrap key
    sudo_password: str = ""  # path of a file there with the password that sudo asks for; "" = it asks for none
    jump: JumpHost | None = None
    host_key: str = ""  # public host key it must answer with; "" = the one it shows first is pinned


@dataclass(frozen=True, slots=True)
class Alerts:
    """Where alerts go; "" = not there. The addresses are as good as passwords."""

    webhook: str = ""  # URL
    chat: str = ""  # URL of an incoming webhook of Slack's form
    mail: str = ""  # address, by way of the cluster's mail relay


@dataclass(frozen=True, slots=True)
class StallRule:
    """When a job is said to get nowhere. `after_s`: 0 looks for none. `acts`: a hung job is requeued, an idle one cancelled;
    else people are told only."""

    after_s: int
    acts: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """What is done about faults, as the file has it."""

    xid_classes: Mapping[int, str] = field(default_factory=dict)  # GPU error code -> class, where it is another one
    act: bool = True  # False: incidents are seen and noted, and nothing is done
    tries: int = 3  # repairs of one incident, then the node is out of service
    lemon_score: int = 8  # at so much the node is kept out
    lemon_days: int = 14  # over the incidents of so many days
    lemon_spare_work: bool = False  # it is not kept out at once: it is for jobs that ask for such nodes
    silent_share: float = 0.5  # of all nodes: when so many fall silent together it is the network
    warning_s: int = 60  # for a job that asked for a signal, before it is requeued
    hang: StallRule = StallRule(1800)
    idle: StallRule = StallRule(7200)


@dataclass(frozen=True, slots=True)
class BackupRule:
    """Backups that make themselves. Paths are of the server's machine."""

    to: str  # folder
    every_s: int
    keep: int  # so many stay
    key_file: str  # holds the passphrase


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where a key comes from that is not Headway's to make: a file of the server's machine, or a command run there."""

    file: str = ""
    command: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        return self.file or f"the command {self.command[0]}"


@dataclass(frozen=True, slots=True)
class Firewall:
    """Who reaches a machine of one's own, beyond the cluster's machines and the server."""

    ssh_from: tuple[str, ...] = ()  # networks that may use SSH; () = every one


def head_names(cluster: str, controllers: int) -> tuple[str, ...]:
    return tuple(f"{cluster}-head{number if number > 1 else ''}" for number in range(1, controllers + 1))


@dataclass(frozen=True)
class Cluster:
    """A resolved cluster file: everything that rendering and diffing need, apart from addresses and secrets."""

    name: str
    provider: ProviderTraits
    image: str  # "debian13" | "debian14" | "debian12"
    slurm_version: str  # "24.11" | "26.05" | "22.05": what the image carries
    groups: tuple[Group, ...]  # in the file's order, one at least
    slots: tuple[Slot, ...]  # of all groups, in leaf order
    switches: tuple[Switch, ...]  # () = one switch, no topology plugin
    storage: Storage
    partitions: tuple[Partition, ...]
    teams: tuple[Team, ...]
    users: tuple[User, ...]
    slurm: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[Host, ...] = ()  # provider ssh
    departed_jobs: str = "cancel"  # what happens to running jobs of a removed user: "cancel" | "finish"
    mail_relay: str = ""  # host:port that --mail-type mail goes to; "" = none
    alerts: Alerts = field(default_factory=Alerts)
    containers: str = ""  # what runs --container-image: "builtin" | "enroot" | "" = nothing does
    health: Health = field(default_factory=Health)
    max_usd_per_hour: Decimal | None = None  # what all machines together may cost; None: whatever they do
    firewall: Firewall = field(default_factory=Firewall)  # provider ssh
    backup: BackupRule | None = None  # None: only when somebody asks
    munge_key: KeySource | None = None  # None: Headway makes it
    costs: Costs = field(default_factory=Costs)
    controllers: int = 1  # 2: a second machine takes over when the head is away

    @property
    def head(self) -> str:
        """Name of the machine that runs the controller, the database and user logins."""
        return self.heads[0]

    @property
    def heads(self) -> tuple[str, ...]:
        """Machines that a controller runs on, in the order in which they lead; people log in on each."""
        return head_names(self.name, self.controllers)

    @property
    def state_folder(self) -> str:
        """Folder of Slurm's state, on every head. The one above it is the cluster's own too."""
        return f"{self.storage.state}/{self.name}/slurmctld" if self.storage.state else SLURM_STATE_FOLDER

    @property
    def dataset_library(self) -> str:
        """Folder of the versions of datasets, on what machines one owns share."""
        return f"{self.storage.scratch}/{SHARED_FOLDER}/{self.name}/datasets"

    @cached_property
    def machine_names(self) -> tuple[str, ...]:
        """Of every machine that there may be."""
        return (*self.heads, *self.slot_names)

    @cached_property
    def slot_names(self) -> tuple[str, ...]:
        return tuple(slot.name for slot in self.slots)

    @cached_property
    def group_of(self) -> Mapping[str, Group]:
        """Slot name -> its group."""
        return {name: group for group in self.groups for name in group.slots}

    def role_of(self, name: str) -> str:
        """Machines of one role hold the same files: "head", "head2", and "node", or a role a group where there are several."""
        if name in self.heads:
            return name.removeprefix(f"{self.name}-")
        return self.role_of_group(self.group_of[name])

    def role_of_group(self, group: Group) -> str:
        return "node" if len(self.groups) == 1 else f"node-{group.name}"

    @property
    def nodes(self) -> int:
        """Nodes for work that the file asks for."""
        return sum(group.nodes for group in self.groups)

    @property
    def spares(self) -> int:
        return sum(group.spares for group in self.groups)

    @cached_property
    def largest_plan(self) -> Plan:
        """The plan of the nodes that hold the largest job: most GPUs, then most CPUs."""
        return max((group.plan for group in self.groups), key=lambda plan: (plan.gpus, plan.cpus))

    @property
    def gpus(self) -> int:
        """Of all nodes for work that the file asks for."""
        return sum(group.nodes * group.plan.gpus for group in self.groups)

    @property
    def plan_names(self) -> str:
        """ "h100-8", or "h100-8 + cpu-64" where groups have different ones."""
        return " + ".join(dict.fromkeys(group.plan.name for group in self.groups))

    @property
    def simulated_gpus(self) -> bool:
        """Local machines have no GPU device; every surface that shows one says SIMULATED."""
        return self.provider.simulates_hardware and self.largest_plan.gpus > 0


@dataclass(frozen=True, slots=True)
class OwnedSite:
    """What is particular to machines one owns."""

    # User who signs in for Headway -> public keys; "" is the cluster's own while that is not known.
    operators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ssh_ports: tuple[int, ...] = (22,)
    known_as: Mapping[str, str] = field(default_factory=dict)  # machine name -> its name in the inventory
    server_addresses: tuple[str, ...] = ()  # addresses that Headway comes from: the server's, jump hosts'
    nfs: tuple[str, ...] = ()  # of home and scratch, the paths that the head exports; the others are there already


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
    gpu_devices: int = 0  # device nodes made at boot on local machines, at most
    real_cpus: int = 0  # what a machine really has; 0 = as the plan says
    real_memory_mib: int = 0
    host_keys: Mapping[str, str] = field(default_factory=dict)  # machine name -> public key, as far as known
    members: tuple[str, ...] | None = None  # slots that have or get a machine, in slot order; None: all
    real_tmp_mib: int = 0  # the disk that jobs' own /tmp is on; 0 = not known
    found: Mapping[str, DetectedHardware] = field(
        default_factory=dict
    )  # provider ssh: machine name -> what it really has
    own: OwnedSite | None = None  # provider ssh
    cgroup_v1: bool = False  # local machines on a host with cgroup v1

"""A resolved cluster: the cluster file with defaults and catalogue values filled in. The types are frozen and depend on
no package outside `domain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property

from headway.domain.billing.cost_settings import CostSettings
from headway.domain.jobs.job_qos import JobQos
from headway.domain.machines.cloud_settings import CloudSettings
from headway.domain.machines.gpu_driver import GpuDriver
from headway.domain.machines.gpu_parts import WHOLE, GpuParts
from headway.domain.machines.image_signatures import SignaturePolicy
from headway.domain.machines.machine import Jump
from headway.domain.network_policy import Network
from headway.domain.provider_traits import ProviderTraits
from headway.domain.slurm.reservations import PlannedReservation
from headway.domain.slurm.site_scripts import SiteScripts
from headway.domain.storage.folders import StorageFolders
from headway.domain.teams import JobLimits, Team, User, UserLimits

MAIN_GROUP = "main"  # the only group of a cluster file without groups
SHARED_FOLDER = ".headway"  # Headway's own folder on the scratch of owned machines
# Folder of slurmctld's state, unless the cluster file names another
SLURM_STATE_FOLDER = "/srv/headway-state/slurmctld"
STATE_VERSION_FILE = "slurm-version"  # next to that folder on the head's volume: the Slurm version that wrote the state
# Path next to that folder for the accounting database, named like it: a restore keeps the old database next to this path.
ACCOUNTING_FOLDER = "/srv/headway-state/slurm_acct_db"
# Suffix of a marker file next to both paths during a restore: while it exists, state or database may be incomplete.
RESTORING_SUFFIX = ".restoring"


@dataclass(frozen=True, slots=True)
class Plan:
    """A catalogue entry: hardware and price of one node of a kind."""

    name: str
    gpu_type: str  # "h100"; "" for a CPU plan
    gpus: int
    gpu_memory_mib: int
    cpus: int
    memory_mib: int
    price_usd_per_node_hour: Decimal
    gpu_product: str = ""  # as nvidia-smi names it: "NVIDIA H100 80GB HBM3"
    # Figure of a test -> the least value that a sound node reaches
    expects: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for a node. Its name contains its leaf switch. A machine is created for a slot; a slot is never created
    for a machine."""

    name: str  # "lab-1-3": leaf 1, place 3; in a named group "lab-gpu-1-3"
    leaf: str  # "leaf1"
    number: int  # from 1 over the whole cluster: its place in a list of hosts or addresses
    group: str = MAIN_GROUP


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one plan. A group that may grow has more slots than machines; the cluster file does not say which slots
    have one."""

    name: str
    plan: Plan
    nodes: int  # machines for work; for an autoscaled group the minimum
    most: int  # number of slots for them
    spares: int = 0
    slots: tuple[str, ...] = ()  # names of `most` + `spares`
    idle_s: int | None = None  # autoscaled: a node idle for this long is removed; None: people scale the group
    spot: bool = False  # spot machines: the provider may take one back at short notice
    on_demand_fallback: bool = False  # spot: a machine on demand is rented where no spot machine can be had
    reserved: bool = False  # reserved machines: paid for even while they do not exist
    price_usd_per_node_hour: Decimal = Decimal(0)
    parts: GpuParts = WHOLE  # how jobs share each of its GPUs
    features: tuple[str, ...] = ()  # for --constraint, besides names of group, plan and leaf
    weight: int | None = None  # Slurm's weight of its nodes; None: from the price
    provider: ProviderTraits | None = None  # where its machines are rented; None: the cluster's provider
    queue_time_s: int = 0  # autoscaled: a job must have waited for so long before machines are created for it
    max_usd_per_hour: Decimal | None = None  # autoscaled: limit on the price of its machines together; None: no limit

    @property
    def gpu_counts(self) -> dict[str, int]:
        """Number of a node's `gres/gpu` by type, as the plan says: GPUs, or MIG instances."""
        if self.parts.mig:
            return {profile: count * self.plan.gpus for profile, count in self.parts.counts.items()}
        return {self.plan.gpu_type: self.plan.gpus} if self.plan.gpus else {}

    @property
    def min_machines(self) -> int:
        """The least number of machines that the group should have."""
        return self.nodes + self.spares

    @property
    def min_usd_per_hour(self) -> Decimal:
        """Price of the least number of machines."""
        return self.price_usd_per_node_hour * self.min_machines

    @property
    def autoscaled(self) -> bool:
        """Returns whether Headway itself creates and deletes the group's machines: on Slurm's demand, or to replace
        reclaimed spot machines."""
        return self.idle_s is not None or self.spot


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch of the fabric. A leaf switch has nodes, every other switch has children."""

    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Partition:
    """A resolved partition."""

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
    environment: str = ""  # software environment of commands that name none: NAME or NAME@VERSION
    container_image: str = ""  # container image of commands that name neither one nor an environment
    per_user: UserLimits = field(default_factory=UserLimits)
    limits: JobLimits = field(default_factory=JobLimits)  # of all its jobs together
    per_job: Mapping[str, int] = field(default_factory=dict)  # limits of each job: resources as in JobLimits

    @property
    def qos(self) -> str:
        """Name of the QOS that holds the partition's limits, "" without limits. No team has a name with a dot."""
        return f"partition.{self.name}" if self.has_limits else ""

    @property
    def has_limits(self) -> bool:
        """Returns whether the partition has limits of its own, apart from times."""
        return self.per_user != UserLimits() or self.limits != JobLimits() or bool(self.per_job)


@dataclass(frozen=True, slots=True)
class Host:
    """An owned machine from an inventory (provider ssh)."""

    name: str  # the head's or a slot's name, given by position; "" = a reserve for when the cluster grows
    address: str
    user: str = "root"  # a user other than root becomes root by sudo
    port: int = 22
    key: str = ""  # path of a private key on the server's machine; "" = the cluster's bootstrap key
    sudo_password: str = ""  # path of a file there with sudo's password; "" = sudo asks for none
    jump: Jump | None = None
    host_key: str = ""  # the public host key that it must present; "" = the key of the first connection is pinned
    run_in: str = ""  # "native" | "container"; "" = native if its system is the image's, otherwise a container
    container_port: int = 2222  # SSH port of the machine in its container


@dataclass(frozen=True, slots=True)
class Alerts:
    """The receivers of alerts; "" = no alerts are sent there. Treat the addresses like passwords."""

    webhook: str = ""  # URL
    chat: str = ""  # URL of an incoming webhook in Slack's format
    mail: str = ""  # address; sent through the cluster's mail relay


@dataclass(frozen=True, slots=True)
class StallRule:
    """When a job counts as stalled. `after_s`: 0 switches the check off. `acts`: a stalled job is requeued and an idle one
    cancelled; otherwise people are only notified."""

    after_s: int
    acts: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """The cluster file's settings for faults and repairs; their defaults are in its model."""

    xid_classes: Mapping[int, str]  # GPU error code -> class, where it differs from the catalogue
    act: bool  # False: incidents are recorded, and nothing is done about them
    tries: int  # repairs of one incident; after that the node is out of service
    flaky_score: int  # a node with this score is flaky: it is kept out of service
    flaky_days: int  # days over which incidents count for the score
    # at this score the node is reserved for jobs that request it, at twice the score kept out
    reserve_flaky_nodes: bool
    silent_share: float  # share of all nodes; if this many fall silent together, the network is at fault
    warning_s: int  # time that a job that requested a signal has before it is requeued
    stall: StallRule
    idle: StallRule
    fabric_test_every_s: int  # seconds between scheduled fabric tests; 0: only people request them


@dataclass(frozen=True, slots=True)
class BackupRule:
    """The schedule of automatic backups. Paths are on the server's machine."""

    to: str  # folder
    every_s: int
    keep: int  # number of backups that are kept
    key_file: str  # file with the passphrase


@dataclass(frozen=True, slots=True)
class DriftRule:
    """The schedule of comparisons of the running cluster with its file."""

    check_every_s: int = 0  # 0: never
    repair: bool = False  # the file is applied again if no job or session would be disturbed


@dataclass(frozen=True, slots=True)
class KeySource:
    """Source of a key that Headway does not make: a file on the server's machine, or a command run there."""

    file: str = ""
    command: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """Names the source for a message."""
        return self.file or f"the command {self.command[0]}"


HEAD_PROXY = "head"  # `PackageSources.proxy`: the proxy that Headway runs on the head


@dataclass(frozen=True, slots=True)
class PackageSources:
    """Where machines get Python packages from."""

    index: str = ""  # URL of a package index; "" = PyPI
    proxy: str = ""  # HEAD_PROXY, or the URL of an HTTP proxy; "" = directly
    hosts: tuple[str, ...] = ()  # further hosts that HEAD_PROXY connects to


@dataclass(frozen=True, slots=True)
class Firewall:
    """Hosts that may reach an owned machine, besides the cluster's machines and the server."""

    ssh_from: tuple[str, ...] = ()  # networks that may use SSH; () = all


def head_names(cluster: str, controllers: int) -> tuple[str, ...]:
    """Returns the names of the heads: NAME-head, NAME-head2, ..."""
    return tuple(f"{cluster}-head{number if number > 1 else ''}" for number in range(1, controllers + 1))


@dataclass(frozen=True)
class Cluster:
    """A resolved cluster file: everything that rendering and diffing need, except addresses and secrets."""

    name: str
    provider: ProviderTraits
    image: str  # "debian13" | "debian14" | "debian12"
    slurm_version: str  # the version in the image: "24.11" | "26.05" | "22.05"
    groups: tuple[Group, ...]  # in the order of the cluster file, at least one
    slots: tuple[Slot, ...]  # of all groups, in leaf order
    switches: tuple[Switch, ...]  # () = one switch, no topology plugin
    storage: StorageFolders
    partitions: tuple[Partition, ...]
    teams: tuple[Team, ...]
    users: tuple[User, ...]
    health: Health
    slurm: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[Host, ...] = ()  # provider ssh
    departed_jobs: str = "cancel"  # what happens to running jobs of a removed user: "cancel" | "finish"
    mail_relay: str = ""  # host:port that --mail-type mail goes to; "" = none
    alerts: Alerts = field(default_factory=Alerts)
    containers: str = ""  # what implements --container-image: "builtin" | "enroot" | "" = nothing does
    image_signatures: SignaturePolicy = field(default_factory=SignaturePolicy)  # containers "builtin"
    max_usd_per_hour: Decimal | None = None  # limit on the price of all machines together; None: no limit
    firewall: Firewall = field(default_factory=Firewall)  # provider ssh
    backup: BackupRule | None = None  # None: backups are made only on request
    drift: DriftRule = field(default_factory=DriftRule)
    munge_key: KeySource | None = None  # None: Headway makes it
    costs: CostSettings = field(default_factory=CostSettings)
    controllers: int = 1  # 2: a second machine takes over when the head fails
    # Name -> lines of the requirements file of each environment that apply builds
    environments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    environment: str = ""  # as in Partition
    container_image: str = ""  # as in Partition
    mlflow: bool = False  # whether jobs log to MLflow through Headway
    pbs_variables: bool = False  # whether jobs have the variables of PBS
    packages: PackageSources = field(default_factory=PackageSources)
    gpu_driver: GpuDriver = field(default_factory=GpuDriver)  # provider ssh
    network: Network = field(default_factory=Network)
    cloud: CloudSettings | None = None  # providers that rent machines
    qos: tuple[JobQos, ...] = ()  # QOS that jobs choose, besides those of teams and partitions
    scripts: SiteScripts = field(default_factory=SiteScripts)
    reservations: tuple[PlannedReservation, ...] = ()

    @property
    def head(self) -> str:
        """Name of the machine that runs the controller and the database and takes user logins."""
        return self.heads[0]

    @property
    def heads(self) -> tuple[str, ...]:
        """Machines that run a controller, in order of precedence; people can log in on each."""
        return head_names(self.name, self.controllers)

    @property
    def state_folder(self) -> str:
        """Folder of Slurm's state, on every head. Its parent folder belongs to the cluster too."""
        return f"{self.storage.state}/{self.name}/slurmctld" if self.storage.state else SLURM_STATE_FOLDER

    @property
    def dataset_store_folder(self) -> str:
        """Folder of the versions of datasets, on the scratch that owned machines share."""
        return f"{self.storage.scratch}/{SHARED_FOLDER}/{self.name}/datasets"

    @property
    def environment_folder(self) -> str:
        """Folder of the versions of software environments, on storage that all machines share. Machines see it
        read-only at /environments."""
        if self.provider.volumes_on_server:
            return "/srv/headway/environments"
        return f"{self.storage.scratch}/{SHARED_FOLDER}/{self.name}/environments"

    @cached_property
    def machine_names(self) -> tuple[str, ...]:
        """Names of all heads and slots, whether they have a machine or not."""
        return (*self.heads, *self.slot_names)

    @cached_property
    def slot_names(self) -> tuple[str, ...]:
        """Names of all slots, in leaf order."""
        return tuple(slot.name for slot in self.slots)

    @cached_property
    def group_of(self) -> Mapping[str, Group]:
        """Group by slot name."""
        return {name: group for group in self.groups for name in group.slots}

    def provider_of(self, name: str) -> ProviderTraits:
        """Returns the provider of a head's or a slot's machine."""
        group = self.group_of.get(name)
        return group.provider if group is not None and group.provider is not None else self.provider

    @property
    def rents_machines(self) -> bool:
        """Returns whether all machines are rented, or those of a group."""
        return self.provider.rents_machines or any(group.provider is not None for group in self.groups)

    def role_of(self, name: str) -> str:
        """Returns the role of a machine; machines of one role have the same files. Roles are "head", "head2" and
        "node"; where there are several groups, each group is a role of its own."""
        if name in self.heads:
            return name.removeprefix(f"{self.name}-")
        return self.role_of_group(self.group_of[name])

    def role_of_group(self, group: Group) -> str:
        """Returns the role of the nodes of a group."""
        return "node" if len(self.groups) == 1 else f"node-{group.name}"

    @property
    def nodes(self) -> int:
        """Number of nodes for work in the cluster file."""
        return sum(group.nodes for group in self.groups)

    @property
    def spares(self) -> int:
        """Number of spare nodes in the cluster file."""
        return sum(group.spares for group in self.groups)

    @cached_property
    def largest_plan(self) -> Plan:
        """The plan of the nodes that hold the largest job: most GPUs, then most CPUs."""
        return max((group.plan for group in self.groups), key=lambda plan: (plan.gpus, plan.cpus))

    @property
    def restricts_network(self) -> bool:
        """Returns whether the jobs of a team are refused anything on the network."""
        return self.network.policy.restricts or any(team.network.restricts for team in self.teams)

    @property
    def gpus(self) -> int:
        """GPUs of all nodes for work in the cluster file."""
        return sum(group.nodes * group.plan.gpus for group in self.groups)

    @property
    def min_usd_per_hour(self) -> Decimal:
        """Price of the nodes and spares that always run."""
        return sum((group.min_usd_per_hour for group in self.groups), Decimal(0))

    @property
    def plan_names(self) -> str:
        """Names of the plans of all groups: "h100-8", or "h100-8 + cpu-64"."""
        return " + ".join(dict.fromkeys(group.plan.name for group in self.groups))

    @property
    def file_uids(self) -> dict[str, int]:
        """Returns the uids that the cluster file gives, by user."""
        return {user.name: user.uid for user in self.users if user.uid is not None}

    @property
    def simulated_gpus(self) -> bool:
        """Returns whether GPUs are simulated: local machines have no GPU device. Every page and command that shows one
        says SIMULATED."""
        return self.provider.simulates_hardware and self.largest_plan.gpus > 0

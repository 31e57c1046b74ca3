"""The cluster file as people write it: strict pydantic models that check each field by itself.

Rules that span several fields (a partition with more nodes than the cluster, preemption, switches) are in
`headway.clusterfile.rules.file_rules`. An empty field counts as a missing one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from headway.catalog.providers import LOCAL, PROVIDERS
from headway.catalog.releases import DEFAULT_IMAGE, IMAGES, images_in_words
from headway.clusterfile.gpu_driver_model import GpuDriverPart
from headway.clusterfile.health_model import HealthPart
from headway.clusterfile.hosts_model import FirewallPart, HostPart, ServerPath
from headway.clusterfile.software_model import (
    ContainerImage,
    DefaultEnvironment,
    EnvironmentName,
    PackagesPart,
    Requirements,
)
from headway.domain.cluster import BUDGET_WARN_SHARE, DEFAULT_COSTS
from headway.validation import syntax_rules
from headway.validation.field_types import (
    MOST_NODES,
    SHARED_BY,
    ClusterName,
    GraceSeconds,
    GroupName,
    Name,
    Part,
    PartitionName,
    PublicKey,
    Seconds,
    SharedBy,
    SlurmKeys,
    TeamName,
    UserName,
    checked_by,
    host_from_text,
    mount_line,
    one_or_two,
    value_error,
)

if TYPE_CHECKING:
    ProviderName = str
    ImageName = str
else:  # type checkers do not accept a computed Literal
    ProviderName = Literal[tuple(PROVIDERS)]
    ImageName = Literal[tuple(IMAGES)]


class SwitchPart(Part):
    """One switch of an explicit tree: a leaf with nodes, or a switch above others."""

    name: Name = Field(description="The switch's name in Slurm's topology.", examples=["leaf1"])
    nodes: int | None = Field(None, ge=1, le=MOST_NODES, description="Number of nodes under this leaf switch.")
    children: list[Name] | None = Field(None, min_length=1, description="Names of the switches under this one.")


class FabricPart(Part):
    """How nodes are wired: jobs are placed under as few leaf switches as possible."""

    leaf_size: int | None = Field(
        None, ge=1, le=4096, description="Nodes per leaf switch; one spine connects all leaves."
    )
    switches: list[SwitchPart] | None = Field(
        None, min_length=1, description="All switches of the tree, instead of leaf_size."
    )


class VolumePart(Part):
    """A shared folder, the same on all machines."""


class DatasetPart(Part):
    """A folder on every machine (default: read-only)."""

    name: Name = Field(description="The dataset's name.", examples=["tiny"])
    path: str | None = Field(
        None,
        description="Source folder on the server's machine; optional with provider ssh.",
        examples=["./data/tiny"],
    )
    mount: str | None = Field(
        None, description="Mount point on the machines (default: /datasets/NAME).", examples=["/datasets/tiny"]
    )
    read_only: bool = Field(True, description="Mount it read-only.")


class MountedVolumePart(Part):
    """An external file system that every machine mounts."""

    name: Name = Field(description="The volume's name.", examples=["models"])
    path: str = Field(description="Mount point on the machines.", examples=["/models"])
    mount: Annotated[str, AfterValidator(mount_line)] = Field(
        description="Type, source and options, as in a line of fstab.",
        examples=["nfs4 filer:/export/models rw,hard", "lustre mgs@tcp:/fsx", "fuse.sshfs box:/srv/data ro"],
    )


class StoragePart(Part):
    """Shared storage: /home, /scratch, datasets and external file systems."""

    home: VolumePart = Field(default_factory=VolumePart, description="/home on every machine.")
    scratch: VolumePart = Field(default_factory=VolumePart, description="/scratch on every machine, for checkpoints.")
    datasets: list[DatasetPart] = Field(default_factory=list, max_length=1000, description="Datasets.")
    volumes: list[MountedVolumePart] = Field(default_factory=list, max_length=50, description="External file systems.")
    state: str | None = Field(
        None,
        description="Provider ssh: folder for Slurm's state (default: on the head's disk). With controllers: 2 both heads mount "
        "its file system, and neither serves it.",
        examples=["/shared/headway"],
    )


class PartitionPart(Part):
    """A Slurm partition: nodes, time limits, teams and preemption."""

    default: bool = Field(False, description="Use it for jobs that name no partition (default: the first partition).")
    nodes: int | None = Field(None, ge=1, le=MOST_NODES, description="Use only the first N slots (default: all).")
    groups: list[str] = Field(
        default_factory=list, description="Use only nodes of these groups (default: all).", examples=[["gpu"]]
    )
    max_time: Seconds | None = Field(None, description="Longest time limit of a job, in a Slurm time format.")
    default_time: Seconds | None = Field(None, description="Time limit of a job without --time.")
    tier: int | None = Field(
        None, ge=1, le=65000, description="PriorityTier in Slurm: jobs of a higher tier are scheduled first."
    )
    preempts: list[str] = Field(
        default_factory=list,
        description="Partitions whose jobs it preempts (requeues): all preemptable partitions of a lower tier.",
        examples=[["train", "debug"]],
    )
    teams: list[str] = Field(default_factory=list, description="Teams that may use it (default: all).")
    grace_time: GraceSeconds = Field(
        120,
        description="Seconds between preemption and the end of a job. The job first gets its --signal, else SIGTERM.",
    )
    environment: DefaultEnvironment | None = Field(
        None, description="Software environment of `headway run` in it without --environment."
    )
    container_image: ContainerImage | None = Field(
        None, description="Container image of `headway run` in it, instead of an environment."
    )
    slurm: SlurmKeys = Field(default_factory=dict, description="More keys of the partition's line in slurm.conf.")


GpuPart = Annotated[str, Field(pattern=r"^([1-7]g\.[1-9][0-9]{0,2}gb|shard|mps)$")]


class GpuHoursPart(Part):
    """GPU-hours per period."""

    hours: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False, description="GPU-hours in one period.")]
    per: Literal["day", "week", "month", "quarter", "year"] = Field(description="The period.")


class LimitsPart(Part):
    """Limits of a team."""

    gpu_hours: GpuHoursPart | None = Field(None, description="GPU-hours per period.")
    running_jobs: int | None = Field(None, ge=1, le=1_000_000, description="Largest number of running jobs.")
    submitted_jobs: int | None = Field(
        None, ge=1, le=1_000_000, description="Largest number of running and pending jobs."
    )
    gpus: int | None = Field(
        None, ge=1, le=1_000_000, description="Largest number of allocated GPUs; a MIG instance counts as one."
    )
    gpu_parts: dict[GpuPart, Annotated[int, Field(ge=1, le=1_000_000)]] = Field(
        default_factory=dict,
        max_length=20,
        description="Largest number of allocated parts of GPUs: MIG instances by profile, shard, mps (per cent).",
        examples=[{"3g.71gb": 4, "shard": 16}],
    )


class BudgetPart(Part):
    """Budget of a team per period: money or GPU-hours."""

    usd: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)] | None = Field(
        None, description="US dollars for the resources that its jobs hold."
    )
    gpu_hours: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="GPU-hours that its jobs hold."
    )
    per: Literal["day", "week", "month", "quarter", "year"] = Field("month", description="The period.")
    warn: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        BUDGET_WARN_SHARE, description="Warn the team when it has used this share."
    )
    cap: bool = Field(
        True, description="Start no more jobs of the team when the budget is spent; running jobs continue."
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> BudgetPart:
        if (self.usd is None) == (self.gpu_hours is None):
            raise value_error("must have either usd or gpu_hours", "for example budget: {usd: 20000, per: month}")
        return self


class TeamPart(Part):
    """Users of one Slurm account."""

    users: list[UserName] = Field(default_factory=list, description="User names.", examples=[["alice", "bob"]])
    leads: list[UserName] = Field(
        default_factory=list, description="Users of the team who may manage its jobs.", examples=[["alice"]]
    )
    share: int = Field(1, ge=1, le=1_000_000, description="Fair share, relative to the other teams.")
    limits: LimitsPart = Field(default_factory=LimitsPart, description="Limits.")
    budget: BudgetPart | None = Field(None, description="Budget of the team (default: none).")
    environment: DefaultEnvironment | None = Field(
        None,
        description="Software environment of its `headway run` without --environment; the partition's comes first.",
    )
    container_image: ContainerImage | None = Field(
        None, description="Container image of its `headway run`, instead of an environment."
    )


class UserPart(Part):
    """One person."""

    ssh_keys: list[PublicKey] = Field(default_factory=list, description="Public key files, or public keys as text.")


class DeparturesPart(Part):
    """What happens when a user is removed from the file."""

    jobs: Literal["cancel", "finish"] = Field(
        "cancel", description="Cancel the user's running jobs, or let them finish."
    )


class MailPart(Part):
    """Mail server for --mail-type."""

    relay: Annotated[str, checked_by(syntax_rules.relay_fault)] = Field(
        description="host:port of an SMTP server.", examples=["mail.example.org:25"]
    )


class AlertsPart(Part):
    """Receivers of alerts about nodes, GPUs and daemons (default: none)."""

    webhook: Annotated[str, checked_by(syntax_rules.url_fault)] | None = Field(
        None, description="URL that receives alerts as JSON by POST.", examples=["https://example.org/alerts"]
    )
    chat: Annotated[str, checked_by(syntax_rules.url_fault)] | None = Field(
        None, description="Incoming webhook of a chat in Slack's format (Slack, Mattermost, Rocket.Chat and others)."
    )
    mail: Annotated[str, checked_by(syntax_rules.mail_fault)] | None = Field(
        None, description="Mail address; the mail is sent through mail.relay.", examples=["oncall@example.org"]
    )


class ContainersPart(Part):
    """Container runtime for --container-image."""

    backend: Literal["builtin", "enroot"] | None = Field(
        None,
        description="builtin: part of Headway's node images (default there). enroot: Enroot and Pyxis, which must be "
        "installed on your machines; Headway configures them.",
    )


MigLayout = dict[Annotated[str, Field(max_length=16)], Annotated[int, Field(ge=1, le=7)]]
_MIG = "MIG instances of each GPU: number by profile (default: GPUs are not divided)."
_MIG_EXAMPLES: list[MigLayout] = [{"3g.71gb": 2}]
_SHARDS = (
    "Shards of each GPU, which jobs request as --gres shard:N. They share the GPU without isolation from each other."
)
_MPS = "Jobs request a percentage of a GPU, as --gres mps:N, and share it through NVIDIA's MPS."


class GroupPart(Part):
    """Nodes of one kind."""

    plan: str = Field(description="Catalogue entry with hardware and price of a node.", examples=["h100-8"])
    nodes: int | None = Field(
        None, ge=0, le=MOST_NODES, description="Number of nodes for jobs, without spares; not with idle."
    )
    max: int | None = Field(
        None,
        ge=1,
        le=MOST_NODES,
        description="Largest number of nodes that it can be scaled to without a change of slurm.conf (default: nodes).",
    )
    min: int | None = Field(None, ge=0, le=MOST_NODES, description="With idle: smallest number of nodes (default: 0).")
    idle: Seconds | None = Field(
        None,
        description="Let the group scale by itself between min and max: remove a node after this time without a job. Slurm time "
        "format, or minutes.",
        examples=["00:10:00"],
    )
    spares: int = Field(
        0, ge=0, le=1000, description="Number of ready nodes that are kept free to replace failed ones."
    )
    mig: MigLayout = Field(default_factory=dict, max_length=6, description=_MIG, examples=_MIG_EXAMPLES)
    shards: int | None = Field(None, ge=2, le=100, description=_SHARDS, examples=[8])
    mps: bool = Field(False, description=_MPS)
    spot: bool = Field(False, description="The provider may take the machines back at short notice.")
    reserved: bool = Field(
        False,
        description="Charge nodes and spares as long as they are in the file, also without a machine.",
    )
    price: Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)] | None = Field(
        None, description="USD per node and hour (default: the price of the plan)."
    )


class CostPart(Part):
    """Cost limit and division of costs."""

    usd_per_hour: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="Limit for all machines together; nodes above it are not created."
    )
    timezone: Annotated[str, checked_by(syntax_rules.zone_fault)] = Field(
        DEFAULT_COSTS.timezone,
        description="Time zone in which the months of invoices begin.",
        examples=["Europe/Berlin"],
    )
    idle: SharedBy = Field(DEFAULT_COSTS.idle, description=f"Division of the cost of idle capacity: {SHARED_BY}")
    spare: SharedBy = Field(DEFAULT_COSTS.spare, description=f"Division of the cost of spares: {SHARED_BY}")
    broken: SharedBy = Field(
        DEFAULT_COSTS.broken, description=f"Division of the cost of nodes that are down or drained: {SHARED_BY}"
    )
    pue: Annotated[float, Field(ge=1, le=10, allow_inf_nan=False)] = Field(
        DEFAULT_COSTS.pue,
        description="Power usage effectiveness: energy of the site divided by energy of the machines.",
    )
    usd_per_kwh: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = Field(
        None, description="USD per kilowatt-hour (default: energy has no price)."
    )


class BackupPart(Part):
    """Scheduled backups, made while jobs run."""

    to: ServerPath = Field(description="Folder on the server's machine.", examples=["/backup/headway"])
    every: Seconds = Field(
        86400, description="Interval, in a Slurm time format (default: once a day).", examples=["12:00:00"]
    )
    keep: int = Field(14, ge=1, le=10_000, description="Number of the cluster's backups to keep in the folder.")
    key_file: ServerPath = Field(
        description="File on the server's machine whose first line is the passphrase.",
        examples=["/etc/headway/backup.key"],
    )


class KeyPart(Part):
    """A key that you provide."""

    file: ServerPath | None = Field(None, description="File on the server's machine with the key.")
    command: list[Annotated[str, Field(min_length=1)]] | None = Field(
        None,
        min_length=1,
        description="Program in /etc/headway/commands on the server's machine that prints the key, and its arguments.",
        examples=[["vault-munge", "secret/lab"]],
    )


class SecretsPart(Part):
    """Sources of secret keys."""

    munge: KeyPart | None = Field(None, description="MUNGE key, 32 to 1024 bytes (default: Headway creates one).")


class ClusterFile(Part):
    """A cluster in one file. The smallest one is name, plan and nodes."""

    name: ClusterName = Field(description="The cluster's name; machines are named after it.", examples=["lab"])
    provider: ProviderName = Field(LOCAL.name, description="Source of the machines.")
    image: ImageName = Field(DEFAULT_IMAGE, description=f"Node image: {images_in_words()}.")
    plan: str | None = Field(
        None, description="Catalogue entry with hardware and price of a node.", examples=["h100-8"]
    )
    nodes: int | None = Field(
        None, ge=0, le=MOST_NODES, description="Number of nodes for jobs, without head and spares.", examples=[4]
    )
    max: int | None = Field(
        None,
        ge=1,
        le=MOST_NODES,
        description="Largest number of nodes that it can be scaled to without a change of slurm.conf (default: nodes).",
    )
    spares: int = Field(
        0, ge=0, le=1000, description="Number of ready nodes that are kept free to replace failed ones."
    )
    mig: MigLayout = Field(default_factory=dict, max_length=6, description=_MIG, examples=_MIG_EXAMPLES)
    shards: int | None = Field(None, ge=2, le=100, description=_SHARDS, examples=[8])
    mps: bool = Field(False, description=_MPS)
    controllers: Annotated[Literal[1, 2], BeforeValidator(one_or_two)] = Field(
        1, description="2: a second head, NAME-head2, takes over within seconds when the first one fails."
    )
    groups: dict[GroupName, GroupPart] = Field(
        default_factory=dict,
        max_length=50,
        description="Groups of different nodes, instead of plan, nodes, max and spares. Slurm fills cheap groups first.",
        examples=[{"gpu": {"plan": "h100-8", "nodes": 4, "max": 8}, "cpu": {"plan": "cpu-64", "nodes": 2}}],
    )
    cost: CostPart = Field(default_factory=CostPart, description="Limit and division of the costs of machines.")
    fabric: FabricPart = Field(default_factory=FabricPart, description="Switches (default: one switch).")
    ssh_keys: list[PublicKey] = Field(
        default_factory=list,
        description="Your public keys: files, or keys as text.",
        examples=[["~/.ssh/id_ed25519.pub"]],
    )
    storage: StoragePart = Field(default_factory=StoragePart, description="Shared folders.")
    partitions: dict[PartitionName, PartitionPart] = Field(
        default_factory=dict,
        max_length=100,
        description="Slurm partitions (default: train, with all nodes).",
    )
    teams: dict[TeamName, TeamPart] = Field(
        default_factory=dict, description="Teams (default: one named default, with you as its user)."
    )
    users: dict[UserName, UserPart] = Field(default_factory=dict, description="SSH keys of the users named in teams.")
    slurm: SlurmKeys = Field(
        default_factory=dict, description="More keys of slurm.conf.", examples=[{"PriorityWeightAge": 2000}]
    )
    departures: DeparturesPart = Field(
        default_factory=DeparturesPart, description="Jobs of users who are removed from the file."
    )
    mail: MailPart | None = Field(None, description="Mail server for --mail-type (default: no mail).")
    alerts: AlertsPart = Field(default_factory=AlertsPart, description="Receivers of alerts.")
    containers: ContainersPart = Field(default_factory=ContainersPart, description="Container runtime of jobs.")
    environments: dict[EnvironmentName, Requirements] = Field(
        default_factory=dict,
        max_length=100,
        description="Software environments that apply builds: packages, or the text of a requirements file. Each change is a "
        "new version. pytorch is always there; pytorch: [] builds none where GPUs are real.",
        examples=[{"vision": ["torch", "torchvision==0.21"]}],
    )
    environment: DefaultEnvironment | None = Field(
        None,
        description="Software environment of `headway run` without --environment (default: the node's own Python).",
        examples=["pytorch"],
    )
    container_image: ContainerImage | None = Field(
        None,
        description="Container image of `headway run` without --container-image, instead of an environment.",
        examples=["nvcr.io/nvidia/pytorch:25.04-py3"],
    )
    packages: PackagesPart = Field(default_factory=PackagesPart, description="Sources of Python packages.")
    health: HealthPart = Field(default_factory=HealthPart, description="Reactions to faults of GPUs and nodes.")
    hosts: list[Annotated[HostPart, BeforeValidator(host_from_text)]] = Field(
        default_factory=list, description="Provider ssh: your machines, the head first."
    )
    gpu: GpuDriverPart = Field(default_factory=GpuDriverPart, description="NVIDIA's driver of your machines.")
    firewall: FirewallPart = Field(default_factory=FirewallPart, description="Provider ssh: access to your machines.")
    backup: BackupPart | None = Field(
        None, description="Scheduled backups (default: none; `headway backup` creates one)."
    )
    secrets: SecretsPart = Field(default_factory=SecretsPart, description="Keys that you provide.")

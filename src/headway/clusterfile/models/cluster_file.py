"""The cluster file as people write it: strict pydantic models that check each field by itself.

Rules that span several fields (a partition with more nodes than the cluster, preemption, switches) are in
`headway.clusterfile.rules`. An empty field counts as a missing one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from headway.catalog.node_images import DEFAULT_IMAGE, IMAGES, images_in_words
from headway.catalog.providers import LOCAL, PROVIDERS
from headway.clusterfile.models.alerts import AlertsPart, MailPart
from headway.clusterfile.models.backup import BackupPart, SecretsPart
from headway.clusterfile.models.cloud import CloudPart
from headway.clusterfile.models.costs import CostPart
from headway.clusterfile.models.drift import DriftPart
from headway.clusterfile.models.fabric import FabricPart
from headway.clusterfile.models.gpu_driver import GpuDriverPart
from headway.clusterfile.models.groups import MIG_EXAMPLES, MIG_HELP, MPS_HELP, SHARDS_HELP, GroupPart, MigLayout
from headway.clusterfile.models.health import HealthPart
from headway.clusterfile.models.hosts import FirewallPart, HostPart, hosts_were_read
from headway.clusterfile.models.network import NetworkPart
from headway.clusterfile.models.scheduling.partitions import PartitionPart
from headway.clusterfile.models.scheduling.qos import QosPart
from headway.clusterfile.models.scheduling.reservations import ReservationPart
from headway.clusterfile.models.software.containers import ContainersPart
from headway.clusterfile.models.software.environments import (
    ContainerImage,
    DefaultEnvironment,
    EnvironmentName,
    Requirements,
)
from headway.clusterfile.models.software.packages import PackagesPart
from headway.clusterfile.models.software.scripts import ScriptsPart
from headway.clusterfile.models.storage import StoragePart
from headway.clusterfile.models.teams import DeparturesPart, TeamPart, UserPart
from headway.validation.field_types import (
    MOST_NODES,
    MOST_TEAMS,
    MOST_USERS,
    ClusterName,
    FileSection,
    GroupName,
    Name,
    PartitionName,
    PublicKey,
    SlurmKeys,
    TeamName,
    UserName,
    host_from_text,
    one_or_two,
)

if TYPE_CHECKING:
    ProviderName = str
    ImageName = str
else:  # type checkers do not accept a computed Literal
    ProviderName = Literal[tuple(PROVIDERS)]
    ImageName = Literal[tuple(IMAGES)]


class ClusterFile(FileSection):
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
    mig: MigLayout = Field(default_factory=dict, max_length=6, description=MIG_HELP, examples=MIG_EXAMPLES)
    shards: int | None = Field(None, ge=2, le=100, description=SHARDS_HELP, examples=[8])
    mps: bool = Field(False, description=MPS_HELP)
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
        max_length=100,
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
        default_factory=dict,
        max_length=MOST_TEAMS,
        description="Teams (default: one named default, with you as its user).",
    )
    qos: dict[TeamName, QosPart] = Field(
        default_factory=dict, max_length=100, description="QOS that jobs choose with --qos (default: none)."
    )
    reservations: dict[Name, ReservationPart] = Field(
        default_factory=dict,
        max_length=100,
        description="Reservations and maintenance windows (default: none).",
        examples=[{"maintenance": {"start": "2026-12-05T22:00", "duration": "06:00:00", "maintenance": True}}],
    )
    users: dict[UserName, UserPart] = Field(
        default_factory=dict, max_length=MOST_USERS, description="SSH keys of the users named in teams."
    )
    slurm: SlurmKeys = Field(
        default_factory=dict,
        max_length=500,
        description="More keys of slurm.conf.",
        examples=[{"PriorityWeightAge": 2000}],
    )
    scripts: ScriptsPart = Field(
        default_factory=ScriptsPart,
        description="Your own scripts, which Slurm runs in addition to Headway's: files next to this one.",
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
    mlflow: bool = Field(
        False, description="Gives each job an address and a token for MLflow: what it logs is kept, as metrics too."
    )
    pbs_variables: bool = Field(
        False,
        description="Gives each job the variables of PBS, such as $PBS_O_WORKDIR and $PBS_NODEFILE, for scripts that were "
        "written for it.",
    )
    packages: PackagesPart = Field(default_factory=PackagesPart, description="Sources of Python packages.")
    health: HealthPart = Field(default_factory=HealthPart, description="Reactions to faults of GPUs and nodes.")
    hosts: Annotated[list[Annotated[HostPart, BeforeValidator(host_from_text)]], BeforeValidator(hosts_were_read)] = (
        Field(
            default_factory=list,
            max_length=MOST_NODES,
            description="Provider ssh: your machines, the head first; or where headway plan and apply read them.",
        )
    )
    cloud: CloudPart | None = Field(None, description="Provider aws: where and which machines are rented.")
    gpu: GpuDriverPart = Field(default_factory=GpuDriverPart, description="NVIDIA's driver of your machines.")
    firewall: FirewallPart = Field(default_factory=FirewallPart, description="Provider ssh: access to your machines.")
    network: NetworkPart = Field(
        default_factory=NetworkPart, description="What jobs may reach over the network (default: everything)."
    )
    backup: BackupPart | None = Field(
        None, description="Scheduled backups (default: none; `headway backup` creates one)."
    )
    drift: DriftPart = Field(
        default_factory=DriftPart, description="Comparisons of the running cluster with this file."
    )
    secrets: SecretsPart = Field(default_factory=SecretsPart, description="Keys that you provide.")

"""The cluster file as people write it: strict pydantic models that check each field by itself.

Rules that span several fields (a partition with more nodes than the cluster, preemption, switches) are in
`headway.clusterfile.rules`. An empty field counts as a missing one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from headway.catalog.providers import LOCAL, PROVIDERS
from headway.catalog.releases import DEFAULT_IMAGE, IMAGES, images_in_words
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
    XidClass,
    XidCode,
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
    nodes: int | None = Field(None, ge=1, le=MOST_NODES, description="How many nodes hang on this leaf.")
    children: list[Name] | None = Field(None, min_length=1, description="Names of the switches below this one.")


class FabricPart(Part):
    """How nodes are wired: jobs are placed under as few leaf switches as possible."""

    leaf_size: int | None = Field(
        None, ge=1, le=4096, description="Nodes under one leaf switch; all leaves meet in one spine."
    )
    switches: list[SwitchPart] | None = Field(None, min_length=1, description="The whole tree, instead of leaf_size.")


class VolumePart(Part):
    """A shared folder, the same on all machines."""


class DatasetPart(Part):
    """A folder that every machine sees, read-only unless said."""

    name: Name = Field(description="The dataset's name.", examples=["tiny"])
    path: str | None = Field(
        None,
        description="Where it is on the server's machine. May be left out with provider ssh.",
        examples=["./data/tiny"],
    )
    mount: str | None = Field(
        None, description="Where it appears on the machines; /datasets/NAME unless said.", examples=["/datasets/tiny"]
    )
    read_only: bool = Field(True, description="Whether jobs may only read it.")


class MountedVolumePart(Part):
    """A file system that every machine mounts from elsewhere."""

    name: Name = Field(description="The volume's name.", examples=["models"])
    path: str = Field(description="Where it appears on the machines.", examples=["/models"])
    mount: Annotated[str, AfterValidator(mount_line)] = Field(
        description="Its type, source and options, as in a line of fstab.",
        examples=["nfs4 filer:/export/models rw,hard", "lustre mgs@tcp:/fsx", "fuse.sshfs box:/srv/data ro"],
    )


class StoragePart(Part):
    """Shared storage: /home and /scratch always, datasets, and what is mounted from elsewhere."""

    home: VolumePart = Field(default_factory=VolumePart, description="/home on every machine.")
    scratch: VolumePart = Field(default_factory=VolumePart, description="/scratch on every machine, for checkpoints.")
    datasets: list[DatasetPart] = Field(default_factory=list, max_length=1000, description="Further folders.")
    volumes: list[MountedVolumePart] = Field(
        default_factory=list, max_length=50, description="File systems mounted from elsewhere."
    )
    state: str | None = Field(
        None,
        description="Provider ssh: folder for Slurm's state, on a file system that both heads of controllers: 2 mount and "
        "neither serves; on the head's own disk unless said.",
        examples=["/shared/headway"],
    )


class PartitionPart(Part):
    """A Slurm partition: which nodes, how long, who, and whom it may preempt."""

    default: bool = Field(False, description="Jobs that name no partition come here. The first one unless said.")
    nodes: int | None = Field(
        None, ge=1, le=MOST_NODES, description="Only the first N places, however many nodes there are; all unless said."
    )
    groups: list[str] = Field(
        default_factory=list, description="Only nodes of these groups; all of them unless said.", examples=[["gpu"]]
    )
    max_time: Seconds | None = Field(None, description="Longest time limit of a job, in Slurm's forms.")
    default_time: Seconds | None = Field(None, description="Time limit of a job that asks for none.")
    tier: int | None = Field(None, ge=1, le=65000, description="Slurm's PriorityTier: higher ones are scheduled first.")
    preempts: list[str] = Field(
        default_factory=list,
        description="Partitions whose jobs are requeued for this one's: every preemptable one in a lower tier.",
        examples=[["train", "debug"]],
    )
    teams: list[str] = Field(default_factory=list, description="Only these teams may use it; every team unless said.")
    grace_time: GraceSeconds = Field(
        120,
        description="Seconds a preempted job gets to save itself: with --signal it is warned, without it SIGTERM ends it.",
    )
    slurm: SlurmKeys = Field(default_factory=dict, description="Further keys of the partition's line in slurm.conf.")


class GpuHoursPart(Part):
    """GPU-hours that are refilled when a period starts."""

    hours: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False, description="GPU-hours in one period.")]
    per: Literal["day", "week", "month", "quarter", "year"] = Field(description="The period.")


class LimitsPart(Part):
    """What a team may hold or use."""

    gpu_hours: GpuHoursPart | None = Field(None, description="GPU-hours per period.")
    running_jobs: int | None = Field(None, ge=1, le=1_000_000, description="Jobs running at once.")
    submitted_jobs: int | None = Field(None, ge=1, le=1_000_000, description="Jobs running and waiting at once.")
    gpus: int | None = Field(None, ge=1, le=1_000_000, description="GPUs held at once.")


class BudgetPart(Part):
    """What a team may spend in one period: money or GPU-hours."""

    usd: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)] | None = Field(
        None, description="US dollars of what its jobs hold."
    )
    gpu_hours: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="GPU-hours that its jobs hold."
    )
    per: Literal["day", "week", "month", "quarter", "year"] = Field("month", description="The period.")
    warn: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        0.8, description="The team is warned from this share on."
    )
    cap: bool = Field(True, description="Once it is spent no further job of the team starts; those that run go on.")

    @model_validator(mode="after")
    def _one_of_them(self) -> BudgetPart:
        if (self.usd is None) == (self.gpu_hours is None):
            raise value_error("must say either usd or gpu_hours", "for example budget: {usd: 20000, per: month}")
        return self


class TeamPart(Part):
    """People who share an account."""

    users: list[UserName] = Field(default_factory=list, description="User names.", examples=[["alice", "bob"]])
    leads: list[UserName] = Field(
        default_factory=list, description="Users of it who may act on the team's jobs.", examples=[["alice"]]
    )
    share: int = Field(1, ge=1, le=1_000_000, description="Fair share, against the other teams' shares.")
    limits: LimitsPart = Field(default_factory=LimitsPart, description="Caps.")
    budget: BudgetPart | None = Field(None, description="What it may spend; there is no budget unless said.")


class UserPart(Part):
    """One person."""

    ssh_keys: list[PublicKey] = Field(default_factory=list, description="Public key files, or public keys as text.")


class DeparturesPart(Part):
    """What happens when a user is removed from the file."""

    jobs: Literal["cancel", "finish"] = Field("cancel", description="Their running jobs are cancelled, or may finish.")


class MailPart(Part):
    """Where the mail of --mail-type goes."""

    relay: Annotated[str, checked_by(syntax_rules.relay_fault)] = Field(
        description="host:port of an SMTP server.", examples=["mail.example.org:25"]
    )


class AlertsPart(Part):
    """Where alerts about nodes, GPUs and daemons go. None are sent unless said."""

    webhook: Annotated[str, checked_by(syntax_rules.url_fault)] | None = Field(
        None, description="URL that alerts are posted to, as JSON.", examples=["https://example.org/alerts"]
    )
    chat: Annotated[str, checked_by(syntax_rules.url_fault)] | None = Field(
        None, description="Incoming webhook of a chat, in Slack's form (Slack, Mattermost, Rocket.Chat and others)."
    )
    mail: Annotated[str, checked_by(syntax_rules.mail_fault)] | None = Field(
        None, description="Mail address; it goes through mail.relay.", examples=["oncall@example.org"]
    )


class ContainersPart(Part):
    """What runs jobs with --container-image."""

    backend: Literal["builtin", "enroot"] | None = Field(
        None,
        description="builtin: Headway's own, part of its node images (default there). enroot: Enroot and Pyxis, which "
        "your machines must have; they are configured.",
    )


class LemonPart(Part):
    """A node that fails again and again is kept out."""

    score: int = Field(
        8, ge=1, le=1000, description="Kept out from so much on: GPU reset or reboot 1, drain 2, rma or hands_on 3."
    )
    days: int = Field(14, ge=1, le=365, description="The incidents of so many days count.")
    spare_work: bool = Field(
        False,
        description="true: it stays for jobs with --reservation=headway_lemons, and is out at twice the score.",
    )


_OWN_TIME = 'A job sets its own with --comment "{0}=SECONDS"; 0 looks for none.'


class HangPart(Part):
    """A job that neither reports nor writes while its GPUs do nothing useful."""

    after: int = Field(1800, ge=0, le=604800, description=f"Seconds of it. {_OWN_TIME.format('hang')}")
    requeue: bool = Field(False, description="It is requeued; otherwise its owner is told.")


class IdlePart(Part):
    """A job that holds GPUs which do nothing."""

    after: int = Field(7200, ge=0, le=604800, description=f"Seconds of it. {_OWN_TIME.format('idle')}")
    cancel: bool = Field(False, description="It is cancelled; otherwise its owner is told.")


class HealthPart(Part):
    """What is done about faults."""

    xid: dict[XidCode, XidClass] = Field(
        default_factory=dict,
        description="GPU error codes whose class is another one here than in Headway's table.",
        examples=[{"63": "drain"}],
    )
    act: bool = Field(
        True, description="false: incidents are seen and noted, and nothing is drained, fenced, requeued or repaired."
    )
    tries: int = Field(3, ge=0, le=10, description="Repairs that are tried; then the node is out until you return it.")
    lemon: LemonPart = Field(default_factory=LemonPart, description="Nodes that fail again and again.")
    silent_share: float = Field(
        0.5,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="When this share of all nodes falls silent at once it is the network: nothing is touched.",
    )
    warning: int = Field(
        60, ge=0, le=3600, description="Seconds that a job which asked for a signal gets before it is requeued."
    )
    hang: HangPart = Field(default_factory=HangPart, description="Jobs that hang.")
    idle: IdlePart = Field(default_factory=IdlePart, description="Jobs that hold GPUs and don't use them.")


SignInName = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
ServerPath = Annotated[str, checked_by(syntax_rules.path_fault, "the client makes paths absolute")]


class JumpPart(Part):
    """A machine that the way to others leads through, as ssh's ProxyJump."""

    address: Annotated[str, checked_by(syntax_rules.host_fault)] = Field(description="Address or host name.")
    user: SignInName = Field("root", description="User to sign in as.")
    port: int = Field(22, ge=1, le=65535, description="SSH port.")
    key: ServerPath | None = Field(
        None, description="Private key file on the server's machine; that of the host unless said."
    )
    host_key: PublicKey | None = Field(None, description="Its public host key; the one it shows first unless said.")


class HostPart(Part):
    """A machine you own."""

    address: Annotated[str, checked_by(syntax_rules.host_fault)] = Field(description="Address or host name.")
    role: Literal["head", "node"] | None = Field(
        None,
        description="head: the controller, the database and logins; node: never one. The first machine is the head unless said.",
    )
    user: SignInName = Field("root", description="User to sign in as; another one than root becomes root by sudo.")
    port: int = Field(22, ge=1, le=65535, description="SSH port.")
    key: ServerPath | None = Field(
        None, description="Private key file on the server's machine; the cluster's own key unless said."
    )
    sudo_password: ServerPath | None = Field(
        None,
        description="File on the server's machine that holds the password sudo asks for; it must ask for none unless said.",
    )
    jump: Annotated[JumpPart, BeforeValidator(host_from_text)] | None = Field(
        None, description="Machine that the way there leads through.", examples=["bastion.example.org"]
    )
    host_key: PublicKey | None = Field(
        None, description="Public host key it must answer with; the one it shows first is pinned unless said."
    )


class FirewallPart(Part):
    """Provider ssh: who reaches your machines. Slurm's, the database's and the agent's ports are the cluster's alone."""

    ssh_from: list[Annotated[str, checked_by(syntax_rules.network_fault)]] = Field(
        default_factory=list,
        description="Networks that may use SSH, in addition to the cluster's machines and the server (default: all).",
        examples=[["10.0.0.0/8"]],
    )


class GroupPart(Part):
    """Nodes of one kind."""

    plan: str = Field(description="A catalogue entry: what one node has and costs.", examples=["h100-8"])
    nodes: int | None = Field(None, ge=0, le=MOST_NODES, description="Nodes for jobs, where people scale it.")
    max: int | None = Field(
        None,
        ge=1,
        le=MOST_NODES,
        description="Most nodes it can be scaled to without touching Slurm; nodes unless said.",
    )
    min: int | None = Field(None, ge=0, le=MOST_NODES, description="With idle: nodes that always run; 0 unless said.")
    idle: Seconds | None = Field(
        None,
        description="The group scales by itself between min and max: a node goes after so long without a job. In Slurm's "
        "forms; a number is minutes.",
        examples=["00:10:00"],
    )
    spares: int = Field(0, ge=0, le=1000, description="Nodes of it kept ready to take a failed one's place.")
    spot: bool = Field(False, description="Its machines are cheap, and may be taken back at short notice.")
    reserved: bool = Field(
        False,
        description="Its nodes and spares are paid for while they are in the file, whether they are there or not.",
    )
    price: Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)] | None = Field(
        None, description="USD of one node for an hour, where it is not the plan's."
    )


class CostPart(Part):
    """What may be spent, and who pays."""

    usd_per_hour: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = Field(
        None, description="All machines together: no node is made that would cost more."
    )
    timezone: Annotated[str, checked_by(syntax_rules.zone_fault)] = Field(
        "UTC", description="Where invoices' months begin at midnight.", examples=["Europe/Berlin"]
    )
    idle: SharedBy = Field("use", description=f"Who pays for capacity that no job held: {SHARED_BY}")
    spare: SharedBy = Field("share", description=f"Who pays for spares: {SHARED_BY}")
    broken: SharedBy = Field("share", description=f"Who pays for nodes that are down or drained: {SHARED_BY}")
    pue: Annotated[float, Field(ge=1, le=10, allow_inf_nan=False)] = Field(
        1.3, description="What the site draws for each kilowatt-hour that the machines draw."
    )
    usd_per_kwh: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = Field(
        None, description="What a kilowatt-hour costs; energy has no price unless said."
    )


class BackupPart(Part):
    """Backups that make themselves, while jobs run."""

    to: ServerPath = Field(description="Folder on the server's machine.", examples=["/backup/headway"])
    every: Seconds = Field(
        86400, description="How often, in Slurm's forms; once a day unless said.", examples=["12:00:00"]
    )
    keep: int = Field(14, ge=1, le=10_000, description="So many of the cluster's backups stay in the folder.")
    key_file: ServerPath = Field(
        description="File on the server's machine whose first line is the passphrase.",
        examples=["/etc/headway/backup.key"],
    )


class KeyPart(Part):
    """A key that is not Headway's to make."""

    file: ServerPath | None = Field(None, description="File on the server's machine that holds it.")
    command: list[Annotated[str, Field(min_length=1)]] | None = Field(
        None,
        min_length=1,
        description="A program of /etc/headway/commands on the server's machine that prints it, and its words.",
        examples=[["vault-munge", "secret/lab"]],
    )


class SecretsPart(Part):
    """Keys from elsewhere."""

    munge: KeyPart | None = Field(None, description="The MUNGE key, 32 to 1024 bytes; Headway makes one unless said.")


class ClusterFile(Part):
    """A cluster in one file. The smallest one is name, plan and nodes."""

    name: ClusterName = Field(description="The cluster's name; machines are named after it.", examples=["lab"])
    provider: ProviderName = Field(LOCAL.name, description="Where machines come from.")
    image: ImageName = Field(DEFAULT_IMAGE, description=f"Node image: {images_in_words()}.")
    plan: str | None = Field(None, description="A catalogue entry: what one node has and costs.", examples=["h100-8"])
    nodes: int | None = Field(
        None, ge=0, le=MOST_NODES, description="Nodes for jobs, the head not counted.", examples=[4]
    )
    max: int | None = Field(
        None,
        ge=1,
        le=MOST_NODES,
        description="Most nodes it can be scaled to without touching Slurm; nodes unless said.",
    )
    spares: int = Field(0, ge=0, le=1000, description="Nodes kept ready to take a failed one's place.")
    controllers: Annotated[Literal[1, 2], BeforeValidator(one_or_two)] = Field(
        1, description="2: a second machine, NAME-head2, takes over within seconds when the head is away."
    )
    groups: dict[GroupName, GroupPart] = Field(
        default_factory=dict,
        max_length=50,
        description="Several kinds of nodes, instead of plan, nodes, max and spares. Cheap ones are filled first.",
        examples=[{"gpu": {"plan": "h100-8", "nodes": 4, "max": 8}, "cpu": {"plan": "cpu-64", "nodes": 2}}],
    )
    cost: CostPart = Field(default_factory=CostPart, description="Limits on what the machines cost.")
    fabric: FabricPart = Field(default_factory=FabricPart, description="Switches; one switch unless said.")
    ssh_keys: list[PublicKey] = Field(
        default_factory=list,
        description="Your public keys: files, or keys as text.",
        examples=[["~/.ssh/id_ed25519.pub"]],
    )
    storage: StoragePart = Field(default_factory=StoragePart, description="Shared folders.")
    partitions: dict[PartitionName, PartitionPart] = Field(
        default_factory=dict,
        max_length=100,
        description="Slurm partitions; one named train over all nodes unless said.",
    )
    teams: dict[TeamName, TeamPart] = Field(
        default_factory=dict, description="Teams; one named default with you in it unless said."
    )
    users: dict[UserName, UserPart] = Field(default_factory=dict, description="Keys of the people named in teams.")
    slurm: SlurmKeys = Field(
        default_factory=dict, description="Further slurm.conf keys.", examples=[{"PriorityWeightAge": 2000}]
    )
    departures: DeparturesPart = Field(default_factory=DeparturesPart, description="When a user leaves.")
    mail: MailPart | None = Field(None, description="Mail of --mail-type; none is sent unless said.")
    alerts: AlertsPart = Field(default_factory=AlertsPart, description="Where alerts go.")
    containers: ContainersPart = Field(default_factory=ContainersPart, description="Container images in jobs.")
    health: HealthPart = Field(default_factory=HealthPart, description="Faults of GPUs and nodes.")
    hosts: list[Annotated[HostPart, BeforeValidator(host_from_text)]] = Field(
        default_factory=list, description="Provider ssh: your machines, the head first."
    )
    firewall: FirewallPart = Field(default_factory=FirewallPart, description="Provider ssh: who reaches your machines.")
    backup: BackupPart | None = Field(
        None, description="Scheduled backups (default: none; `headway backup` makes one)."
    )
    secrets: SecretsPart = Field(default_factory=SecretsPart, description="Keys that are not Headway's to make.")

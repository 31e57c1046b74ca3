"""The cluster file as people write it: strict pydantic models, one field one rule.

What spans several fields (a partition over more nodes than there are, preemption, switches) is in `headway.spec.rules`.
A field left empty is a field left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from headway.spec import sshkey, words

MOST_NODES = 20_000


def fault(text: str, hint: str = "") -> PydanticCustomError:
    """An error whose message is shown as it is."""
    return PydanticCustomError("headway", "{text}", {"text": text, "hint": hint})


def _rule(check: Callable[[str], str], hint: str = "") -> AfterValidator:
    def validate(value: str) -> str:
        problem = check(value)
        if problem:
            raise fault(problem, hint)
        return value

    return AfterValidator(validate)


def _reserved(check: Callable[[str], str], reserved: frozenset[str]) -> Callable[[str], str]:
    return lambda name: check(name) or (f"{name} is a word of Slurm's own" if name in reserved else "")


def _time(value: Any) -> int | None:
    """Slurm's time -> seconds; -1 stands for unlimited, so that "not said" stays different."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise fault("must be a time", 'for example "2-00:00:00" (days-hours:minutes:seconds), or minutes')
    try:
        seconds = words.parse_time(value)
    except ValueError as error:
        raise fault(str(error), 'for example "7-00:00:00", "02:00:00", 90 (minutes) or infinite') from None
    return UNLIMITED if seconds is None else seconds


def _grace(value: Any) -> Any:
    """Seconds as a number, as Slurm's GraceTime, or a text with colons."""
    return _time(value) if isinstance(value, str) and ":" in value else value


def _slurm_value(value: Any) -> str:
    # The value's own rule depends on the key and the version: headway.spec.rules.
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if not isinstance(value, str | int):
        raise fault("must be text or a whole number")
    return str(value)


def _host(value: Any) -> Any:
    return {"address": value} if isinstance(value, str) else value


def _public_key(value: str) -> str:
    problem, hint = sshkey.key_fault(value)
    if problem:
        raise fault(problem, hint)
    return sshkey.one_line(value)


UNLIMITED = -1
_TIME_SCHEMA = {
    "anyOf": [{"type": "string"}, {"type": "integer", "minimum": 1}],
    "examples": ["7-00:00:00", "02:00:00", 90, "infinite"],
}

ClusterName = Annotated[
    str, _rule(words.cluster_name_fault), WithJsonSchema({"type": "string", "pattern": f"^{words.CLUSTER_NAME}$"})
]
Name = Annotated[str, _rule(words.name_fault), WithJsonSchema({"type": "string", "pattern": f"^{words.NAME}$"})]
PartitionName = Annotated[
    str,
    _rule(_reserved(words.name_fault, words.RESERVED_PARTITIONS)),
    WithJsonSchema({"type": "string", "pattern": f"^{words.NAME}$"}),
]
TeamName = Annotated[
    str,
    _rule(_reserved(words.name_fault, words.RESERVED_TEAMS)),
    WithJsonSchema({"type": "string", "pattern": f"^{words.NAME}$"}),
]
UserName = Annotated[
    str, _rule(words.user_name_fault), WithJsonSchema({"type": "string", "pattern": f"^{words.USER_NAME}$"})
]
Seconds = Annotated[int, BeforeValidator(_time), WithJsonSchema(_TIME_SCHEMA)]
GraceSeconds = Annotated[int, Field(ge=0, le=86400), BeforeValidator(_grace)]
PublicKey = Annotated[str, AfterValidator(_public_key)]
SlurmKeys = dict[str, Annotated[str, BeforeValidator(_slurm_value), WithJsonSchema({"type": ["string", "integer"]})]]


class Part(BaseModel):
    """Strict, closed, and lenient in one thing: an empty field is one that was left out."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _left_empty(cls, value: Any) -> Any:
        if value is None:
            return {}
        if isinstance(value, dict) and None in value.values():
            return {key: item for key, item in value.items() if item is not None}
        return value


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


class StoragePart(Part):
    """Shared storage: /home and /scratch always, and datasets."""

    home: VolumePart = Field(default_factory=VolumePart, description="/home on every machine.")
    scratch: VolumePart = Field(default_factory=VolumePart, description="/scratch on every machine, for checkpoints.")
    datasets: list[DatasetPart] = Field(default_factory=list, description="Further folders.")


class PartitionPart(Part):
    """A Slurm partition: which nodes, how long, who, and whom it may preempt."""

    default: bool = Field(False, description="Jobs that name no partition come here. The first one unless said.")
    nodes: int | None = Field(None, ge=1, le=MOST_NODES, description="Only the first N nodes; all of them unless said.")
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


class TeamPart(Part):
    """People who share an account."""

    users: list[UserName] = Field(default_factory=list, description="User names.", examples=[["alice", "bob"]])
    share: int = Field(1, ge=1, le=1_000_000, description="Fair share, against the other teams' shares.")
    limits: LimitsPart = Field(default_factory=LimitsPart, description="Caps.")


class UserPart(Part):
    """One person."""

    ssh_keys: list[PublicKey] = Field(default_factory=list, description="Public key files, or public keys as text.")


class DeparturesPart(Part):
    """What happens when a user is removed from the file."""

    jobs: Literal["cancel", "finish"] = Field("cancel", description="Their running jobs are cancelled, or may finish.")


class MailPart(Part):
    """Where the mail of --mail-type goes."""

    relay: Annotated[str, _rule(words.relay_fault)] = Field(
        description="host:port of an SMTP server.", examples=["mail.example.org:25"]
    )


class ContainersPart(Part):
    """What runs jobs with --container-image."""

    backend: Literal["builtin", "enroot"] | None = Field(
        None,
        description="builtin: Headway's own, part of its node images (default there). enroot: Enroot and Pyxis, which "
        "your machines must have; they are configured.",
    )


class HostPart(Part):
    """A machine you own."""

    address: Annotated[str, _rule(words.host_fault)] = Field(description="Address or host name.")
    user: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")] = Field("root", description="User to sign in as.")
    port: int = Field(22, ge=1, le=65535, description="SSH port.")
    key: Annotated[str, _rule(words.path_fault, "the client makes paths absolute")] | None = Field(
        None, description="Private key file on the server's machine; the cluster's own key unless said."
    )


class ClusterFile(Part):
    """A cluster in one file. The smallest one is name, plan and nodes."""

    name: ClusterName = Field(description="The cluster's name; machines are named after it.", examples=["lab"])
    provider: Literal["local", "ssh"] = Field("local", description="Where machines come from.")
    image: Literal["debian13", "debian12"] = Field(
        "debian13", description="Node image: debian13 carries Slurm 24.11, debian12 Slurm 22.05."
    )
    plan: str = Field(description="A catalogue entry: what one node has and costs.", examples=["h100-8"])
    nodes: int = Field(ge=1, le=MOST_NODES, description="Nodes for jobs, the head not counted.", examples=[4])
    spares: int = Field(0, ge=0, le=1000, description="Nodes kept ready to take a failed one's place.")
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
    containers: ContainersPart = Field(default_factory=ContainersPart, description="Container images in jobs.")
    hosts: list[Annotated[HostPart, BeforeValidator(_host)]] = Field(
        default_factory=list, description="Provider ssh: your machines, the head first."
    )

"""groups: nodes of one kind, and how many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from headway.catalog.providers import PROVIDERS
from headway.validation.field_types import (
    MOST_NODES,
    FileSection,
    Seconds,
)

if TYPE_CHECKING:
    GroupProviderName = str
else:  # type checkers do not accept a computed Literal
    GroupProviderName = Literal[tuple(name for name, traits in PROVIDERS.items() if traits.rents_machines)]

MigLayout = dict[Annotated[str, Field(max_length=16)], Annotated[int, Field(ge=1, le=7)]]
MIG_HELP = "MIG instances of each GPU: number by profile (default: GPUs are not divided)."
MIG_EXAMPLES: list[MigLayout] = [{"3g.71gb": 2}]
SHARDS_HELP = (
    "Shards of each GPU, which jobs request as --gres shard:N. They share the GPU without isolation from each other."
)
MPS_HELP = "Jobs request a percentage of a GPU, as --gres mps:N, and share it through NVIDIA's MPS."


FEATURE = r"^[A-Za-z0-9][A-Za-z0-9_.:=+-]{0,62}$"
Feature = Annotated[str, Field(pattern=FEATURE)]


class GroupPart(FileSection):
    """Nodes of one kind."""

    provider: GroupProviderName | None = Field(
        None,
        description="Cloud that the group's machines are rented from, in a cluster of owned machines (provider: ssh).",
        examples=["aws"],
    )
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
    queue_time: Seconds | None = Field(
        None,
        description="With idle: create machines beyond min only when a job that can use them has waited this long (default: at "
        "once). Slurm time format, or minutes.",
        examples=["00:15:00"],
    )
    usd_per_hour: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None = Field(
        None, description="With idle: limit on the price of the group's machines together, USD an hour.", examples=[120]
    )
    spares: int = Field(
        0, ge=0, le=1000, description="Number of ready nodes that are kept free to replace failed ones."
    )
    mig: MigLayout = Field(default_factory=dict, max_length=6, description=MIG_HELP, examples=MIG_EXAMPLES)
    shards: int | None = Field(None, ge=2, le=100, description=SHARDS_HELP, examples=[8])
    mps: bool = Field(False, description=MPS_HELP)
    features: list[Feature] = Field(
        default_factory=list,
        max_length=50,
        description="Features of the nodes for --constraint, in addition to the names of group, plan and leaf switch.",
        examples=[["skylake", "bigmem"]],
    )
    weight: int | None = Field(
        None,
        ge=1,
        le=4_294_967_280,
        description="Slurm's weight of the nodes: jobs fill nodes of low weight first (default: cents an hour of the price).",
    )
    spot: bool = Field(False, description="The provider may take the machines back at short notice.")
    spot_fallback: Literal["on-demand"] | None = Field(
        None,
        description="With spot on machines of a cloud: on-demand rents a machine on demand where no spot machine can be had "
        "(default: the group waits for a spot machine).",
        examples=["on-demand"],
    )
    reserved: bool = Field(
        False,
        description="Charge nodes and spares as long as they are in the file, also without a machine.",
    )
    price: Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)] | None = Field(
        None, description="USD per node and hour (default: the price of the plan)."
    )

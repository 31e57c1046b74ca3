"""fabric: switches of the network."""

from __future__ import annotations

from pydantic import Field

from headway.validation.field_types import MOST_NODES, FileSection, Name


class SwitchPart(FileSection):
    """One switch of an explicit tree: a leaf with nodes, or a switch above others."""

    name: Name = Field(description="The switch's name in Slurm's topology.", examples=["leaf1"])
    nodes: int | None = Field(None, ge=1, le=MOST_NODES, description="Number of nodes under this leaf switch.")
    children: list[Name] | None = Field(
        None, min_length=1, max_length=2000, description="Names of the switches under this one."
    )


class FabricPart(FileSection):
    """How nodes are wired: jobs are placed under as few leaf switches as possible."""

    leaf_size: int | None = Field(
        None, ge=1, le=4096, description="Nodes per leaf switch; one spine connects all leaves."
    )
    switches: list[SwitchPart] | None = Field(
        None, min_length=1, max_length=5000, description="All switches of the tree, instead of leaf_size."
    )

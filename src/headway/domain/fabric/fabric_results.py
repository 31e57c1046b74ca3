"""What a fabric test measures and finds: groups of nodes, their bandwidth, and the node or link that is slow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.domain.slurm.hostlist import compress

LINK_MARK = " - "  # between the names of a link's two leaf switches


class GroupKind(StrEnum):
    """What the nodes of a group have between them."""

    NODE = "node"  # one node: its own GPUs
    LEAF = "leaf"  # two nodes of one leaf switch
    LEAVES = "leaves"  # two nodes of two leaf switches
    ALL = "all"  # three or more nodes


@dataclass(frozen=True, slots=True)
class FabricGroup:
    """Nodes that are measured together."""

    kind: GroupKind
    nodes: tuple[str, ...]

    @property
    def label(self) -> str:
        """Returns the nodes as a Slurm host list."""
        return compress(self.nodes)


@dataclass(frozen=True, slots=True)
class FabricMeasurement:
    """The bandwidth of one all-reduce. `fault`: why there is no figure, as the nodes reported it. `again`: measured
    because an earlier figure was too low."""

    group: FabricGroup
    gb_s: float
    fault: str = ""
    again: bool = False


class SuspectKind(StrEnum):
    """What may hold an all-reduce back."""

    NODE = "node"  # its connection to the fabric
    GPUS = "gpus"  # the links between the GPUs of a node
    LINK = "link"  # the connection between two leaf switches


@dataclass(frozen=True, slots=True, order=True)
class Suspect:
    """A node, or the link between two leaf switches. `name`: the node, or "leaf1 - leaf2"."""

    kind: SuspectKind
    name: str

    @property
    def words(self) -> str:
        """Returns the suspect for a sentence."""
        if self.kind is SuspectKind.LINK:
            return f"the link {self.name}"
        return f"the GPUs of {self.name}" if self.kind is SuspectKind.GPUS else self.name


@dataclass(frozen=True, slots=True)
class FabricFinding:
    """A suspect that the measurements name: every group with it is slow, and the rest of these groups is not."""

    suspect: Suspect
    gb_s: float  # the best figure of a group with it
    expected_gb_s: float
    least_gb_s: float  # what is expected less the band
    slow: tuple[FabricMeasurement, ...]  # the measurements that name it
    sound: tuple[FabricMeasurement, ...]  # those that clear the others in these groups

    @property
    def what(self) -> str:
        """Returns the finding as a sentence."""
        return (
            f"all-reduce with {self.suspect.words} reaches {self.gb_s:.3g} GB/s, {self.expected_gb_s:.3g} GB/s expected"
        )


@dataclass(frozen=True, slots=True)
class FabricVerdict:
    """What a fabric test found. `unclear`: slow groups that fit two suspects equally, or none, as sentences."""

    findings: tuple[FabricFinding, ...] = ()
    unclear: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FabricMismatch:
    """What was measured, or found on nodes, and differs from the cluster file or a setting, and what to do about it."""

    what: str
    remedy: str


def link_name(one: str, other: str) -> str:
    """Returns the name of the link between two leaf switches."""
    return LINK_MARK.join(sorted((one, other)))

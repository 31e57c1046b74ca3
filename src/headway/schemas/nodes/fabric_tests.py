"""Models of fabric tests: bandwidth between nodes, and the node or link that is slow."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel


class FabricTestIn(RequestModel):
    """Requests a fabric test. `nodes`: a Slurm host list ("lab-1-[1-4]"); "" = all idle nodes."""

    nodes: Annotated[str, Field(max_length=10_000)] = ""


class FabricMeasurementOut(ResponseModel):
    """One all-reduce. Figures are bus bandwidth in GB/s; `expected_gb_s` is 0 if there was nothing to compare with."""

    kind: Literal["node", "leaf", "leaves", "all"]  # one node; two of a leaf switch; two of two; three or more nodes
    nodes: list[str]
    gb_s: float
    expected_gb_s: float = 0.0
    slow: bool = False
    again: bool = False  # measured because an earlier figure was too low
    fault: str = ""  # why there is no figure


class FabricFindingOut(ResponseModel):
    """A node or link that the measurements name. `name`: a node, or two leaf switches ("leaf1 - leaf2")."""

    kind: Literal["node", "gpus", "link"]
    name: str
    what: str
    how: list[str] = []  # the measurements that name it, and those that clear the others
    incident: int | None = None


class FabricSkippedOut(ResponseModel):
    """A node that was not measured, or not to the end."""

    node: str
    why: str


class FabricMismatchOut(ResponseModel):
    """What was measured, or found on nodes, and differs from the cluster file or from a setting of NCCL."""

    what: str
    remedy: str


class FabricTestOut(ResponseModel):
    """The result of a fabric test. `simulated`: GPUs are simulated, and the figures are those of gloo on the CPU."""

    cluster: str
    operation: str
    at: float
    seconds: float = 0.0
    simulated: bool = False
    leaves: dict[str, str] = {}  # measured node -> leaf switch
    measurements: list[FabricMeasurementOut] = []
    findings: list[FabricFindingOut] = []
    unclear: list[str] = []  # slow groups that name nothing, and why
    mismatches: list[FabricMismatchOut] = []
    skipped: list[FabricSkippedOut] = []
    stopped: str = ""  # why it ended early

"""Models of nodes, their GPUs and tests, and of the actions on a node."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.nodes.incidents import IncidentOut


class GpuOut(ResponseModel):
    """One GPU of a node, or one MIG instance where its GPUs are divided."""

    index: int  # as Slurm counts them on the node
    job_id: int | None = None  # job that holds it, or a shard of it
    gpu: int | None = None  # the GPU that the MIG instance is part of
    part: str = ""  # profile of the MIG instance


class NodeOut(ResponseModel):
    """A machine of the cluster: the head, a node or a spare."""

    name: str
    role: Literal["head", "node", "spare"]
    leaf: str = ""
    group: str = ""
    plan: str = ""
    address: str = ""
    host: str = ""  # the host in whose container the machine runs; "" if it runs in none
    machine: str = ""  # the provider's word: running, stopped, missing
    states: list[str] = []  # Slurm's words
    reason: str = ""
    gpus: list[GpuOut] = []
    gpu_parts: str = ""  # what each GPU is divided into: "2 x 3g.71gb", "8 shards"
    cpus: int = 0
    cpus_used: int = 0
    memory_mib: int = 0
    memory_used_mib: int = 0
    partitions: list[str] = []
    usable: bool = False


NodeActionKind = Literal["reboot", "test"]


class TestOut(ResponseModel):
    """The result of one test of a node."""

    name: str
    ok: bool
    text: str = ""


class NodeActionOut(ResponseModel):
    """A reboot or a test of a node that a person started: the current or the latest one. `fault` says what went wrong."""

    kind: NodeActionKind
    person: str
    begun_at: float
    ended_at: float | None = None
    fault: str = ""
    tests: list[TestOut] = []


class NodeDetailOut(ResponseModel):
    """A node with its open incident and the latest action on it."""

    node: NodeOut
    simulated_gpus: bool
    incident: IncidentOut | None = None  # the open incident
    action: NodeActionOut | None = None  # the latest action since the server started


class DrainIn(RequestModel):
    """A request to drain a node, with the reason that Slurm shows."""

    reason: str = Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$")


class RebootIn(RequestModel):
    """A request to reboot a node."""

    busy: bool = False  # allow it although running jobs may end


class NodeTestIn(RequestModel):
    """A request to test a node."""

    hard: bool = False  # also test memory, load and copies; this disturbs running jobs


class DoneOut(ResponseModel):
    """The result of an action as a sentence."""

    done: str

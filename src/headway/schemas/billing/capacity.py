"""Capacity by GPU type, fragmentation, and waiting times of jobs."""

from __future__ import annotations

from headway.schemas.base import ResponseModel


class HourOut(ResponseModel):
    """GPU-hours of the hour that begins at `at`. `allocated`: to jobs. `present`: in machines that existed. `free`:
    allocated to no job, on nodes that are not down, drained or spare. `fragmented`: the part of `free` on nodes that are
    partly allocated, and that a whole-node job therefore cannot use."""

    at: int
    allocated: float
    present: float
    free: float = 0.0
    fragmented: float = 0.0


class TypeOut(ResponseModel):
    """Capacity of a GPU type over all of `hours`. `utilisation` is allocated / present; `fragmentation` is fragmented / free."""

    gpu_type: str
    utilisation: float | None
    fragmentation: float | None = None
    hours: list[HourOut]


class WaitOut(ResponseModel):
    """Waiting times of jobs of one size: the median and the 90th and 99th percentile, in seconds."""

    size: str
    runs: int
    p50_s: int | None
    p90_s: int | None
    p99_s: int | None


class CapacityOut(ResponseModel):
    """Capacity of a month. `free_gpus`, `free_whole_node_gpus` and `fragmentation` are the present values;
    `fragmentation` is the share of free GPUs on nodes that are partly allocated."""

    cluster: str
    period: str
    start: int
    end: int
    types: list[TypeOut]
    waits: list[WaitOut]
    free_gpus: int
    free_whole_node_gpus: int
    fragmentation: float

"""Usage sums, and the runs of jobs that they are made of."""

from __future__ import annotations

from headway.schemas.base import ResponseModel
from headway.schemas.billing.usd import Usd


class UsageRow(ResponseModel):
    """One sum of usage. `by` maps each requested dimension to its value. A run is counted in the period in which it
    started; its time is counted in the periods in which it ran. `energy_estimated` is true if more than 1 % of the
    energy was not measured."""

    by: dict[str, str]
    runs: int
    gpu_hours: float
    cpu_hours: float
    lost_gpu_hours: float
    idle_gpu_hours: float
    waited_hours: float
    usd: Usd
    energy_kwh: float
    energy_estimated: bool


class UsageOut(ResponseModel):
    """Usage sums of a period. `stale` says why accounting could not be read just now. `simulated` is true if the GPUs
    are simulated."""

    cluster: str
    start: int
    end: int
    as_of: int
    stale: str = ""
    simulated: bool = False
    rows: list[UsageRow]
    total: UsageRow


class RunLine(ResponseModel):
    """One run of a job. A job with several node groups has one line per group. `elapsed_s` and `usd_whole` cover the
    whole run. `allocated_s`, `lost_s`, `idle_s`, `energy_kwh` and `usd` cover only the requested period, so that they add
    up to the sums of that period. `usd` is what the nodes cost while they were allocated to the run."""

    job: int
    team: str
    user: str
    partition: str
    group: str
    state: str
    nodes: str
    node_count: int
    gpu_type: str
    gpus: int | float
    cpus: int
    start: int
    end: int | None
    waited_s: int
    elapsed_s: int
    allocated_s: int
    time_limit_s: int | None
    used_cpu_s: int
    memory_mib: int
    used_memory_mib: int
    lost_s: int
    idle_s: int
    energy_kwh: float
    energy_estimated: bool
    usd: Usd | None = None
    usd_whole: Usd | None = None


class RunsOut(ResponseModel):
    """A page of runs. `next` is the cursor of the next page."""

    cluster: str
    start: int
    end: int
    runs: list[RunLine]
    next: str = ""


class CollectedOut(ResponseModel):
    """`collected_to` is the time up to which accounting has been read (unix seconds)."""

    collected_to: int

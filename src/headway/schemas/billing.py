"""Models of usage, costs, goodput, budgets, energy and capacity. Amounts in USD are numbers with two decimals, exact to
the cent."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, PlainSerializer

from headway.schemas.base import RequestModel, ResponseModel

Usd = Annotated[Decimal, PlainSerializer(float, return_type=float)]


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


class NodeStateOut(ResponseModel):
    """A period in which a node was in one state. `state` is up, drained, down, spare or off (its slot has no machine).
    `end` is null if the node is still in this state."""

    node: str
    group: str
    state: str
    start: int
    end: int | None
    seconds: int
    reason: str = ""


class NodeStatesOut(ResponseModel):
    """Node states, ordered by node and then by time. `next` is the cursor of the next page."""

    cluster: str
    start: int
    end: int
    as_of: int
    states: list[NodeStateOut]
    next: str = ""


class InvoiceLineOut(ResponseModel):
    """One line of an invoice. `what` is node, spare, unused (reserved capacity that was not used), fixed (a cost that does not
    depend on nodes; `group` is its name) or correction. `billing` is on demand, reserved, spot or fixed. For a correction,
    `of` is the month that it corrects."""

    what: str
    group: str
    billing: str
    usd_per_hour: Usd
    hours: float
    seconds: int
    amount_usd: Usd
    of: str = ""


class InvoiceOut(ResponseModel):
    """A month's invoice. `state` is open (counted up to `as_of`) or closed (never changed again)."""

    cluster: str
    period: str
    start: int
    end: int
    timezone: str
    state: str
    as_of: int
    number: int | None = None
    closed_at: float | None = None
    closed_by: str = ""
    lines: list[InvoiceLineOut]
    total_usd: Usd


class CloseIn(RequestModel):
    """The month whose invoice is to be closed, such as 2026-10."""

    period: str = Field(pattern=r"^\d{4}-\d{2}$")


class TeamCostOut(ResponseModel):
    """A team's costs by column. The columns add up to `total_usd`."""

    team: str
    productive_usd: Usd
    lost_usd: Usd
    allocated_idle_usd: Usd
    idle_usd: Usd
    spare_usd: Usd
    broken_usd: Usd
    fixed_usd: Usd = Decimal(0)
    total_usd: Usd


class UnassignedOut(ResponseModel):
    """Costs that no team pays. `what` is the cost (idle, spare, broken or fixed) that is charged to a cost centre or that
    no rule could share among teams, or a correction of an earlier month."""

    what: str
    centre: str
    usd: Usd


class ChargebackOut(ResponseModel):
    """Chargeback of a month. `teams` and `unassigned` together add up to the invoice to the cent. A person who may see
    only some teams gets only those, and `invoice_total_usd` is null."""

    cluster: str
    period: str
    start: int
    end: int
    state: str
    as_of: int
    rules: dict[str, str]
    invoice_total_usd: Usd | None
    teams: list[TeamCostOut]
    unassigned: list[UnassignedOut]


class PartsOut(ResponseModel):
    """GPU-hours of a team or a job. `goodput` is productive / allocated time; `ettr` is productive / (allocated +
    waiting) time."""

    team: str
    productive_gpu_hours: float
    lost_gpu_hours: float
    idle_gpu_hours: float
    waited_gpu_hours: float
    goodput: float | None
    ettr: float | None


class CauseOut(ResponseModel):
    """A cause of lost GPU time. `kind` is fault, preemption, requeue, checkpoints, idle, notebook or queue. `jobs`
    lists the jobs that lost most."""

    kind: str
    what: str
    gpu_hours: float
    usd: Usd
    jobs: list[int] = []


class AdviceOut(ResponseModel):
    """The recommended checkpoint interval of a job. At present it writes one every `now_s` seconds, each takes `write_s`
    seconds, and it fails once in `failure_s` seconds on average. `best_s` is the recommended interval, `saves` the
    share of its time that this would save, and `saves_usd` what that share cost in the period."""

    job: int
    now_s: float
    best_s: float
    write_s: float
    failure_s: float
    saves: float
    saves_usd: Usd | None = None


class GoodputOut(ResponseModel):
    """Goodput of a month by team, the causes of loss, and advice on checkpoints."""

    cluster: str
    period: str
    start: int
    end: int
    as_of: int
    simulated: bool = False
    total: PartsOut
    teams: list[PartsOut]
    causes: list[CauseOut]
    failure_hours: float | None = None  # mean time between failures of one node
    checkpoints: list[AdviceOut] = []


class JobGoodputOut(ResponseModel):
    """Goodput of one job over all its `runs`, up to `as_of`."""

    cluster: str
    job: int
    user: str
    runs: int
    as_of: int
    simulated: bool = False
    total: PartsOut


class BudgetOut(ResponseModel):
    """A team's budget in its current period. `unit` is usd or gpu_hours; `level` is ok, warn or over. `held_back` is
    true if none of the team's jobs may start until the period ends."""

    team: str
    unit: str
    per: str
    limit: float
    used: float
    left: float
    warn_at: float
    level: str
    cap: bool
    held_back: bool
    start: int
    end: int


class EnergyRow(ResponseModel):
    """Energy of a team, or of all teams if `team` is empty: the sum of measured and estimated energy."""

    team: str
    kwh: float
    measured_kwh: float
    estimated_kwh: float
    usd: Usd | None = None


class EnergyOut(ResponseModel):
    """Energy in a month, multiplied by the site's `pue`. `usd` is null if the cluster file has no price per kWh."""

    cluster: str
    period: str
    start: int
    end: int
    pue: float
    usd_per_kwh: float | None
    simulated: bool = False
    total: EnergyRow
    teams: list[EnergyRow]


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


class EstimateOut(ResponseModel):
    """The most a job can cost, when Slurm would start it, and what is left of its team's budget. `gpus` and `nodes` are
    those of one of its `tasks`; hours and prices are those of all tasks of an array together, and `usd_per_hour` is
    the rate while all of them run. If `unread` lists options that Headway cannot interpret and that affect what the
    job would hold, these figures are null."""

    team: str
    gpus: int | float | None
    nodes: int | None
    time_limit_s: int | None
    gpu_hours: float | None
    usd: Usd | None
    usd_per_hour: Usd | None
    start: int = 0
    waits: str = ""  # why no start time is known, if there is a reason
    expected_nodes: str = ""
    tasks: int = 1
    unread: list[str] = []
    budget: BudgetOut | None = None
    warning: str = ""


class CollectedOut(ResponseModel):
    """`collected_to` is the time up to which accounting has been read (unix seconds)."""

    collected_to: int

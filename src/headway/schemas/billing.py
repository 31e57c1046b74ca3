"""Usage, money, goodput, budgets, energy and capacity. Amounts in USD are numbers with two decimals, exact to the cent."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, PlainSerializer

from headway.schemas.base import Ask, Wire

Usd = Annotated[Decimal, PlainSerializer(float, return_type=float)]


class UsageRow(Wire):
    """`by`: the values of what was asked for, by name. A run counts in the stretch that it began in, its time where it ran.
    `energy_estimated`: more than a hundredth of it was not measured."""

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


class UsageOut(Wire):
    """`stale`: why accounting could not be read just now; `simulated`: the GPUs are."""

    cluster: str
    start: int
    end: int
    as_of: int
    stale: str = ""
    simulated: bool = False
    rows: list[UsageRow]
    total: UsageRow


class RunLine(Wire):
    """One run of a job, of several groups one a group. `elapsed_s`, `usd_whole`: of the whole run. What it held, lost, idled,
    drew and cost (`held_s`, `lost_s`, `idle_s`, `energy_kwh`, `usd`) is of the stretch that was asked about: what sums of that
    stretch count. `usd`: what its nodes cost while it held them."""

    job: int
    team: str
    user: str
    partition: str
    group: str
    state: str
    nodes: str
    node_count: int
    gpu_type: str
    gpus: int
    cpus: int
    start: int
    end: int | None
    waited_s: int
    elapsed_s: int
    held_s: int
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


class RunsOut(Wire):
    cluster: str
    start: int
    end: int
    runs: list[RunLine]
    next: str = ""


class NodeStateOut(Wire):
    """`state`: up | drained | down | spare | off (its slot has no machine). `end` is null where it still is so."""

    node: str
    group: str
    state: str
    start: int
    end: int | None
    seconds: int
    reason: str = ""


class NodeStatesOut(Wire):
    """By node, in order of time. `next`: the cursor of what follows."""

    cluster: str
    start: int
    end: int
    as_of: int
    states: list[NodeStateOut]
    next: str = ""


class LineOut(Wire):
    """`what`: node | spare | unused (reserved, and not there) | correction. `billing`: on demand | reserved | spot. A
    correction names the month that it corrects (`of`)."""

    what: str
    group: str
    billing: str
    usd_per_hour: Usd
    hours: float
    seconds: int
    amount_usd: Usd
    of: str = ""


class InvoiceOut(Wire):
    """`state`: open (so far, until `as_of`) | closed (never changed again)."""

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
    lines: list[LineOut]
    total_usd: Usd


class CloseIn(Ask):
    period: str = Field(pattern=r"^\d{4}-\d{2}$")


class TeamCostOut(Wire):
    """What a team pays, by column; the columns sum to `total_usd`."""

    team: str
    productive_usd: Usd
    lost_usd: Usd
    held_idle_usd: Usd
    idle_usd: Usd
    spare_usd: Usd
    broken_usd: Usd
    total_usd: Usd


class UnassignedOut(Wire):
    """What no team pays: capacity (`what`: idle | spare | broken) that goes to a cost centre or that no rule could share,
    and corrections of earlier months."""

    what: str
    centre: str
    usd: Usd


class ChargebackOut(Wire):
    """The teams and what is unassigned sum to the invoice to the cent. Who sees only some teams sees no more than those:
    `invoice_total_usd` is null then."""

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


class PartsOut(Wire):
    """GPU-hours. `goodput`: productive of held; `ettr`: of held and waited for."""

    team: str
    productive_gpu_hours: float
    lost_gpu_hours: float
    idle_gpu_hours: float
    waited_gpu_hours: float
    goodput: float | None
    ettr: float | None


class CauseOut(Wire):
    """`kind`: fault | preemption | requeue | checkpoints | idle | notebook | queue. `jobs`: those that lost most."""

    kind: str
    what: str
    gpu_hours: float
    usd: Usd
    jobs: list[int] = []


class AdviceOut(Wire):
    """How often a job should write a checkpoint: now every `now_s`, for `write_s` each, while it fails once in `failure_s`.
    `saves`: the share of its time that `best_s` would give back, `saves_usd` what that cost in the period."""

    job: int
    now_s: float
    best_s: float
    write_s: float
    failure_s: float
    saves: float
    saves_usd: Usd | None = None


class GoodputOut(Wire):
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


class JobGoodputOut(Wire):
    """Of one job over all its `runs`, up to `as_of`."""

    cluster: str
    job: int
    user: str
    runs: int
    as_of: int
    simulated: bool = False
    total: PartsOut


class BudgetOut(Wire):
    """`unit`: usd | gpu_hours; `level`: ok | warn | over. `held_back`: none of the team's jobs starts until the period ends."""

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


class EnergyRow(Wire):
    team: str
    kwh: float
    measured_kwh: float
    estimated_kwh: float
    usd: Usd | None = None


class EnergyOut(Wire):
    """With the site's own share (`pue`). `usd` is null where the file names no price of a kilowatt-hour."""

    cluster: str
    period: str
    start: int
    end: int
    pue: float
    usd_per_kwh: float | None
    simulated: bool = False
    total: EnergyRow
    teams: list[EnergyRow]


class HourOut(Wire):
    """GPU-hours of the hour from `at` on: those that jobs held (`held`) and that machines had (`there`); those that no job held
    on nodes that were neither down, drained nor spare (`free`), and those of them on nodes that jobs held other GPUs of
    (`fragmented`), which a job of whole nodes can't have."""

    at: int
    held: float
    there: float
    free: float = 0.0
    fragmented: float = 0.0


class TypeOut(Wire):
    """`utilisation`: held of what was there, `fragmentation`: fragmented of what was free, over all of `hours`."""

    gpu_type: str
    utilisation: float | None
    fragmentation: float | None = None
    hours: list[HourOut]


class WaitOut(Wire):
    size: str
    runs: int
    p50_s: int | None
    p90_s: int | None
    p99_s: int | None


class CapacityOut(Wire):
    """`free_gpus` and what follows are of now; `fragmentation`: the share of the free GPUs on nodes which are partly held."""

    cluster: str
    period: str
    start: int
    end: int
    types: list[TypeOut]
    waits: list[WaitOut]
    free_gpus: int
    free_whole_node_gpus: int
    fragmentation: float


class EstimateOut(Wire):
    """What a job would cost at most, when Slurm would start it, and what is left of its team's budget. GPUs and nodes are
    those of one of its `tasks`; hours and prices those of all tasks of an array together, `usd_per_hour` while all run. Where
    options say in an `unread` way what it would hold, none of these is known."""

    team: str
    gpus: int | None
    nodes: int | None
    time_limit_s: int | None
    gpu_hours: float | None
    usd: Usd | None
    usd_per_hour: Usd | None
    start: int = 0
    waits: str = ""  # why nobody can say when it starts, where that is known
    expected_nodes: str = ""
    tasks: int = 1
    unread: list[str] = []
    budget: BudgetOut | None = None
    warning: str = ""


class CollectedOut(Wire):
    collected_to: int

"""View models of the page's parts: frozen values that do not change with the clock alone, so that two of them differ
exactly when the
part must be sent again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.schemas.jobs import CourseOut
from headway.web.views.wording import count


@dataclass(frozen=True, slots=True)
class Key:
    """A job's sign on the page: a letter, a colour and a pattern, so that colour is never the only one."""

    letter: str
    hue: int
    pattern: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A job on a node."""

    id: int
    name: str
    key: Key | None


@dataclass(frozen=True, slots=True)
class Cell:
    """One GPU."""

    index: int
    holder: Holder | None


@dataclass(frozen=True, slots=True)
class NodeView:
    name: str
    kind: str  # up | idle | down | drain | start
    word: str
    reason: str
    spare: bool
    cells: tuple[Cell, ...]
    holders: tuple[Holder, ...]
    cpus: int
    cpus_used: int
    address: str

    @property
    def gpus_used(self) -> int:
        return sum(cell.holder is not None for cell in self.cells)

    @property
    def label(self) -> str:
        """What a screen reader says in place of the cells."""
        if self.kind == "down":
            return f"{count(len(self.cells), 'GPU')}, none usable"
        if not self.holders:
            return f"{count(len(self.cells), 'GPU')}, none in use"
        held = ", ".join(
            f"{sum(c.holder == holder for c in self.cells)} held by job {holder.id} {holder.name}"
            for holder in self.holders
        )
        return f"{count(len(self.cells), 'GPU')}, {held}"


@dataclass(frozen=True, slots=True)
class LeafView:
    name: str
    nodes: tuple[NodeView, ...]

    @property
    def gpus(self) -> int:
        return sum(len(node.cells) for node in self.nodes)

    @property
    def gpus_used(self) -> int:
        return sum(node.gpus_used for node in self.nodes)

    @property
    def down(self) -> int:
        return sum(node.kind == "down" for node in self.nodes)


@dataclass(frozen=True, slots=True)
class FabricView:
    heads: tuple[NodeView, ...]
    leaves: tuple[LeafView, ...]
    simulated: bool
    gpu_type: str
    creating: bool
    cluster: str
    large: bool  # too many nodes to be shown each by itself: the map shows them, and `leaves` is empty


@dataclass(frozen=True, slots=True)
class SummaryView:
    name: str
    state: str
    facts: tuple[str, ...]
    gpu_type: str
    gpus: int
    gpus_used: int
    simulated: bool
    nodes: int  # places without spares
    spares: int
    up: int  # of all, spares included
    total: int
    running: int
    pending: int
    price: str
    plan: str


@dataclass(frozen=True, slots=True)
class StateView:
    """How the cluster is, beside its name at the top."""

    state: str
    simulated_gpus: bool


@dataclass(frozen=True, slots=True)
class Notice:
    level: str  # error | warning | info
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class JobView:
    id: int
    task: str  # "104_7" for an array task, else the id
    name: str
    user: str
    account: str
    partition: str
    kind: str
    word: str
    nodes: int
    gpus: int
    since: int  # unix seconds the shown time counts from; 0 = unknown
    lasted_s: int | None  # for a job that ended
    limit_s: int | None
    where: str  # host list of a running job
    why: str  # why a pending one waits
    restarts: int
    key: Key | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class JobGroup:
    title: str
    rows: tuple[JobView, ...]
    more: int


@dataclass(frozen=True, slots=True)
class QueueView:
    groups: tuple[JobGroup, ...]
    running: int
    pending: int
    simulated: bool
    cluster: str


@dataclass(frozen=True, slots=True)
class TrainingView:
    job: JobView | None
    step: int | None
    loss: str
    tokens_per_s: float | None  # only trainings that report their tokens
    course: CourseOut | None
    drawn: bool  # there is a chart below
    simulated: bool
    cluster: str


@dataclass(frozen=True, slots=True)
class Chart:
    """The loss of the chosen job. `series` holds (step, loss)."""

    job: int
    hue: int
    series: tuple[tuple[int, float], ...]

    def message(self, before: Chart | None = None) -> dict[str, object]:
        """What the browser is sent: all points, or those it lacks after `before`. `from` = points it must have."""
        start = 0
        if before and before.job == self.job and before.hue == self.hue:
            start = len(before.series)
            if self.series[:start] != before.series:
                start = 0
        fresh = self.series[start:]
        return {
            "job": self.job,
            "hue": self.hue,
            "from": start,
            "steps": [step for step, _ in fresh],
            "loss": [loss for _, loss in fresh],
        }


@dataclass(frozen=True)
class Page:
    """Every part of a cluster's page, and what does not count as a change (`as_of`)."""

    parts: Mapping[str, object] = field(default_factory=dict)
    chart: Chart = Chart(0, 0, ())
    as_of: float | None = None
    stale: str = ""

    def changed(self, before: Page | None) -> tuple[str, ...]:
        """Names of the parts to send again."""
        return tuple(name for name, part in self.parts.items() if before is None or before.parts[name] != part)


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a fault's course: seconds after the fault, None for what has not happened."""

    word: str
    after_s: float | None


@dataclass(frozen=True, slots=True)
class FaultView:
    number: int
    node: str
    what: str
    kind: str  # open | out | done
    word: str
    at: float  # unix seconds
    course: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class FaultsView:
    rows: tuple[FaultView, ...]  # those that are not over first
    open: int
    more: int
    cluster: str


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group of nodes: how many machines there are, of how many."""

    name: str
    plan: str
    machines: int
    nodes: int  # that there should be; the least, where it scales by itself
    most: int
    spares: int
    idle_s: int | None  # it scales by itself, and gives a node back after so long
    spot: bool
    price: str  # "$31.20" a node and hour

    @property
    def asleep(self) -> int:
        """Slots without a machine."""
        return max(0, self.most + self.spares - self.machines)

    @property
    def wanted(self) -> str:
        if self.idle_s is not None:
            return f"{self.nodes} to {self.most}, as jobs ask"
        more = f" + {count(self.spares, 'spare')}" if self.spares else ""
        return f"{self.nodes}{more}" + (f" of {self.most} at most" if self.most > self.nodes else "")


@dataclass(frozen=True, slots=True)
class GroupsView:
    rows: tuple[GroupView, ...]
    cluster: str
    shown: bool  # on the overview, where a single group of a fixed number of nodes is no news


@dataclass(frozen=True, slots=True)
class CheckView:
    name: str
    ok: bool
    message: str


@dataclass(frozen=True, slots=True)
class ChecksView:
    rows: tuple[CheckView, ...]  # what fails first

    @property
    def ok(self) -> int:
        return sum(row.ok for row in self.rows)

"""View models of the parts of a cluster's overview: frozen values without the current time, so that two of them differ
exactly when the part must be sent again."""

from __future__ import annotations

from dataclasses import dataclass

from headway.schemas.jobs import EffectiveTimeOut
from headway.web.views.state_wording import count


@dataclass(frozen=True, slots=True)
class JobKey:
    """A job's mark on the page: a letter, a colour and a pattern, so that colour is never the only distinction."""

    letter: str
    hue: int
    pattern: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A job on a node."""

    id: int
    name: str
    key: JobKey | None


@dataclass(frozen=True, slots=True)
class GpuCell:
    """One GPU."""

    index: int
    holder: Holder | None


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node with its GPUs."""

    name: str
    kind: str  # up | idle | down | drain | start
    word: str
    reason: str
    spare: bool
    cells: tuple[GpuCell, ...]
    holders: tuple[Holder, ...]
    cpus: int
    cpus_used: int
    address: str

    @property
    def gpus_used(self) -> int:
        """Returns the number of GPUs that jobs hold."""
        return sum(cell.holder is not None for cell in self.cells)

    @property
    def label(self) -> str:
        """Returns the text that a screen reader reads instead of the cells."""
        if self.kind == "down":
            return f"{count(len(self.cells), 'GPU')}, none usable"
        if not self.holders:
            return f"{count(len(self.cells), 'GPU')}, none in use"
        text = ", ".join(
            f"{sum(c.holder == holder for c in self.cells)} allocated to job {holder.id} {holder.name}"
            for holder in self.holders
        )
        return f"{count(len(self.cells), 'GPU')}, {text}"


@dataclass(frozen=True, slots=True)
class LeafView:
    """A leaf switch with its nodes."""

    name: str
    nodes: tuple[NodeView, ...]

    @property
    def gpus(self) -> int:
        """Returns the number of GPUs of all nodes."""
        return sum(len(node.cells) for node in self.nodes)

    @property
    def gpus_used(self) -> int:
        """Returns the number of GPUs that jobs hold on all nodes."""
        return sum(node.gpus_used for node in self.nodes)

    @property
    def down(self) -> int:
        """Returns the number of nodes that are down."""
        return sum(node.kind == "down" for node in self.nodes)


@dataclass(frozen=True, slots=True)
class NodesView:
    """The cluster's heads and nodes by leaf switch."""

    heads: tuple[NodeView, ...]
    leaves: tuple[LeafView, ...]
    simulated: bool
    gpu_type: str
    creating: bool
    cluster: str
    large: bool  # too many nodes to be shown one by one: the map shows them, and `leaves` is empty


@dataclass(frozen=True, slots=True)
class SummaryView:
    """The cluster's main figures."""

    name: str
    state: str
    facts: tuple[str, ...]
    gpu_type: str
    gpus: int  # of all nodes, with spares, as on the home page
    spare_gpus: int  # of spares that are ready to take over
    gpus_used: int
    simulated: bool
    nodes: int  # slots without spares
    spares: int
    up: int  # usable nodes, including spares
    total: int
    running: int
    pending: int
    price: str
    plan: str


@dataclass(frozen=True, slots=True)
class JobView:
    """A job in a list."""

    id: int
    page: str  # the last part of the address of its page
    label: str  # "104_7" for an array task, "104 · 12 tasks" for several of an array, else the id
    name: str
    user: str
    account: str
    partition: str
    kind: str
    word: str
    nodes: int
    gpus: int
    since: int  # unix seconds from which the shown time counts; 0 = unknown
    lasted_s: int | None  # for a job that ended
    limit_s: int | None
    where: str  # host list of a running job
    why: str  # why a pending one waits
    restarts: int
    key: JobKey | None
    chosen: bool


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs under one heading; `more`: the number of jobs not shown."""

    title: str
    rows: tuple[JobView, ...]
    more: int


@dataclass(frozen=True, slots=True)
class QueueView:
    """The queue on the overview."""

    groups: tuple[JobGroup, ...]
    running: int
    pending: int
    simulated: bool
    cluster: str


@dataclass(frozen=True, slots=True)
class TrainingView:
    """The job whose loss is drawn, with its training progress."""

    job: JobView | None
    step: int | None
    loss: str
    tokens_per_s: float | None  # None for jobs that do not report their tokens
    effective_time: EffectiveTimeOut | None
    drawn: bool  # whether a chart is shown below
    simulated: bool
    cluster: str


@dataclass(frozen=True, slots=True)
class IncidentMoment:
    """A moment in the course of an incident: seconds after the fault, None if it has not happened yet."""

    word: str
    after_s: float | None


@dataclass(frozen=True, slots=True)
class IncidentView:
    """An incident in the list on the overview."""

    number: int
    node: str
    what: str
    kind: str  # open | out | done
    word: str
    at: float  # unix seconds
    course: tuple[IncidentMoment, ...]
    action: str = ""  # "link": `node` is the name of a link


@dataclass(frozen=True, slots=True)
class IncidentsView:
    """The incidents on the overview."""

    rows: tuple[IncidentView, ...]  # open ones first
    open: int
    more: int
    cluster: str


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group of nodes: the number of machines it has and should have."""

    name: str
    plan: str
    machines: int
    nodes: int  # wanted number of nodes; the minimum if the group scales automatically
    most: int
    spares: int
    idle_s: int | None  # seconds after which an idle node is released; None if the group does not scale automatically
    spot: bool
    price: str  # "$31.20" a node and hour

    @property
    def asleep(self) -> int:
        """Returns the number of slots without a machine."""
        return max(0, self.most + self.spares - self.machines)

    @property
    def wanted(self) -> str:
        """Returns the number of nodes that the group should have, in words."""
        if self.idle_s is not None:
            return f"{self.nodes} to {self.most} on demand"
        more = f" + {count(self.spares, 'spare')}" if self.spares else ""
        return f"{self.nodes}{more}" + (f" of {self.most} at most" if self.most > self.nodes else "")


@dataclass(frozen=True, slots=True)
class GroupsView:
    """The groups of a cluster."""

    rows: tuple[GroupView, ...]
    cluster: str
    shown: bool  # whether the overview shows them: it does not for a single group of fixed size


@dataclass(frozen=True, slots=True)
class CheckView:
    """A readiness check."""

    name: str
    ok: bool
    message: str


@dataclass(frozen=True, slots=True)
class ReadinessView:
    """The readiness checks of a cluster."""

    rows: tuple[CheckView, ...]  # failed ones first

    @property
    def ok(self) -> int:
        """Returns the number of checks that pass."""
        return sum(row.ok for row in self.rows)

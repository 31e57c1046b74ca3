"""The calls that requests and workers make on clusters, as a Protocol. server.backend.backend implements it; the fake
of the tests answers only the calls that a test registered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headway.cluster.monitoring.metric_queries import Query, Row
from headway.domain.billing import CheckpointStats, JobRun, NodeSpan, Notification
from headway.domain.changeset import ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.incident import Incident
from headway.domain.machines.machine import Machine
from headway.domain.machines.slots import Deadline
from headway.domain.readiness import Check
from headway.domain.slurm.accounts import Share
from headway.domain.slurm.state import JobState, NodeState, Reservation
from headway.domain.volume_usage import VolumeUsage
from headway.errors import Fault
from headway.schemas.clusters import Document
from headway.schemas.incidents import FaultIn
from headway.schemas.jobs import LogFoundOut, LogPartOut, ProgressOut
from headway.schemas.storage import VolumeSpeedOut
from headway.schemas.submission.commands import ExecIn, ExecOut
from headway.schemas.submission.submissions import SubmitIn, SubmitOut

if TYPE_CHECKING:  # cluster code and its libraries are loaded with the first cluster
    from headway.backup.archive import Header
    from headway.cluster.context import ReportProgress
    from headway.datasets.version_store_location import LibraryLocation
    from headway.jobs.remote.tunnel import Tunnel
    from headway.jobs.submission.submit import JobFiles
    from headway.rollout.image_rollout import OperationWaits


@dataclass(frozen=True)
class ResolvedCluster:
    """A valid document's cluster, and warnings about it."""

    cluster: Cluster
    warnings: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class SlurmReading:
    """The state that Slurm on a cluster reports."""

    nodes: tuple[NodeState, ...]
    jobs: tuple[JobState, ...]  # unchanged jobs are the same objects as in the previous reading
    rows: Mapping[int, bytes] = field(default_factory=dict)  # job id -> its JSON for lists, if already made
    reservations: tuple[Reservation, ...] = ()
    began: float = float("inf")  # when the reading began, by time.monotonic(); inf: when it was requested


class WaitForJobs(Protocol):
    """Callbacks of an apply that waits for jobs on nodes that are to be removed."""

    async def begin(self) -> None:
        """Called on each pass of the wait. The apply changes nothing until `end`."""
        ...

    async def end(self) -> None:
        """Called when the wait ends and the apply continues."""
        ...

    async def others(self, nodes: Collection[str]) -> bool:
        """Returns whether another operation must go first. `nodes` are those whose jobs are waited for."""
        ...


class ClusterLifecycle(Protocol):
    """Resolves, plans, applies and removes a cluster."""

    def resolve(self, document: Document) -> ResolvedCluster:
        """Returns the document's cluster. Raises InvalidSpec with every fault. Pure, but slow for thousands of nodes."""
        ...

    async def plan(self, cluster: Cluster) -> ChangeSet:
        """Returns what `apply` would change now."""
        ...

    async def apply(
        self,
        cluster: Cluster,
        say: ReportProgress,
        deadline: Deadline | None = None,
        waiting: WaitForJobs | None = None,
    ) -> bool:
        """Applies the cluster's file. `deadline` is the time until which jobs may run on nodes that are to be removed;
        with None no node with jobs is removed. Returns whether it stopped for another operation (`waiting`), with
        those nodes left drained."""
        ...

    async def take_down(self, cluster: Cluster, say: ReportProgress, delete_data: bool) -> tuple[str, ...]:
        """Removes the cluster's machines. Returns the folders of data that stay."""
        ...

    async def replace_machine(self, cluster: Cluster, say: ReportProgress, node: str, since: float | None) -> None:
        """Replaces the machine of one node and changes nothing else. A machine that was created after `since` (unix
        seconds) or has jobs is kept."""
        ...

    async def machines(self, cluster: Cluster) -> tuple[Machine, ...]:
        """Returns the machines that exist, running or not."""
        ...

    async def readiness_checks(self, cluster: Cluster) -> tuple[Check, ...]:
        """Returns the checks of whether the cluster works as its file says."""
        ...


class ClusterBackups(Protocol):
    """Writes and restores backups, and replaces keys."""

    async def back_up(
        self, cluster: Cluster, about: Mapping[str, Any], say: ReportProgress, path: Path, header: Header, key: bytes
    ) -> None:
        """Writes the backup file `path` completely or not at all. `about` is the cluster's own row."""
        ...

    async def restore(self, cluster: Cluster, say: ReportProgress, path: Path, key: bytes, ref: str) -> None:
        """Makes the cluster's machines with the backup's queue and accounting. `ref` is the same when an interrupted
        restore is continued."""
        ...

    async def rotate_key(
        self, cluster: Cluster, say: ReportProgress, what: str, ref: str, begins: Callable[[], Awaitable[None]]
    ) -> None:
        """Replaces the cluster's `munge`, `jwt` or `ssh` key. `ref` as in `restore`; `begins` is called before the
        first change."""
        ...


class Rollouts(Protocol):
    """Moves nodes and heads to another node image."""

    async def plan_rollout(self, cluster: Cluster, *, back: bool, head: bool, by: bool) -> ChangeSet:
        """Returns what `roll_nodes`, and with `head` also `roll_heads`, would do now; `by` says that there is a deadline.
        Raises Refused if machines are not made from an image, or if there is no previous image."""
        ...

    async def roll_nodes(
        self, cluster: Cluster, say: ReportProgress, waits: OperationWaits, *, back: bool, until: float | None
    ) -> bool:
        """Replaces nodes by nodes of another image, one node first. Returns False if it stopped for another operation,
        as `waits` said. Raises Refused if a node does not pass its tests."""
        ...

    async def roll_heads(self, cluster: Cluster, say: ReportProgress, *, back: bool) -> None: ...

    async def ensure_image(self, cluster: Cluster, say: ReportProgress) -> None:
        """Makes the cluster's node image if it does not exist yet."""
        ...

    async def nodes_await_rollout(self, cluster: Cluster) -> bool:
        """Returns whether the heads have the Slurm version of the file and nodes that were drained for a roll have
        another one. False if that is unknown."""
        ...

    async def halt_rollout(self, cluster: Cluster, say: ReportProgress) -> None:
        """Resumes the nodes that a roll has drained but not replaced."""
        ...


class ClusterStorage(Protocol):
    """Measures volumes and stores dataset versions."""

    async def measure_volumes(self, cluster: Cluster, node: str, mib: int) -> tuple[VolumeSpeedOut, ...]:
        """Returns the speed of each volume, measured from one machine; `node` "" is the head."""
        ...

    async def dataset_library(self, cluster: Cluster) -> LibraryLocation:
        """Returns the place of dataset versions on machines of an inventory."""
        ...

    async def volume_usage(self, cluster: Cluster) -> tuple[VolumeUsage, ...]:
        """Returns how full each volume is, as seen from the head. Raises Unreachable."""
        ...


class SlurmState(Protocol):
    """Reads the state of Slurm: nodes, jobs, arrays and accounts."""

    async def read(self, cluster: Cluster) -> SlurmReading:
        """Returns the state of Slurm. Raises Unreachable if the controller does not answer."""
        ...

    async def shares(self, cluster: Cluster) -> tuple[Share, ...]:
        """Returns the usage of each account, as sshare reports it. Raises Unreachable if the controller does not
        answer."""
        ...

    async def job(self, cluster: Cluster, job_id: int) -> JobState:
        """Returns one job, also one that has ended. Raises NotFound."""
        ...

    async def jobs_by_id(self, cluster: Cluster, numbers: tuple[int, ...]) -> tuple[JobState, ...]:
        """Returns those of the jobs that the controller knows, without the GPUs they hold. The number of an array must
        not be given, because it returns all tasks."""
        ...

    async def history(self, cluster: Cluster) -> tuple[JobState, ...]:
        """Returns the jobs of the last days, from accounting."""
        ...

    async def task(self, cluster: Cluster, job_id: int, task: str) -> JobState:
        """Returns one task of an array. Raises NotFound."""
        ...

    async def array_states(self, cluster: Cluster, job_id: int) -> dict[str, str]:
        """Returns the state of each task of an array, by task number; {} for a job that is not an array."""
        ...

    async def job_runs(self, cluster: Cluster, job_id: int) -> tuple[JobState, ...]:
        """Returns every run of a job, from accounting."""
        ...


class ClusterJobs(Protocol):
    """Submits and controls jobs, and reads their progress and logs. `user` is the Linux user that acts on the cluster."""

    async def submit(
        self, cluster: Cluster, request: SubmitIn, user: str, stage: JobFiles | None = None, *, tag: str = ""
    ) -> SubmitOut:
        """Submits a job. `tag` names the request: a request that is sent twice with the same tag is submitted once and
        answered the same."""
        ...

    async def store_bundle(self, cluster: Cluster, user: str, root: str, digest: str, archive: bytes) -> bool:
        """Stores a user's bundle and returns whether it is on the cluster now. With an empty archive it only checks."""
        ...

    async def cancel(self, cluster: Cluster, job: str, user: str, *, as_operator: bool) -> None:
        """Cancels a job: "12" (a job, or a whole array) or "12_3" (one task). `as_operator` uses Headway's own Slurm
        operator, for actions that an admin may do and Slurm would refuse to `user`."""
        ...

    async def control(self, cluster: Cluster, job: str, verb: str, user: str, *, as_operator: bool) -> None:
        """Requeues, holds or releases a job (`verb`). Parameters as in `cancel`."""
        ...

    async def progress(self, cluster: Cluster, jobs: tuple[JobState, ...]) -> dict[int, ProgressOut]:
        """Returns steps and loss of the jobs that report them or write them to their logs, by job id."""
        ...

    async def ended_progress(self, cluster: Cluster, job: JobState) -> ProgressOut | None:
        """Returns the same for a job that has ended and is no longer followed; None if it reported nothing."""
        ...

    async def log_window(
        self, cluster: Cluster, job: JobState, *, before: int | None, lines: int, err: bool
    ) -> LogPartOut:
        """Returns some lines of a log, read as the job's own user."""
        ...

    async def search_log(self, cluster: Cluster, job: JobState, text: str, *, err: bool) -> LogFoundOut: ...

    def follow_log(
        self, cluster: Cluster, job: JobState, *, follow: bool, err: bool, start: int = 0
    ) -> AsyncIterator[bytes]:
        """Yields the log from byte `start` on, read as the job's own user."""
        ...

    def follow_array_logs(self, cluster: Cluster, job_id: int, *, follow: bool, err: bool) -> AsyncIterator[bytes]:
        """Yields the logs of an array's tasks, each line with its task's number."""
        ...


class ClusterCommands(Protocol):
    """Runs commands and opens tunnels as the Linux user `user`."""

    async def run_command(self, cluster: Cluster, request: ExecIn, user: str) -> ExecOut: ...

    def run_interactive(
        self, cluster: Cluster, argv: Sequence[str], user: str, feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        """Runs a command and yields its output while it runs: ("out" | "err", bytes), and as the last pair ("code",
        digits). `feed` is standard input; closing the iterator ends the command."""
        ...

    async def open_tunnel(self, cluster: Cluster, node: str, user: str, path: str) -> Tunnel:
        """Returns a tunnel for connections to a socket of `user` on a node. Raises Unreachable."""
        ...


class NodeActions(Protocol):
    """Drains, tests, reboots and returns nodes in the name of a person."""

    async def drain_node(self, cluster: Cluster, node: str, reason: str, person: str) -> str:
        """Drains a node in the person's name and returns what was done, in words."""
        ...

    async def return_node(self, cluster: Cluster, node: str, person: str) -> str:
        """Returns a node to service that has no open incident. The result is what was done, in words. Raises Conflict
        if the node is in service already, Unreachable if its machine is not there."""
        ...

    async def return_incident_node(self, cluster: Cluster, number: int, person: str, *, false_alarm: bool) -> Incident:
        """Tests the node of an incident and returns it to service. Returns the closed incident. Raises Conflict if a
        test fails."""
        ...

    async def reboot_node(self, cluster: Cluster, node: str, person: str, *, busy: bool) -> Awaitable[str]:
        """Starts a reboot. Raises Conflict while jobs run there, unless `busy`. The returned awaitable ends with the
        reboot and gives what went wrong, or ""."""
        ...

    async def resume_reboot(self, cluster: Cluster, node: str) -> tuple[str, Awaitable[str]] | None:
        """Continues a reboot that was interrupted by the end of its server. Returns (person who started it, awaitable
        as in `reboot_node`), or None if there is none or another server continues it."""
        ...

    async def test_node(self, cluster: Cluster, node: str, *, hard: bool) -> tuple[tuple[str, bool, str], ...]:
        """Returns (test, passed, words) for each test. Changes nothing; `hard` tests disturb running jobs."""
        ...

    async def inject_fault(self, cluster: Cluster, fault: FaultIn) -> str:
        """Injects a fault and returns what was done, in words. Raises Refused if the machines are not simulated and the
        fault is not forced."""
        ...


class UsageSources(Protocol):
    """Reads what billing needs from accounting, and holds the jobs of a team over its budget."""

    async def usage_runs(self, cluster: Cluster, since: int, until: int) -> tuple[JobRun, ...]:
        """Returns every run of every job that existed at some time between `since` and `until`. Raises if accounting
        does not answer."""
        ...

    async def node_events(self, cluster: Cluster, since: int) -> tuple[NodeSpan, ...]:
        """Returns the periods in which nodes were down or drained and that reach past `since`. Raises as `accounting`."""
        ...

    async def restart_losses(self, cluster: Cluster) -> dict[int, tuple[tuple[float, float], ...]]:
        """Returns by job id, for jobs that report progress: (last report before a restart, seconds of work before it
        that had to be repeated) of each restart."""
        ...

    async def checkpoint_stats(self, cluster: Cluster) -> dict[int, CheckpointStats]:
        """Returns by job id, for jobs that report them, statistics of the checkpoints that they wrote."""
        ...

    async def hold_team_jobs(self, cluster: Cluster, team: str, *, on: bool) -> None:
        """Keeps the team's jobs from starting while `on`; running jobs continue."""
        ...


class Monitoring(Protocol):
    """Queries the cluster's Prometheus and sends through its Alertmanager."""

    async def query_metrics(
        self, cluster: Cluster, queries: Sequence[Query], start: float, end: float, step_s: int
    ) -> tuple[Row, ...]:
        """Returns what the cluster's Prometheus measured. Raises Unreachable if it does not answer."""
        ...

    async def send_alerts(self, cluster: Cluster, news: Sequence[Notification]) -> None:
        """Passes notifications on to be sent through the cluster's alert channels. A repeated one is not sent again.
        Raises Unreachable if the service does not answer."""
        ...


class ClusterBackend(Protocol):
    """Every call that contacts machines or resolves a cluster file, in one part a subject."""

    @property
    def lifecycle(self) -> ClusterLifecycle: ...

    @property
    def backups(self) -> ClusterBackups: ...

    @property
    def rollouts(self) -> Rollouts: ...

    @property
    def storage(self) -> ClusterStorage: ...

    @property
    def slurm(self) -> SlurmState: ...

    @property
    def jobs(self) -> ClusterJobs: ...

    @property
    def commands(self) -> ClusterCommands: ...

    @property
    def nodes(self) -> NodeActions: ...

    @property
    def usage(self) -> UsageSources: ...

    @property
    def monitoring(self) -> Monitoring: ...

    async def forget(self, cluster: str) -> None:
        """Closes the open connections to a cluster."""
        ...

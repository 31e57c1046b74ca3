"""The calls that requests and workers make on clusters, as Protocols. `server.cluster_backend` implements them; the fake of the
tests answers only the calls that a test registered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headway.domain.access.user_change_results import UserLockResult, UserUpdateResult
from headway.domain.changeset import ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.incident import Incident
from headway.domain.machines.machine import Machine
from headway.domain.machines.scale_in_deadline import Deadline
from headway.domain.operation_progress import OperationWaits, ReportProgress
from headway.domain.readiness import ReadinessCheck
from headway.domain.slurm.accounts import AccountShare
from headway.domain.slurm.nodes_and_jobs import JobState, NodeState, Reservation
from headway.domain.storage.quotas import ObservedQuota
from headway.domain.storage.volume_space import VolumeSpace
from headway.errors import Fault
from headway.schemas.clusters import Document
from headway.schemas.jobs import JobStacksOut, LogFoundOut, LogPartOut, ProgressOut
from headway.schemas.nodes.incidents import FaultIn
from headway.schemas.storage.volumes import VolumeSpeedOut
from headway.schemas.submission.exec_commands import ExecIn, ExecOut
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.services.cluster_backend_measurements import (
    ClusterFabricTests,
    ClusterMonitoring,
    ClusterUsage,
    ClusterWhatIf,
)
from headway.services.cluster_backend_proxy import ClusterServiceProxy
from headway.services.cluster_backend_rentals import ClusterRentals

if TYPE_CHECKING:  # cluster code and its libraries are loaded with the first cluster
    from headway.backup.archive import Header
    from headway.cluster.slurm_export.export import SlurmExport
    from headway.datasets.async_file_store import AsyncDatasetFileStore
    from headway.environments.environment_file_store import EnvironmentFileStore
    from headway.jobs.metrics.reader import MetricsAsk, MetricsPart
    from headway.jobs.remote.tunnel import Tunnel
    from headway.jobs.submission.submit import JobFiles


@dataclass(frozen=True)
class ResolvedCluster:
    """The cluster that a valid document describes, and the warnings about the document."""

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
        """Returns whether another operation must run first. The apply waits for the jobs on `nodes`."""
        ...


class ClusterLifecycle(Protocol):
    """Resolves, plans, applies and removes a cluster."""

    async def resolve(self, document: Document) -> ResolvedCluster:
        """Returns the document's cluster. Raises InvalidSpec with all faults. Pure, but slow for thousands of nodes."""
        ...

    async def plan(self, cluster: Cluster) -> ChangeSet:
        """Returns what `apply` would change now."""
        ...

    async def apply(
        self,
        cluster: Cluster,
        report: ReportProgress,
        deadline: Deadline | None = None,
        waiting: WaitForJobs | None = None,
        *,
        restarts: bool = True,
    ) -> bool:
        """Applies the cluster's file. Jobs on nodes that are to be removed may run until `deadline`; None: no node with
        jobs is removed. `restarts` False: machines that do not answer are left alone. Returns True if it stopped because
        another operation must run first (`waiting`); the nodes stay drained."""
        ...

    async def take_down(self, cluster: Cluster, report: ReportProgress, delete_data: bool) -> tuple[str, ...]:
        """Deletes the cluster's machines, and its data if `delete_data`. Returns the data folders that remain."""
        ...

    async def replace_machine(self, cluster: Cluster, report: ReportProgress, node: str, since: float | None) -> None:
        """Replaces the machine of one node and changes nothing else. Keeps a machine that has jobs or was created after
        `since` (unix seconds)."""
        ...

    async def machines(self, cluster: Cluster) -> tuple[Machine, ...]:
        """Returns the machines that exist, running or not."""
        ...

    async def readiness_checks(self, cluster: Cluster) -> tuple[ReadinessCheck, ...]:
        """Checks whether the cluster works as its file describes. Returns one result per check."""
        ...

    async def slurm_export(self, cluster: Cluster) -> SlurmExport:
        """Returns plain Slurm files of the cluster, which run without Headway. Raises Refused if it has no machines."""
        ...


class ClusterBackups(Protocol):
    """Writes and restores backups."""

    async def back_up(
        self, cluster: Cluster, about: Mapping[str, Any], report: ReportProgress, path: Path, header: Header, key: bytes
    ) -> None:
        """Writes the backup file `path`, completely or not at all. `about` is the cluster's row in the store."""
        ...

    async def restore(self, cluster: Cluster, report: ReportProgress, path: Path, key: bytes, ref: str) -> None:
        """Creates the machines and loads the backup's queue and accounting. The same `ref` continues an earlier restore."""
        ...


class ClusterKeyRotation(Protocol):
    """Replaces keys of running clusters."""

    async def rotate_key(
        self, cluster: Cluster, report: ReportProgress, what: str, ref: str, begins: Callable[[], Awaitable[None]]
    ) -> None:
        """Replaces a key. The same `ref` continues an earlier rotation. `begins` is called before the first change."""
        ...


class ClusterRollouts(Protocol):
    """Moves nodes and heads to another node image."""

    async def plan_rollout(self, cluster: Cluster, *, back: bool, head: bool, by: bool) -> ChangeSet:
        """Returns what `roll_nodes`, and with `head` also `roll_heads`, would change now. `back`: to the previous image;
        `by`: running jobs have a deadline. Raises Refused if the provider uses no images, or for `back` if no previous
        image is known."""
        ...

    async def roll_nodes(
        self, cluster: Cluster, report: ReportProgress, waits: OperationWaits, *, back: bool, until: float | None
    ) -> bool:
        """Replaces the machines of nodes by machines of another image. The first node must pass its tests before the
        others follow. Jobs may run until `until` (unix seconds). Returns False if it stopped because another operation
        must run first (`waits`). Raises Refused if a node fails its tests."""
        ...

    async def roll_heads(self, cluster: Cluster, report: ReportProgress, *, back: bool) -> None:
        """Replaces the machines of the heads by machines of another image; `back`: of the previous image."""
        ...

    async def ensure_image(self, cluster: Cluster, report: ReportProgress) -> None:
        """Builds the cluster's node image if it does not exist."""
        ...

    async def nodes_await_rollout(self, cluster: Cluster) -> bool:
        """Returns whether the heads have the Slurm version of the file while nodes that a rollout drained still have
        another version. False if the versions are unknown."""
        ...

    async def halt_rollout(self, cluster: Cluster, report: ReportProgress) -> None:
        """Resumes the nodes that a rollout has drained but not replaced."""
        ...


class ClusterStorage(Protocol):
    """Measures volumes and stores versions of datasets and environments."""

    async def measure_volumes(self, cluster: Cluster, node: str, mib: int) -> tuple[VolumeSpeedOut, ...]:
        """Measures each volume from one machine with a file of `mib` MiB. `node` "" is the head."""
        ...

    async def dataset_file_store(self, cluster: Cluster) -> AsyncDatasetFileStore:
        """Returns the file store of dataset versions on the head of a cluster of owned machines."""
        ...

    async def environment_file_store(self, cluster: Cluster) -> EnvironmentFileStore:
        """Returns the folder of software environments that the cluster's machines share."""
        ...

    async def quotas(self, cluster: Cluster) -> Mapping[str, ObservedQuota]:
        """Returns the state and use of users' quotas by volume. Raises Unreachable."""
        ...

    async def volume_space(self, cluster: Cluster) -> tuple[VolumeSpace, ...]:
        """Returns size and use of each volume, as the head sees it. Raises Unreachable."""
        ...


class ClusterSlurmState(Protocol):
    """Reads the state of Slurm: nodes, jobs, arrays and accounts."""

    async def read(self, cluster: Cluster) -> SlurmReading:
        """Returns the state of Slurm. Raises Unreachable if the controller does not answer."""
        ...

    async def shares(self, cluster: Cluster) -> tuple[AccountShare, ...]:
        """Returns the usage of each account, as sshare reports it. Raises Unreachable if the controller does not
        answer."""
        ...

    async def job(self, cluster: Cluster, job_id: int) -> JobState:
        """Returns one job, also one that has ended. Raises NotFound."""
        ...

    async def jobs_by_id(self, cluster: Cluster, numbers: tuple[int, ...]) -> tuple[JobState, ...]:
        """Returns the jobs that the controller knows, without their GPU indices. Must not be called with the id of an
        array: Slurm would return all its tasks."""
        ...

    async def history(self, cluster: Cluster) -> tuple[JobState, ...]:
        """Returns the jobs of the last days from accounting."""
        ...

    async def task(self, cluster: Cluster, job_id: int, task: str) -> JobState:
        """Returns one task of an array. Raises NotFound."""
        ...

    async def array_states(self, cluster: Cluster, job_id: int) -> dict[str, str]:
        """Returns the state of each task of an array, by task number; {} for a job that is not an array."""
        ...

    async def job_runs(self, cluster: Cluster, job_id: int) -> tuple[JobState, ...]:
        """Returns every run of a job from accounting; a requeued job has several."""
        ...

    async def head_local_time(self, cluster: Cluster, unix_s: int) -> datetime:
        """Returns this moment in the head's time zone, which reservations of the cluster file use. Raises Unreachable."""
        ...


class ClusterJobs(Protocol):
    """Submits and controls jobs, and reads their progress and logs. `user` is the Linux user on the cluster that the
    commands run as."""

    async def submit(
        self, cluster: Cluster, request: SubmitIn, user: str, stage: JobFiles | None = None, *, tag: str = ""
    ) -> SubmitOut:
        """Submits a job with sbatch. Two requests with the same `tag` submit one job and get the same answer."""
        ...

    async def store_bundle(self, cluster: Cluster, user: str, root: str, digest: str, archive: bytes) -> bool:
        """Stores a user's bundle below `root` on the cluster. Returns whether it is stored now; an empty archive only
        checks that."""
        ...

    async def cancel(self, cluster: Cluster, job: str, user: str, *, as_operator: bool) -> None:
        """Cancels a job: "12" (a job or a whole array) or "12_3" (one task). `as_operator` runs the command as Headway's
        own Slurm operator, for admins to whose user Slurm would refuse it."""
        ...

    async def control(self, cluster: Cluster, job: str, verb: str, user: str, *, as_operator: bool) -> None:
        """Requeues, holds or releases a job (`verb`). Parameters as in `cancel`."""
        ...

    async def progress(self, cluster: Cluster, jobs: tuple[JobState, ...]) -> dict[int, ProgressOut]:
        """Returns step and loss by job id, for jobs that report them or write them to their logs."""
        ...

    async def progress_from_files(self, cluster: Cluster, job: JobState) -> ProgressOut | None:
        """Returns the progress of a job from its files, which are read once, with all metrics of its log; None if it
        reported none."""
        ...

    async def metric_parts(self, cluster: Cluster, asked: Sequence[MetricsAsk]) -> Mapping[int, MetricsPart]:
        """Returns the next part of each job's file of metrics, by job id; without jobs that have none."""
        ...

    async def step_result_files(self, cluster: Cluster, user: str, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Returns the content of these files by path, read as the user; without files that can't be read."""
        ...

    async def rank_stacks(self, cluster: Cluster, job: JobState) -> JobStacksOut:
        """Returns the Python stacks of all ranks of a running job. Each rank is stopped for some milliseconds."""
        ...

    async def log_part(
        self, cluster: Cluster, job: JobState, *, before: int | None, lines: int, err: bool
    ) -> LogPartOut:
        """Returns the last `lines` lines before byte `before` of a log (None: of the whole log), read as the job's user.
        `err`: of standard error."""
        ...

    async def search_log(self, cluster: Cluster, job: JobState, text: str, *, err: bool) -> LogFoundOut:
        """Returns the lines of a log that contain the text, in upper or lower case."""
        ...

    def follow_log(
        self, cluster: Cluster, job: JobState, *, follow: bool, err: bool, start: int = 0
    ) -> AsyncIterator[bytes]:
        """Yields the log from byte `start` on, read as the job's user. `follow`: until the job ends."""
        ...

    def follow_array_logs(self, cluster: Cluster, job_id: int, *, follow: bool, err: bool) -> AsyncIterator[bytes]:
        """Yields the logs of an array's tasks; each line begins with the task's number."""
        ...


class ClusterJobSecrets(Protocol):
    """Writes the secrets of jobs to a cluster's heads."""

    async def install_job_secrets(self, cluster: Cluster, content: bytes) -> tuple[str, ...]:
        """Writes `content` to all heads, for root only; an older revision does not replace a newer one
        (node/programs/install_job_secrets.py). Returns the heads that could not be reached."""
        ...


class ClusterUserChanges(Protocol):
    """Locks Linux users of a running cluster, and puts them into their teams, without an apply."""

    async def lock_user(self, cluster: Cluster, user: str) -> UserLockResult:
        """Refuses the user's new jobs and SSH sessions, cancels their jobs, disables their scrontab and ends their
        processes on the heads. Raises HeadwayError if nothing could be tried."""
        ...

    async def update_users(self, cluster: Cluster, users: Collection[str]) -> Mapping[str, UserUpdateResult]:
        """Lets the users sign in and submit jobs in the teams that they are in, and in no other team. Returns the changes in
        Slurm and the first fault by user. Raises HeadwayError if nothing could be tried."""
        ...


class ClusterCommands(Protocol):
    """Runs commands and opens tunnels as the Linux user `user`."""

    async def run_command(self, cluster: Cluster, request: ExecIn, user: str) -> ExecOut:
        """Runs a command on the head and returns its exit code and output. Raises Refused if the request's standard
        input is not base64."""
        ...

    def run_interactive(
        self, cluster: Cluster, argv: Sequence[str], user: str, feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        """Runs a command on the head and yields its output as it arrives: ("out" | "err", bytes), and as the last pair
        ("code", digits of the exit code). `feed` is standard input. Closing the iterator ends the command."""
        ...

    def run_on_terminal(
        self, cluster: Cluster, argv: Sequence[str], user: str, size: tuple[int, int], feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        """Runs a command on the head on a terminal of `size` (rows, columns), as `run_interactive` does. `feed`: frames of
        `jobs.remote.interactive_command`."""
        ...

    async def open_tunnel(self, cluster: Cluster, node: str, user: str, path: str) -> Tunnel:
        """Returns a tunnel to the Unix socket `path` of `user` on a node. Raises Unreachable."""
        ...


class ClusterNodeActions(Protocol):
    """Drains, tests, reboots and resumes nodes in a person's name."""

    async def drain_node(self, cluster: Cluster, node: str, reason: str, person: str) -> str:
        """Drains a node. Returns the result as a sentence."""
        ...

    async def return_node(self, cluster: Cluster, node: str, person: str) -> str:
        """Resumes a node that has no open incident. Returns the result as a sentence. Raises Conflict if the node is in
        service already, Unreachable if its machine does not exist."""
        ...

    async def return_incident_node(self, cluster: Cluster, number: int, person: str, *, false_alarm: bool) -> Incident:
        """Tests the node of an incident and resumes it. Returns the closed incident. Raises Conflict if a test fails."""
        ...

    async def reboot_node(self, cluster: Cluster, node: str, person: str, *, busy: bool) -> Awaitable[str]:
        """Returns an awaitable that reboots the node and returns the error as text, "" after success. Raises Conflict
        while jobs run on the node, unless `busy`."""
        ...

    async def resume_reboot(self, cluster: Cluster, node: str) -> tuple[str, Awaitable[str]] | None:
        """Returns (person, awaitable as in `reboot_node`) for a reboot that a stopped server left unfinished; None if
        no reboot is unfinished or another server continues it."""
        ...

    async def test_node(self, cluster: Cluster, node: str, *, hard: bool) -> tuple[tuple[str, bool, str], ...]:
        """Runs a node's tests. Returns (name, passed, text) for each test. `hard` adds tests that disturb running jobs."""
        ...

    async def inject_fault(self, cluster: Cluster, fault: FaultIn) -> str:
        """Injects a fault. Returns the result as a sentence. Raises Refused if the machines are not simulated and the
        fault is not forced."""
        ...


class ClusterBackend(Protocol):
    """Every call that contacts machines or resolves a cluster file, in one Protocol per subject."""

    @property
    def lifecycle(self) -> ClusterLifecycle:
        """Returns the calls that plan, apply and remove a cluster."""
        ...

    @property
    def backups(self) -> ClusterBackups:
        """Returns the calls that write and restore backups."""
        ...

    @property
    def keys(self) -> ClusterKeyRotation:
        """Returns the calls that replace the keys of a running cluster."""
        ...

    @property
    def rollouts(self) -> ClusterRollouts:
        """Returns the calls that move nodes and heads to another node image."""
        ...

    @property
    def rentals(self) -> ClusterRentals:
        """Returns the calls to clouds."""
        ...

    @property
    def storage(self) -> ClusterStorage:
        """Returns the calls for volumes, quotas, datasets and environments."""
        ...

    @property
    def slurm(self) -> ClusterSlurmState:
        """Returns the calls that read nodes, jobs and accounts from Slurm."""
        ...

    @property
    def jobs(self) -> ClusterJobs:
        """Returns the calls that submit and control jobs and read their logs."""
        ...

    @property
    def job_secrets(self) -> ClusterJobSecrets:
        """Returns the calls that write the secrets of jobs to the heads."""
        ...

    @property
    def proxy(self) -> ClusterServiceProxy:
        """Returns the call that steers the proxy of services."""
        ...

    @property
    def user_changes(self) -> ClusterUserChanges:
        """Returns the calls that lock users of a running cluster and put them into their teams."""
        ...

    @property
    def commands(self) -> ClusterCommands:
        """Returns the calls that run commands and open tunnels as a user."""
        ...

    @property
    def nodes(self) -> ClusterNodeActions:
        """Returns the calls that drain, test, reboot and resume nodes."""
        ...

    @property
    def fabric(self) -> ClusterFabricTests:
        """Returns the calls that measure the bandwidth between nodes."""
        ...

    @property
    def whatif(self) -> ClusterWhatIf:
        """Returns the call that replays the queue of a cluster."""
        ...

    @property
    def usage(self) -> ClusterUsage:
        """Returns the calls that read usage for billing."""
        ...

    @property
    def monitoring(self) -> ClusterMonitoring:
        """Returns the calls to Prometheus and Alertmanager."""
        ...

    async def forget(self, cluster: str) -> None:
        """Closes all connections to a cluster and stops its automatic actions."""
        ...

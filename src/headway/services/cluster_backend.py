"""What requests and workers ask of clusters, as a Protocol. server.backend.backend implements it; the tests' fake
answers only the
calls that a test registered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headway.domain.billing import CheckpointStats, JobRun, NodeSpan, Notification
from headway.domain.changeset import ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.incident import Incident
from headway.domain.machine import Machine
from headway.domain.slots import Deadline
from headway.domain.slurm.accounts import Share
from headway.domain.slurm.state import Check, JobState, NodeState, Reservation, Room
from headway.errors import Fault
from headway.render.monitoring.metric_queries import Query, Row
from headway.schemas.backups import VolumeSpeedOut
from headway.schemas.clusters import Document
from headway.schemas.incidents import FaultIn
from headway.schemas.jobs import LogFoundOut, LogPartOut, ProgressOut
from headway.schemas.submissions import ExecIn, ExecOut, SubmitIn, SubmitOut

if TYPE_CHECKING:  # the cluster room and its libraries are loaded with the first cluster
    from headway.backup.archive import Header
    from headway.cluster.context import ReportProgress
    from headway.datasets.library_location import LibraryLocation
    from headway.jobs.remote.tunnel import Tunnel
    from headway.jobs.submission.submit import JobFiles
    from headway.rollout.image_rollout import OperationWaits


@dataclass(frozen=True)
class ResolvedCluster:
    """A document that is valid, and what is odd about it all the same."""

    cluster: Cluster
    warnings: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class SlurmReading:
    """What Slurm on a cluster says now."""

    nodes: tuple[NodeState, ...]
    jobs: tuple[JobState, ...]  # those that have not changed are the very ones of the reading before
    rows: Mapping[int, bytes] = field(default_factory=dict)  # job id -> its JSON for lists, where it is made already
    reservations: tuple[Reservation, ...] = ()
    began: float = float("inf")  # when it began, by time.monotonic(); inf: when it was asked for


class WaitForJobs(Protocol):
    """Of an apply that waits for jobs on nodes that go."""

    async def begin(self) -> None:
        """Nothing is being changed from now on."""
        ...

    async def end(self) -> None:
        """It goes on."""
        ...

    async def others(self, nodes: Collection[str]) -> bool:
        """Whether another operation is to go first. `nodes`: those whose jobs are waited for."""
        ...


class ClusterBackend(Protocol):
    """Everything that touches machines or resolves a spec. `user` is the Linux user that acts on the cluster."""

    def resolve(self, document: Document) -> ResolvedCluster:
        """Raises InvalidSpec with every fault. Pure, but slow for thousands of nodes."""
        ...

    async def plan(self, cluster: Cluster) -> ChangeSet: ...

    async def apply(
        self,
        cluster: Cluster,
        say: ReportProgress,
        deadline: Deadline | None = None,
        waiting: WaitForJobs | None = None,
    ) -> bool:
        """`deadline`: until when jobs may go on where nodes go; None: no node with jobs goes. Whether it stepped
        aside for another operation (`waiting`), with nodes that go drained."""
        ...

    async def down(self, cluster: Cluster, say: ReportProgress, delete_data: bool) -> tuple[str, ...]: ...

    async def back_up(
        self, cluster: Cluster, about: Mapping[str, Any], say: ReportProgress, path: Path, header: Header, key: bytes
    ) -> None:
        """Makes `path`, whole or not at all. `about`: the cluster's own row."""
        ...

    async def restore(self, cluster: Cluster, say: ReportProgress, path: Path, key: bytes, ref: str) -> None:
        """The cluster's machines, with the backup's queue and accounting. `ref`: the same again when this goes on."""
        ...

    async def rotate(
        self, cluster: Cluster, say: ReportProgress, what: str, ref: str, begins: Callable[[], Awaitable[None]]
    ) -> None:
        """Another key in the place of the cluster's `munge`, `jwt` or `ssh`. `ref` as above; `begins` is called before the
        first change."""
        ...

    async def replace(self, cluster: Cluster, say: ReportProgress, node: str, since: float | None) -> None:
        """A machine for one node, and nothing else. One that was made after `since` (unix seconds), or that has jobs, stays."""
        ...

    async def plan_roll(self, cluster: Cluster, *, back: bool, head: bool, by: bool) -> ChangeSet:
        """What `roll` would do now, and (`head`) `roll_head`; `by`: with a deadline. Raises Refused where machines are not made
        from an image, or there is none to go back to."""
        ...

    async def roll(
        self, cluster: Cluster, say: ReportProgress, waits: OperationWaits, *, back: bool, until: float | None
    ) -> bool:
        """Nodes of another image, one first; False when it stepped aside because `waits` said so. Raises Refused when a node
        does not pass its tests."""
        ...

    async def roll_head(self, cluster: Cluster, say: ReportProgress, *, back: bool) -> None: ...

    async def image_there(self, cluster: Cluster, say: ReportProgress) -> None:
        """Makes the cluster's node image where there is none yet."""
        ...

    async def wants_roll(self, cluster: Cluster) -> bool:
        """Whether the heads have the file's Slurm, and nodes that were drained for it another one. False where that can't be
        told."""
        ...

    async def halt_roll(self, cluster: Cluster, say: ReportProgress) -> None:
        """Nodes that a roll has drained and not made anew serve again."""
        ...

    async def storage_bench(self, cluster: Cluster, node: str, mib: int) -> tuple[VolumeSpeedOut, ...]:
        """How fast each volume is, from one machine; `node` "" is the head."""
        ...

    async def shelf(self, cluster: Cluster) -> LibraryLocation:
        """Where versions of datasets are kept on machines one owns."""
        ...

    async def rooms(self, cluster: Cluster) -> tuple[Room, ...]:
        """How full each volume is, as the head sees it. Raises Unreachable."""
        ...

    async def checks(self, cluster: Cluster) -> tuple[Check, ...]: ...

    async def machines(self, cluster: Cluster) -> tuple[Machine, ...]:
        """The machines that exist, running or not."""
        ...

    async def shares(self, cluster: Cluster) -> tuple[Share, ...]:
        """What each account has used, as sshare says it. Raises Unreachable when the controller does not answer."""
        ...

    async def read(self, cluster: Cluster) -> SlurmReading:
        """Raises Unreachable when the controller does not answer."""
        ...

    async def job(self, cluster: Cluster, job_id: int) -> JobState:
        """One job, ended ones too. Raises NotFound."""
        ...

    async def jobs_now(self, cluster: Cluster, numbers: tuple[int, ...]) -> tuple[JobState, ...]:
        """Those of them that the controller knows, without the GPUs they hold. None of an array's many tasks."""
        ...

    async def history(self, cluster: Cluster) -> tuple[JobState, ...]:
        """Jobs of the last days, from accounting."""
        ...

    async def progress(self, cluster: Cluster, jobs: tuple[JobState, ...]) -> dict[int, ProgressOut]:
        """Steps and loss of jobs that report them, or write them in their logs."""
        ...

    async def said(self, cluster: Cluster, job: JobState) -> ProgressOut | None:
        """The same of one that has ended, which nobody follows any more; None where it said nothing."""
        ...

    async def submit(
        self, cluster: Cluster, request: SubmitIn, user: str, stage: JobFiles | None = None, *, tag: str = ""
    ) -> SubmitOut:
        """`tag`: of the request; what comes with it twice is submitted once, and answered the same."""
        ...

    async def keep_bundle(self, cluster: Cluster, user: str, root: str, digest: str, archive: bytes) -> bool:
        """Whether the user's bundle is on the cluster now; an empty archive only asks."""
        ...

    async def array(self, cluster: Cluster, job_id: int) -> dict[str, str]:
        """State of each task of an array, by its number; {} for a job that is none."""
        ...

    async def cancel(self, cluster: Cluster, job: str, user: str, *, as_operator: bool) -> None:
        """`job` is "12", of an array all of it, or one task, "12_3". `as_operator`: as Headway's own Slurm operator, for what
        an admin may and Slurm would refuse `user`."""
        ...

    async def control(self, cluster: Cluster, job: str, verb: str, user: str, *, as_operator: bool) -> None:
        """requeue | hold | release, as `cancel` does."""
        ...

    async def runs(self, cluster: Cluster, job_id: int) -> tuple[JobState, ...]:
        """Every run of a job, from accounting."""
        ...

    async def log_part(
        self, cluster: Cluster, job: JobState, *, before: int | None, lines: int, err: bool
    ) -> LogPartOut:
        """Some lines of a log, read as the job's own user."""
        ...

    async def log_search(self, cluster: Cluster, job: JobState, text: str, *, err: bool) -> LogFoundOut: ...

    async def task(self, cluster: Cluster, job_id: int, task: str) -> JobState:
        """One task of an array. Raises NotFound."""
        ...

    def tail_array(self, cluster: Cluster, job_id: int, *, follow: bool, err: bool) -> AsyncIterator[bytes]:
        """The logs of an array's tasks, each line with its task's number."""
        ...

    def tail_log(
        self, cluster: Cluster, job: JobState, *, follow: bool, err: bool, start: int = 0
    ) -> AsyncIterator[bytes]:
        """Read as the job's own user, from byte `start` on."""
        ...

    async def run_command(self, cluster: Cluster, request: ExecIn, user: str) -> ExecOut: ...

    def converse(
        self, cluster: Cluster, argv: Sequence[str], user: str, feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        """The same for somebody who watches: ("out" | "err", bytes) as they come, and last ("code", digits). `feed` is
        standard input; closing the iterator ends the command."""
        ...

    async def tunnel(self, cluster: Cluster, node: str, user: str, path: str) -> Tunnel:
        """Connections to a socket of `user`'s on a node. Raises Unreachable."""
        ...

    async def bring_back(self, cluster: Cluster, number: int, person: str, *, false_alarm: bool) -> Incident:
        """Tests the node of an incident and returns it to service. Raises Conflict when a test fails."""
        ...

    async def drain_node(self, cluster: Cluster, node: str, reason: str, person: str) -> str:
        """What was done, in words. The drain is the person's."""
        ...

    async def return_node(self, cluster: Cluster, node: str, person: str) -> str:
        """Of a node without an open incident. Raises Conflict for one in service, Unreachable for one that is not there."""
        ...

    async def reboot_node(self, cluster: Cluster, node: str, person: str, *, busy: bool) -> Awaitable[str]:
        """Raises Conflict while jobs run there that may not end. What it returns ends with the reboot: what went wrong,
        or ""."""
        ...

    async def reboot_again(self, cluster: Cluster, node: str) -> tuple[str, Awaitable[str]] | None:
        """Goes on with a reboot that a server was ended under: whose it is, and as above. None where there is none, or where
        another server is at it."""
        ...

    async def test_node(self, cluster: Cluster, node: str, *, hard: bool) -> tuple[tuple[str, bool, str], ...]:
        """(test, passed, words) each. Changes nothing; `hard` ones disturb what runs there."""
        ...

    async def metrics(
        self, cluster: Cluster, queries: Sequence[Query], start: float, end: float, step_s: int
    ) -> tuple[Row, ...]:
        """What the cluster's Prometheus measured. Raises Unreachable when it does not answer."""
        ...

    async def accounting(self, cluster: Cluster, since: int, until: int) -> tuple[JobRun, ...]:
        """Every run of every job that was there at some time between. Raises where accounting does not answer."""
        ...

    async def node_events(self, cluster: Cluster, since: int) -> tuple[NodeSpan, ...]:
        """When nodes were down or drained, as far as it lasted into the time from `since` on. Raises as `accounting`."""
        ...

    async def losses(self, cluster: Cluster) -> dict[int, tuple[tuple[float, float], ...]]:
        """Of jobs that report: (last report before a restart, seconds of work before it that were done again) each."""
        ...

    async def saves(self, cluster: Cluster) -> dict[int, CheckpointStats]:
        """Of jobs that report: the checkpoints that they wrote."""
        ...

    async def hold_back(self, cluster: Cluster, team: str, *, on: bool) -> None:
        """None of the team's jobs starts while this is on; those that run go on."""
        ...

    async def tell(self, cluster: Cluster, news: Sequence[Notification]) -> None:
        """Hands news to what sends it on by the cluster's alert channels; the same again is told no second time. Raises
        Unreachable when that does not answer."""
        ...

    async def inject(self, cluster: Cluster, fault: FaultIn) -> str:
        """Makes a fault; what was done, in words. Raises Refused where machines are not there to be broken."""
        ...

    async def forget(self, cluster: str) -> None:
        """Closes what is held open for a cluster."""
        ...

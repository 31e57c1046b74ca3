"""Models of the queue and of single jobs."""

from __future__ import annotations

from pydantic import Field

from headway.schemas.base import ResponseModel
from headway.schemas.nodes.incidents import IncidentOut
from headway.schemas.training_metrics import TrainingMetricOut


class EffectiveTimeOut(ResponseModel):
    """How a training's time was used since its first report."""

    restarts: int
    lost_s: float  # seconds of work that had to be repeated
    down_s: float  # seconds between runs
    ettr: float  # effective training time ratio, 0 to 1


class ProgressOut(ResponseModel):
    """Progress that the training reported, or that was read from the lines of its log. With a `warning`,
    step 0 without a loss means that none was reported yet."""

    step: int
    warning: str = ""  # what is wrong with the training, and what to do
    loss: float | None = None  # None: no loss is reported, or (if there is a series) the loss is not a finite number
    tokens_per_s: float | None = None  # only for trainings that report their tokens
    more: dict[str, float] = {}  # further numbers that the training reports, such as lr and grad_norm
    effective_time: EffectiveTimeOut | None = (
        None  # only for trainings that report progress and went back to a checkpoint
    )
    series: list[tuple[int, float]] = []
    checkpoints_at: list[float] = Field(
        default=[], exclude=True
    )  # when it saved checkpoints, unix seconds; for its charts
    # Further curves that were read from the log, by name; they are in the answers about the job's metrics.
    log_metrics: dict[str, list[tuple[int, float]]] = Field(default={}, exclude=True)

    @property
    def reported(self) -> bool:
        """Returns whether the training has reported a step."""
        return bool(self.step or self.series or self.loss is not None or not self.warning)

    def loss_word(self, digits: int) -> str:
        """Returns the loss as text with that many digits, "nan" if it is not a finite number, or "" if none is
        reported."""
        return f"{self.loss:.{digits}f}" if self.loss is not None else "nan" if self.series else ""


class RankStackOut(ResponseModel):
    """Where one rank of a job is: the frames of its main thread, the innermost first."""

    rank: int
    node: str
    frames: list[str] = []


class JobStacksOut(ResponseModel):
    """The stacks of all ranks of a running job. `verdict` names the ranks for which the others wait, "" if none stands out.
    `nccl` is, by node, NCCL's own status (NCCL 2.24 or later); `errors` is, by node, why stacks are missing."""

    stacks: list[RankStackOut] = []
    verdict: str = ""
    nccl: dict[str, str] = {}
    errors: dict[str, str] = {}


class ArrayOut(ResponseModel):
    """Number of an array's tasks by state. `failed_tasks` has the format of sbatch --array, such as "3,7-9"; cancelled
    tasks are not in it."""

    total: int
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    running: int = 0
    pending: int = 0
    failed_tasks: str = ""


class JobOut(ResponseModel):
    """A job. Times are unix seconds, memory is in MiB."""

    id: int
    name: str
    user: str
    account: str
    partition: str
    state: str
    reason: str = ""
    nodes: list[str] = []
    nodelist: str = ""
    node_count: int = 0
    gpus: int = 0
    submit_time: int = 0
    start_time: int = 0
    end_time: int = 0
    time_limit_s: int | None = None
    elapsed_s: int = 0
    restarts: int = 0
    stdout: str = ""
    stderr: str = ""
    command: str = ""
    workdir: str = ""
    qos: str = ""
    exit_code: int = 0
    array_job_id: int = 0
    array_task: str = ""
    progress: ProgressOut | None = None
    why: str = ""  # why it waits or how it ended, in words
    error: str = (
        ""  # the last error in the log of a failed job; only if it is requested by its number by a reader of the log
    )
    tasks: ArrayOut | None = None  # only for an array that is requested by its first job number
    needs: str = ""  # what a pending job needs to start, in words; only if the job is requested by its number
    expected_nodes: str = ""  # nodes on which Slurm plans to start it, at start_time
    metrics: list[
        TrainingMetricOut
    ] = []  # newest values of all training metrics; only if it is requested by its number
    # The following fields are left out of lists when they have their default value.
    priority: int = 0
    description: str = ""  # Slurm's explanation of the reason
    comment: str = ""
    cpus: int = 0
    memory_mib: int = 0
    dependency: str = ""
    reservation: str = ""
    features: str = ""
    licenses: str = ""
    required_nodes: list[str] = []
    excluded_nodes: list[str] = []
    scheduled_nodes: list[str] = []  # nodes on which backfill plans to start it, at `start_time`
    switches: int = 0
    eligible_time: int = 0
    array_limit: int = 0
    more: dict[str, str | int] = {}  # further columns of squeue, by squeue's names


class PlacementOut(ResponseModel):
    """Number of leaf switches that a run uses, and the fewest that would have sufficed with the nodes that were free at
    its start."""

    leaves: int
    fewest: int
    by_leaf: dict[str, int] = {}  # number of nodes per leaf switch


class JobRunOut(ResponseModel):
    """One run of a job. A requeued job has several runs. `end_time` is 0 while it runs."""

    state: str
    submit_time: int
    start_time: int
    end_time: int
    nodelist: str
    exit_code: int = 0
    placement: PlacementOut | None = None


class JobRunsOut(ResponseModel):
    """Every run of a job, and the incidents that affected it."""

    runs: list[JobRunOut]
    incidents: list[IncidentOut] = []  # incidents that requeued the job or affected its nodes while it ran


class ScriptOut(ResponseModel):
    """The script that was submitted. `kind` has the values of LineageOut, or "sbatch" for a job not submitted through
    Headway."""

    name: str
    text: str
    script_args: list[str] = []
    sbatch_args: list[str] = []
    chdir: str = ""
    kind: str = ""


class LogPartOut(ResponseModel):
    """A part of a log, in whole lines. `start` and `end` are byte offsets in the file and `size` is its size. To read
    the lines before this part, request `before=start`; to read on, follow from `end`. `line` is the number of the first
    line, 0 if it is unknown because the part begins after 64 MiB."""

    text: str
    start: int
    end: int
    size: int
    line: int = 0


class LogLineOut(ResponseModel):
    """A line of a log. `offset` is the byte where it begins."""

    offset: int
    line: int  # counted from 1
    text: str


class LogFoundOut(ResponseModel):
    """The lines of a log that contain the searched text."""

    found: list[LogLineOut]
    more: bool = False  # the search stopped early, so there may be more

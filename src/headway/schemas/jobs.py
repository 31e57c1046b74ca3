"""The queue, and what there is to know of a job."""

from __future__ import annotations

from pydantic import Field

from headway.schemas.base import Ask, Wire
from headway.schemas.incidents import IncidentOut


class CourseOut(Wire):
    """How much of a training's time counted, since its first report."""

    restarts: int
    lost_s: float  # work that was done again
    down_s: float  # between two runs
    ettr: float  # effective training time ratio, 0 to 1


class ProgressOut(Wire):
    """What the training reported, or its log says in lines like "step 120 loss 1.873"."""

    step: int
    loss: float | None = None  # None: it says none, or (where there is a series) what is no number any more
    tokens_per_s: float | None = None  # only trainings that report their tokens
    course: CourseOut | None = None  # of a training that reports and went back to a checkpoint
    series: list[tuple[int, float]] = []

    def loss_word(self, digits: int) -> str:
        """For people; "" where it says none."""
        return f"{self.loss:.{digits}f}" if self.loss is not None else "nan" if self.series else ""


class ArrayOut(Wire):
    """How an array's tasks stand. `failed_tasks` are their numbers as --array takes them ("3,7-9")."""

    total: int
    done: int = 0
    failed: int = 0
    running: int = 0
    pending: int = 0
    failed_tasks: str = ""


class JobOut(Wire):
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
    tasks: ArrayOut | None = None  # of an array, asked for by its first number
    needs: str = ""  # of one that waits, asked for by its number: what would start it, in words
    expected_nodes: str = ""  # where Slurm means to start it, at start_time
    # What follows is left out of lists where it says nothing.
    priority: int = 0
    description: str = ""  # Slurm's sentence beside the reason
    comment: str = ""
    cpus: int = 0
    memory_mib: int = 0
    dependency: str = ""
    reservation: str = ""
    features: str = ""
    licenses: str = ""
    required_nodes: list[str] = []
    excluded_nodes: list[str] = []
    scheduled_nodes: list[str] = []  # where backfill means to start it, at `start_time`
    switches: int = 0
    eligible_time: int = 0
    array_limit: int = 0
    more: dict[str, str | int] = {}  # squeue's other columns, by squeue's names


class PlacementOut(Wire):
    """Leaf switches under which a run lies, and the fewest that could have done with what was free when it started."""

    leaves: int
    fewest: int
    by_leaf: dict[str, int] = {}  # nodes under each


class JobRunOut(Wire):
    """One run of a job; a job that was requeued has several. `end_time` 0: it runs."""

    state: str
    submit_time: int
    start_time: int
    end_time: int
    nodelist: str
    exit_code: int = 0
    placement: PlacementOut | None = None


class JobRunsOut(Wire):
    runs: list[JobRunOut]
    incidents: list[IncidentOut] = []  # that touched it: sent it back to the queue, or were on its nodes while it ran


class ScriptOut(Wire):
    """What was submitted; `kind` as in LineageOut, "sbatch" for a job that did not come through Headway."""

    name: str
    text: str
    script_args: list[str] = []
    sbatch_args: list[str] = []
    chdir: str = ""
    kind: str = ""


class LogPartOut(Wire):
    """Some lines of a log. `start` and `end` are bytes of the file, which has `size`; ask `before=start` for those before,
    and follow from `end` on."""

    text: str
    start: int
    end: int
    size: int


class LogLineOut(Wire):
    offset: int
    line: int  # from 1
    text: str


class LogFoundOut(Wire):
    found: list[LogLineOut]
    more: bool = False  # there may be more: the search was ended


class JobsAsk(Ask):
    """Which jobs, in which order. Several values of one kind are alternatives; several kinds must all fit."""

    limit: int = Field(100, ge=1, le=1000, description="jobs of one page")
    cursor: str = Field("", max_length=2000, description="`next` of the page before")
    all: bool = Field(False, description="those that ended lately too")
    state: list[str] = Field([], max_length=50, description="a Slurm job state, or its beginning")
    user: list[str] = Field([], max_length=50)
    team: list[str] = Field([], max_length=50)
    partition: list[str] = Field([], max_length=50)
    node: str = Field("", max_length=255)
    q: str = Field("", max_length=200, description="in number, name, user, team, partition, reason, nodes")
    sort: str = Field(
        "", max_length=40, description="a column of squeue's --Format, `-` in front the other way round; else running "
        "ones first, then the waiting by priority",
    )  # fmt: skip


class JobsPage(Wire):
    jobs: list[JobOut]
    total: int  # that fit the question
    before: int = 0  # of them on earlier pages
    counts: dict[str, int] = {}  # running, waiting, ended
    next: str = ""  # the cursor of the next page; "" at the end
    as_of: float | None = None  # when Slurm was read
    stale: str = ""  # why that is long ago, "" when it is not

"""Requests that submit work (scripts, commands, notebooks, pipelines), and their responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from pydantic import AfterValidator, Field, model_validator

from headway.schemas.base import FaultOut, RequestModel, ResponseModel
from headway.schemas.job_flag import JobFlag

StageIn = Annotated[
    str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}(@[1-9][0-9]{0,8})?$")
]  # NAME@VERSION, or NAME for the latest version


# Limits of Linux for a program's arguments: the length of one, and a bound on their number.
Word = Annotated[str, Field(max_length=128 * 1024)]
Words = Annotated[list[Word], Field(max_length=100_000)]
Flags = Annotated[list[Word], Field(max_length=10_000)]  # sbatch flags; each is parsed
_MOST_SAID = 256 * 1024  # characters of a script's #SBATCH lines


def _script(text: str) -> str:
    if sum(len(line) for line in text.split("\n") if line.startswith("#SBATCH")) > _MOST_SAID:
        raise ValueError(f"its #SBATCH lines have more than {_MOST_SAID // 1024} KiB")
    return text


Script = Annotated[str, AfterValidator(_script)]


class GitIn(RequestModel):
    """The git state that the files come from."""

    commit: str = Field(default="", max_length=64)
    branch: str = Field(default="", max_length=200)
    dirty: bool = False  # the files differ from the commit


class SubmitIn(RequestModel):
    """A batch job. `args` are sbatch flags, `script` is the text of the script (null if `args` has --wrap)."""

    args: Flags = []
    script: Script | None = None
    script_name: str = "script.sbatch"
    script_args: Words = []
    chdir: str = ""
    user: str = ""  # admins only
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")  # digest of the bundle of files to work in
    env: dict[str, str] = {}  # set for the job; values with secret names are never stored
    git: GitIn | None = None
    stage_in: list[StageIn] = Field(default=[], max_length=50)  # datasets copied to each node before the script starts


class NotebookIn(RequestModel):
    """A notebook to start. It is ended after `idle_minutes` without a running cell or keyboard input."""

    gpus: int = Field(1, ge=0, le=64)
    time: str = Field("8:00:00", pattern=r"^((\d+-)?\d+(:\d+){0,2})$")
    partition: str = Field("", max_length=64)
    team: str = Field("", max_length=64)
    idle_minutes: int = Field(60, ge=1, le=24 * 60)


NotebookState = Literal["waiting", "starting", "running", "ended"]


class NotebookOut(ResponseModel):
    """A notebook and its job."""

    id: str
    cluster: str
    job_id: int
    person: str
    user: str
    state: NotebookState
    why: str = ""  # why it waits or how it ended
    gpus: int = 0
    simulated_gpus: bool = False
    node: str = ""
    partition: str = ""
    idle_minutes: int = 0
    created_at: float = 0.0
    started_at: int | None = None
    time_left_s: int | None = None
    log: str = ""  # log file on the cluster, which shows why it did not start
    mine: bool = False  # only the notebook's own person can open it


class NotebookLinkOut(ResponseModel):
    """`url` opens the notebook in a browser. It works once, within a minute."""

    url: str
    expires_at: float


Launcher = Literal["torchrun", "srun", "mpi", "python"]


class ContainerIn(RequestModel):
    """The container in which a job's command runs."""

    image: Annotated[str, JobFlag(("--container-image",), "IMAGE", form="image")] = Field(
        min_length=1, max_length=500, description="Container image, such as docker://ubuntu:24.04."
    )
    mounts: Annotated[list[str], JobFlag(("--container-mounts",), "SRC:DST[:ro],...")] = Field(
        default=[], max_length=1000, description="Paths mounted into the container."
    )
    workdir: Annotated[str, JobFlag(("--container-workdir",), "DIR")] = Field(
        default="", description="Working directory in the container."
    )
    name: Annotated[str, JobFlag(("--container-name",), "NAME")] = Field(
        default="", description="Name of a container that later steps of the job reuse."
    )
    mount_home: Annotated[bool | None, JobFlag(("--container-mount-home/--no-container-mount-home",))] = Field(
        default=None, description="Mount the home folder into the container (default: as the cluster is configured)."
    )


class JobFields(RequestModel):
    """The fields that `headway run`, `Client.run` and a pipeline's step have in common. `gpus` and `tasks` are per
    node; with 0 or null the launcher chooses."""

    launcher: Annotated[Launcher | None, JobFlag(("--launcher",), "LAUNCHER", form="launcher")] = Field(
        default=None, description="torchrun, srun, mpi or python (default: by the command's first word)."
    )
    nodes: Annotated[int, JobFlag(("-N", "--nodes"), "NUMBER", form="nodes")] = Field(
        default=1, ge=1, le=100_000, description="Number of nodes."
    )
    gpus: Annotated[int, JobFlag(("--gpus",), "NUMBER", form="gpus")] = Field(
        default=0, ge=0, le=1024, description="Number of GPUs per node."
    )
    tasks: Annotated[int, JobFlag(("--tasks",), "NUMBER", form="tasks")] = Field(
        default=0, ge=0, le=4096, description="Number of tasks per node (default: one per GPU)."
    )
    time: Annotated[str, JobFlag(("--time",), "TIME", form="time")] = Field(
        default="", max_length=32, description="Time limit: minutes, HH:MM:SS or D-HH:MM:SS."
    )
    partition: Annotated[str, JobFlag(("-p", "--partition"), "PARTITION", form="partition")] = Field(
        default="", max_length=64, description="Partition."
    )
    team: Annotated[str, JobFlag(("--team",), "TEAM", form="account")] = Field(
        default="", max_length=64, description="Team (Slurm account) that is charged."
    )
    container: ContainerIn | None = None
    env: Annotated[dict[str, str], JobFlag(("--env",), "NAME[=VALUE]")] = Field(
        default={}, description="Environment variable of the job; without a value, the one of this shell."
    )
    sbatch: Annotated[Flags, JobFlag(("--sbatch",), "FLAG")] = Field(
        default=[], description="Further flag of sbatch, passed on unchanged."
    )


class RunIn(JobFields):
    """A job made from a command instead of a batch script. A new flag is a field here (or in JobFields, if pipelines
    have it too) and a keyword in RunOptions."""

    argv: Words = Field(min_length=1)
    name: Annotated[str, JobFlag(("--name",), "NAME", form="job_name")] = Field(
        default="", max_length=64, description="Job name (default: the name of the program's file)."
    )
    after: Annotated[list[str], JobFlag(("--after",), "TYPE:JOB")] = Field(
        default=[], max_length=1000, description="Start after a job: ok:123, notok:123, any:123 or start:123."
    )
    warn: Annotated[bool, JobFlag(("--warn",))] = Field(
        default=False, description="Send USR1 two minutes before the time limit or preemption."
    )
    stage_in: Annotated[list[StageIn], JobFlag(("--stage-in",), "NAME[@VERSION]")] = Field(
        default=[], max_length=50, description="Dataset to copy to $HEADWAY_SCRATCH/NAME on each node before the start."
    )
    user: Annotated[str, JobFlag(("--as",), "USER")] = Field(
        default="", description="Submit as this user (admins only)."
    )
    dry_run: Annotated[bool, JobFlag(("--dry-run",))] = Field(
        default=False, description="Print the batch script and the origin of each line; submit nothing."
    )
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    git: GitIn | None = None


class RunOptions(TypedDict, total=False):
    """The keywords of `Client.run`: the fields of RunIn except those that `run` fills itself (a test compares the two)."""

    launcher: Launcher | None
    nodes: int
    gpus: int
    tasks: int
    name: str
    time: str
    partition: str
    team: str
    after: Sequence[str]
    warn: bool
    container: ContainerIn | None
    env: Mapping[str, str]
    sbatch: Sequence[str]
    stage_in: Sequence[str]
    user: str


class CheckJobIn(RequestModel):
    """A submission to check without submitting it: a script, or a command of `headway run`."""

    submit: SubmitIn | None = None
    run: RunIn | None = None

    @model_validator(mode="after")
    def _one(self) -> CheckJobIn:
        if (self.submit is None) == (self.run is None):
            raise ValueError("needs either submit or run")
        return self


class CheckJobOut(ResponseModel):
    """The faults of a submission (fault.path is script, args, flags, partition, nodes, gpus, cpus, memory, time or
    account). Without faults: when and where it would start, according to sbatch --test-only."""

    faults: list[FaultOut] = []
    starts_at: int = 0  # unix seconds; 0: not known
    waits: str = ""  # why no start time is known, if there is a reason
    nodes: str = ""
    partition: str = ""
    script: str = ""  # for a command: the batch script made from it


class RetryIn(RequestModel):
    """`env` supplies secrets again, because they were not stored. `task` limits the retry to one task of an array."""

    env: dict[str, str] = {}
    task: str = Field("", pattern=r"^\d{0,9}$")


class LineageOut(ResponseModel):
    """Where a job comes from. Values of secrets are masked."""

    job_id: int
    cluster: str
    submitted_at: float
    person: str
    user: str
    kind: str  # submit, run, retry or rerun
    parent: int = 0
    pipeline: str = ""
    step: str = ""
    script_name: str = ""
    script: str = ""
    script_args: list[str] = []
    sbatch_args: list[str] = []
    workdir: str = ""
    env: dict[str, str] = {}
    bundle: str = ""
    git: GitIn | None = None
    launcher: str = ""
    container_image: str = ""
    container_digest: str = ""
    datasets: list[dict[str, str]] = []
    checkpoint_dir: str = ""
    checkpoints: list[str] = []  # the checkpoints that are there now
    nodes: str = ""  # nodes that Slurm allocated
    gpus: int = 0
    partition: str = ""
    account: str = ""
    state: str = ""


class ScriptLine(ResponseModel):
    """One line of a batch script and its origin."""

    text: str
    origin: str = ""  # flag or default that the line comes from


class RunOut(ResponseModel):
    """The submitted job and its script. `job_id` is 0 for a dry run."""

    job_id: int
    cluster: str
    user: str
    workdir: str
    script: list[ScriptLine]
    script_args: list[str] = []
    message: str = ""


class PipelineIn(RequestModel):
    """A pipeline to run. `document` is the loaded pipeline file."""

    document: dict[str, Any]
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    git: GitIn | None = None
    user: str = ""  # admins only


class PipelineRetryIn(RequestModel):
    """`steps` are the steps to restart from; if empty, the failed ones."""

    steps: list[str] = []
    env: dict[str, str] = {}


class StepOut(ResponseModel):
    """A step of a pipeline and its latest job."""

    name: str
    needs: list[str] = []
    job_id: int = 0
    state: str = ""
    why: str = ""
    runs: int = 1  # how often it was submitted


class PipelineOut(ResponseModel):
    """A pipeline and its steps."""

    id: str
    cluster: str
    name: str
    person: str
    user: str
    created_at: float
    workdir: str
    state: str  # running, done or failed
    steps: list[StepOut]


class BundleOut(ResponseModel):
    """A bundle of a folder's files, addressed by the digest of its content."""

    digest: str
    present: bool  # true if the cluster already has it for this user


class SubmitOut(ResponseModel):
    """A submitted job."""

    job_id: int
    cluster: str
    user: str
    workdir: str
    message: str = ""  # what sbatch printed


class ExecIn(RequestModel):
    """A command to run on the login node. `stdin_b64` is its standard input in base64."""

    argv: Words = Field(min_length=1)
    user: str = ""  # default: root for admins, otherwise the person's own user
    stdin_b64: str = ""


class CommandIn(RequestModel):
    """A command whose output is streamed in frames (see `schemas.stream_frames`). `input` is an id that the client
    chooses and under which it will post standard input; "" means no input."""

    argv: Words = Field(min_length=1)
    user: str = ""  # default: root for admins, otherwise the person's own user
    input: str = Field("", pattern=r"^([0-9a-f]{32})?$")


class ExecOut(ResponseModel):
    """Result of a command. Output is base64 of the unchanged bytes."""

    code: int
    stdout_b64: str = ""
    stderr_b64: str = ""

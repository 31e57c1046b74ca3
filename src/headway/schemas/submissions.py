"""What people give a cluster to do: scripts, commands, notebooks, pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from pydantic import AfterValidator, Field, model_validator

from headway.schemas.base import Ask, FaultOut, Wire

StageIn = Annotated[
    str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}(@[1-9][0-9]{0,8})?$")
]  # NAME@VERSION, or NAME: the latest


# What a program may be given at all: Linux takes no longer word, and not so many.
Word = Annotated[str, Field(max_length=128 * 1024)]
Words = Annotated[list[Word], Field(max_length=100_000)]
Flags = Annotated[list[Word], Field(max_length=10_000)]  # of sbatch: each is read
_MOST_SAID = 256 * 1024  # characters of a script's #SBATCH lines


def _script(text: str) -> str:
    if sum(len(line) for line in text.split("\n") if line.startswith("#SBATCH")) > _MOST_SAID:
        raise ValueError(f"its #SBATCH lines have more than {_MOST_SAID // 1024} KiB")
    return text


Script = Annotated[str, AfterValidator(_script)]


class GitIn(Ask):
    """Where the files came from."""

    commit: str = Field(default="", max_length=64)
    branch: str = Field(default="", max_length=200)
    dirty: bool = False  # the files differ from the commit


class SubmitIn(Ask):
    """`args` are sbatch flags, `script` the text of the script (None with --wrap in args)."""

    args: Flags = []
    script: Script | None = None
    script_name: str = "script.sbatch"
    script_args: Words = []
    chdir: str = ""
    user: str = ""  # admins only
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")  # files to work in; their digest
    env: dict[str, str] = {}  # set for the job; values with secret names are never kept
    git: GitIn | None = None
    stage_in: list[StageIn] = Field(default=[], max_length=50)  # datasets copied to each node before the script begins


class NotebookIn(Ask):
    """A notebook to start. `idle_minutes` without a running cell or anything typed end it."""

    gpus: int = Field(1, ge=0, le=64)
    time: str = Field("8:00:00", pattern=r"^((\d+-)?\d+(:\d+){0,2})$")
    partition: str = Field("", max_length=64)
    team: str = Field("", max_length=64)
    idle_minutes: int = Field(60, ge=1, le=24 * 60)


NotebookState = Literal["waiting", "starting", "running", "ended"]


class NotebookOut(Wire):
    id: str
    cluster: str
    job_id: int
    person: str
    user: str
    state: NotebookState
    why: str = ""  # why it waits, or how it ended
    gpus: int = 0
    simulated_gpus: bool = False
    node: str = ""
    partition: str = ""
    idle_minutes: int = 0
    created_at: float = 0.0
    started_at: int | None = None
    time_left_s: int | None = None
    log: str = ""  # the file on the cluster that says why it did not come up
    mine: bool = False  # only its own person opens it


class NotebookLinkOut(Wire):
    """`url` leads a browser in, once, within a minute."""

    url: str
    expires_at: float


Launcher = Literal["torchrun", "srun", "mpi", "python"]


class ContainerIn(Ask):
    """The --container-* flags."""

    image: str = Field(min_length=1, max_length=500)
    mounts: list[str] = Field(default=[], max_length=1000)
    workdir: str = ""
    name: str = ""
    mount_home: bool | None = None


class RunIn(Ask):
    """A job without a script. `gpus` and `tasks` are for each node; "" and 0 leave the choice to the launcher."""

    argv: Words = Field(min_length=1)
    launcher: Launcher | None = None  # None: by the first word of argv
    nodes: int = Field(default=1, ge=1, le=100_000)
    gpus: int = Field(default=0, ge=0, le=1024)
    tasks: int = Field(default=0, ge=0, le=4096)
    name: str = Field(default="", max_length=64)
    time: str = Field(default="", max_length=32)
    partition: str = Field(default="", max_length=64)
    team: str = Field(default="", max_length=64)
    after: list[str] = Field(default=[], max_length=1000)  # "ok:123", "any:123", "notok:123", "start:123"
    warn: bool = False  # USR1 two minutes before the time limit or preemption
    container: ContainerIn | None = None
    env: dict[str, str] = {}
    sbatch: Flags = []  # further flags of sbatch, as they are
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    git: GitIn | None = None
    stage_in: list[StageIn] = Field(default=[], max_length=50)  # datasets copied to each node before the command begins
    user: str = ""  # admins only
    dry_run: bool = False


class RunOptions(TypedDict, total=False):
    """The keywords of `Client.run`: RunIn's fields but those that `run` fills itself (a test compares the two)."""

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


class CheckJobIn(Ask):
    """A submission to look at: a script, or a command of `headway run`."""

    submit: SubmitIn | None = None
    run: RunIn | None = None

    @model_validator(mode="after")
    def _one(self) -> CheckJobIn:
        if (self.submit is None) == (self.run is None):
            raise ValueError("either submit or run")
        return self


class CheckJobOut(Wire):
    """What is wrong with it (fault.path: script, args, flags, partition, nodes, gpus, cpus, memory, time, account); without
    faults when and where it would start, as sbatch --test-only says."""

    faults: list[FaultOut] = []
    starts_at: int = 0  # unix seconds; 0 = not known
    waits: str = ""  # why nobody can say when, where that is known
    nodes: str = ""
    partition: str = ""
    script: str = ""  # of a command: the script that it makes


class RetryIn(Ask):
    """Env: secrets that were not kept, given again. `task`: of an array only this one."""

    env: dict[str, str] = {}
    task: str = Field("", pattern=r"^\d{0,9}$")


class LineageOut(Wire):
    """Where a job comes from; values of secrets are masked."""

    job_id: int
    cluster: str
    submitted_at: float
    person: str
    user: str
    kind: str  # submit | run | retry | rerun
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
    checkpoints: list[str] = []  # in it now
    nodes: str = ""  # what Slurm gave it
    gpus: int = 0
    partition: str = ""
    account: str = ""
    state: str = ""


class ScriptLine(Wire):
    text: str
    origin: str = ""  # which flag or default it comes from


class RunOut(Wire):
    """`job_id` 0: a dry run."""

    job_id: int
    cluster: str
    user: str
    workdir: str
    script: list[ScriptLine]
    script_args: list[str] = []
    message: str = ""


class PipelineIn(Ask):
    """`document` is the pipeline's file, loaded."""

    document: dict[str, Any]
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    git: GitIn | None = None
    user: str = ""  # admins only


class PipelineRetryIn(Ask):
    """`steps`: from these on; none: from those that failed."""

    steps: list[str] = []
    env: dict[str, str] = {}


class StepOut(Wire):
    name: str
    needs: list[str] = []
    job_id: int = 0
    state: str = ""
    why: str = ""
    runs: int = 1  # how often it was submitted


class PipelineOut(Wire):
    id: str
    cluster: str
    name: str
    person: str
    user: str
    created_at: float
    workdir: str
    state: str  # running | done | failed
    steps: list[StepOut]


class BundleOut(Wire):
    """A folder's files, by content."""

    digest: str
    present: bool  # on the cluster, for this user


class SubmitOut(Wire):
    job_id: int
    cluster: str
    user: str
    workdir: str
    message: str = ""  # what sbatch printed


class ExecIn(Ask):
    argv: Words = Field(min_length=1)
    user: str = ""  # root for admins, else oneself
    stdin_b64: str = ""


class CommandIn(Ask):
    """A command whose output is answered as it comes, in frames (`schemas.stream_frames`). `input` is a number of the
    client's own
    making under which it will post standard input; "" for none."""

    argv: Words = Field(min_length=1)
    user: str = ""  # root for admins, else oneself
    input: str = Field("", pattern=r"^([0-9a-f]{32})?$")


class ExecOut(Wire):
    """Output is bytes, in base64: passed through with nothing added."""

    code: int
    stdout_b64: str = ""
    stderr_b64: str = ""

"""The API's requests and answers, shared by headway.api and headway.sdk. Times are unix seconds, sizes MiB."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

API_PREFIX = "/api"


class Wire(BaseModel):
    """Answers: lenient, so that an older client reads a newer server's."""

    model_config = ConfigDict(extra="ignore")


class Ask(BaseModel):
    """Requests: strict."""

    model_config = ConfigDict(extra="forbid")


# --- errors


class FaultOut(Wire):
    path: str = ""
    message: str
    hint: str = ""
    level: str = "error"


class ErrorOut(Wire):
    """Body of every answer that is not 2xx."""

    kind: str
    message: str
    hint: str = ""
    faults: list[FaultOut] = []


# --- the cluster file: self-contained, keys and catalogue inlined by the client


class Document(Ask):
    """What the client sends for a cluster file. `text` is the YAML as the user wrote it (comments kept for the page);
    `spec` the loaded mapping with public keys inlined and paths absolute; `catalogue` the user's own plans."""

    text: str
    spec: dict[str, Any]
    catalogue: dict[str, Any] = {}
    owner: str = ""  # the person's user name on the cluster; "" = the token's person


class ChangeOut(Wire):
    kind: str
    where: str
    what: str
    why: str
    disturbs: str
    diff: list[str] = []


class ChangeSetOut(Wire):
    cluster: str
    changes: list[ChangeOut]
    why_empty: str = ""
    asks: int = 0  # how many of them disturb something a person is asked about
    digest: str = ""  # send it back with apply: a plan that has changed since is refused
    warnings: list[FaultOut] = []
    price_usd_per_hour: str = ""  # nodes and spares at the plan's price


class ApplyIn(Ask):
    document: Document
    digest: str = ""  # of the ChangeSet that was confirmed; "" = nothing to confirm allowed
    confirmed: bool = False  # a person (or --yes) agreed to what it disturbs


class DownIn(Ask):
    delete_data: bool = False


OperationState = Literal["queued", "running", "done", "failed"]


class OperationOut(Wire):
    id: str
    cluster: str
    kind: Literal["apply", "down"]
    state: OperationState
    person: str
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    error: ErrorOut | None = None
    kept: list[str] = []  # down: what was kept, where


class EventOut(Wire):
    """One line of an operation's progress. An open step is `done=False`; its end repeats `step` with done and seconds."""

    seq: int
    at: float
    step: str  # "machines", "lab-1-2", "accounting", ...
    text: str
    level: Literal["info", "warning", "error"] = "info"
    done: bool = False
    seconds: float | None = None


# --- reading


class GpuOut(Wire):
    index: int
    job_id: int | None = None  # the job that holds it


class NodeOut(Wire):
    name: str
    role: Literal["head", "node", "spare"]
    leaf: str = ""
    address: str = ""
    machine: str = ""  # provider's word: running, stopped, missing
    states: list[str] = []  # Slurm's words
    reason: str = ""
    gpus: list[GpuOut] = []
    cpus: int = 0
    cpus_used: int = 0
    memory_mib: int = 0
    memory_used_mib: int = 0
    partitions: list[str] = []
    usable: bool = False


class CheckOut(Wire):
    name: str
    ok: bool
    message: str


class ClusterOut(Wire):
    name: str
    state: Literal["creating", "ready", "changing", "degraded", "down", "failed"]
    provider: str
    image: str
    slurm_version: str
    plan: str
    gpu_type: str
    nodes: int
    spares: int
    gpus: int
    gpus_used: int = 0
    simulated_gpus: bool
    jobs_running: int = 0
    jobs_pending: int = 0
    price_usd_per_hour: str = ""
    created_at: float = 0
    as_of: float | None = None  # when the live figures were read from Slurm; None = never
    stale: str = ""  # why live figures are old, "" when fresh


class StatusOut(Wire):
    cluster: ClusterOut
    checks: list[CheckOut]
    nodes: list[NodeOut]


class ProgressOut(Wire):
    """What the training reported, or its log says in lines like "step 120 loss 1.873"."""

    step: int
    loss: float
    tokens_per_s: float | None = None  # only trainings that report their tokens
    series: list[tuple[int, float]] = []


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


# --- work


class GitIn(Ask):
    """Where the files came from."""

    commit: str = Field(default="", max_length=64)
    branch: str = Field(default="", max_length=200)
    dirty: bool = False  # the files differ from the commit


class SubmitIn(Ask):
    """`args` are sbatch flags, `script` the text of the script (None with --wrap in args)."""

    args: list[str] = []
    script: str | None = None
    script_name: str = "script.sbatch"
    script_args: list[str] = []
    chdir: str = ""
    user: str = ""  # admins only
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")  # files to work in; their digest
    env: dict[str, str] = {}  # set for the job; values with secret names are never kept
    git: GitIn | None = None


Launcher = Literal["torchrun", "srun", "mpi", "python"]


class ContainerIn(Ask):
    """The --container-* flags."""

    image: str = Field(min_length=1, max_length=500)
    mounts: list[str] = []
    workdir: str = ""
    name: str = ""
    mount_home: bool | None = None


class RunIn(Ask):
    """A job without a script. `gpus` and `tasks` are for each node; "" and 0 leave the choice to the launcher."""

    argv: list[str] = Field(min_length=1)
    launcher: Launcher | None = None  # None: by the first word of argv
    nodes: int = Field(default=1, ge=1, le=100_000)
    gpus: int = Field(default=0, ge=0, le=1024)
    tasks: int = Field(default=0, ge=0, le=4096)
    name: str = Field(default="", max_length=64)
    time: str = Field(default="", max_length=32)
    partition: str = Field(default="", max_length=64)
    team: str = Field(default="", max_length=64)
    after: list[str] = []  # "ok:123", "any:123", "notok:123", "start:123"
    warn: bool = False  # USR1 two minutes before the time limit or preemption
    container: ContainerIn | None = None
    env: dict[str, str] = {}
    sbatch: list[str] = []  # further flags of sbatch, as they are
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    git: GitIn | None = None
    user: str = ""  # admins only
    dry_run: bool = False


class RetryIn(Ask):
    """Env: secrets that were not kept, given again."""

    env: dict[str, str] = {}


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
    argv: list[str] = Field(min_length=1)
    user: str = "root"
    stdin_b64: str = ""


class CommandIn(Ask):
    """A command whose output is answered as it comes, in frames (`wire.frames`). `input` is a number of the client's own
    making under which it will post standard input; "" for none."""

    argv: list[str] = Field(min_length=1)
    user: str = "root"
    input: str = Field("", pattern=r"^([0-9a-f]{32})?$")


class ExecOut(Wire):
    """Output is bytes, in base64: passed through with nothing added."""

    code: int
    stdout_b64: str = ""
    stderr_b64: str = ""


class AccessOut(Wire):
    """What plain ssh needs to reach a cluster's login as this person."""

    cluster: str
    user: str
    head: str
    address: str
    port: int = 22
    host_keys: list[str]  # known_hosts lines for head and nodes
    machines: dict[str, str] = {}  # node name -> address


# --- people


class TokenIn(Ask):
    person: str = ""  # "" = oneself; another's only by an admin
    role: Literal["admin", "member", "viewer"] | None = None
    label: str = ""
    days: int | None = None


class TokenOut(Wire):
    id: str
    person: str
    role: str
    label: str
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    token: str | None = None  # only in the answer that creates it


class MeOut(Wire):
    person: str
    role: str
    version: str


class SignInLinkOut(Wire):
    url: str
    expires_at: float


class ServerOut(Wire):
    url: str
    version: str
    pid: int
    state_dir: str
    database: str
    clusters: int

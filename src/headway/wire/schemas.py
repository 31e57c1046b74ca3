"""The API's requests and answers, shared by headway.api and headway.sdk. Times are unix seconds, sizes MiB."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from headway.domain.fault import ON_NODES, RECLAIM_IN_S, Daemon, FaultKind

API_PREFIX = "/api/v1"


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
    """What went wrong, inside another answer: an operation's end, a stream's last word."""

    kind: str
    message: str
    hint: str = ""
    faults: list[FaultOut] = []


class Problem(Wire):
    """Body of every answer that is not 2xx (RFC 9457, application/problem+json). `kind` is what programs tell errors apart
    by, `detail` what happened and where, `hint` what to do, `faults` every one found in what was sent."""

    type: str  # where this kind is explained
    title: str
    status: int
    detail: str
    kind: str
    hint: str = ""
    faults: list[FaultOut] = []


PROBLEM_JSON = "application/problem+json"
IDEMPOTENCY_KEY = "idempotency-key"  # header of a POST that is to be done once


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


class DifferenceOut(Wire):
    """Where the plan and a machine one owns disagree; what is there is what counts."""

    machine: str
    what: str
    plan: str
    found: str


class ChangeSetOut(Wire):
    cluster: str
    changes: list[ChangeOut]
    why_empty: str = ""
    asks: int = 0  # how many of them disturb something a person is asked about
    digest: str = ""  # send it back with apply: a plan that has changed since is refused
    warnings: list[FaultOut] = []
    price_usd_per_hour: str = ""  # nodes and spares at the plan's price
    differences: list[DifferenceOut] = []  # provider ssh


class ApplyIn(Ask):
    document: Document
    digest: str = ""  # of the ChangeSet that was confirmed; "" = nothing to confirm allowed
    confirmed: bool = False  # a person (or --yes) agreed to what it disturbs
    deadline_s: int | None = Field(
        None, ge=0, le=604_800
    )  # so long may jobs go on where nodes go; None: none goes then


class ScaleIn(Ask):
    """Another number of nodes. `groups`: by a group's name; "" where the cluster has one."""

    groups: dict[str, Annotated[int, Field(ge=0, le=20_000)]] = Field(min_length=1, max_length=50)
    digest: str = ""  # as in ApplyIn
    confirmed: bool = False
    deadline_s: int | None = Field(None, ge=0, le=604_800)


class GroupOut(Wire):
    """A group of nodes: how many there should be, may be, and are."""

    name: str
    plan: str
    nodes: int
    max: int
    machines: int = 0
    spares: int = 0
    idle_s: int | None = None  # it scales by itself, from `nodes` to `max`
    spot: bool = False
    price_usd_per_node_hour: str = ""


class DownIn(Ask):
    delete_data: bool = False


OperationState = Literal["queued", "running", "done", "failed"]


class OperationOut(Wire):
    id: str
    cluster: str
    kind: Literal["apply", "scale", "down"]
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


class NewsOut(Wire):
    """One thing that happened on a cluster. `name` says to what: a job's number, a node, an incident's number, an
    operation's id; `before` is empty for what is new, `state` for what is gone."""

    at: float
    cluster: str
    kind: Literal["job", "node", "incident", "operation"]
    name: str
    state: str
    before: str = ""
    text: str = ""
    user: str = ""  # whose job, or who asked for the operation
    node: str = ""  # of an incident


# --- reading


class GpuOut(Wire):
    index: int
    job_id: int | None = None  # the job that holds it


class NodeOut(Wire):
    name: str
    role: Literal["head", "node", "spare"]
    leaf: str = ""
    group: str = ""
    plan: str = ""
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
    groups: list[GroupOut] = []
    created_at: float = 0
    as_of: float | None = None  # when the live figures were read from Slurm; None = never
    stale: str = ""  # why live figures are old, "" when fresh


class StatusOut(Wire):
    cluster: ClusterOut
    checks: list[CheckOut]
    nodes: list[NodeOut]


class IncidentStepOut(Wire):
    """`evidence`: what was known then, such as the signal's own words and the jobs that were requeued."""

    at: float
    state: str
    actor: str
    text: str
    evidence: dict[str, Any] = {}


class MovedJobOut(Wire):
    """A job that an incident sent back to the queue; unix seconds, None while it has not come to that."""

    job: int
    requeued_at: float
    running_at: float | None = None
    step_at: float | None = None


class TimesOut(Wire):
    """Seconds from the fault; None for what has not happened. Of several jobs the slowest counts."""

    detect_s: float | None = None
    drain_s: float | None = None
    requeue_s: float | None = None
    running_s: float | None = None
    step_s: float | None = None
    closed_s: float | None = None


class IncidentOut(Wire):
    """One fault of one node. `state`: seen | draining | jobs moved | repairing | testing | returned | out of service |
    false alarm."""

    number: int
    cluster: str
    node: str
    what: str
    action: str
    state: str
    opened_at: float
    drained: bool = False
    fault_at: float = 0
    score: int = 0
    times: TimesOut = TimesOut()
    jobs: list[MovedJobOut] = []
    steps: list[IncidentStepOut] = []


class NodeHistoryOut(Wire):
    """A node's incidents, the latest first, and what they say against it: from `limit` on it is kept out, or for
    spare work only (`why_out`)."""

    node: str
    score: int
    limit: int
    days: int
    why_out: str = ""
    incidents: list[IncidentOut]


class ReturnIn(Ask):
    false_alarm: bool = False


class FaultIn(Ask):
    """A fault to be made on a cluster, or healed. `node` is empty for what is the cluster's head's or the server's."""

    kind: FaultKind
    node: str = ""
    daemon: Daemon | None = None  # for FaultKind.KILL
    code: int = Field(0, ge=0, le=9999)
    gpu: int = Field(0, ge=0, le=63)
    text: str = Field("", max_length=300, pattern=r"^[ -~]*$")
    in_s: int = Field(RECLAIM_IN_S, ge=0, le=86400)  # for FaultKind.RECLAIM: the machine goes then
    heal: bool = False
    force: bool = False  # on machines that are not there to be broken as well

    @model_validator(mode="after")
    def _of_one_piece(self) -> FaultIn:
        if (self.kind is FaultKind.KILL) != (self.daemon is not None):
            raise ValueError(f"{FaultKind.KILL} needs a daemon, and nothing else has one")
        on_node = self.daemon is None or self.daemon in ON_NODES
        if on_node != bool(self.node):
            raise ValueError("which node?" if on_node else f"{self.daemon} is not on a node: name none")
        return self


class FaultMadeOut(Wire):
    done: str


class CourseOut(Wire):
    """How much of a training's time counted, since its first report."""

    restarts: int
    lost_s: float  # work that was done again
    down_s: float  # between two runs
    ettr: float  # effective training time ratio, 0 to 1


class ProgressOut(Wire):
    """What the training reported, or its log says in lines like "step 120 loss 1.873"."""

    step: int
    loss: float
    tokens_per_s: float | None = None  # only trainings that report their tokens
    course: CourseOut | None = None  # of a training that reports and went back to a checkpoint
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
    """What is wrong with it (fault.path: script, partition, nodes, gpus, cpus, memory, time, account); without faults when
    and where it would start, as sbatch --test-only says."""

    faults: list[FaultOut] = []
    starts_at: int = 0  # unix seconds; 0 = not known
    nodes: str = ""
    partition: str = ""
    script: str = ""  # of a command: the script that it makes


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

Scope = Literal["read", "jobs", "nodes", "all"]
Role = Literal["viewer", "member", "lead", "operator", "admin"]


class TokenIn(Ask):
    person: str = ""  # "" = oneself; another's only by an admin
    role: Role | None = None
    label: str = Field("", max_length=200)
    days: int | None = Field(None, ge=1, le=36_500)
    scopes: list[Scope] = Field(["all"], min_length=1, max_length=4)
    cluster: str = Field("", max_length=64)  # good for this one alone; "" = every one


class TokenOut(Wire):
    id: str
    person: str
    role: str
    label: str
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    scopes: list[str] = ["all"]
    cluster: str = ""
    token: str | None = None  # only in the answer that creates it


class PersonIn(Ask):
    """`user`: their Linux user on the clusters; None: as it is (of their own name for somebody new), "": none, so that they
    only look on."""

    role: Role
    user: str | None = Field(None, max_length=32)


class PersonOut(Wire):
    """`teams`: by cluster, those that its file has them in. `provider`: they sign in by the sign-in provider."""

    name: str
    role: str
    user: str = ""
    provider: bool = False
    created_at: float = 0.0
    teams: dict[str, list[str]] = {}
    leads: dict[str, list[str]] = {}


class AuditOut(Wire):
    """`result`: ok | refused | failed."""

    number: int
    at: float
    person: str
    action: str
    target: str
    result: str
    address: str = ""
    detail: dict[str, Any] = {}


class AuditPage(Wire):
    """The latest first. `next`: the cursor of the lines before these; "" when there are none."""

    lines: list[AuditOut]
    next: str = ""


class TeamOut(Wire):
    """A team's share against its use. Fractions are of the cluster, of the last days with older use counting less and less;
    None where Slurm has not said, or it is not the asking person's to see."""

    name: str
    users: list[str]
    leads: list[str] = []
    share: int
    share_fraction: float
    use_fraction: float | None = None
    gpu_hours: float | None = None
    fair_share: float | None = None  # 1: far below its share, 0: far above
    gpu_hours_cap: str = ""  # "1000 a month"
    jobs_running: int = 0
    jobs_pending: int = 0
    gpus_used: int = 0


class TeamsOut(Wire):
    """`stale`: why the use is missing, "" when it is there."""

    cluster: str
    teams: list[TeamOut]
    stale: str = ""


class UserOut(Wire):
    """A Linux user of a cluster. The first team is the account of their jobs unless they say another."""

    name: str
    teams: list[str]
    leads: list[str] = []
    admin: bool = False


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


class HappeningOut(Wire):
    """One thing that happened on a cluster. `operation` and `incident` say which one it belongs to, `node` where it was."""

    at: float
    kind: Literal["operation", "incident", "deed"]
    level: Literal["info", "warning", "error"] = "info"
    text: str
    node: str = ""
    person: str = ""  # who did it or asked for it; "" for what came by itself
    operation: str = ""
    incident: int | None = None


class HappeningPage(Wire):
    """The latest first. `next`: the cursor of what was before these; "" when there was nothing."""

    happenings: list[HappeningOut]
    next: str = ""

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
    """Read from the job's own log lines ("step 120 loss 1.873")."""

    step: int
    loss: float
    series: list[tuple[int, float]] = []


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


# --- work


class SubmitIn(Ask):
    """`args` are sbatch flags, `script` the text of the script (None with --wrap in args)."""

    args: list[str] = []
    script: str | None = None
    script_name: str = "script.sbatch"
    script_args: list[str] = []
    chdir: str = ""
    user: str = ""  # admins only


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

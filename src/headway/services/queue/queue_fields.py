"""The fields of a job by which the queue is sorted, in the REST API and on the queue's page, each under squeue's name (squeue
--helpFormat), with its value and how it sorts (`sort_key`). The search is in `services.queue.search`; titles and the choice of
columns of the page are in `web.views.queue.queue_columns`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import MAX_PRIORITY, JobState

Kind = Literal["text", "number", "moment", "span", "mib"]
Value = str | int
_COMPACT = {
    "PENDING": "PD", "RUNNING": "R", "SUSPENDED": "S", "CANCELLED": "CA", "COMPLETING": "CG", "COMPLETED": "CD",
    "CONFIGURING": "CF", "FAILED": "F", "TIMEOUT": "TO", "PREEMPTED": "PR", "NODE_FAIL": "NF", "BOOT_FAIL": "BF",
    "DEADLINE": "DL", "OUT_OF_MEMORY": "OOM", "REQUEUED": "RQ", "REQUEUE_HOLD": "RH", "SPECIAL_EXIT": "SE",
    "STOPPED": "ST", "SIGNALING": "SI", "STAGE_OUT": "SO", "RESIZING": "RS", "REVOKED": "RV",
}  # fmt: skip
LABEL = ("array_job_id", "array_task")  # fields that `JobState.label` uses, besides the id


@dataclass(frozen=True, slots=True)
class QueueField:
    """A field. `of` returns the value of a job at the time `now`: text, a number, unix seconds (moment) or
    seconds (span); 0 and "" mean that there is nothing to show. `reads` are the fields of a job that it uses."""

    key: str
    kind: Kind
    of: Callable[[JobState, float], Value]
    reads: tuple[str, ...]
    runs_on: bool = False  # the value changes with time alone, without a change of the job


def _field(key: str, name: str = "", kind: Kind = "text") -> QueueField:
    """Returns the field of an attribute of JobState."""
    name = name or key

    def of(job: JobState, _now: float) -> Value:
        value: Value | None = getattr(job, name)
        return (0 if kind != "text" else "") if value is None else value

    return QueueField(key, kind, of, (name,))


def _nodes(key: str, name: str) -> QueueField:
    """Returns the field of a list of nodes, in Slurm's short form."""
    return QueueField(key, "text", lambda job, _now: compress(getattr(job, name)), (name,))


def _more(key: str, kind: Kind = "text") -> QueueField:
    """Returns the field of a value in JobState.more: those are only shown and not used otherwise."""
    nothing: Value = "" if kind == "text" else 0
    return QueueField(key, kind, lambda job, _now: job.more.get(key, nothing), ("more",))


def elapsed_s(job: JobState, now: float) -> int:
    """Returns the seconds that a job has run so far, or ran."""
    if not job.start_time or job.state in WAITING:
        return 0
    end = int(now) if job.state in RUNNING else job.end_time
    return max(0, end - job.start_time)


def _left_s(job: JobState, now: float) -> int:
    if job.time_limit_s is None or job.state not in RUNNING:
        return 0
    return max(0, job.time_limit_s - elapsed_s(job, now))


def _pending_s(job: JobState, now: float) -> int:
    until = int(now) if job.state in WAITING else job.start_time
    return max(0, until - job.submit_time) if job.submit_time else 0


def _ends(job: JobState, _now: float) -> int:
    """Returns the end of a job in unix seconds; for a running job, the time at which it reaches its limit."""
    if job.end_time or job.state not in RUNNING or job.time_limit_s is None:
        return job.end_time
    return job.start_time + job.time_limit_s


def _reason(job: JobState, _now: float) -> str:
    return "" if job.reason == "None" else job.reason


def _place(job: JobState, now: float) -> str:
    """Returns squeue's NODELIST(REASON)."""
    return compress(job.nodes) or (f"({job.reason})" if _reason(job, now) else "")


def _array_label(job: JobState, _now: float) -> str:
    return job.label


def _gpus_per_node(job: JobState, _now: float) -> int:
    return job.gpus // job.node_count if job.node_count else job.gpus


def _memory_per_node(job: JobState, _now: float) -> int:
    return job.memory_mib // max(1, job.node_count)


FIELDS = (
    QueueField("jobarrayid", "text", _array_label, ("id", *LABEL)),
    _field("name"),
    _field("username", "user"),
    _field("account"),
    _field("partition"),
    _field("state"),
    QueueField("timeused", "span", elapsed_s, ("state", "start_time", "end_time"), runs_on=True),
    _field("numnodes", "node_count", "number"),
    _field("gpus", kind="number"),
    QueueField("reasonlist", "text", _place, ("nodes", "reason")),
    _field("jobid", "id", "number"),
    _field("priority", kind="number"),
    _field("submittime", "submit_time", "moment"),
    _field("starttime", "start_time", "moment"),
    QueueField("endtime", "moment", _ends, ("state", "start_time", "end_time", "time_limit_s")),
    _field("timelimit", "time_limit_s", "span"),
    QueueField("timeleft", "span", _left_s, ("state", "start_time", "end_time", "time_limit_s"), runs_on=True),
    QueueField("pendingtime", "span", _pending_s, ("state", "submit_time", "start_time"), runs_on=True),
    QueueField("reason", "text", _reason, ("reason",)),
    _nodes("nodelist", "nodes"),
    _nodes("schednodes", "scheduled_nodes"),
    _nodes("reqnodes", "required_nodes"),
    _nodes("excnodes", "excluded_nodes"),
    _field("numcpus", "cpus", "number"),
    QueueField("minmemory", "mib", _memory_per_node, ("memory_mib", "node_count")),
    QueueField("gpus-per-node", "number", _gpus_per_node, ("gpus", "node_count")),
    _field("qos"),
    _field("dependency"),
    _field("reservation"),
    _field("feature", "features"),
    _field("licenses"),
    _field("reqswitch", "switches", "number"),
    _field("eligibletime", "eligible_time", "moment"),
    _field("restartcnt", "restarts", "number"),
    _field("arrayjobid", "array_job_id", "number"),
    _field("arraytaskid", "array_task"),
    _field("exit_code", kind="number"),
    _field("comment"),
    _field("command"),
    _field("workdir"),
    _field("stdout"),
    _field("stderr"),
    QueueField("statecompact", "text", lambda job, _now: _COMPACT.get(job.state, job.state), ("state",)),
    QueueField(
        "prioritylong",
        "text",
        lambda job, _now: f"{job.priority / MAX_PRIORITY:.9f}",
        ("priority",),
    ),
    _more("accruetime", "moment"),
    _more("admin_comment"),
    _more("allocnodes"),
    _more("associd", "number"),
    _more("batchflag"),
    _more("batchhost"),
    _more("burstbuffer"),
    _more("burstbufferstate"),
    _more("cluster"),
    _more("clusterfeature"),
    _more("container"),
    _more("containerid"),
    _more("contiguous"),
    _more("cores", "number"),
    _more("corespec", "number"),
    _more("cpus-per-task", "number"),
    _more("cpus-per-tres"),
    _more("deadline", "moment"),
    _more("delayboot", "number"),
    _more("derivedec", "number"),
    _more("groupid", "number"),
    _more("groupname"),
    _more("hetjobid", "number"),
    _more("hetjobidset"),
    _more("hetjoboffset", "number"),
    _more("lastschedeval", "moment"),
    _more("maxcpus", "number"),
    _more("maxnodes", "number"),
    _more("mcslabel"),
    _more("mem-per-tres"),
    _more("mincpus", "number"),
    _more("mintime", "span"),
    _more("mintmpdisk", "mib"),
    _more("network"),
    _more("nice", "number"),
    _more("ntperboard", "number"),
    _more("ntpercore", "number"),
    _more("ntpernode", "number"),
    _more("ntpersocket", "number"),
    _more("numtasks", "number"),
    _more("origin"),
    _more("oversubscribe"),
    _more("preempttime", "moment"),
    _more("prefer"),
    _more("profile"),
    _more("reboot"),
    _more("requeue"),
    _more("resizetime", "moment"),
    _more("siblingsactive"),
    _more("siblingsviable"),
    _more("sockets", "number"),
    _more("sperboard", "number"),
    _more("stdin"),
    _more("system_comment"),
    _more("threads", "number"),
    _more("tres-alloc"),
    _more("tres-bind"),
    _more("tres-freq"),
    _more("tres-per-job"),
    _more("tres-per-node"),
    _more("tres-per-socket"),
    _more("tres-per-task"),
    _more("userid", "number"),
    _more("wait4switch", "span"),
    _more("wckey"),
)
BY_KEY = {one.key: one for one in FIELDS}


def sort_key(field: QueueField, now: float) -> Callable[[JobState], tuple[Any, int]]:
    """Returns the sort key of a field: by its value, then by job id; text without regard to case."""
    of = field.of
    if field.key == "jobarrayid":  # sorted as a number, though the field is text
        return lambda job: (job.array_job_id or job.id, job.id)
    if field.kind == "text":
        return lambda job: (str(of(job, now)).casefold(), job.id)
    return lambda job: (of(job, now), job.id)

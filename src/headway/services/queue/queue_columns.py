"""The columns of the queue's page, by which the REST API sorts too; `headway queue` has a table of its own
(`cli/commands/jobs/queue.py`), made of the API's answer. Each column is declared once under squeue's name (squeue
--helpFormat), with how it sorts (`sort_key`). The search that uses it is in `services.queue.search`. Pure."""

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
class QueueColumn:
    """A column. `of` returns the value of a job at the time `now`: text, a number, unix seconds (moment) or
    seconds (span); 0 and "" mean that there is nothing to show. `reads` are the fields of a job that it uses."""

    key: str
    title: str
    kind: Kind
    of: Callable[[JobState, float], Value]
    reads: tuple[str, ...]
    runs_on: bool = False  # the value changes with time alone, without a change of the job


def _field(key: str, title: str, name: str = "", kind: Kind = "text") -> QueueColumn:
    """Returns the column of a field of JobState."""
    name = name or key

    def of(job: JobState, _now: float) -> Value:
        value: Value | None = getattr(job, name)
        return (0 if kind != "text" else "") if value is None else value

    return QueueColumn(key, title, kind, of, (name,))


def _nodes(key: str, title: str, name: str) -> QueueColumn:
    """Returns the column of a list of nodes, in Slurm's short form."""
    return QueueColumn(key, title, "text", lambda job, _now: compress(getattr(job, name)), (name,))


def _more(key: str, title: str, kind: Kind = "text") -> QueueColumn:
    """Returns the column of a field in JobState.more: those are only shown and not used otherwise."""
    nothing: Value = "" if kind == "text" else 0
    return QueueColumn(key, title, kind, lambda job, _now: job.more.get(key, nothing), ("more",))


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


COLUMNS = (
    QueueColumn("jobarrayid", "Job", "text", _array_label, ("id", *LABEL)),
    _field("name", "Name"),
    _field("username", "User", "user"),
    _field("account", "Team"),
    _field("partition", "Partition"),
    _field("state", "State"),
    QueueColumn("timeused", "Time", "span", elapsed_s, ("state", "start_time", "end_time"), runs_on=True),
    _field("numnodes", "Nodes", "node_count", "number"),
    _field("gpus", "GPUs", kind="number"),
    QueueColumn("reasonlist", "Nodes or reason", "text", _place, ("nodes", "reason")),
    _field("jobid", "Job ID", "id", "number"),
    _field("priority", "Priority", kind="number"),
    _field("submittime", "Submitted", "submit_time", "moment"),
    _field("starttime", "Start", "start_time", "moment"),
    QueueColumn("endtime", "End", "moment", _ends, ("state", "start_time", "end_time", "time_limit_s")),
    _field("timelimit", "Time limit", "time_limit_s", "span"),
    QueueColumn(
        "timeleft", "Time left", "span", _left_s, ("state", "start_time", "end_time", "time_limit_s"), runs_on=True
    ),
    QueueColumn("pendingtime", "Waited", "span", _pending_s, ("state", "submit_time", "start_time"), runs_on=True),
    QueueColumn("reason", "Reason", "text", _reason, ("reason",)),
    _nodes("nodelist", "Node list", "nodes"),
    _nodes("schednodes", "Planned nodes", "scheduled_nodes"),
    _nodes("reqnodes", "Asked nodes", "required_nodes"),
    _nodes("excnodes", "Excluded nodes", "excluded_nodes"),
    _field("numcpus", "CPUs", "cpus", "number"),
    QueueColumn("minmemory", "Memory per node", "mib", _memory_per_node, ("memory_mib", "node_count")),
    QueueColumn("gpus-per-node", "GPUs per node", "number", _gpus_per_node, ("gpus", "node_count")),
    _field("qos", "QOS"),
    _field("dependency", "Dependency"),
    _field("reservation", "Reservation"),
    _field("feature", "Features", "features"),
    _field("licenses", "Licences"),
    _field("reqswitch", "Leaves at most", "switches", "number"),
    _field("eligibletime", "Eligible", "eligible_time", "moment"),
    _field("restartcnt", "Restarts", "restarts", "number"),
    _field("arrayjobid", "Array", "array_job_id", "number"),
    _field("arraytaskid", "Task", "array_task"),
    _field("exit_code", "Exit code", kind="number"),
    _field("comment", "Comment"),
    _field("command", "Command"),
    _field("workdir", "Folder"),
    _field("stdout", "Output"),
    _field("stderr", "Error output"),
    QueueColumn("statecompact", "ST", "text", lambda job, _now: _COMPACT.get(job.state, job.state), ("state",)),
    QueueColumn(
        "prioritylong",
        "Priority (share)",
        "text",
        lambda job, _now: f"{job.priority / MAX_PRIORITY:.9f}",
        ("priority",),
    ),
    _more("accruetime", "Priority grows since", "moment"),
    _more("admin_comment", "Admin's comment"),
    _more("allocnodes", "Submitted on"),
    _more("associd", "Association", "number"),
    _more("batchflag", "Batch"),
    _more("batchhost", "First node"),
    _more("burstbuffer", "Burst buffer"),
    _more("burstbufferstate", "Burst buffer state"),
    _more("cluster", "Cluster"),
    _more("clusterfeature", "Cluster features"),
    _more("container", "Container"),
    _more("containerid", "Container ID"),
    _more("contiguous", "Contiguous"),
    _more("cores", "Cores per socket", "number"),
    _more("corespec", "Reserved cores", "number"),
    _more("cpus-per-task", "CPUs per task", "number"),
    _more("cpus-per-tres", "CPUs per TRES"),
    _more("deadline", "Deadline", "moment"),
    _more("delayboot", "Boot delay", "number"),
    _more("derivedec", "Derived exit code", "number"),
    _more("groupid", "Group ID", "number"),
    _more("groupname", "Group"),
    _more("hetjobid", "Het job", "number"),
    _more("hetjobidset", "Het job's parts"),
    _more("hetjoboffset", "Het job's part", "number"),
    _more("lastschedeval", "Last considered", "moment"),
    _more("maxcpus", "CPUs at most", "number"),
    _more("maxnodes", "Nodes at most", "number"),
    _more("mcslabel", "MCS label"),
    _more("mem-per-tres", "Memory per TRES"),
    _more("mincpus", "CPUs per node", "number"),
    _more("mintime", "Time at least", "span"),
    _more("mintmpdisk", "/tmp per node", "mib"),
    _more("network", "Network"),
    _more("nice", "Nice", "number"),
    _more("ntperboard", "Tasks per board", "number"),
    _more("ntpercore", "Tasks per core", "number"),
    _more("ntpernode", "Tasks per node", "number"),
    _more("ntpersocket", "Tasks per socket", "number"),
    _more("numtasks", "Tasks", "number"),
    _more("origin", "Origin"),
    _more("oversubscribe", "Shares nodes"),
    _more("preempttime", "Preempted", "moment"),
    _more("prefer", "Preferred features"),
    _more("profile", "Profile"),
    _more("reboot", "Reboots nodes"),
    _more("requeue", "May be requeued"),
    _more("resizetime", "Resized", "moment"),
    _more("siblingsactive", "Siblings"),
    _more("siblingsviable", "Possible siblings"),
    _more("sockets", "Sockets per node", "number"),
    _more("sperboard", "Sockets per board", "number"),
    _more("stdin", "Input"),
    _more("system_comment", "System's comment"),
    _more("threads", "Threads per core", "number"),
    _more("tres-alloc", "TRES given"),
    _more("tres-bind", "TRES binding"),
    _more("tres-freq", "TRES frequency"),
    _more("tres-per-job", "TRES a job"),
    _more("tres-per-node", "TRES per node"),
    _more("tres-per-socket", "TRES per socket"),
    _more("tres-per-task", "TRES per task"),
    _more("userid", "User ID", "number"),
    _more("wait4switch", "Waits for leaves", "span"),
    _more("wckey", "WCKey"),
)
BY_KEY = {column.key: column for column in COLUMNS}
DEFAULT_COLUMNS = (
    "jobarrayid",
    "name",
    "username",
    "account",
    "partition",
    "state",
    "timeused",
    "numnodes",
    "gpus",
    "reasonlist",
)


def sort_key(column: QueueColumn, now: float) -> Callable[[JobState], tuple[Any, int]]:
    """Returns the sort key of a column: by its value, then by job id; text without regard to case."""
    of = column.of
    if column.key == "jobarrayid":  # sorted as a number, though the column is text
        return lambda job: (job.array_job_id or job.id, job.id)
    if column.kind == "text":
        return lambda job: (str(of(job, now)).casefold(), job.id)
    return lambda job: (of(job, now), job.id)

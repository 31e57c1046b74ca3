"""The columns of the queue's page: their titles, their order, and those shown by default. Their values, by which the REST API
sorts too, are in `services.queue.queue_fields`; `headway queue` has a table of its own (`cli/commands/jobs/queue.py`), made of
the API's answer. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headway.services.queue.queue_fields import BY_KEY, QueueField

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
_TITLES = {
    "jobarrayid": "Job",
    "name": "Name",
    "username": "User",
    "account": "Team",
    "partition": "Partition",
    "state": "State",
    "timeused": "Time",
    "numnodes": "Nodes",
    "gpus": "GPUs",
    "reasonlist": "Nodes or reason",
    "jobid": "Job ID",
    "priority": "Priority",
    "submittime": "Submitted",
    "starttime": "Start",
    "endtime": "End",
    "timelimit": "Time limit",
    "timeleft": "Time left",
    "pendingtime": "Waited",
    "reason": "Reason",
    "nodelist": "Node list",
    "schednodes": "Planned nodes",
    "reqnodes": "Asked nodes",
    "excnodes": "Excluded nodes",
    "numcpus": "CPUs",
    "minmemory": "Memory per node",
    "gpus-per-node": "GPUs per node",
    "qos": "QOS",
    "dependency": "Dependency",
    "reservation": "Reservation",
    "feature": "Features",
    "licenses": "Licences",
    "reqswitch": "Leaves at most",
    "eligibletime": "Eligible",
    "restartcnt": "Restarts",
    "arrayjobid": "Array",
    "arraytaskid": "Task",
    "exit_code": "Exit code",
    "comment": "Comment",
    "command": "Command",
    "workdir": "Folder",
    "stdout": "Output",
    "stderr": "Error output",
    "statecompact": "ST",
    "prioritylong": "Priority (share)",
    "accruetime": "Priority grows since",
    "admin_comment": "Admin's comment",
    "allocnodes": "Submitted on",
    "associd": "Association",
    "batchflag": "Batch",
    "batchhost": "First node",
    "burstbuffer": "Burst buffer",
    "burstbufferstate": "Burst buffer state",
    "cluster": "Cluster",
    "clusterfeature": "Cluster features",
    "container": "Container",
    "containerid": "Container ID",
    "contiguous": "Contiguous",
    "cores": "Cores per socket",
    "corespec": "Reserved cores",
    "cpus-per-task": "CPUs per task",
    "cpus-per-tres": "CPUs per TRES",
    "deadline": "Deadline",
    "delayboot": "Boot delay",
    "derivedec": "Derived exit code",
    "groupid": "Group ID",
    "groupname": "Group",
    "hetjobid": "Het job",
    "hetjobidset": "Het job's parts",
    "hetjoboffset": "Het job's part",
    "lastschedeval": "Last considered",
    "maxcpus": "CPUs at most",
    "maxnodes": "Nodes at most",
    "mcslabel": "MCS label",
    "mem-per-tres": "Memory per TRES",
    "mincpus": "CPUs per node",
    "mintime": "Time at least",
    "mintmpdisk": "/tmp per node",
    "network": "Network",
    "nice": "Nice",
    "ntperboard": "Tasks per board",
    "ntpercore": "Tasks per core",
    "ntpernode": "Tasks per node",
    "ntpersocket": "Tasks per socket",
    "numtasks": "Tasks",
    "origin": "Origin",
    "oversubscribe": "Shares nodes",
    "preempttime": "Preempted",
    "prefer": "Preferred features",
    "profile": "Profile",
    "reboot": "Reboots nodes",
    "requeue": "May be requeued",
    "resizetime": "Resized",
    "siblingsactive": "Siblings",
    "siblingsviable": "Possible siblings",
    "sockets": "Sockets per node",
    "sperboard": "Sockets per board",
    "stdin": "Input",
    "system_comment": "System's comment",
    "threads": "Threads per core",
    "tres-alloc": "TRES given",
    "tres-bind": "TRES binding",
    "tres-freq": "TRES frequency",
    "tres-per-job": "TRES a job",
    "tres-per-node": "TRES per node",
    "tres-per-socket": "TRES per socket",
    "tres-per-task": "TRES per task",
    "userid": "User ID",
    "wait4switch": "Waits for leaves",
    "wckey": "WCKey",
}


@dataclass(frozen=True, slots=True)
class QueueColumn:
    """A column: the field that it shows, and its title."""

    field: QueueField
    title: str

    @property
    def key(self) -> str:
        """Returns squeue's name of the field."""
        return self.field.key


COLUMNS = {key: QueueColumn(BY_KEY[key], title) for key, title in _TITLES.items()}

"""Slurm's refusals and reasons in words a person can act on. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from headway.domain.cluster import Cluster
from headway.domain.live import JobState
from headway.errors import Refused


@contextmanager
def explained(cluster: Cluster, user: str) -> Iterator[None]:
    """Gives a refusal of sbatch the hint that its words lack."""
    try:
        yield
    except Refused as error:
        if not error.hint:
            error.hint = hint(error.message, cluster, user)
        raise


def hint(said: str, cluster: Cluster, user: str) -> str:
    """What to do about sbatch's own words; "" when they say it all."""
    teams = [team.name for team in cluster.teams if user in team.users]
    if "invalid account" in said.lower():
        mine = f"{user} is in {' and '.join(teams)}" if teams else f"{user} is in no team of {cluster.name}"
        return f"{mine}; {cluster.name} has {_list(team.name for team in cluster.teams)}"
    if "invalid partition" in said.lower():
        return f"{cluster.name} has {_list(partition.name for partition in cluster.partitions)}"
    if "Requested node configuration is not available" in said or "Invalid generic resource" in said:
        return _node(cluster)
    if "group not permitted" in said:
        return f"{user} is in {_list(teams)}; the cluster file says which teams may use a partition"
    if "time limit is invalid" in said:
        return "ask for less with --time: no partition allows that long"
    if "Job dependency problem" in said:
        return f"{cluster.name} knows no such job any more: minutes after its end Slurm forgets a job; if it ended, leave it out"
    if "accounting/QOS policy" in said:
        return f"a limit of {_list(teams)} is reached: sshare and sacctmgr show qos on the login have the figures"
    if "DOS line breaks" in said:
        return "dos2unix, or set your editor to LF"
    if "unrecognized option" in said and "--container" in said:
        return f"{cluster.name}'s image has no container plugin yet: headway apply brings it up to date"
    return ""


def _node(cluster: Cluster) -> str:
    plan = cluster.plan
    gpus = f"{plan.gpus} GPUs, " if plan.gpus else "no GPU, "
    return f"{cluster.name} has {cluster.nodes} nodes of {gpus}{plan.cpus} CPUs and {plan.memory_mib // 1024} GiB each"


def _list(words: Iterator[str] | list[str]) -> str:
    return ", ".join(words) or "none"


# Slurm's reasons for a job that waits, in words, for the page and the commands alike. Any other is shown as Slurm says it.
REASONS = {
    "Resources": "waits until enough nodes or GPUs are free",
    "Priority": "waits behind jobs of higher priority",
    "Dependency": "waits for another job to end",
    "DependencyNeverSatisfied": "a job it was to follow did not end as asked, so it never starts: cancel it, or headway "
    "pipeline retry",
    "BeginTime": "waits for its begin time (a requeued job: a moment)",
    "JobHeldUser": "is held: scontrol release",
    "JobHeldAdmin": "is held by an administrator",
    "JobArrayTaskLimit": "as many of its array's tasks run as it allows",
    "Licenses": "waits for a licence",
    "Reservation": "waits for its reservation",
    "ReqNodeNotAvail": "a node it asks for is not available",
    "NodeDown": "a node it needs is down",
    "BadConstraints": "no node fits what it asks for",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs now",
    "PartitionNodeLimit": "asks for more nodes than its partition has",
    "PartitionTimeLimit": "asks for more time than its partition allows",
    "Prolog": "the node is being made ready",
    "InvalidAccount": "its team no longer exists",
    "InvalidQOS": "its limits no longer exist",
    "QOSMaxJobsPerUserLimit": "its user has as many jobs running as the team's limit allows",
    "QOSGrpJobsLimit": "the team has as many jobs running as its limit allows",
    "QOSGrpSubmitJobsLimit": "the team has as many jobs queued as its limit allows",
    "QOSGrpGRES": "the team holds as many GPUs as its limit allows",
    "QOSGrpGRESMinutes": "the team's GPU hours are used up",
    "AssocGrpJobsLimit": "the team has as many jobs running as its limit allows",
    "AssocGrpGRES": "the team holds as many GPUs as its limit allows",
    "AssocGrpGRESMinutes": "the team's GPU hours are used up",
    "launch_failed_requeued_held": "could not be started on its nodes and is held: headway logs says why",
    "launch failed requeued held": "could not be started on its nodes and is held: headway logs says why",
}
NO_CONTAINER = 125  # of a task whose container did not come to be (node/image/spank/container.c)
_UNDER_WAY = ("importing ", "imported ", "waiting ")
_CODES = {
    1: "the program reported an error (exit code 1)",
    2: "the program was called wrongly or a file is missing (exit code 2)",
    NO_CONTAINER: "its container could not be started (exit code 125): headway logs says why",
    126: "the program is there but can't be run (exit code 126): is it executable?",
    127: "the program was not found (exit code 127)",
}


def why(job: JobState) -> str:
    """Why a job waits, or how it ended; "" while all goes well."""
    if job.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD"):
        first = job.reason.split(",")[0].strip()
        return REASONS.get(first, "" if first in ("", "None") else first)
    if job.state == "OUT_OF_MEMORY":
        return "used more memory than it asked for and was ended: ask for more with --mem"
    if job.state == "TIMEOUT":
        return f"reached its time limit of {_duration(job.time_limit_s)}: ask for more with --time"
    if job.state == "NODE_FAIL":
        return f"a node of it died ({', '.join(job.nodes) or 'unknown'}) and it was not to be requeued"
    if job.state == "PREEMPTED":
        return "had to give way to a job of a higher tier"
    if job.state == "BOOT_FAIL":
        return "a node could not be started for it"
    if job.state == "CANCELLED":
        return "was cancelled"
    if job.state == "FAILED":
        return _failed(job)
    return ""


def pending(job: JobState) -> str:
    """What a log says while its job waits: "pending (Priority): waits behind jobs of higher priority"."""
    reason = job.reason.split(",")[0].strip()
    if reason in ("", "None"):
        return "pending: waits for its turn"
    words = REASONS.get(reason, "")
    return f"pending ({reason}): {words}" if words else f"pending: {job.reason}"


def _failed(job: JobState) -> str:
    code = job.exit_code
    if code > 128 and code - 128 in {int(number) for number in signal.Signals}:
        name = signal.Signals(code - 128).name
        more = {"SIGKILL": ": out of memory, or ended from outside", "SIGSEGV": ": a fault of the program"}.get(
            name, ""
        )
        return f"the program was ended by {name}{more}"
    if code:
        return _CODES.get(code, f"the program ended with exit code {code}")
    match = re.match(r"RaisedSignal:(\d+)", job.reason)
    if match:
        return f"the program was ended by signal {match[1]}"
    return "could not be started" if job.reason in ("JobLaunchFailure", "LaunchFailure") else ""


def container_word(log: str) -> str:
    """Why a container did not start, out of the end of the job's error file; "" when that does not say."""
    lines = log.splitlines()
    for at in range(len(lines) - 1, -1, -1):
        said = lines[at].removeprefix("headway: ")
        if said != lines[at] and not said.startswith(_UNDER_WAY):
            more = lines[at + 1].strip() if lines[at + 1 : at + 2] and lines[at + 1].startswith("  ") else ""
            text = f"its container could not be started: {said}" + (f"; {more}" if more else "")
            return "".join(letter if letter.isprintable() else "?" for letter in text)[:600]
    return ""


def _duration(seconds: int | None) -> str:
    if not seconds:
        return "none"
    hours, rest = divmod(seconds, 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min"

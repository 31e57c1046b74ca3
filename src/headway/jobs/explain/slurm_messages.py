"""Explains Slurm's refusals and reasons in words that say what to do. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from headway.domain.cluster import Cluster
from headway.domain.slurm.job_states import WAITING
from headway.domain.slurm.sbatch_options import DOS_LINES_HINT
from headway.domain.slurm.state import JobState
from headway.errors import Refused
from headway.jobs.explain.limits import describe_limit, parse_limit
from headway.jobs.explain.phrases import format_duration
from headway.jobs.explain.placement_search import reason_word


@contextmanager
def with_sbatch_hints(cluster: Cluster, user: str) -> Iterator[None]:
    """Adds a hint to a refusal of sbatch that has none."""
    try:
        yield
    except Refused as error:
        if not error.hint:
            error.hint = sbatch_hint(error.message, cluster, user)
        raise


def sbatch_hint(said: str, cluster: Cluster, user: str) -> str:
    """Returns what to do about sbatch's message `said`, or "" when the message already says it."""
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
        return "no partition allows that much time: ask for less with --time"
    if "Job dependency problem" in said:
        return f"Slurm on {cluster.name} has no such job: it forgets jobs minutes after they end. Leave out ended jobs"
    if "accounting/QOS policy" in said:
        return f"a limit of {_list(teams)} is reached: run sshare and sacctmgr show qos on the login"
    if "DOS line breaks" in said:
        return DOS_LINES_HINT
    if "unrecognized option" in said and "--container" in said:
        return f"{cluster.name}'s image has no container plugin yet: headway apply brings it up to date"
    return ""


def _node(cluster: Cluster) -> str:
    if not cluster.provider.creates_machines:  # an existing machine may differ from its plan
        return f"run sinfo -N -o '%N %c %m %G' on the login: it lists the hardware of each node of {cluster.name}"
    kinds = []
    for group in cluster.groups:
        plan = group.plan
        gpus = f"{plan.gpus} GPUs, " if plan.gpus else "no GPU, "
        kinds.append(f"{group.nodes} nodes of {gpus}{plan.cpus} CPUs and {plan.memory_mib // 1024} GiB each")
    return f"{cluster.name} has {'; '.join(kinds)}"


def _list(words: Iterator[str] | list[str]) -> str:
    return ", ".join(words) or "none"


# Slurm's reasons for a waiting job, in words, for the pages and the commands. Any other reason is shown unchanged.
REASON_SENTENCES = {
    "Resources": "waits until enough nodes or GPUs are free",
    "Priority": "waits behind jobs of higher priority",
    "Dependency": "waits for another job to end",
    "DependencyNeverSatisfied": "its dependency can't be satisfied any more: cancel it, or run headway pipeline retry",
    "BeginTime": "waits for its begin time (a requeued job waits briefly)",
    "JobHeldUser": "is held by its user",
    "JobHeldAdmin": "is held by an administrator",
    "JobArrayTaskLimit": "its array runs as many tasks at once as it may",
    "Licenses": "waits for a licence",
    "Reservation": "waits for its reservation",
    "ReqNodeNotAvail": "nodes it needs are out of service or reserved",
    "NodeDown": "a node it needs is down",
    "BadConstraints": "no node fits what it asks for",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs now",
    "PartitionNodeLimit": "asks for more nodes than its partition has",
    "PartitionTimeLimit": "asks for more time than its partition allows",
    "PartitionConfig": "its partition does not allow this request",
    "MaxMemPerLimit": "asks for more memory per CPU or node than its partition allows",
    "AccountNotAllowed": "its team may not use this partition",
    "Cleaning": "its last run is still being cleaned up",
    "SchedDefer": "the scheduler considers new jobs with a delay",
    "BurstBufferStageIn": "its files are being copied in",
    "Prolog": "its nodes are being prepared (prolog)",
    "InvalidAccount": "its team no longer exists",
    "InvalidQOS": "its limits (QOS) no longer exist",
    "DeadLine": "can't end before its deadline",
    "ReservationDeleted": "its reservation was deleted",
    "QOSNotAllowed": "its limits (QOS) are not allowed there",
    # The ledger sets this limit for a team that has spent its budget.
    "QOSMaxJobsPerUserLimit": "its user runs as many jobs as the team allows, or the team's budget is spent",
    "QOSUsageThreshold": "its team has used so much that it may not start jobs now",
    "BurstBufferResources": "waits for room in the burst buffer",
    "job requeued in held state": "was requeued and is held",
    "JobHoldMaxRequeue": "was requeued too often and is held",
    "launch_failed_requeued_held": "could not be started on its nodes and is held: headway logs says why",
    "launch failed requeued held": "could not be started on its nodes and is held: headway logs says why",
}
# Exit code of a task when its container could not be created (node/image/spank/container.c).
CONTAINER_FAILED_CODE = 125
_UNDER_WAY = ("importing ", "imported ", "waiting ")
_CODES = {
    1: "the program reported an error (exit code 1)",
    2: "the program got wrong arguments or a file is missing (exit code 2)",
    CONTAINER_FAILED_CODE: "its container could not be started (exit code 125): headway logs says why",
    126: "the program can't be run (exit code 126): make the file executable",
    127: "the program was not found (exit code 127)",
}


def job_reason(job: JobState) -> str:
    """Returns why a job waits or how it ended, or "" for a job without problems."""
    if job.state in WAITING:
        return explain_reason(job.reason)
    if job.state == "OUT_OF_MEMORY":
        return "used more memory than it asked for and was ended: ask for more with --mem"
    if job.state == "TIMEOUT":
        return f"reached its time limit of {format_duration(job.time_limit_s or 0)}: ask for more with --time"
    if job.state == "NODE_FAIL":
        return f"a node of it died ({', '.join(job.nodes) or 'unknown'}) and the job allows no requeue"
    if job.state == "PREEMPTED":
        return "was preempted by a job of a higher tier"
    if job.state == "BOOT_FAIL":
        return "a node could not be started for it"
    if job.state == "CANCELLED":
        return "was cancelled"
    if job.state in ("FAILED", "COMPLETING"):  # the code is known while its nodes are still cleaned up
        return _failed(job)
    return ""


def explain_reason(reason: str) -> str:
    """Returns Slurm's reason in words; Slurm's own words where there is no explanation; "" for no reason."""
    word = reason_word(reason)
    limit = parse_limit(word)
    if word in ("", "None"):
        return ""
    return REASON_SENTENCES.get(word) or (describe_limit(limit) if limit else word.replace("_", " "))


def pending_line(job: JobState) -> str:
    """Returns the line that a log shows while its job waits, as in "pending (Priority): waits behind jobs of
    higher priority"."""
    reason = reason_word(job.reason)
    if reason in ("", "None"):
        return "pending: waits for its turn"
    words = explain_reason(job.reason)
    return f"pending: {job.reason}" if words == reason.replace("_", " ") else f"pending ({reason}): {words}"


def _failed(job: JobState) -> str:
    code = job.exit_code
    if code > 128 and code - 128 in {int(number) for number in signal.Signals}:
        name = signal.Signals(code - 128).name
        more = {"SIGKILL": ": out of memory, or killed from outside", "SIGSEGV": ": a memory error of the program"}.get(
            name, ""
        )
        return f"the program was ended by {name}{more}"
    if code:
        return _CODES.get(code, f"the program ended with exit code {code}")
    match = re.match(r"RaisedSignal:(\d+)", job.reason)
    if match:
        return f"the program was ended by signal {match[1]}"
    return "could not be started" if job.reason in ("JobLaunchFailure", "LaunchFailure") else ""


def container_error(log: str) -> str:
    """Returns why a container did not start, from the end of the job's error file, or "" when the file does not
    say."""
    lines = log.splitlines()
    for at in range(len(lines) - 1, -1, -1):
        said = lines[at].removeprefix("headway: ")
        if said != lines[at] and not said.startswith(_UNDER_WAY):
            more = lines[at + 1].strip() if lines[at + 1 : at + 2] and lines[at + 1].startswith("  ") else ""
            text = f"its container could not be started: {said}" + (f"; {more}" if more else "")
            return "".join(letter if letter.isprintable() else "?" for letter in text)[:600]
    return ""

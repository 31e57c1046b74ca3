"""The reason of a job in one line: why it waits or how it ended, as pages, commands and logs show it. Pure."""

from __future__ import annotations

from headway.domain.slurm.job_states import WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.jobs.explain.job_failures import explain_failure
from headway.jobs.explain.limit_reasons import limit_sentence
from headway.jobs.explain.phrases import format_duration
from headway.jobs.explain.placement_search import reason_word

# Slurm's reasons for a waiting job, in words, for lists of jobs. Limits are in limit_reasons.py, and sentences with the values
# of one job, such as the time at which it may begin, in pending_explanation.py. Any other reason is shown unchanged.
REASON_SENTENCES = {
    "Resources": "waits until enough nodes or GPUs are free",
    "Priority": "waits behind jobs of higher priority",
    "Dependency": "waits for another job to end",
    "DependencyNeverSatisfied": "its dependency can't be satisfied any more: cancel it, or run headway pipeline retry",
    "BeginTime": "waits for its begin time (a requeued job waits briefly)",
    "JobHeldUser": "is held by its user",
    "JobHeldAdmin": "is held by an administrator",
    "Licenses": "waits for a licence",
    "Reservation": "waits for its reservation",
    "ReqNodeNotAvail": "nodes it needs are out of service or reserved",
    "NodeDown": "a node it needs is down",
    "BadConstraints": "no node fits its request",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition takes no jobs now",
    "PartitionConfig": "its partition does not allow this request",
    "AccountNotAllowed": "its team may not use this partition",
    "Cleaning": "its last run is still being cleaned up",
    "SchedDefer": "the scheduler considers new jobs with a delay",
    "BurstBufferStageIn": "its files are being copied in",
    "Prolog": "its nodes are being prepared (prolog)",
    "InvalidAccount": "its team no longer exists",
    "InvalidQOS": "its QOS no longer exists",
    "DeadLine": "can't end before its deadline",
    "ReservationDeleted": "its reservation was deleted",
    "QOSNotAllowed": "its QOS is not allowed there",
    "BurstBufferResources": "waits for room in the burst buffer",
    "job requeued in held state": "was requeued and is held",
    "JobHoldMaxRequeue": "was requeued too often and is held",
    "launch_failed_requeued_held": "could not be started on its nodes and is held: headway logs says why",
    "launch failed requeued held": "could not be started on its nodes and is held: headway logs says why",
}


def job_reason(job: JobState) -> str:
    """Returns why a job waits or how it ended, or "" for a job without problems."""
    if job.state in WAITING:
        return explain_reason(job.reason, job.qos if job.qos != job.account else "")
    if job.state == "OUT_OF_MEMORY":
        return "used more memory than it requested and was ended: request more with --mem"
    if job.state == "TIMEOUT":
        return f"reached its time limit of {format_duration(job.time_limit_s or 0)}: request more with --time"
    if job.state == "NODE_FAIL":
        return f"a node of it died ({', '.join(job.nodes) or 'unknown'}) and the job allows no requeue"
    if job.state == "PREEMPTED":
        return "was preempted by a job of a higher tier or QOS"
    if job.state == "BOOT_FAIL":
        return "a node could not be started for it"
    if job.state == "CANCELLED":
        return "was cancelled"
    if job.state in ("FAILED", "COMPLETING"):  # the code is known while its nodes are still cleaned up
        return explain_failure(job)
    return ""


def explain_reason(reason: str, qos: str = "") -> str:
    """Returns Slurm's reason in words; Slurm's own words where there is no explanation; "" for no reason. `qos`: the QOS
    that the job chose."""
    word = reason_word(reason)
    if word in ("", "None"):
        return ""
    return REASON_SENTENCES.get(word) or limit_sentence(word, qos) or word.replace("_", " ")


def pending_line(job: JobState) -> str:
    """Returns the line that a log shows while its job waits, as in "pending (Priority): waits behind jobs of
    higher priority"."""
    reason = reason_word(job.reason)
    if reason in ("", "None"):
        return "pending: waits for its turn"
    words = explain_reason(job.reason)
    return f"pending: {job.reason}" if words == reason.replace("_", " ") else f"pending ({reason}): {words}"

"""Controls single jobs as root (requeue, cancel, signal, notify) and reads how they ended, for health and scaling."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable

from headway.domain.machines.machine import Machine
from headway.errors import CommandFailed
from headway.slurm.scontrol import TIMEOUT_S, one_line, run_scontrol
from headway.transport.ssh import Remote

# End states that a user, an administrator or the job's own limits caused; not a fault.
CANCELLED_STATES = frozenset({"CANCELLED", "TIMEOUT", "DEADLINE"})
# Permanent refusals of a requeue: --no-requeue; an allocation without a batch script; a part of a heterogeneous job.
_NEVER_REQUEUED = ("presently disabled", "only batch jobs", "heterogeneous job")
_PENDING = "job is pending execution"  # the job was requeued already; also while it is still ending
_UNKNOWN_JOB = "invalid job id"
_JOB_STATE = re.compile(r"\bJobState=(\S+)")
_ARRAY_TASK = re.compile(r"\d+_\d+")
_EXIT_CODE = re.compile(r"\bExitCode=(\d+):(\d+)")  # exit code:signal
_LAUNCH_REFUSED = ("1", "0")  # exit code of a batch job that its node refused to launch
# An array task is logged as JobId=7_3(12), where 12 is the task's own id.
_LAUNCH_REFUSED_LOG = re.compile(r"non-startable batch JobId=(\d+)(?:_[^\s(:]*)?(?:\((\d+)\))?")


async def read_job_state(connections: Remote, head: Machine, job_id: int) -> str:
    """Returns the job's state in Slurm's word; "" when the controller no longer knows the job."""
    found = _JOB_STATE.search(await _show_job(connections, head, job_id))
    return found[1] if found else ""


async def failed_while_completing(connections: Remote, head: Machine, job_id: int) -> bool:
    """Returns whether a job that is completing has failed: its exit code is not 0."""
    shown = await _show_job(connections, head, job_id)
    code = _EXIT_CODE.search(shown)
    return "JobState=COMPLETING" in shown and code is not None and code[1] != "0"


async def read_accounted_states(connections: Remote, head: Machine, jobs: Iterable[int]) -> dict[int, str]:
    """Returns the jobs' states from accounting; {} when it does not answer.

    Accounting has a job's end state while the controller still reports COMPLETING."""
    argv = ["sacct", "-X", "-n", "-P", "-o", "JobIDRaw,State", "-j", ",".join(map(str, sorted(jobs)))]
    ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S, check=False)
    rows = (line.split("|") for line in ran.stdout.splitlines())
    return {int(row[0]): row[1].split(" ")[0] for row in rows if len(row) == 2 and row[0].isdigit()}


async def was_killed(connections: Remote, head: Machine, job_id: int, since: int) -> bool:
    """Returns whether a failed job was ended by signal 9 (itself, or one of its tasks), or was refused by its node
    at launch according to slurmctld's log from `since` (unix seconds) on."""
    found = _EXIT_CODE.search(await _show_job(connections, head, job_id))
    code = found.groups() if found else ()
    if code in {("0", "9"), ("137", "0")}:
        return True
    return code == _LAUNCH_REFUSED and await _launch_refused(connections, head, job_id, since)


async def _launch_refused(connections: Remote, head: Machine, job_id: int, since: int) -> bool:
    argv = ["journalctl", "--unit=slurmctld", "--no-pager", "--output=cat", f"--since=@{since}", "--grep=non-startable"]
    ran = await connections.remote(head, argv, check=False, timeout_s=TIMEOUT_S)
    return any(int(match[2] or match[1]) == job_id for match in _LAUNCH_REFUSED_LOG.finditer(ran.stdout))


async def start_requeued_job(connections: Remote, head: Machine, job_id: int, requeued_at: int) -> None:
    """Sets a requeued job's begin time to the second after its requeue, instead of Slurm's two minutes. `requeued_at`:
    its submit time, in unix seconds of the head's clock. Does nothing for a job that runs already.

    It must not begin in the second in which it ended: slurmd counts in whole seconds, and takes a job that begins on the
    same node in that second for the ended one ("already killed"), which Slurm then counts as failed."""
    with contextlib.suppress(CommandFailed):
        name = await _single_job_name(connections, head, job_id)
        # uts: unix seconds, so that the server needs neither the head's clock nor its time zone
        await run_scontrol(connections, head, "update", f"JobId={name}", f"StartTime=uts{requeued_at + 1}")


async def requeue_job(connections: Remote, head: Machine, job_id: int) -> None:
    """Requeues the job, a heterogeneous one as a whole; does nothing when it was requeued already."""
    shown = await _shown_name(connections, head, job_id)
    leader, is_part, _ = shown.partition("+")
    name = leader if is_part else shown if _ARRAY_TASK.fullmatch(shown) else str(job_id)
    try:
        await run_scontrol(connections, head, "requeue", name)
    except CommandFailed as error:
        if _PENDING not in error.stderr.lower():
            raise


def is_requeue_forbidden(error: CommandFailed) -> bool:
    """Returns whether the job can never be requeued, rather than not now."""
    return any(words in error.stderr.lower() for words in _NEVER_REQUEUED)


def is_unknown_job(error: CommandFailed) -> bool:
    """Returns whether the controller no longer knows the job."""
    return _UNKNOWN_JOB in error.stderr.lower()


async def cancel_job(connections: Remote, head: Machine, job_id: int) -> None:
    """Cancels this job, or this one task of an array. Raises CommandFailed."""
    argv = ["scancel", await _single_job_name(connections, head, job_id)]
    await connections.remote(head, argv, timeout_s=TIMEOUT_S)


async def signal_job(connections: Remote, head: Machine, job_id: int, name: str, *, batch_only: bool) -> None:
    """Sends a signal to the job's steps, or to its batch script only."""
    job = await _single_job_name(connections, head, job_id)
    argv = ["scancel", f"--signal={name}", *(["--batch"] if batch_only else []), job]
    await connections.remote(head, argv, timeout_s=TIMEOUT_S)


async def notify_job(connections: Remote, head: Machine, job_id: int, text: str) -> None:
    """Writes a line to the job's own output; does nothing when the job no longer accepts one."""
    with contextlib.suppress(CommandFailed):
        job = await _single_job_name(connections, head, job_id)
        await run_scontrol(connections, head, "notify", job, one_line(text))


async def read_script_and_command(connections: Remote, head: Machine, job_id: int) -> tuple[str, str]:
    """Returns (batch script, submit command line) of a job; "" for what is not known."""
    script = await run_scontrol(connections, head, "write", "batch_script", str(job_id), "-", check=False)
    argv = ["sacct", "-X", "-n", "-P", "-o", "SubmitLine", "-j", str(job_id)]
    line = await connections.remote(head, argv, timeout_s=TIMEOUT_S, check=False)
    return (script.stdout if script.code == 0 else "", line.stdout.partition("\n")[0] if line.code == 0 else "")


async def _single_job_name(connections: Remote, head: Machine, job_id: int) -> str:
    """Returns the name that means this job and no other. An array's last task has the array's own id, and commands
    take that id for the whole array, so a task is named ARRAY_TASK."""
    shown = await _shown_name(connections, head, job_id)
    return shown if _ARRAY_TASK.fullmatch(shown) else str(job_id)


async def _shown_name(connections: Remote, head: Machine, job_id: int) -> str:
    """Returns the id as squeue shows it (ARRAY_TASK, LEADER+OFFSET); "" when the controller no longer knows the
    job."""
    argv = ["squeue", "--all", "--noheader", f"--jobs={job_id}", "--states=all", "--format=%A %i"]
    ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S, check=False)
    if ran.code != 0 and _UNKNOWN_JOB not in ran.stderr.lower():  # any other error: the controller did not answer
        raise CommandFailed(ran.argv, ran.code, ran.stderr, where=head.name)
    return dict(line.split() for line in ran.stdout.splitlines()).get(str(job_id), "")


async def _show_job(connections: Remote, head: Machine, job_id: int) -> str:
    """Returns scontrol's line for this job alone, "" when unknown. For an array's id, scontrol shows every task."""
    ran = await run_scontrol(connections, head, "--oneliner", "show", "job", str(job_id), check=False)
    found = re.search(rf"^JobId={job_id}\b.*$", ran.stdout, re.MULTILINE)
    return found[0] if ran.code == 0 and found else ""


async def pending_jobs_qos(connections: Remote, head: Machine) -> list[tuple[str, str, str, str]]:
    """Returns the number, user, account and QOS of each pending job; of an array that of its waiting tasks together."""
    argv = ["squeue", "-a", "-h", "-t", "PENDING", "-o", "%A|%u|%a|%q"]
    ran = await connections.remote(head, argv, timeout_s=TIMEOUT_S)
    rows = (line.split("|") for line in ran.stdout.splitlines())
    return [(row[0], row[1], row[2], row[3]) for row in rows if len(row) == 4]


async def set_job_qos(connections: Remote, head: Machine, job: str, qos: str) -> None:
    """Gives a pending job another QOS. Does nothing if the job has ended."""
    await run_scontrol(connections, head, "update", f"JobId={job}", f"QOS={qos}", check=False)

"""Job arrays: states of their tasks, and the request that repeats only the failed ones. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from headway.domain.slurm.hostlist import compress_numbers
from headway.domain.slurm.job_states import RUNNING, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.domain.slurm.sbatch_options import parse_options, remove_options, script_options
from headway.schemas.jobs import ArrayOut
from headway.schemas.submission.submit_request import SubmitIn


def array_out(states: Mapping[str, str]) -> ArrayOut:
    """Returns the counts of an array's tasks. `states` has the state of each task by its number."""
    words = list(states.values())
    done = words.count("COMPLETED")
    running = sum(word in RUNNING for word in words)
    pending = sum(word in WAITING for word in words)
    cancelled = words.count("CANCELLED")
    return ArrayOut(
        total=len(words),
        done=done,
        running=running,
        pending=pending,
        cancelled=cancelled,
        failed=len(words) - done - running - pending - cancelled,
        failed_tasks=_tasks_not_in(states, {"COMPLETED", "CANCELLED", *RUNNING, *WAITING}),
    )


def known_array_out(tasks: Sequence[JobState]) -> ArrayOut:
    """Returns the counts of the tasks that Slurm's controller still has: it forgets a task some minutes after its end. A
    record for several waiting tasks counts as all of them."""
    counts: Counter[str] = Counter()
    for job in tasks:
        counts[job.state] += task_count(job.array_task)
    done, cancelled = counts["COMPLETED"], counts["CANCELLED"]
    running = sum(number for state, number in counts.items() if state in RUNNING)
    pending = sum(number for state, number in counts.items() if state in WAITING)
    total = counts.total()
    failed = total - done - cancelled - running - pending
    return ArrayOut(total=total, done=done, running=running, pending=pending, cancelled=cancelled, failed=failed)


def incomplete_tasks(states: Mapping[str, str]) -> str:
    """Returns the tasks that ended without success, failed or cancelled, as --array takes them: "3,7-9"."""
    return _tasks_not_in(states, {"COMPLETED", *RUNNING, *WAITING})


def _tasks_not_in(states: Mapping[str, str], words: Set[str]) -> str:
    return compress_numbers(int(task) for task, word in states.items() if word not in words)


def task_count(word: str) -> int:
    """Returns how many tasks "3,7-9%2" contains."""
    number = 0
    for part in word.partition("%")[0].strip("[]").split(","):
        bounds, _, step = part.partition(":")
        first, _, last = bounds.partition("-")
        if first.isdigit():
            number += (int(last or first) - int(first)) // int(step or 1) + 1
    return max(1, number)


def with_array(request: SubmitIn, tasks: str) -> SubmitIn:
    """Returns the request for these tasks only, with the same limit of tasks at once. The new --array flag
    overrides the script's #SBATCH line."""
    flags = (*script_options(request.script or ""), *parse_options(request.args))
    values = [flag.value for flag in flags if flag.name == "array"]
    _, percent, most = values[-1].partition("%") if values else ("", "", "")
    return request.model_copy(
        update={"args": [*remove_options(request.args, ("array",)), f"--array={tasks}{percent}{most}"]}
    )


def tasks_of(jobs: Sequence[JobState], array: int, task: str = "") -> list[JobState]:
    """Returns the tasks of an array among the jobs; with `task`, only that one. Without `task`, a record for
    several waiting tasks is returned unchanged."""
    mine = [job for job in jobs if job.array_job_id == array]
    if not task:
        return mine
    return [job for job in mine if job.array_task == task] or [
        replace(job, array_task=task)
        for job in mine
        if _stands_for(job.array_task, int(task)) and job.state == "PENDING"
    ]


def _stands_for(word: str, task: int) -> bool:
    """Returns whether "3,7-9%2" contains the number."""
    for part in word.partition("%")[0].strip("[]").split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and int(first) <= task <= int(last.partition(":")[0] or first):
            return True
    return False

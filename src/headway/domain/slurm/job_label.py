"""The number under which people know a job."""

from __future__ import annotations


def job_label(job_id: int, array_job_id: int, array_task: str) -> str:
    """Returns `104`, or `104_7` for a task of an array, `104_[8-99]` for tasks that wait."""
    if not array_job_id or not array_task:
        return str(job_id)
    return f"{array_job_id}_{array_task if array_task.isdigit() else f'[{array_task}]'}"

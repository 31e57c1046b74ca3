"""Commands that run on the head as a user (through `node/user_helper`): cancel, hold, release, requeue, read a script."""

from __future__ import annotations

from collections.abc import Sequence

CONTROL_VERBS = ("requeue", "hold", "release")


def scancel_argv(jobs: Sequence[str]) -> list[str]:
    """Returns the command that cancels "12", "12_3" or "12_[1-4]".

    It has --verbose, because scancel is silent about a job that it does not find."""
    return ["scancel", "--verbose", *jobs]


def control_argv(verb: str, job: str) -> list[str]:
    """Returns `scontrol VERB JOB`; `verb` is one of CONTROL_VERBS."""
    return ["scontrol", verb, job]


def batch_script_argv(job_id: int) -> list[str]:
    """Returns the command that prints the batch script that accounting has stored for a job."""
    return ["sacct", "--noheader", "--batch-script", "-j", str(job_id)]

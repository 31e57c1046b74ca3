"""Slurm's job states by kind. `squeue` shows some state flags in place of the base state."""

from __future__ import annotations

WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
# A job in these states has nodes and has not begun to end. A stopped or resizing job has the base state RUNNING, but
# `squeue --states=RUNNING` leaves out jobs with such a flag, so the flags are named too.
ALLOCATED = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "STOPPED", "RESIZING", "SIGNALING"})
ENDING = frozenset({"COMPLETING", "STAGE_OUT"})  # a job in these states still has its nodes
RUNNING = ALLOCATED | ENDING
FAILED = frozenset(
    {"FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED", "REVOKED"}
)
ENDED = FAILED | {"COMPLETED"}  # final states

JOB_KINDS = ("running", "waiting", "ended")  # in the order of lists


def kind_of(state: str) -> str:
    """Returns the kind of a job state, one of JOB_KINDS."""
    return "running" if state in RUNNING else "waiting" if state in WAITING else "ended"

"""The sacct command that prints the jobs of all users for a what-if."""

from __future__ import annotations

COLUMNS = (
    "JobID", "User", "Account", "Partition", "QOS", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw",
    "State", "ReqTRES", "AllocTRES", "ReqCPUS", "NNodes", "Constraints",
)  # fmt: skip


def trace_argv(since: str, until: str) -> list[str]:
    """Returns the command; its times are Unix seconds. `since` and `until` are sacct's own words for times."""
    options = ("-a", "-X", "-P", "-S", since, "-E", until, "-o", ",".join(COLUMNS))
    return ["env", "SLURM_TIME_FORMAT=%s", "sacct", *options]

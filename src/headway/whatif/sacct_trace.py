"""Reads `sacct -a -X -P`: one line of each job. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headway.domain.slurm.sacct_fields import parse_mebibytes, parse_time, parse_whole
from headway.slurm.accounting.sacct_trace import COLUMNS, trace_argv
from headway.whatif.trace import TraceJob

__all__ = ["COLUMNS", "is_sacct", "read_sacct", "trace_argv"]

_NEEDED = ("JobID", "User", "Submit", "ElapsedRaw")


def is_sacct(text: str) -> bool:
    """Returns whether the first line names sacct's columns."""
    names = text.partition("\n")[0].strip().split("|")
    return all(name in names for name in _NEEDED)


def read_sacct(text: str, now: float) -> tuple[list[TraceJob], Counter[str]]:
    """Returns the jobs, and why lines are left out -> their number. `now`: when accounting was read: jobs that run have no
    end yet."""
    lines = [line.rstrip("\r").split("|") for line in text.splitlines() if line.strip()]
    names, *rows = lines or [[]]
    found, left_out = [], Counter[str]()
    for row in rows:
        if len(row) < len(names):
            left_out["its line is incomplete"] += 1
            continue
        job = _job(dict(zip(names, row, strict=False)), now)
        if isinstance(job, str):
            left_out[job] += 1
        else:
            found.append(job)
    return found, left_out


def _job(row: Mapping[str, str], now: float) -> TraceJob | str:
    submit, start, end = (parse_time(row.get(name, "")) for name in ("Submit", "Start", "End"))
    if not submit or not row.get("User"):
        return "its line has no user or submission"
    tres, given = _tres(row.get("ReqTRES", "")), _tres(row.get("AllocTRES", ""))
    nodes = max(1, parse_whole(tres.get("node", "")) or parse_whole(row.get("NNodes", "")))
    state = row.get("State", "").split(" ")[0]
    limit_min, run_s = parse_whole(row.get("TimelimitRaw", "")), parse_whole(row.get("ElapsedRaw", ""))
    if not start and state != "PENDING" and not state.startswith("CANCELLED"):
        return f"it ended without a start ({state or 'no state'})"
    if state == "TIMEOUT" and limit_min:
        run_s = max(run_s, limit_min * 60) + 3600  # slurmctld ends it at its limit
    elif state == "RUNNING":
        run_s = max(run_s, limit_min * 60, int(now - start))
    elif not start:
        run_s = max(60, limit_min * 60)
    eligible = parse_time(row.get("Eligible", ""))
    return TraceJob(
        job_id=row["JobID"],
        user=row["User"],
        account=row.get("Account", ""),
        partition=row.get("Partition", "").split(",")[0],
        qos=row.get("QOS", ""),
        submit=submit,
        begin=eligible if eligible > submit + 1 else 0,
        start=start,
        end=end if start else 0,
        run_s=run_s,
        limit_min=limit_min,
        nodes=nodes,
        cpus=0
        if _is_default("cpu", tres, given)
        else -(-max(1, parse_whole(tres.get("cpu", "")) or parse_whole(row.get("ReqCPUS", ""))) // nodes),
        memory_mib=0 if _is_default("mem", tres, given) else -(-parse_mebibytes(tres.get("mem", "")) // nodes),
        gpus=-(-parse_whole(tres.get("gres/gpu", "")) // nodes),
        features=row.get("Constraints", ""),
        cancelled_at=end if not start and state.startswith("CANCELLED") else 0,
    )


def _tres(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.split(",") if "=" in part)


def _is_default(name: str, asked: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Returns whether a job left CPUs or memory to the defaults for a GPU: it was given something else than accounting has as
    its request."""
    return "gres/gpu" in asked and name in given and asked.get(name) != given[name]

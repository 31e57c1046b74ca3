"""Reads `sacct -a -X -P`: one line of each job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.domain.slurm.sacct_fields import parse_mebibytes, parse_time, parse_whole

MOST_JOBS = 10_000


@dataclass(frozen=True)
class AccountedJob:
    """A job of the site. Times in Unix seconds, `start` 0 if it never started; `limit_min`: 0 for none; `memory_mib` and
    `gpus` of all nodes together, 0 for none."""

    job_id: str
    user: str
    account: str
    partition: str
    submit: float
    start: float
    elapsed_s: int
    limit_min: int
    nodes: int
    cpus: int
    memory_mib: int
    gpus: int

    @property
    def kind(self) -> tuple[object, ...]:
        """What limits look at: jobs of one kind are alike to Slurm."""
        return (
            self.user, self.account, self.partition, self.limit_min, self.nodes, self.cpus, self.memory_mib, self.gpus,
        )  # fmt: skip

    @property
    def wait_s(self) -> float:
        """How long the job waited at the site."""
        return max(0.0, self.start - self.submit)


def read_jobs(text: str) -> tuple[list[AccountedJob], int]:
    """Returns the jobs in the order of their submission, the latest 10,000 at most, and the number of lines that are no
    job."""
    lines = [line.rstrip("\r").split("|") for line in text.splitlines() if line.strip()]
    names, *rows = lines or [[]]
    found, odd = [], 0
    for row in rows:
        job = _job(dict(zip(names, row, strict=False)))
        odd += job is None
        found += [job] if job is not None else []
    found.sort(key=lambda job: (job.submit, job.job_id))
    return found[-MOST_JOBS:], odd


def _job(row: Mapping[str, str]) -> AccountedJob | None:
    submit = parse_time(row.get("Submit", ""))
    if not submit or not row.get("User", ""):
        return None
    tres = dict(part.partition("=")[::2] for part in row.get("ReqTRES", "").split(",") if "=" in part)
    return AccountedJob(
        job_id=row.get("JobID", ""),
        user=row["User"],
        account=row.get("Account", ""),
        partition=row.get("Partition", "").split(",")[0],
        submit=submit,
        start=parse_time(row.get("Start", "")),
        elapsed_s=parse_whole(row.get("ElapsedRaw", "")),
        limit_min=parse_whole(row.get("TimelimitRaw", "")),
        nodes=max(1, parse_whole(tres.get("node", "")) or parse_whole(row.get("NNodes", ""))),
        cpus=max(1, parse_whole(tres.get("cpu", "")) or parse_whole(row.get("ReqCPUS", ""))),
        memory_mib=parse_mebibytes(tres.get("mem", "")),
        gpus=parse_whole(tres.get("gres/gpu", "")),
    )

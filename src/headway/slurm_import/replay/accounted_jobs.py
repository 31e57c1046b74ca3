"""Reads `sacct -a -X -P`: one line of each job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

MOST_JOBS = 10_000
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT]?)[nc]?$")
_UNITS = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2}


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
    submit = _time(row.get("Submit", ""))
    if not submit or not row.get("User", ""):
        return None
    tres = dict(part.partition("=")[::2] for part in row.get("ReqTRES", "").split(",") if "=" in part)
    return AccountedJob(
        job_id=row.get("JobID", ""),
        user=row["User"],
        account=row.get("Account", ""),
        partition=row.get("Partition", "").split(",")[0],
        submit=submit,
        start=_time(row.get("Start", "")),
        elapsed_s=_whole(row.get("ElapsedRaw", "")),
        limit_min=_whole(row.get("TimelimitRaw", "")),
        nodes=max(1, _whole(tres.get("node", "")) or _whole(row.get("NNodes", ""))),
        cpus=max(1, _whole(tres.get("cpu", "")) or _whole(row.get("ReqCPUS", ""))),
        memory_mib=_mebibytes(tres.get("mem", "")),
        gpus=_whole(tres.get("gres/gpu", "")),
    )


def _whole(text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text.strip()) else 0


def _time(text: str) -> float:
    """Returns Unix seconds, of a number or of a time without a zone, which is read as UTC; 0 for none."""
    if re.fullmatch(r"[0-9]{1,12}", text):
        return float(text)
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def _mebibytes(text: str) -> int:
    match = _NUMBER.match(text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else 0

"""Reads what a replay prints: its events, and slurmctld's own record of each job (jobcomp/filetxt). Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headway.domain.slurm.hostlist import expand
from headway.errors import CommandFailed, Refused
from headway.whatif.trace import TraceJob

_PAIR = re.compile(r"(\w+)=(\S*)")


@dataclass(frozen=True, slots=True)
class JobRun:
    """When and where a job ran. Times in Unix seconds."""

    job: TraceJob
    start: float
    end: float
    nodes: tuple[str, ...] = ()

    @property
    def wait_s(self) -> float:
        """Returns the time from its submission, or from its --begin, to its start."""
        return max(0.0, self.start - max(self.job.submit, self.job.begin))


@dataclass
class Outcome:
    """`never`: Slurm's reason -> jobs that could not start; `refused`: Slurm's error -> jobs it did not accept."""

    runs: list[JobRun] = field(default_factory=list)
    never: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, list[str]] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)


def real_runs(jobs: Iterable[TraceJob]) -> list[JobRun]:
    """Returns the runs that the trace tells of."""
    return [JobRun(job, job.start, job.end or job.start + job.run_s) for job in jobs if job.start]


def read_outcome(jobs: Mapping[str, TraceJob], lines: Iterable[str]) -> Outcome:
    """Returns the outcome of a replay. `jobs`: its own name of a job -> the job. Raises CommandFailed if the replay did not
    end by itself."""
    found = Outcome()
    done = False
    for line in lines:
        kind, _, rest = line.rstrip("\n").partition("\t")
        words = rest.split("\t")
        match kind:
            case "refused":
                found.refused.setdefault(words[1], []).append(jobs[words[0]].job_id)
            case "left":
                found.never.setdefault(words[2], []).append(jobs[words[0]].job_id)
            case "job":
                _add_run(found, jobs, dict(_PAIR.findall(rest)))
            case "done":
                done = True
            case "failed":
                raise Refused(
                    f"the replay failed: {rest}",
                    hint="try again while the machine is less busy, or headway image build --update",
                )
    if not done:
        raise CommandFailed(["slurmctld"], None, "the replay ended early", where="the container of the replay")
    return found


def _add_run(found: Outcome, jobs: Mapping[str, TraceJob], row: Mapping[str, str]) -> None:
    job = jobs.get(row.get("Name", ""))
    start, end = _time(row.get("StartTime", "")), _time(row.get("EndTime", ""))
    if job is None or not start or end is None or row.get("NodeList", "") in ("", "(null)"):
        return
    found.starts[job.job_id] += 1
    found.runs.append(JobRun(job, start, end, tuple(expand(row["NodeList"]))))


def _time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None

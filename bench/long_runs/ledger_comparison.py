"""Compares the runs that Headway's ledger and Slurm's accounting know.

Slurm's accounting has one record for a job and submit time. slurmctld writes its state every few seconds; when the head
loses its power, slurmctld may come back with a job that had not started yet, starts it again with the same submit time, and
slurmdbd writes the new run over the record of the former one. The ledger has read that record and keeps the run: the nodes
did work for it. Such a run is an overwritten one, no difference, if all of this is so: Slurm has another run of the same job
and submit time, which began later, and the head was without power between the two beginnings."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SACCT = ("sacct", "-X", "-D", "-n", "-P", "-u", "bench", "-S", "now-1days", "-o", "JobIDRaw,Submit,Start,End,AllocTRES")


@dataclass(frozen=True, order=True)
class RunRecord:
    """One run of a job. Times are unix seconds."""

    job: int
    submit: int
    start: int
    end: int
    gpus: int

    @property
    def facts(self) -> tuple[int, int, int, int]:
        """Returns what both sides must agree on."""
        return (self.job, self.start, self.end, self.gpus)


@dataclass(frozen=True)
class Comparison:
    """What differs. `overwritten`: runs of the ledger whose record Slurm has written over."""

    unequal: list[str]
    overwritten: list[str]


def slurm_runs(text: str) -> list[RunRecord]:
    """Returns the runs in the output of SACCT, those of less than a second left out. Times in it are unix seconds."""
    found = []
    for line in text.splitlines():
        raw, submit, start, end, allocated = line.split("|")
        gpus = re.search(r"gres/gpu=(\d+)", allocated)
        if start.isdigit() and end.isdigit() and int(start) < int(end):
            found.append(RunRecord(int(raw), int(submit), int(start), int(end), int(gpus[1]) if gpus else 0))
    return found


def ledger_runs(database: Path) -> list[RunRecord]:
    """Returns the ended runs in the server's database, those of less than a second left out. A run on several groups of
    nodes has one row for each."""
    query = (
        'SELECT job, submit, start, "end", sum(gpus) FROM runs WHERE "end" > start GROUP BY job, submit, start, "end"'
    )
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
        return [RunRecord(*map(int, row)) for row in db.execute(query)]


def compare(slurm: Iterable[RunRecord], ledger: Iterable[RunRecord], cuts: Iterable[float]) -> Comparison:
    """Returns what differs. `cuts`: when the head lost its power, in unix seconds."""
    slurm, ledger, cuts = list(slurm), list(ledger), list(cuts)
    in_slurm, in_ledger = Counter(run.facts for run in slurm), Counter(run.facts for run in ledger)
    only = [f"only in Slurm: {facts}" for facts in sorted((in_slurm - in_ledger).elements())]
    overwritten = []
    for run in sorted(run for run in ledger if run.facts not in in_slurm):
        later = [
            other for other in slurm if (other.job, other.submit) == (run.job, run.submit) and other.start > run.start
        ]
        if any(run.start <= cut <= other.start for cut in cuts for other in later):
            overwritten.append(f"{run.facts}")
        else:
            only.append(f"only in the ledger: {run.facts}")
    repeated = in_ledger - in_slurm
    only += [
        f"twice in the ledger: {facts}" for facts, count in repeated.items() if facts in in_slurm for _ in range(count)
    ]
    return Comparison(only, overwritten)

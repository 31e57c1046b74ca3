"""When a pending job would start if it asked for less."""

from __future__ import annotations

from headway.schemas.base import ResponseModel


class StartAlternativeOut(ResponseModel):
    """A smaller request, and its start by Slurm's own test of a new job. Without a start, `fault` says why."""

    words: str  # "half the nodes: 2"
    starts_at: int = 0  # unix seconds; 0: Slurm gives none
    nodes: str = ""
    partition: str = ""
    fault: str = ""


class StartAlternativesOut(ResponseModel):
    """The alternatives of one pending job; the first is the job as it is."""

    job: str
    alternatives: list[StartAlternativeOut]

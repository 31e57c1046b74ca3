"""The request that checks a submission without submitting it, and its answer."""

from __future__ import annotations

from pydantic import model_validator

from headway.lint.findings import Level
from headway.schemas.base import FaultOut, RequestModel, ResponseModel
from headway.schemas.submission.run_request import RunIn
from headway.schemas.submission.submit_request import SubmitIn


class CheckJobIn(RequestModel):
    """A submission to check without submitting it: a script, or a command of `headway run`."""

    submit: SubmitIn | None = None
    run: RunIn | None = None

    @model_validator(mode="after")
    def _one(self) -> CheckJobIn:
        if (self.submit is None) == (self.run is None):
            raise ValueError("needs either submit or run")
        return self


class LintEditOut(ResponseModel):
    """Replaces the lines `first` to `last` (from 1, both included) by `lines`; with `last` = `first` - 1 it inserts them
    before `first`."""

    first: int
    last: int
    lines: list[str]


class LintFindingOut(ResponseModel):
    """What lint found in the script. `edits` correct it where that is possible."""

    rule: str
    level: Level
    line: int  # from 1
    message: str
    why: str
    edits: list[LintEditOut] = []


class CheckJobOut(ResponseModel):
    """The faults of a submission (fault.path is script, args, flags, partition, nodes, gpus, cpus, memory, time or
    account). Without faults: when and where it would start, according to sbatch --test-only."""

    faults: list[FaultOut] = []
    starts_at: int = 0  # unix seconds; 0: not known
    waits: str = ""  # why no start time is known, if there is a reason
    nodes: str = ""
    partition: str = ""
    warning: str = ""  # why its PyTorch can't use the GPUs that it asks for
    script: str = ""  # for a command: the batch script made from it
    findings: list[LintFindingOut] = []  # of lint, for a script

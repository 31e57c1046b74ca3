"""The request that checks a submission without submitting it, and its answer."""

from __future__ import annotations

from pydantic import model_validator

from headway.schemas.base import FaultOut, RequestModel, ResponseModel
from headway.schemas.submission.batch_script_request import SubmitIn
from headway.schemas.submission.run_flags import RunIn


class CheckJobIn(RequestModel):
    """A submission to check without submitting it: a script, or a command of `headway run`."""

    submit: SubmitIn | None = None
    run: RunIn | None = None

    @model_validator(mode="after")
    def _one(self) -> CheckJobIn:
        if (self.submit is None) == (self.run is None):
            raise ValueError("needs either submit or run")
        return self


class CheckJobOut(ResponseModel):
    """The faults of a submission (fault.path is script, args, flags, partition, nodes, gpus, cpus, memory, time or
    account). Without faults: when and where it would start, according to sbatch --test-only."""

    faults: list[FaultOut] = []
    starts_at: int = 0  # unix seconds; 0: not known
    waits: str = ""  # why no start time is known, if there is a reason
    nodes: str = ""
    partition: str = ""
    script: str = ""  # for a command: the batch script made from it

"""Requests that submit a batch script, check or retry a submission, and their answers."""

from __future__ import annotations

from pydantic import Field, model_validator

from headway.schemas.base import FaultOut, RequestModel, ResponseModel
from headway.schemas.submission.run_flags import RunIn
from headway.schemas.submission.value_types import Environment, Flags, GitIn, Script, StageIn, Words


class SubmitIn(RequestModel):
    """A batch job. `args` are sbatch flags, `script` is the text of the script (null if `args` has --wrap)."""

    args: Flags = []
    script: Script | None = None
    script_name: str = "script.sbatch"
    script_args: Words = []
    chdir: str = ""
    user: str = ""  # admins only
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")  # digest of the bundle of files to work in
    env: dict[str, str] = {}  # set for the job; values with secret names are never stored
    git: GitIn | None = None
    stage_in: list[StageIn] = Field(default=[], max_length=50)  # datasets copied to each node before the script starts
    environment: Environment = ""  # software environment that the script uses


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


class RetryIn(RequestModel):
    """`env` supplies secrets again, because they were not stored. `task` limits the retry to one task of an array."""

    env: dict[str, str] = {}
    task: str = Field("", pattern=r"^\d{0,9}$")


class BundleOut(ResponseModel):
    """A bundle of a folder's files, addressed by the digest of its content."""

    digest: str
    present: bool  # true if the cluster already has it for this user


class SubmitOut(ResponseModel):
    """A submitted job."""

    job_id: int
    cluster: str
    user: str
    workdir: str
    message: str = ""  # what sbatch printed

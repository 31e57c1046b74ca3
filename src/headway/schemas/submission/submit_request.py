"""The request of `headway submit`, a batch script with flags of sbatch, and its answer. That of `headway run` is in
`run_request`."""

from __future__ import annotations

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.submission.job_field_types import Environment, Flags, GitIn, Script, SecretNames, StageIn, Words


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
    secrets: SecretNames = []  # names of secrets that the job finds in $HEADWAY_SECRETS_DIR


class SubmitOut(ResponseModel):
    """A submitted job."""

    job_id: int
    cluster: str
    user: str
    workdir: str
    message: str = ""  # what sbatch printed

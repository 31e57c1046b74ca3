"""Where a job comes from."""

from __future__ import annotations

from headway.schemas.base import ResponseModel
from headway.schemas.submission.job_field_types import GitIn


class LineageOut(ResponseModel):
    """Where a job comes from. Values of secrets are masked."""

    job_id: int
    cluster: str
    submitted_at: float
    person: str
    user: str
    kind: str  # submit, run, retry, rerun, resume, notebook or build (of an environment)
    parent: int = 0
    pipeline: str = ""
    step: str = ""
    sweep: str = ""  # id of the sweep whose trial it is, or whose trial it runs with other resources
    trial: int = 0
    script_name: str = ""
    script: str = ""
    script_args: list[str] = []
    sbatch_args: list[str] = []
    workdir: str = ""
    env: dict[str, str] = {}
    bundle: str = ""
    git: GitIn | None = None
    launcher: str = ""
    container_image: str = ""
    container_digest: str = ""
    datasets: list[dict[str, str]] = []
    environments: list[dict[str, str]] = []  # name, version, python, sha256 (of the lock); removed, removed_at
    checkpoint_dir: str = ""
    checkpoints: list[str] = []  # the checkpoints that are there now
    nodes: str = ""  # nodes that Slurm allocated
    gpus: int = 0
    partition: str = ""
    account: str = ""
    state: str = ""

"""The request of `headway run`: a command and its flags, which the command line, `Client.run`, pipelines and the submit
page share. That of `headway submit` is in `submit_request`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypedDict

from pydantic import Field

from headway.schemas.base import RequestModel, ResponseModel
from headway.schemas.submission.job_field_types import Environment, Flags, GitIn, SecretNames, StageIn, Words
from headway.schemas.submission.job_flag import JobFlag


class ScriptLine(ResponseModel):
    """One line of a batch script and its origin."""

    text: str
    origin: str = ""  # flag or default that the line comes from


class RunOut(ResponseModel):
    """The submitted job and its script. `job_id` is 0 for a dry run."""

    job_id: int
    cluster: str
    user: str
    workdir: str
    script: list[ScriptLine]
    script_args: list[str] = []
    message: str = ""
    warning: str = ""  # why its PyTorch can't use the GPUs that it asks for


Launcher = Literal["torchrun", "srun", "mpi", "ray", "python"]


class ContainerIn(RequestModel):
    """The container in which a job's command runs."""

    image: Annotated[str, JobFlag(("--container-image",), "IMAGE", form="image")] = Field(
        min_length=1, max_length=500, description="Container image, such as docker://ubuntu:24.04."
    )
    mounts: Annotated[list[str], JobFlag(("--container-mounts",), "SRC:DST[:ro],...")] = Field(
        default=[], max_length=1000, description="Paths mounted into the container."
    )
    workdir: Annotated[str, JobFlag(("--container-workdir",), "DIR")] = Field(
        default="", description="Working directory in the container."
    )
    name: Annotated[str, JobFlag(("--container-name",), "NAME")] = Field(
        default="", description="Name of a container that later steps of the job reuse."
    )
    mount_home: Annotated[bool | None, JobFlag(("--container-mount-home/--no-container-mount-home",))] = Field(
        default=None, description="Mount the home folder into the container (default: as the cluster is configured)."
    )


class JobFields(RequestModel):
    """The fields that `headway run`, `Client.run` and a pipeline's step have in common. `gpus` and `tasks` are per
    node; with 0 or null the launcher chooses."""

    launcher: Annotated[Launcher | None, JobFlag(("--launcher",), "LAUNCHER", form="launcher")] = Field(
        default=None, description="torchrun, srun, mpi, ray or python (default: by the command's first word)."
    )
    nodes: Annotated[int, JobFlag(("-N", "--nodes"), "NUMBER", form="nodes")] = Field(
        default=1, ge=1, le=100_000, description="Number of nodes."
    )
    gpus: Annotated[int, JobFlag(("--gpus",), "NUMBER", form="gpus")] = Field(
        default=0, ge=0, le=1024, description="Number of GPUs per node."
    )
    tasks: Annotated[int, JobFlag(("--tasks",), "NUMBER", form="tasks")] = Field(
        default=0, ge=0, le=4096, description="Number of tasks per node (default: one per GPU)."
    )
    time: Annotated[str, JobFlag(("--time",), "TIME", form="time")] = Field(
        default="", max_length=32, description="Time limit: minutes, HH:MM:SS or D-HH:MM:SS."
    )
    partition: Annotated[str, JobFlag(("-p", "--partition"), "PARTITION", form="partition")] = Field(
        default="", max_length=64, description="Partition."
    )
    team: Annotated[str, JobFlag(("--team",), "TEAM", form="account")] = Field(
        default="", max_length=64, description="Team (Slurm account) that is charged."
    )
    container: ContainerIn | None = None
    environment: Annotated[Environment, JobFlag(("--environment",), "NAME[@VERSION]", form="environment")] = Field(
        default="", description="Software environment; none = the node's own Python (default: the cluster's)."
    )
    secrets: Annotated[SecretNames, JobFlag(("--secret",), "NAME", form="secrets")] = Field(
        default=[], description="Secret that the job finds in the file $HEADWAY_SECRETS_DIR/NAME."
    )
    env: Annotated[dict[str, str], JobFlag(("--env",), "NAME[=VALUE]")] = Field(
        default={}, description="Environment variable of the job; without a value, the one of this shell."
    )
    sbatch: Annotated[Flags, JobFlag(("--sbatch",), "FLAG")] = Field(
        default=[], description="Further flag of sbatch, passed on unchanged."
    )


class RunIn(JobFields):
    """A job made from a command instead of a batch script. A new flag is a field here (or in JobFields, if pipelines
    have it too) and a keyword in RunOptions."""

    argv: Words = Field(min_length=1)
    name: Annotated[str, JobFlag(("--name",), "NAME", form="job_name")] = Field(
        default="", max_length=64, description="Job name (default: the name of the program's file)."
    )
    after: Annotated[list[str], JobFlag(("--after",), "TYPE:JOB")] = Field(
        default=[], max_length=1000, description="Start after a job: ok:123, notok:123, any:123 or start:123."
    )
    warn: Annotated[bool, JobFlag(("--warn",))] = Field(
        default=False, description="Send USR1 two minutes before the time limit or preemption."
    )
    stage_in: Annotated[list[StageIn], JobFlag(("--stage-in",), "NAME[@VERSION]")] = Field(
        default=[], max_length=50, description="Dataset to copy to $HEADWAY_SCRATCH/NAME on each node before the start."
    )
    user: Annotated[str, JobFlag(("--as",), "USER")] = Field(
        default="", description="Submit as this user (admins only)."
    )
    dry_run: Annotated[bool, JobFlag(("--dry-run",))] = Field(
        default=False, description="Print the batch script and the origin of each line; submit nothing."
    )
    bundle: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")
    git: GitIn | None = None


class RunOptions(TypedDict, total=False):
    """The keywords of `Client.run`: the fields of RunIn except those that `run` fills itself (a test compares the two)."""

    launcher: Launcher | None
    nodes: int
    gpus: int
    tasks: int
    name: str
    time: str
    partition: str
    team: str
    after: Sequence[str]
    warn: bool
    container: ContainerIn | None
    environment: str
    secrets: Sequence[str]
    env: Mapping[str, str]
    sbatch: Sequence[str]
    stage_in: Sequence[str]
    user: str

"""The file with the gates that a version of a model must pass. Reports every fault at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from headway.domain.access.credential_redaction import mask_environment
from headway.errors import Fault, InvalidSpec
from headway.jobs.pipelines.pipeline_file import StepFields, StrictModel, command_words
from headway.schemas.submission.job_field_types import GitIn
from headway.schemas.submission.run_request import RunIn
from headway.validation.error_paths import MOST_FAULTS, pydantic_faults

MOST_GATES = 50
MOST_JOBS = 10
RERUN = "rerun"  # name of the job that repeats the source job
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$"
_FILE = "the gates file"

Name = Annotated[str, Field(pattern=_NAME)]
Metric = Annotated[str, Field(min_length=1, max_length=250)]
Limit = Annotated[float, Field(allow_inf_nan=False)]
Approver = Literal["lead", "operator", "admin"]


class GateJob(StepFields):
    """A job that evaluates the model. Its fields are those of `headway run`."""

    run: Annotated[list[str], BeforeValidator(command_words)] = Field(min_length=1)


class Gate(StrictModel):
    """One gate, of one kind.

    `metric`: a value of the version's run, or of `job`, that is at least `min` and at most `max`. `rerun`: a metric that differs
    at most by `tolerance` (a share of its value) when the source job runs again. `approval`: a person with this role has
    approved the version. `max_usd`: the most that the source job and the gates' jobs have cost."""

    metric: Metric | None = None
    job: Name | None = None
    min: Limit | None = None
    max: Limit | None = None
    rerun: Metric | None = None
    tolerance: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    approval: Approver | None = None
    max_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Gate:
        kinds = (self.metric, self.rerun, self.approval, self.max_usd)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("give one of metric, rerun, approval and max_usd")
        if self.metric is None and not (self.job is None and self.min is None and self.max is None):
            raise ValueError("job, min and max belong to metric")
        if self.metric is not None and self.min is None and self.max is None:
            raise ValueError("give min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min must not be above max")
        if (self.rerun is None) != (self.tolerance is None):
            raise ValueError("give rerun together with tolerance")
        return self

    @property
    def job_name(self) -> str:
        """The name of the job whose metric the gate reads; "" if it needs none."""
        return RERUN if self.rerun is not None else self.job or ""


class Gates(StrictModel):
    """A gates file."""

    jobs: dict[Name, GateJob] = Field(default={}, max_length=MOST_JOBS)
    gates: dict[Name, Gate] = Field(default={}, max_length=MOST_GATES)

    def job_names(self) -> list[str]:
        """Returns the names of all jobs that the gates need."""
        return list(dict.fromkeys(gate.job_name for gate in self.gates.values() if gate.job_name))


def read_gates(document: Mapping[str, Any]) -> Gates:
    """Returns the gates of a document. Raises InvalidSpec with every fault."""
    try:
        gates = Gates.model_validate(dict(document))
    except ValidationError as error:
        raise InvalidSpec([fault for _, fault in islice(pydantic_faults(error, Gates), MOST_FAULTS)], _FILE) from None
    if faults := list(islice(_faults(gates), MOST_FAULTS)):
        raise InvalidSpec(faults, _FILE)
    return gates


def with_required(own: Gates, required: Gates) -> Gates:
    """Returns the gates of a promotion together with those that its alias requires. Raises InvalidSpec for names that both
    have, because a promotion can't replace a required gate or job, and if they are too many together."""
    faults = [
        Fault(f"{kind}.{name}", "is the name of one that the alias requires", "give it another name")
        for kind, names in (
            ("gates", own.gates.keys() & required.gates.keys()),
            ("jobs", own.jobs.keys() & required.jobs.keys()),
        )
        for name in sorted(names)
    ]
    for kind, number, most in (
        ("gates", len(own.gates) + len(required.gates), MOST_GATES),
        ("jobs", len(own.jobs) + len(required.jobs), MOST_JOBS),
    ):
        if number > most:
            faults.append(
                Fault(kind, f"are {number} together with those that the alias requires", f"{most} are the most")
            )
    if faults:
        raise InvalidSpec(faults, _FILE)
    return Gates(jobs={**required.jobs, **own.jobs}, gates={**required.gates, **own.gates})


def _faults(gates: Gates) -> Iterator[Fault]:
    for name, gate in gates.gates.items():
        if gate.job is not None and gate.job not in gates.jobs:
            has = ", ".join(gates.jobs) or "none"
            yield Fault(f"gates.{name}.job", f"unknown job {gate.job}", f"jobs: {has}")
    used = set(gates.job_names())
    for name, job in gates.jobs.items():
        if name == RERUN:
            yield Fault(f"jobs.{name}", "is the name of the source job's rerun", "give the job another name")
        elif name not in used:
            yield Fault(f"jobs.{name}", "no gate reads a metric of this job", f"add a gate with job: {name}")
        masked = mask_environment(job.env)
        for variable in (one for one in job.env if masked[one] != job.env[one]):
            yield Fault(
                f"jobs.{name}.env.{variable}",
                "looks like a secret; gates are stored, and secret values are not",
                f"headway secret set {variable.lower()}, and secrets: [{variable.lower()}] in the file",
            )


def gate_job_run(
    job: GateJob, name: str, *, model: str, version: int, team: str, bundle: str, git: GitIn | None
) -> RunIn:
    """Returns the run of an evaluation. It finds the model in $HEADWAY_MODEL_URI, and is charged to the model's team, whose
    models it can read."""
    env = {
        **job.env,
        "HEADWAY_MODEL": model,
        "HEADWAY_MODEL_VERSION": str(version),
        "HEADWAY_MODEL_URI": f"models:/{model}/{version}",
    }
    return RunIn.model_validate(
        {**job.model_dump(exclude={"run"}), "argv": job.run, "name": f"gate-{name}", "env": env, "team": team,
         "bundle": bundle, "git": git}
    )  # fmt: skip

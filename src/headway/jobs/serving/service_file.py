"""The service file: the command of a replica, how many there are, and how their health is checked. Reports every fault at once.
Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from headway.domain.access.credential_redaction import mask_environment
from headway.errors import Fault, InvalidSpec
from headway.jobs.pipelines.cron import parse_cron
from headway.jobs.pipelines.pipeline_file import StepFields, StrictModel, command_words
from headway.schemas.submission.job_field_types import GitIn
from headway.schemas.submission.run_request import RunIn
from headway.validation.error_paths import MOST_FAULTS, pydantic_faults

MAX_REPLICAS = 1000
_NAME = r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"
_ID = r"v-[0-9a-f]{8}"  # of a service, see store/jobs/services.py
_PATH = r"^/[A-Za-z0-9._~/-]{0,200}$"
_FILE = "the service file"
_PORT = "{port}"


def _cron(text: str) -> str:
    parse_cron(text)
    return text


class ScheduledReplicas(StrictModel):
    """A window: for `hours` from each time of `cron` (UTC) on, `min` and `max` replace those of `replicas`."""

    cron: Annotated[str, Field(max_length=200), AfterValidator(_cron)]
    hours: float = Field(gt=0, le=24 * 31)
    min: int | None = Field(default=None, ge=0, le=MAX_REPLICAS)
    max: int | None = Field(default=None, ge=1, le=MAX_REPLICAS)

    @model_validator(mode="after")
    def _has_limit(self) -> ScheduledReplicas:
        if self.min is None and self.max is None:
            raise ValueError("needs min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min must not be above max")
        return self


class Replicas(StrictModel):
    """How many replicas run: at least `min`; more, up to `max`, while more than `requests` requests for each of them run or
    wait, or 95 % of the answers take longer than `p95_ms`. `standby`: healthy replicas beyond these that get no requests until
    another one is lost."""

    min: int = Field(default=1, ge=0, le=MAX_REPLICAS)
    max: int = Field(default=1, ge=1, le=MAX_REPLICAS)
    requests: int = Field(default=8, ge=1, le=100_000)
    p95_ms: int | None = Field(default=None, ge=1, le=3_600_000)
    idle_s: int = Field(default=300, ge=10, le=86_400)
    standby: int = Field(default=0, ge=0, le=100)
    schedule: list[ScheduledReplicas] = Field(default=[], max_length=50)

    @model_validator(mode="after")
    def _ordered(self) -> Replicas:
        if self.min > self.max:
            raise ValueError("min must not be above max")
        return self


def _replicas(value: object) -> object:
    """Returns the long form of `replicas: 3`."""
    return {"min": value, "max": value} if isinstance(value, int) and not isinstance(value, bool) else value


class Service(StepFields):
    """A service file. Its fields for resources are those of `headway run`, for each replica."""

    name: str = Field(pattern=_NAME)
    run: Annotated[list[str], BeforeValidator(command_words)] = Field(min_length=1)
    replicas: Annotated[Replicas, BeforeValidator(_replicas)] = Replicas()
    health: str = Field(default="/health", pattern=_PATH)
    start_s: int = Field(default=600, ge=5, le=86_400)
    drain_s: int = Field(default=300, ge=1, le=86_400)
    hold_s: int = Field(default=60, ge=0, le=3600)


def read_service(document: Mapping[str, Any]) -> Service:
    """Returns the service of a document. Raises InvalidSpec with every fault."""
    try:
        service = Service.model_validate(dict(document))
    except ValidationError as error:
        raise InvalidSpec([fault for _, fault in islice(pydantic_faults(error, Service), MOST_FAULTS)], _FILE) from None
    if faults := list(_faults(service)):
        raise InvalidSpec(faults, _FILE)
    return service


def _faults(service: Service) -> Iterator[Fault]:
    if re.fullmatch(_ID, service.name):
        yield Fault("name", "has the form of a service's id", "choose a name that is not v- and 8 hexadecimal digits")
    masked = mask_environment(service.env)
    for name in (name for name in service.env if masked[name] != service.env[name]):
        yield Fault(
            f"env.{name}",
            "looks like a secret; a service is stored, and secret values are not",
            f"headway secret set {name.lower()}, and secrets: [{name.lower()}] in the file",
        )


# Sent to a replica before its end. Servers ignore it. With it, Slurm sends no SIGTERM to a job that it preempts,
# and Headway gives the job time before it takes its node away.
_WARNING = "URG"


def warned_s(service: Service) -> int:
    """Returns how many seconds before its end a replica is to be replaced."""
    return min(service.start_s + service.drain_s, 65_535)  # the most that sbatch takes


_OF_SERVICE = {"name", "run", "replicas", "health", "start_s", "drain_s", "hold_s"}


def replica_run(
    service: Service, number: int, *, path: str, port: int, bundle: str = "", git: GitIn | None = None
) -> RunIn:
    """Returns the run of a replica. Its command has {port} replaced; its environment has the port and the service's path."""
    env = {
        **service.env,
        "HEADWAY_SERVE_PORT": str(port),
        "HEADWAY_SERVE_PATH": path,
        "HEADWAY_SERVE_REPLICA": str(number),
    }
    run = RunIn.model_validate(
        {
            **service.model_dump(exclude=_OF_SERVICE),  # the other fields have the names of a run's
            "launcher": service.launcher or "python",
            "argv": [word.replace(_PORT, str(port)) for word in service.run],
            "name": f"{service.name}-{number}",
            "env": env,
            "bundle": bundle,
            "git": git,
        }
    )
    # First, so that a signal of the file is the one that counts.
    run.sbatch.insert(0, f"--signal={_WARNING}@{warned_s(service)}")
    return run

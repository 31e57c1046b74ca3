"""The sweep file: the command of a trial, its parameters, the metric, and when trials stop early. Reports every fault at once.
Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from headway.domain.access.credential_redaction import mask_environment
from headway.errors import Fault, InvalidSpec
from headway.jobs.pipelines.pipeline_file import StepFields, StrictModel, command_words
from headway.validation.error_paths import MOST_FAULTS, pydantic_faults

MAX_TRIALS = 10_000
MAX_PARAMETERS = 100
MAX_RUNGS = 20
DEFAULT_PARALLEL = 10
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$"
_PARAMETER = r"^[A-Za-z_][A-Za-z0-9_.-]{0,63}$"
_FILE = "the sweep file"

Value = bool | int | float | Annotated[str, Field(max_length=1000)]
Method = Literal["grid", "random", "manual"]


def _parameter(value: object) -> object:
    """Returns the long form of `lr: [0.1, 0.01]` and of `epochs: 3`."""
    if isinstance(value, list):
        return {"values": value}
    return value if isinstance(value, dict) else {"value": value}


class Parameter(StrictModel):
    """The values of one parameter: one value, a list, or a range. A range of two whole numbers has whole numbers."""

    value: Value | None = None
    values: list[Value] | None = Field(default=None, min_length=1, max_length=MAX_TRIALS)
    min: int | float | None = None
    max: int | float | None = None
    log: bool = False
    step: int | float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_form(self) -> Parameter:
        given = [self.value is not None, self.values is not None, self.min is not None or self.max is not None]
        if sum(given) != 1:
            raise ValueError("give one of value, values, or min and max")
        if not given[2]:
            if self.log or self.step is not None:
                raise ValueError("log and step belong to min and max")
            return self
        if self.min is None or self.max is None:
            raise ValueError("give both min and max")
        if not (math.isfinite(self.min) and math.isfinite(self.max) and self.min < self.max):
            raise ValueError("min must be less than max")
        if self.log and self.min <= 0:
            raise ValueError("log needs a min above 0")
        if self.log and self.step is not None:
            raise ValueError("give log or step, not both")
        return self

    def listed(self) -> list[Value] | None:
        """Returns all values; None for a range that has no `step`, or more steps than a sweep has trials."""
        if self.values is not None:
            return self.values
        if self.min is None or self.max is None:
            return [self.value] if self.value is not None else []
        if self.step is None or (self.max - self.min) / self.step > MAX_TRIALS:
            return None
        count = math.floor((self.max - self.min) / self.step + 1e-9) + 1
        return [_stepped(self.min, self.step, number) for number in range(count)]


def _stepped(first: float, step: float, number: int) -> int | float:
    """Returns `first + number * step` without the noise of binary fractions."""
    value = first + number * step
    return value if isinstance(value, int) else float(f"{value:.12g}")


class MetricGoal(StrictModel):
    """The reported metric that trials are compared by."""

    name: str = Field(min_length=1, max_length=128)
    goal: Literal["minimize", "maximize"] = "minimize"


class EarlyStopping(StrictModel):
    """Asynchronous successive halving (ASHA): at each rung, a trial goes on only if it is among the best 1/eta of those that
    have reached it. Rungs are the steps min_step, min_step * eta, min_step * eta^2, ... below max_step."""

    type: Literal["asha"] = "asha"
    min_step: int = Field(ge=1, le=10**12)
    max_step: int | None = Field(default=None, ge=1, le=10**12)
    eta: int = Field(default=3, ge=2, le=100)

    def rungs(self) -> list[int]:
        """Returns the steps at which trials are compared, lowest first."""
        steps = (self.min_step * self.eta**number for number in range(MAX_RUNGS))
        return [step for step in steps if self.max_step is None or step < self.max_step]


class Sweep(StepFields):
    """A sweep file. Its fields for resources are those of `headway run`, for each trial."""

    name: str = Field(pattern=_NAME)
    run: Annotated[list[str], BeforeValidator(command_words)] = Field(min_length=1)
    method: Method = "random"
    metric: MetricGoal
    parameters: dict[Annotated[str, Field(pattern=_PARAMETER)], Annotated[Parameter, BeforeValidator(_parameter)]] = (
        Field(min_length=1, max_length=MAX_PARAMETERS)
    )
    trials: int | None = Field(default=None, ge=1, le=MAX_TRIALS)
    parallel: int = Field(default=DEFAULT_PARALLEL, ge=1, le=1000)
    seed: int = Field(default=0, ge=0, lt=2**63)
    early_stopping: EarlyStopping | None = None
    max_cost: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    def grid_size(self) -> int:
        """Returns the number of combinations of a grid. Ranges without steps count as one value."""
        return math.prod(len(parameter.listed() or [0]) for parameter in self.parameters.values())

    def trial_count(self) -> int:
        """Returns how many trials the sweep has in all."""
        if self.method == "grid":
            return min(self.trials or MAX_TRIALS, self.grid_size())
        return self.trials or MAX_TRIALS


def read_sweep(document: Mapping[str, Any]) -> Sweep:
    """Returns the sweep of a document. Raises InvalidSpec with every fault."""
    try:
        sweep = Sweep.model_validate(dict(document))
    except ValidationError as error:
        raise InvalidSpec([fault for _, fault in islice(pydantic_faults(error, Sweep), MOST_FAULTS)], _FILE) from None
    if faults := list(_faults(sweep)):
        raise InvalidSpec(faults, _FILE)
    return sweep


def _faults(sweep: Sweep) -> Iterator[Fault]:
    if sweep.method == "grid":
        for name, parameter in sweep.parameters.items():
            if parameter.listed() is None:
                yield Fault(
                    f"parameters.{name}",
                    "a grid needs values, or min, max and step",
                    f"at most {MAX_TRIALS:,} values; method: random takes any range",
                )
        if sweep.trials is None and sweep.grid_size() > MAX_TRIALS:
            yield Fault("trials", f"the grid has {sweep.grid_size():,} trials; the limit is {MAX_TRIALS:,}")
    elif sweep.trials is None and sweep.method != "manual":
        yield Fault("trials", f"method: {sweep.method} needs a number of trials", "for example trials: 20")
    stopping = sweep.early_stopping
    if stopping and stopping.max_step is not None and stopping.max_step <= stopping.min_step:
        yield Fault("early_stopping.max_step", "must be above min_step", "leave it out if trainings differ in length")
    masked = mask_environment(sweep.env)
    for name in (name for name in sweep.env if masked[name] != sweep.env[name]):
        yield Fault(
            f"env.{name}",
            "looks like a secret; a sweep is stored, and secret values are not",
            f"headway secret set {name.lower()}, and secrets: [{name.lower()}] in the file",
        )

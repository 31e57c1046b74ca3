"""The pipeline file: steps, what each needs, and which resources each requests. Reports every fault at once. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from headway.domain.slurm.sbatch_options import parse_options
from headway.errors import Fault, InvalidSpec
from headway.jobs.pipelines.cron import parse_cron
from headway.jobs.pipelines.step_outputs import (
    OUTPUT_NAME,
    FolderPath,
    StepOutput,
    condition_references,
    output_variable,
    parse_condition,
    template_references,
)
from headway.schemas.storage.datasets import DatasetName
from headway.schemas.submission.run_request import JobFields
from headway.validation.error_paths import MOST_FAULTS, pydantic_faults

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$"
# Fields of a step that the job of `headway run` does not have
STEP_ONLY = frozenset({"run", "needs", "when", "outputs", "inputs"})
MAX_STEPS = 200
MAX_VALUES = 300_000
MAX_DEFAULTS_BYTES = 32 * 1024  # characters
_SPLIT = f"{MAX_VALUES:,} are the most: make several pipelines of it"
_NAMED = 10  # existing steps that a message about an unknown step lists


def command_words(value: object) -> object:
    """Returns the words of a command that is given as a text (`torchrun train.py --name "a b"`) or as a list. No
    shell is involved."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ValueError(f"can't be split into words: {str(error).lower()}") from None


def _condition(text: str) -> str:
    parse_condition(text)
    return text


class StrictModel(BaseModel):
    """A model that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


class StepFields(JobFields):
    """What a step requests, with the fields of `headway run`; under `defaults`, for every step that does not set
    them."""

    time: Annotated[str, BeforeValidator(lambda v: str(v) if isinstance(v, int) else v)] = Field(
        default="", max_length=32
    )


class PipelineStep(StepFields):
    """One step: a command, and the steps that must succeed first."""

    run: Annotated[list[str], BeforeValidator(command_words)] = Field(min_length=1)
    needs: list[str] = Field(default=[], max_length=MAX_STEPS)
    when: Annotated[str, Field(max_length=1000), AfterValidator(_condition)] | None = None
    outputs: dict[Annotated[str, Field(pattern=f"^{OUTPUT_NAME}$")], StepOutput] = Field(default={}, max_length=50)
    # The files that the command reads; the step is cached if they are given.
    inputs: list[FolderPath] | None = Field(default=None, max_length=200)


class PipelineTrigger(StrictModel):
    """An event that starts a scheduled pipeline: a new version of a dataset."""

    dataset: DatasetName


def _schedule(text: str) -> str:
    parse_cron(text)
    return text


class Pipeline(StrictModel):
    """A pipeline file. `schedule` (cron, UTC) and `on` start it again and again, if it is scheduled."""

    name: str = Field(pattern=_NAME)
    schedule: Annotated[str, Field(max_length=200), AfterValidator(_schedule)] | None = None
    on: PipelineTrigger | None = None
    defaults: StepFields = StepFields()
    steps: dict[Annotated[str, Field(pattern=_NAME)], PipelineStep] = Field(min_length=1, max_length=MAX_STEPS)

    def steps_in_order(self) -> list[str]:
        """Returns each step after the steps it needs, otherwise in the order of the file."""
        found: list[str] = []
        left = list(self.steps)
        while left:
            ready = [name for name in left if all(need in found for need in self.steps[name].needs)]
            found.append(ready[0])
            left.remove(ready[0])
        return found

    @property
    def passes_outputs(self) -> bool:
        """Whether a step has outputs, a condition or a cache. Otherwise Slurm's dependencies are all that connects steps."""
        return any(step.outputs or step.when or step.inputs is not None for step in self.steps.values())

    def steps_after(self, names: set[str]) -> set[str]:
        """Returns these steps and all that need them, directly or indirectly."""
        found = set(names)
        for name in self.steps_in_order():
            if found.intersection(self.steps[name].needs):
                found.add(name)
        return found


def stored_pipeline(document: Mapping[str, Any]) -> Pipeline:
    """Returns the pipeline of a stored document. It was checked when it was stored; rules that are newer do not apply to it."""
    try:
        return Pipeline.model_validate(document)
    except ValidationError as error:
        faults = [fault for _, fault in islice(pydantic_faults(error, Pipeline), MOST_FAULTS)]
        raise InvalidSpec(faults, "the stored pipeline") from None


def read_pipeline(document: Mapping[str, Any]) -> Pipeline:
    """Returns the pipeline of a document. Raises InvalidSpec with every fault."""
    if large := _too_large(document):
        raise InvalidSpec([large], "the pipeline file")
    merged = _with_defaults(document)
    if _values(merged) > MAX_VALUES:
        raise InvalidSpec([Fault("steps", "contain too many values", _SPLIT)], "the pipeline file")
    faults: list[Fault] = []
    pipeline = None
    try:
        pipeline = Pipeline.model_validate(merged)
    except ValidationError as error:
        faults += [fault for _, fault in islice(pydantic_faults(error, Pipeline), MOST_FAULTS)]
    faults += islice(_graph_faults(document), MOST_FAULTS)
    if pipeline is not None:
        faults += islice(_output_faults(pipeline), MOST_FAULTS)
    if faults or pipeline is None:
        raise InvalidSpec(faults, "the pipeline file")
    return pipeline


def _too_large(document: Mapping[str, Any]) -> Fault | None:
    """Returns a fault for a file that is too large to be checked further: the faults of so many steps, and a copy
    of the defaults for each step, would take too much memory."""
    defaults, steps = document.get("defaults"), document.get("steps")
    if isinstance(steps, dict) and len(steps) > MAX_STEPS:
        return Fault(
            "steps", f"the file has {len(steps)} steps; the limit is {MAX_STEPS}", "split it into several pipelines"
        )
    if _values(document) > MAX_VALUES:
        return Fault("", "the file contains too many values", _SPLIT)
    if len(repr(defaults)) > MAX_DEFAULTS_BYTES:
        words = f"is longer than {MAX_DEFAULTS_BYTES // 1024} KiB"
        return Fault("defaults", words, "move long values into a file that the steps read")
    return None


def _values(document: Mapping[str, Any]) -> int:
    """Returns how many values the document has at any depth; stops counting above MAX_VALUES."""
    left: list[Any] = [document]
    count = 0
    while left and count <= MAX_VALUES:
        value = left.pop()
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        count += len(inner)
        left += inner
    return count


def _with_defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    defaults, steps = document.get("defaults"), document.get("steps")
    if not isinstance(defaults, dict) or not isinstance(steps, dict):
        return dict(document)
    given = defaults.get("env")
    env: dict[Any, Any] = given if isinstance(given, dict) else {}

    def one(step: Any) -> Any:
        if not isinstance(step, dict):
            return step
        known = {key: value for key, value in defaults.items() if key in StepFields.model_fields}
        own_env = step.get("env")
        both = {**env, **own_env} if isinstance(own_env, dict) else own_env if "env" in step else env
        return {**known, **step, "env": both}

    return {**document, "steps": {name: one(step) for name, step in steps.items()}}


def _graph_faults(document: Mapping[str, Any]) -> Iterator[Fault]:
    """Yields faults for needs that name no step, and for steps that wait for each other."""
    steps = document.get("steps")
    if not isinstance(steps, dict):
        return
    needs = {
        name: [need for need in step_needs if isinstance(need, str)]
        for name, step in steps.items()
        if isinstance(step, dict)
        and isinstance(step_needs := step.get("needs", []), list)
        and len(step_needs) <= MAX_STEPS
    }
    there = ", ".join([*map(_shown, islice(steps, _NAMED)), *(["..."] if len(steps) > _NAMED else [])])
    for name, step_needs in needs.items():
        for need in step_needs:
            if need not in steps:
                yield Fault(f"steps.{_shown(name)}.needs", f"unknown step {need[:60]!r}", f"steps: {there}")
    left = {name: [need for need in step_needs if need in needs] for name, step_needs in needs.items()}
    while ready := [name for name, step_needs in left.items() if not any(need in left for need in step_needs)]:
        for name in ready:
            del left[name]
    if left:
        yield Fault("steps", f"{', '.join(map(_shown, left))} depend on each other in a cycle, so no step could start")


def _output_faults(pipeline: Pipeline) -> Iterator[Fault]:
    """Yields faults for outputs that a step reads and has not declared as needed, and for steps that can't have outputs."""
    for name, step in pipeline.steps.items():
        place = f"steps.{name}"
        condition = condition_references(parse_condition(step.when)) if step.when else []
        in_command = [found for found in template_references(step.run) if found[0] in pipeline.steps]
        for field, references in (("when", condition), ("run", in_command)):
            for other, output in dict.fromkeys(references):
                yield from _reference_faults(pipeline, name, f"{place}.{field}", other, output)
        if step.inputs is not None and not step.outputs:
            yield Fault(
                f"{place}.inputs", "a step without outputs can't be cached", "declare outputs, or remove inputs"
            )
        if any(option.name == "array" for option in parse_options(step.sbatch)):
            if step.outputs or step.inputs is not None:
                yield Fault(
                    f"{place}.outputs", "an array can't have outputs", "write them in a step that needs this one"
                )
            if step.when:
                yield Fault(f"{place}.when", "an array can't have a condition", "put it on a step that this one needs")
        needed = [
            (need, output) for need in step.needs if need in pipeline.steps for output in pipeline.steps[need].outputs
        ]
        seen: dict[str, str] = {}
        for need, output in needed:
            variable = output_variable(need, output)
            if variable in seen:
                both = f"{seen[variable]} and {need}.{output}"
                yield Fault(f"{place}.needs", f"{both} have the same variable {variable}", "rename one of them")
            seen[variable] = f"{need}.{output}"


def _reference_faults(pipeline: Pipeline, name: str, place: str, other: str, output: str) -> Iterator[Fault]:
    """Yields a fault if step `name` can't read this output of step `other`."""
    if other not in pipeline.steps[name].needs or other not in pipeline.steps:
        yield Fault(place, f"{other}.{output} is of a step that {name} does not need", f"add {other} to needs")
        return
    declared = pipeline.steps[other].outputs
    if output not in declared:
        has = f"it has {', '.join(islice(declared, _NAMED))}" if declared else f"add it to steps.{other}.outputs"
        yield Fault(place, f"step {other} has no output {output}", has)
    elif place.endswith(".when") and declared[output].metric is None:
        yield Fault(
            place, f"{other}.{output} is not a metric, so it can't be compared", "compare an output with metric:"
        )


def _shown(name: object) -> str:
    return re.sub(r"[^ -~]", "?", str(name))[:60]

"""Outputs that a step declares, and conditions on those of earlier steps: their fields in the pipeline file. Pure.

The program that evaluates them in the step's job is `node/pipeline_step`."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from headway.schemas.storage.datasets import DatasetName
from headway.validation.field_types import value_error

OUTPUT_NAME = r"[A-Za-z][A-Za-z0-9_]{0,47}"
REFERENCE = rf"([A-Za-z0-9][A-Za-z0-9._-]{{0,47}})\.({OUTPUT_NAME})"  # STEP.OUTPUT
_COMPARISON = re.compile(rf"{REFERENCE}\s*(<=|>=|==|!=|<|>)\s*(\S+)")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_MOST_PARTS = 20  # comparisons of a condition

# [step, output], operator, and a number or [step, output]
Comparison = tuple[tuple[str, str], str, float | tuple[str, str]]
Condition = list[list[Comparison]]  # alternatives, each a list of comparisons that must all hold


def _relative(path: str) -> str:
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts or not parts or parts[0] == ".headway":
        raise value_error("must be a path in the pipeline's folder", "such as out/model.pt")
    return str(PurePosixPath(path))


FolderPath = Annotated[str, Field(max_length=1000, pattern=r"^[^\x00-\x1f]+$"), AfterValidator(_relative)]


class StepOutput(BaseModel):
    """One output: a file or folder, the last value of a reported metric, or a dataset version."""

    model_config = ConfigDict(extra="forbid")

    file: FolderPath | None = None
    metric: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_.\-/ ]{0,127}$")
    dataset: DatasetName | None = None

    @model_validator(mode="after")
    def _one(self) -> StepOutput:
        if len(self.model_dump(exclude_none=True)) != 1:
            raise value_error("is one kind of output", "give one of file, metric and dataset")
        return self


def parse_condition(text: str) -> Condition:
    """Returns the condition of a text such as `evaluate.accuracy >= 0.9 and evaluate.loss < base.loss`; `and` binds more
    tightly than `or`. Raises PydanticCustomError, which is a ValueError."""
    found: Condition = []
    for alternative in re.split(r"\s+or\s+", text.strip()):
        found.append([_comparison(part.strip()) for part in re.split(r"\s+and\s+", alternative)])
    if sum(map(len, found)) > _MOST_PARTS:
        raise value_error(
            f"has more than {_MOST_PARTS} comparisons", "compute the decision in a step, and compare its metric"
        )
    return found


def _comparison(text: str) -> Comparison:
    match = _COMPARISON.fullmatch(text)
    if match:
        step, output, sign, right = match.groups()
        if _NUMBER.fullmatch(right):
            return (step, output), sign, float(right)
        if other := re.fullmatch(REFERENCE, right):
            return (step, output), sign, (other[1], other[2])
    hint = "write STEP.OUTPUT >= NUMBER, joined by `and` or `or`, such as evaluate.accuracy >= 0.9"
    raise value_error(f"{text[:60]!r} is not a comparison", hint)


def condition_references(condition: Condition) -> list[tuple[str, str]]:
    """Returns the outputs that a condition names, as (step, output)."""
    return [name for part in condition for left, _, right in part for name in (left, right) if isinstance(name, tuple)]


def template_references(words: list[str]) -> list[tuple[str, str]]:
    """Returns the (step, output) of each {STEP.OUTPUT} in the words of a command."""
    return [(match[1], match[2]) for word in words for match in re.finditer(rf"\{{{REFERENCE}\}}", word)]


def output_variable(step: str, output: str) -> str:
    """Returns the variable of an output in the jobs of later steps: HEADWAY_OUTPUT_TRAIN_MODEL."""
    return "HEADWAY_OUTPUT_" + re.sub(r"[^A-Za-z0-9]", "_", f"{step}_{output}").upper()

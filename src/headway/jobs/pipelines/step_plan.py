"""The plan that the jobs of a pipeline get (node/pipeline_step), and the results that they record. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from headway.domain.access.credential_redaction import mask_environment
from headway.jobs.pipelines.pipeline_file import Pipeline, PipelineStep
from headway.jobs.pipelines.step_outputs import OUTPUT_NAME, parse_condition
from headway.jobs.submission.job_folders import UserFolders
from headway.schemas.submission.pipelines import StepOutputOut

# Fields of a step that its outputs depend on, besides files and variables
_CONTENT = {"run", "launcher", "nodes", "gpus", "tasks", "container", "environment", "secrets"}
_STATES = {"cached": "CACHED", "skipped": "SKIPPED"}
_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"


class StepResult(BaseModel):
    """The recorded result of a step. `source`: the job that made the outputs of a cached step. A user's job writes it."""

    model_config = ConfigDict(extra="ignore")

    job: int
    state: str = Field(pattern=r"^(done|cached|skipped)$")
    why: str = Field(default="", max_length=1000, pattern=_PRINTABLE)
    source: int = 0
    outputs: dict[Annotated[str, Field(pattern=f"^{OUTPUT_NAME}$")], StepOutputOut] = Field(default={}, max_length=50)

    @field_validator("outputs")
    @classmethod
    def _printable(cls, outputs: dict[str, StepOutputOut]) -> dict[str, StepOutputOut]:
        for one in outputs.values():
            if not all(re.match(_PRINTABLE, text) for text in (one.value, one.path, one.sha256, one.version)):
                raise ValueError("has a control character")
        return outputs

    @property
    def shown_state(self) -> str:
        """The step's state in place of its job's: CACHED or SKIPPED; "" for the job's own."""
        return _STATES.get(self.state, "")


def plan_text(
    pipeline: Pipeline,
    folders: UserFolders,
    work: str,
    fresh: Collection[str] = (),
    earlier: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> str:
    """Returns the plan; "" if no step has outputs, a condition or a cache. `fresh`: cached steps that run again regardless.
    `earlier`: jobs of steps whose results do not count."""
    if not pipeline.passes_outputs:
        return ""
    steps = {}
    cached = {name for name, step in pipeline.steps.items() if step.inputs is not None}
    hashed = cached.union(*(pipeline.steps[name].needs for name in cached))
    for name in pipeline.steps_in_order():
        step = pipeline.steps[name]
        steps[name] = {
            "needs": step.needs,
            "when": parse_condition(step.when) if step.when else [],
            "outputs": {key: one.model_dump(exclude_none=True) for key, one in step.outputs.items()},
            "inputs": step.inputs,
            "digests": name in hashed,
            "settings": _settings_digest(step),
            "fresh": name in fresh,
            "earlier": list(earlier.get(name, ())),
        }
    plan = {
        "folder": work,
        "cache": f"{folders.root}/pipeline-cache",
        "metrics": f"{folders.root}/metrics",
        "steps": steps,
    }
    return json.dumps(plan)


def _settings_digest(step: PipelineStep) -> str:
    """Returns the digest of all that a step's outputs depend on besides its files: command, resources, software, variables
    (not the values of secrets), and the declared outputs."""
    content = step.model_dump(mode="json", include=_CONTENT)
    content["flags"] = step.sbatch
    content["env"] = mask_environment(step.env)
    content["outputs"] = {key: one.model_dump(exclude_none=True) for key, one in step.outputs.items()}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def result_path(work: str, step: str) -> str:
    """Returns the path of a step's result in the pipeline's folder (node/pipeline_step/results.py)."""
    return f"{work}/.headway/steps/{step}.json"


def parse_result(content: bytes) -> StepResult | None:
    """Returns the result in a file that a user's job wrote; None for any other content."""
    try:
        return StepResult.model_validate(json.loads(content))
    except (ValueError, RecursionError):
        return None


def stored_results(document: Mapping[str, Any]) -> dict[str, StepResult]:
    """Returns the stored results by step, without those that this version can't read."""
    found = {}
    for name, value in document.items():
        try:
            found[name] = StepResult.model_validate(value)
        except ValidationError:
            continue
    return found

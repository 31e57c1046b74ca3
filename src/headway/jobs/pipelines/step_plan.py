"""The plan that the jobs of a pipeline get (node/pipeline_step), and the results that they record. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headway.domain.access.credential_redaction import mask_environment
from headway.jobs.pipelines.pipeline_file import Pipeline, PipelineStep
from headway.jobs.pipelines.step_outputs import parse_condition
from headway.jobs.submission.job_folders import UserFolders
from headway.schemas.submission.pipelines import StepOutputOut

# Fields of a step that its outputs depend on, besides files and variables
_CONTENT = {"run", "launcher", "nodes", "gpus", "tasks", "container", "environment", "secrets"}
_STATES = {"cached": "CACHED", "skipped": "SKIPPED"}
_MOST_RESULTS = 200


class StepResult(BaseModel):
    """The recorded result of a step. `source`: the job that made the outputs of a cached step. A user's job writes it."""

    model_config = ConfigDict(extra="ignore")

    job: int
    state: str = Field(pattern=r"^(done|cached|skipped)$")
    why: str = Field(default="", max_length=1000)
    source: int = 0
    outputs: dict[str, StepOutputOut] = Field(default={}, max_length=50)

    @property
    def shown_state(self) -> str:
        """The step's state in place of its job's: CACHED or SKIPPED; "" for the job's own."""
        return _STATES.get(self.state, "")


def plan_text(pipeline: Pipeline, folders: UserFolders, work: str, fresh: Collection[str] = ()) -> str:
    """Returns the plan; "" if no step has outputs, a condition or a cache. `fresh`: cached steps that run again regardless."""
    if not pipeline.passes_outputs:
        return ""
    steps = {}
    for name in pipeline.steps_in_order():
        step = pipeline.steps[name]
        steps[name] = {
            "needs": step.needs,
            "when": parse_condition(step.when) if step.when else [],
            "outputs": {key: one.model_dump(exclude_none=True) for key, one in step.outputs.items()},
            "inputs": step.inputs,
            "settings": _settings_digest(step),
            "fresh": name in fresh,
        }
    plan = {
        "folder": work,
        "cache": f"{folders.root}/pipeline-cache",
        "metrics": f"{folders.root}/metrics",
        "digests": any(step.inputs is not None for step in pipeline.steps.values()),
        "steps": steps,
    }
    return json.dumps(plan)


def _settings_digest(step: PipelineStep) -> str:
    """Returns the digest of all that a step's outputs depend on besides its files: command, resources, software, variables
    (not the values of secrets), and the declared outputs."""
    content = step.model_dump(mode="json", include=_CONTENT)
    content["env"] = mask_environment(step.env)
    content["outputs"] = {key: one.model_dump(exclude_none=True) for key, one in step.outputs.items()}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def read_results(document: Any) -> dict[str, StepResult]:
    """Returns the results by step. Leaves out what is not a result: the user's jobs wrote them."""
    found = {}
    for name, value in list(document.items())[:_MOST_RESULTS] if isinstance(document, Mapping) else ():
        try:
            found[str(name)] = StepResult.model_validate(value)
        except ValidationError:
            continue
    return found

"""Versions of models in MLflow's registry, and the jobs whose runs logged them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from headway.errors import NotFound
from headway.services.app_state import AppState
from headway.services.mlflow.journals import journal_states, team_api
from headway.services.mlflow.mlflow_api import MlflowApi, MlflowRefused

_JOB_TAG = "headway.job"
_MOST_RUNS = 20  # of a job


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A version of a registered model. `job`: 0 if no job of this cluster made it."""

    name: str
    number: int
    team: str
    aliases: tuple[str, ...] = ()
    job: int = 0

    @property
    def label(self) -> str:
        """The version as people write it: NAME@NUMBER."""
        return f"{self.name}@{self.number}"


async def model_version(state: AppState, cluster: str, teams: list[str], name: str, number: int = 0) -> ModelVersion:
    """Returns a version of a model (0: the latest) in the first of these teams' workspaces that has it. Raises NotFound, and
    Unreachable if the MLflow server does not run."""
    for team in teams:
        api = await team_api(state, cluster, team)
        try:
            if not number:
                model: dict[str, Any] = (await api.get("registered-models/get", name=name))["registered_model"]
                number = max(int(one["version"]) for one in model.get("latest_versions", []))
            found = (await api.get("model-versions/get", name=name, version=str(number)))["model_version"]
        except (MlflowRefused, ValueError):  # ValueError: a model without versions
            continue
        return await _described(api, team, found)
    raise NotFound(
        f"{cluster} has no model {name}{f'@{number}' if number else ''}", hint="headway mlflow ui TEAM lists models"
    )


async def models_of_job(state: AppState, cluster: str, team: str, job: int) -> list[ModelVersion]:
    """Returns the versions that the runs of a job logged. Raises Unreachable if the MLflow server does not run."""
    api = await team_api(state, cluster, team)
    runs = (await asyncio.to_thread(journal_states(state).read, cluster, job)).runs
    found = []
    for run in list(runs)[:_MOST_RUNS]:
        answer = await api.get("model-versions/search", filter=f"run_id='{run}'")
        rows = answer.get("model_versions", [])
        found += [ModelVersion(str(one["name"]), int(one["version"]), team, _aliases(one), job) for one in rows]
    return found


async def _described(api: MlflowApi, team: str, found: dict[str, Any]) -> ModelVersion:
    job = 0
    if run := str(found.get("run_id") or ""):
        try:
            tags = (await api.get("runs/get", run_id=run))["run"]["data"].get("tags", [])
        except MlflowRefused:  # a person has deleted the run
            tags = []
        told = next((str(tag["value"]) for tag in tags if tag.get("key") == _JOB_TAG), "0")
        job = int(told) if told.isdigit() else 0
    return ModelVersion(str(found["name"]), int(found["version"]), team, _aliases(found), job)


def _aliases(found: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(alias) for alias in found.get("aliases") or [])

"""Versions of models in MLflow's registry, and the jobs whose runs logged them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from headway.errors import Unreachable
from headway.services.app_state import AppState
from headway.services.mlflow.journals import journal_states, team_api
from headway.services.mlflow.mlflow_api import MlflowRefused

MOST_QUESTIONS = 300  # to MLflow, for one graph
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


@dataclass
class ModelRegistry:
    """MLflow's registry of one cluster, for one graph. It asks at most MOST_QUESTIONS questions, and none after MLflow did not
    answer one; then all its methods raise Unreachable."""

    state: AppState
    cluster: str
    asked: int = 0
    stopped: Unreachable | None = None

    async def version(self, team: str, name: str, number: int = 0) -> ModelVersion | None:
        """Returns a version of a team's model (0: the latest); None if the team has none. Raises Unreachable."""
        try:
            if not number:
                model: dict[str, Any] = (await self._ask(team, "registered-models/get", name=name))["registered_model"]
                number = max(int(one["version"]) for one in model.get("latest_versions", []))
            found = (await self._ask(team, "model-versions/get", name=name, version=str(number)))["model_version"]
        except (MlflowRefused, ValueError):  # ValueError: a model without versions
            return None
        job = await self._job(team, str(found.get("run_id") or ""))
        return ModelVersion(str(found["name"]), int(found["version"]), team, aliases_of(found), job)

    async def of_job(self, team: str, job: int) -> AsyncIterator[ModelVersion]:
        """Yields the versions that the runs of a job logged. Raises Unreachable."""
        runs = (await asyncio.to_thread(journal_states(self.state).read, self.cluster, job)).runs
        for run in list(runs)[:_MOST_RUNS]:
            answer = await self._ask(team, "model-versions/search", filter=f"run_id='{run}'")
            for one in answer.get("model_versions", []):
                yield ModelVersion(str(one["name"]), int(one["version"]), team, aliases_of(one), job)

    async def _job(self, team: str, run: str) -> int:
        """Returns the job whose tag a run has; 0 without one."""
        if not run:
            return 0
        try:
            return job_of_run(await self._ask(team, "runs/get", run_id=run))
        except MlflowRefused:  # a person has deleted the run
            return 0

    async def _ask(self, team: str, question: str, /, **params: str) -> dict[str, Any]:
        if self.stopped is None and self.asked >= MOST_QUESTIONS:
            self.stopped = Unreachable(f"the graph is cut after {MOST_QUESTIONS} questions to MLflow")
        if self.stopped is not None:
            raise self.stopped
        self.asked += 1
        try:
            return await (await team_api(self.state, self.cluster, team)).get(question, **params)
        except Unreachable as error:
            self.stopped = error
            raise


def job_of_run(answer: dict[str, Any]) -> int:
    """Returns the job that MLflow's answer about a run names; 0 for none."""
    value = tag_of_run(answer, _JOB_TAG)
    return int(value) if re.fullmatch("[0-9]{1,9}", value) else 0  # people can change tags


def tag_of_run(answer: dict[str, Any], name: str) -> str:
    """Returns a tag of the run in MLflow's answer; "" if it has none of this name."""
    tags = answer["run"]["data"].get("tags", [])
    return next((str(tag["value"]) for tag in tags if tag.get("key") == name), "")


def aliases_of(found: dict[str, Any]) -> tuple[str, ...]:
    """Returns the aliases of a version, from MLflow's answer about it."""
    return tuple(str(alias) for alias in found.get("aliases") or [])

"""Repeats a job's journal on the MLflow server: any number of times with the same result, because the job chose the ids of its
runs, and MLflow keeps one value for the same metric, step and time."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from headway.jobs.mlflow.journal_lines import (
    ARTIFACT,
    ASK,
    CREATE_EXPERIMENT,
    CREATE_RUN,
    UPDATE_RUN,
    JournalLine,
    divide,
    merge_metrics,
    parse_lines,
)
from headway.services.mlflow.journal_state import JournalState
from headway.services.mlflow.mlflow_api import MlflowApi, MlflowRefused

OF_JOB = "runs/"  # the first part of the path of a file that belongs to a run of the job
DEFAULT = "Default"
RUNNING, KILLED = "RUNNING", "KILLED"  # MLflow's states of runs
_SCHEME = "mlflow-artifacts:/"

ReadFile = Callable[[str], AsyncIterator[bytes]]


class Replay:
    """Repeats the journal of one job. `tags` are set on each of its runs. `read_file` yields an uploaded file of the job by its
    name next to the journal. `asks` has the nodes on which a request waits for an answer of the MLflow server."""

    def __init__(self, api: MlflowApi, state: JournalState, tags: Mapping[str, str], read_file: ReadFile) -> None:
        self._api, self._state, self._tags, self._read_file = api, state, tags, read_file
        self._ids: dict[str, str] = {}  # of experiments, by name
        self.asks: set[str] = set()

    async def repeat(self, data: bytes) -> None:
        """Repeats the lines that begin at the state's offset, and moves it. Raises Unreachable if the MLflow server does not
        answer: the offset is then after the last repeated line."""
        lines: list[JournalLine] = []
        end = self._state.offset + len(data)
        for line in parse_lines(data, self._state.offset):
            if isinstance(line, JournalLine):
                lines.append(line)
            else:
                self._refuse("a line could not be read")
        for line in merge_metrics(lines):
            try:
                await self._apply(line)
            except MlflowRefused as error:
                await self._in_parts(line, error)
            self._state.offset = line.end
        self._state.offset = end

    async def _in_parts(self, line: JournalLine, error: MlflowRefused) -> None:
        parts = divide(line)
        if not parts:
            self._refuse(f"{line.name}: {error.message}")
        for part in parts:
            try:
                await self._apply(part)
            except MlflowRefused as refused:
                self._refuse(f"{line.name}: {refused.message}")

    def _refuse(self, why: str) -> None:
        self._state.refused += 1
        self._state.why = why[:500]

    async def _apply(self, line: JournalLine) -> None:
        if line.name == CREATE_EXPERIMENT:
            self._state.experiments[str(line.body.get("experiment_id"))] = str(line.body["name"])
            await self._experiment(str(line.body["name"]))
        elif line.name == CREATE_RUN:
            await self._create_run(line)
        elif line.name == ARTIFACT:
            await self._upload(line)
        elif line.name == ASK:
            self.asks.add(str(line.body["node"]))
        else:
            await self._api.post(line.name, {**line.body, "run_id": line.run})
            if line.name == UPDATE_RUN and line.body.get("status"):
                self._state.runs[line.run] = str(line.body["status"])

    async def _create_run(self, line: JournalLine) -> None:
        wanted = str(line.body.get("experiment_id") or "0")
        name = self._state.experiments.get(wanted) or (DEFAULT if wanted == "0" else "")
        experiment = await self._experiment(name) if name else wanted
        own = {str(tag.get("key")): tag for tag in line.body.get("tags") or [] if isinstance(tag, dict)}
        tags = [tag for key, tag in own.items() if key not in self._tags]
        tags += [{"key": key, "value": value} for key, value in self._tags.items()]
        body: dict[str, Any] = {
            key: line.body[key] for key in ("user_id", "start_time", "run_name") if key in line.body
        }
        try:
            await self._api.post(CREATE_RUN, {**body, "experiment_id": experiment, "tags": tags}, run=line.run)
        except MlflowRefused:
            await self._api.get("runs/get", run_id=line.run)  # it was created before
        self._state.runs.setdefault(line.run, RUNNING)

    async def real_experiment(self, number: str) -> str:
        """Returns MLflow's id of an experiment by the id that holds in the job; other texts as they are."""
        name = self._state.experiments.get(number)
        return await self._experiment(name) if name else number

    async def _experiment(self, name: str) -> str:
        """Returns MLflow's id of the experiment of this name, which is created if there is none."""
        if name not in self._ids:
            try:
                found = await self._api.get("experiments/get-by-name", experiment_name=name)
                self._ids[name] = str(found["experiment"]["experiment_id"])
            except MlflowRefused as error:
                if error.code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                self._ids[name] = str((await self._api.post(CREATE_EXPERIMENT, {"name": name}))["experiment_id"])
        return self._ids[name]

    async def _upload(self, line: JournalLine) -> None:
        path = await artifact_path(self._api, str(line.body["path"]))
        await self._api.upload(path, self._read_file(str(line.body["file"])), int(line.body["bytes"]))


async def end_runs(api: MlflowApi, state: JournalState, ended_at: int) -> None:
    """Ends the runs that their job left open, because it was killed or requeued. `ended_at`: when it ended, in Unix seconds."""
    for run in [run for run, status in state.runs.items() if status == RUNNING]:
        with contextlib.suppress(MlflowRefused):  # a person has deleted it
            await api.post(UPDATE_RUN, {"run_id": run, "status": KILLED, "end_time": ended_at * 1000})
        state.runs[run] = KILLED


async def artifact_path(api: MlflowApi, path: str) -> str:
    """Returns where the MLflow server has a file. The job knows only `runs/RUN/artifacts/...`."""
    parts = path.split("/", 3)
    if not path.startswith(OF_JOB) or len(parts) < 4:
        return path
    run: dict[str, Any] = (await api.get("runs/get", run_id=parts[1]))["run"]["info"]
    return f"{str(run['artifact_uri']).removeprefix(_SCHEME).strip('/')}/{parts[3]}"


def run_tags(**values: object) -> dict[str, str]:
    """Returns the tags of a job's runs, without empty ones."""
    return {f"headway.{name}": str(value) for name, value in values.items() if value not in ("", None, [], {})}

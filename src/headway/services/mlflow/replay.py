"""Repeats a job's journal on the MLflow server: any number of times with the same result, because the job chose the ids of its
runs, and MLflow keeps one value for the same metric, step and time."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headway.errors import HeadwayError, NotAllowed, NotFound, Unreachable
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
from headway.services.mlflow.run_tags import JOB_TAG, TAGS

OF_JOB = "runs/"  # the first part of the path of a file that belongs to a run of the job
DEFAULT, DEFAULT_ID = "Default", "0"  # the experiment of a job that names none, and its id in the job
RUNNING, KILLED = "RUNNING", "KILLED"  # MLflow's states of runs
_SCHEME = "mlflow-artifacts:/"
_OF_RUN = re.compile(r"[^/]+/[^/]+/[^/]+/([0-9a-f]{32})/artifacts/.+")  # a file of a run in the artifact store
_OF_MODEL = re.compile(r"[^/]+/[^/]+/[^/]+/models/(m-[^/]+)/artifacts/.+")  # a file of a logged model


@dataclass(frozen=True)
class UploadedFile:
    """A file that a job uploaded. `size`: its bytes."""

    size: int
    parts: AsyncIterator[bytes]


OpenFile = Callable[[str], Awaitable[UploadedFile | None]]
Folders = Callable[[], Awaitable[frozenset[str]]]


async def no_folders() -> frozenset[str]:
    """Returns no folder: for replays that upload nothing."""
    return frozenset()


class Replay:
    """Repeats the journal of one job. `tags` are set on each of its runs. `open_file` returns an uploaded file of the job by its
    name next to the journal; None if there is none. `locked` returns folders whose files must stay as they are. `asks` has the
    nodes on which a request waits for an answer of the MLflow server."""

    def __init__(
        self,
        api: MlflowApi,
        state: JournalState,
        tags: Mapping[str, str],
        open_file: OpenFile,
        locked: Folders = no_folders,
    ) -> None:
        self._api, self._state, self._tags, self._open_file = api, state, tags, open_file
        self._locked = locked
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
            await self._apply_or_refuse(line)
            self._state.offset = line.end
        self._state.offset = end

    async def _apply_or_refuse(self, line: JournalLine) -> None:
        """Repeats a line; if that fails, each of its parts. Users can write anything into a line, so each error but Unreachable
        is one of the line, and another try would fail too."""
        try:
            await self._apply(line)
        except Unreachable:
            raise
        except Exception as error:
            if self._api.is_closed:
                raise Unreachable("the connection to the MLflow server is closed") from None
            parts = divide(line)
            if not parts:
                self._refuse(f"{line.name}: {error.message if isinstance(error, HeadwayError) else repr(error)}")
            for part in parts:
                await self._apply_or_refuse(part)

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
            await self._api.post(line.name, {**_without_tags_of_headway(line), "run_id": line.run})
            if line.name == UPDATE_RUN and line.body.get("status"):
                self._state.runs[line.run] = str(line.body["status"])

    async def _create_run(self, line: JournalLine) -> None:
        wanted = str(line.body.get("experiment_id") or DEFAULT_ID)
        name = self._state.experiments.get(wanted) or (DEFAULT if wanted == DEFAULT_ID else "")
        experiment = await self._experiment(name) if name else wanted
        own = {str(tag.get("key")): tag for tag in line.body.get("tags") or [] if isinstance(tag, dict)}
        tags = [tag for key, tag in own.items() if not key.startswith(TAGS)]
        tags += [{"key": key, "value": value} for key, value in self._tags.items()]
        body: dict[str, Any] = {
            key: line.body[key] for key in ("user_id", "start_time", "run_name") if key in line.body
        }
        try:
            await self._api.post(CREATE_RUN, {**body, "experiment_id": experiment, "tags": tags}, run=line.run)
        except MlflowRefused:  # it was created before
            found = await self._api.get("runs/get", run_id=line.run)
            known = {str(tag.get("key")): str(tag.get("value")) for tag in found["run"]["data"].get("tags", [])}
            if known.get(JOB_TAG) != self._tags.get(JOB_TAG):
                raise NotAllowed(f"run {line.run} is one of job {known.get(JOB_TAG)}") from None
        self._state.runs.setdefault(line.run, RUNNING)

    async def real_experiment(self, number: str) -> str:
        """Returns MLflow's id of an experiment by the id that holds in the job; other texts as they are."""
        name = self._state.experiments.get(number)
        return await self._experiment(name) if name else number

    async def default_experiment(self) -> str:
        """Returns MLflow's id of the experiment that a job has without naming one."""
        return await self._experiment(DEFAULT)

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
        name, size = str(line.body["file"]), int(line.body["bytes"])
        found = await self._open_file(name)
        if found is None or found.size != size:
            has = "is missing" if found is None else f"has {found.size} bytes instead of {size}"
            raise NotFound(f"file {name} {has}")
        path = await artifact_path(self._api, str(line.body["path"]))
        await self._check_place(path)
        await self._api.upload(path, found.parts, size)

    async def _check_place(self, path: str) -> None:
        """Raises NotAllowed for a file of a run that this job did not create, also of a model that such a run has logged, and of
        a promoted version: a promotion tells which job has written the files."""
        if run := _OF_RUN.fullmatch(path):
            self._require_own(run[1])
        elif model := _OF_MODEL.fullmatch(path):
            info = (await self._api.get(f"logged-models/{model[1]}"))["model"]["info"]
            if source := str(info.get("source_run_id") or ""):
                self._require_own(source)
        if any(f"{path}/".startswith(f"{folder}/") for folder in await self._locked()):
            raise NotAllowed(f"file {path[:200]} is one of a promoted version")

    def _require_own(self, run: str) -> None:
        if run not in self._state.runs:
            raise NotAllowed(f"files of run {run} are written only by the job that created it")


def _without_tags_of_headway(line: JournalLine) -> dict[str, Any]:
    """Returns the body of a change without tags that only Headway sets. Raises NotAllowed if it changes only such a tag."""
    body = line.body
    if line.name in ("runs/set-tag", "runs/delete-tag") and str(body.get("key")).startswith(TAGS):
        raise NotAllowed(f"jobs can't change tag {body['key']}")
    if line.name != "runs/log-batch" or "tags" not in body:
        return body
    tags = [tag for tag in body["tags"] or [] if not str(tag["key"]).startswith(TAGS)]
    return {**body, "tags": tags}


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

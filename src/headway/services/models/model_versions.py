"""Versions of models as a promotion needs them: their run with metrics, and the digests of their files."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.domain.cluster import Cluster
from headway.errors import Conflict, NotAllowed, NotFound, Refused, Unreachable
from headway.schemas.storage.models import ModelOut, ModelVersionOut
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.mlflow.journals import team_api
from headway.services.mlflow.mlflow_api import MlflowApi, MlflowRefused
from headway.services.models.registered_models import aliases_of, job_of_run, tag_of_run

MOST_MODELS = 1000  # of one team
MOST_VERSIONS = 200  # of one model, the newest
_PAGE = 100
_SCHEME = "mlflow-artifacts:/"
_OF_MODEL = re.compile(r"[^/]+/[^/]+/[^/]+/models/(m-[^/]+)/artifacts(/.*)?")  # a folder of a logged model
_DESCRIPTION = "MLmodel"
_MOST_DESCRIPTION = 1 << 20  # bytes
_MISSING = "RESOURCE_DOES_NOT_EXIST"


@dataclass(frozen=True)
class RunInRegistry:
    """A run. `job` logged it as `user`; 0 and "" if it is of no job of this cluster. `metrics`: the last values, None where one
    is not finite."""

    job: int = 0
    user: str = ""
    metrics: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class VersionInRegistry:
    """A version with its run, whose id is "" if there is none."""

    name: str
    number: int
    created_at: float
    aliases: tuple[str, ...] = ()
    run: str = ""
    source: RunInRegistry = field(default_factory=lambda: RunInRegistry())

    @property
    def label(self) -> str:
        """The version as people write it: NAME@NUMBER."""
        return f"{self.name}@{self.number}"


def teams_of(cluster: Cluster, who: Principal) -> list[str]:
    """Returns the teams whose models the person may see."""
    everything = who.may(Right.ADMIN)
    return [team.name for team in cluster.teams if everything or who.user in (*team.users, *team.leads)]


def require_team(cluster: Cluster, who: Principal, team: str) -> None:
    """Raises NotFound for a team that the cluster does not have, NotAllowed for one whose models the person may not see."""
    if team not in {one.name for one in cluster.teams}:
        raise NotFound(f"{cluster.name} has no team {team}", hint=f"headway status {cluster.name}")
    if team not in teams_of(cluster, who):
        raise NotAllowed(f"{who.person} is not in team {team} of {cluster.name}", hint="ask an admin of the cluster")


async def registry(state: AppState, cluster: Cluster, team: str) -> MlflowApi:
    """Returns calls in the workspace of a team. Raises Refused if the cluster has no MLflow, Unreachable if it does not run."""
    if not cluster.mlflow:
        raise Refused(
            f"models are kept in MLflow, which {cluster.name} does not have", hint="mlflow: true in the cluster file"
        )
    return await team_api(state, cluster.name, team)


async def find_team(state: AppState, cluster: Cluster, who: Principal, name: str) -> str:
    """Returns the team of the person that has a model of this name. Raises NotFound, Conflict if several have one, and
    Unreachable."""
    found = []
    for team in teams_of(cluster, who):
        try:
            await (await registry(state, cluster, team)).get("registered-models/get", name=name)
            found.append(team)
        except MlflowRefused as error:
            _require_missing(error)
    if not found:
        raise NotFound(f"{cluster.name} has no model {name[:60]!r}", hint="headway model ls")
    if len(found) > 1:
        raise Conflict(
            f"several teams have a model {name}", hint=f"give one of {', '.join(f'{team}/{name}' for team in found)}"
        )
    return found[0]


async def list_team_models(api: MlflowApi, team: str) -> list[ModelOut]:
    """Returns the models of a team, each with its latest version. Raises Unreachable."""
    found: list[ModelOut] = []
    token = ""
    while len(found) < MOST_MODELS:
        page = {"page_token": token} if token else {}
        answer = await api.get("registered-models/search", max_results=str(_PAGE), **page)
        for one in answer.get("registered_models", []):
            latest = max(one.get("latest_versions", []), key=lambda version: int(version["version"]), default=None)
            aliases = {str(alias["alias"]): int(alias["version"]) for alias in one.get("aliases", [])}
            versions = [_version_out(latest, aliases)] if latest else []
            found.append(ModelOut(name=str(one["name"]), team=team, versions=versions, aliases=aliases))
        token = str(answer.get("next_page_token") or "")
        if not token:
            break
    return found


def _version_out(found: Mapping[str, Any], aliases: Mapping[str, int]) -> ModelVersionOut:
    number = int(found["version"])
    return ModelVersionOut(
        version=number,
        created_at=int(found.get("creation_timestamp", 0)) / 1000,
        aliases=[alias for alias, version in aliases.items() if version == number],
        run=str(found.get("run_id") or ""),
    )


async def read_model(api: MlflowApi, team: str, name: str) -> ModelOut:
    """Returns a model with its newest versions, without metrics. Raises NotFound, and Unreachable."""
    try:
        model: dict[str, Any] = (await api.get("registered-models/get", name=name))["registered_model"]
    except MlflowRefused as error:
        raise _not_found(error, f"team {team} has no model {name[:60]!r}", "headway model ls") from None
    aliases = {str(alias["alias"]): int(alias["version"]) for alias in model.get("aliases", [])}
    quote = "'" if "'" not in name else '"'  # a value has no escapes
    answer = await api.get(
        "model-versions/search",
        filter=f"name={quote}{name}{quote}",
        max_results=str(MOST_VERSIONS),
        order_by="version_number DESC",
    )
    versions = [_version_out(one, aliases) for one in answer.get("model_versions", [])]
    return ModelOut(
        name=name,
        team=team,
        versions=sorted(versions, key=lambda one: -one.version),
        aliases=dict(sorted(aliases.items())),
    )


async def read_version(api: MlflowApi, name: str, number: int) -> VersionInRegistry:
    """Returns a version with its run. Raises NotFound, and Unreachable."""
    try:
        found = (await api.get("model-versions/get", name=name, version=str(number)))["model_version"]
    except MlflowRefused as error:
        raise _not_found(error, f"there is no model {name[:60]}@{number}", f"headway model show {name}") from None
    run = str(found.get("run_id") or "")
    source = await read_run(api, run) if run else RunInRegistry()
    created = int(found.get("creation_timestamp", 0)) / 1000
    return VersionInRegistry(name, number, created, aliases_of(found), run, source)


async def read_run(api: MlflowApi, run: str) -> RunInRegistry:
    """Returns a run; an empty one if a person has deleted it. Raises Unreachable."""
    try:
        answer = await api.get("runs/get", run_id=run)
    except MlflowRefused as error:
        _require_missing(error)
        return RunInRegistry()
    metrics = {str(one["key"]): finite(one.get("value")) for one in answer["run"]["data"].get("metrics", [])}
    return RunInRegistry(job_of_run(answer), tag_of_run(answer, "headway.user"), metrics)


def finite(value: object) -> float | None:
    """Returns the number; None for NaN and infinite values, also where they are given as text."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def _not_found(error: MlflowRefused, what: str, hint: str) -> Exception:
    _require_missing(error)
    return NotFound(what, hint=hint)


def _require_missing(error: MlflowRefused) -> None:
    """Raises the error unless it says that there is no such thing."""
    _require_answer(error)
    if error.code != _MISSING:
        raise error


def _require_answer(error: MlflowRefused) -> None:
    """Raises Unreachable for a fault of the MLflow server: it says nothing about the version, and another try may succeed."""
    if error.status >= 500:
        raise Unreachable(f"the MLflow server has a fault: {error.message}", hint="headway mlflow status") from None


async def file_digests(api: MlflowApi, version: VersionInRegistry) -> dict[str, str]:
    """Returns SHA-256 by path of all files of a version, read from MLflow. Raises Refused if they are not there or not of the
    version's run, and Unreachable."""
    label = version.label
    folder = await version_folder(api, version)
    try:
        listed = await api.list_files(folder)
        if not listed:
            raise Refused(f"the files of {label} are gone: MLflow has none in {folder}", hint="register it again")
        await _check_size(api, label, folder, dict(listed))
        return {path: await _digest(api, f"{folder}/{path}") for path, _ in listed}
    except MlflowRefused as error:
        _require_answer(error)
        raise Refused(f"the files of {label} can't be read: {error.message}", hint="register it again") from None


async def _check_size(api: MlflowApi, label: str, folder: str, sizes: Mapping[str, int]) -> None:
    """Raises Refused if the files have fewer bytes than MLflow wrote into MLmodel when it saved the model: some are gone. Models
    of some libraries have no such number."""
    if not 0 < sizes.get(_DESCRIPTION, 0) <= _MOST_DESCRIPTION:
        return
    text = b"".join([piece async for piece in api.download(f"{folder}/{_DESCRIPTION}")]).decode(errors="replace")
    found = re.search(r"^model_size_bytes: ([0-9]{1,18})$", text, re.MULTILINE)
    if found and (there := sum(sizes.values())) < int(found[1]):
        raise Refused(
            f"files of {label} are gone: MLflow has {there:,} bytes of {int(found[1]):,}", hint="register it again"
        )


async def _digest(api: MlflowApi, path: str) -> str:
    found = hashlib.sha256()
    async for piece in api.download(path):
        await asyncio.to_thread(found.update, piece)
    return found.hexdigest()


async def version_folder(api: MlflowApi, version: VersionInRegistry) -> str:
    """Returns where MLflow's artifact store has the files of a version. A person who registers a version names its run and its
    files, so the folder must belong to the run: only then has the run's job written them. Raises Refused, and Unreachable."""
    try:
        answer = await api.get("model-versions/get-download-uri", name=version.name, version=str(version.number))
        place = str(answer.get("artifact_uri") or "")
        scheme, _, rest = place.partition(":/")
        if scheme == "models" and rest.startswith("m-"):
            place = str((await _logged_model(api, rest))["artifact_uri"])
        elif scheme == "runs":
            run, _, below = rest.partition("/")
            place = f"{await _folder_of_run(api, run)}/{below}"
        if not place.startswith(_SCHEME):
            raise Refused(
                f"the files of {version.label} are in {place[:80]}, not in the MLflow server of Headway",
                hint="log the model in a job, and register that version",
            )
        folder = place.removeprefix(_SCHEME).strip("/")
        if not await _belongs_to_run(api, folder, version.run):
            raise Refused(
                f"the files of {version.label} are not of its run: they are in {folder[:120]}",
                hint="register the model that the run has logged",
            )
    except MlflowRefused as error:
        _require_answer(error)
        raise Refused(f"the files of {version.label} are gone: {error.message}", hint="register it again") from None
    return folder


async def _belongs_to_run(api: MlflowApi, folder: str, run: str) -> bool:
    """Returns whether a folder is one of the run, or of a model that the run has logged. `run`: "" for none."""
    if found := _OF_MODEL.fullmatch(folder):
        model = await _logged_model(api, found[1])
        return str(model.get("source_run_id") or "") == run and _is_below(folder, str(model["artifact_uri"]))
    return bool(run) and _is_below(folder, await _folder_of_run(api, run))


def _is_below(folder: str, uri: str) -> bool:
    return uri.startswith(_SCHEME) and f"{folder}/".startswith(f"{uri.removeprefix(_SCHEME).strip('/')}/")


async def _logged_model(api: MlflowApi, model: str) -> dict[str, Any]:
    return dict((await api.get(f"logged-models/{model}"))["model"]["info"])


async def _folder_of_run(api: MlflowApi, run: str) -> str:
    return str((await api.get("runs/get", run_id=run))["run"]["info"]["artifact_uri"])


def digest_of_files(files: Mapping[str, str]) -> str:
    """Returns one digest for all files of a version: SHA-256 of the JSON object of digests by path, with sorted keys."""
    return hashlib.sha256(json.dumps(dict(files), sort_keys=True).encode()).hexdigest()


async def set_alias(api: MlflowApi, name: str, alias: str, number: int) -> None:
    """Sets an alias of a model; the version that had it loses it. Raises MlflowRefused, and Unreachable."""
    try:
        await api.post("registered-models/alias", {"name": name, "alias": alias, "version": str(number)})
    except MlflowRefused as error:
        _require_answer(error)
        raise


async def version_of_alias(api: MlflowApi, name: str, alias: str) -> int | None:
    """Returns the version that has an alias, None if none has it. Raises Unreachable."""
    try:
        found = await api.get("registered-models/alias", name=name, alias=alias)
    except MlflowRefused as error:
        _require_answer(error)
        return None
    return int(found["model_version"]["version"])

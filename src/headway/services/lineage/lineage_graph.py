"""Walks from a job, dataset, model or service to all that it was made of, and to all that was made of it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import Conflict, HeadwayError, NotFound, Refused, Unreachable
from headway.jobs.pipelines.pipeline_file import stored_pipeline
from headway.jobs.pipelines.step_plan import stored_results
from headway.schemas.lineage.lineage_graph import LineageGraphOut, LineageKind, LineageNodeOut
from headway.services.access.ownership_rights import cluster_to_work_on, may_act_on
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.models.registered_models import ModelRegistry, ModelVersion
from headway.store import SWEEP_ID, JobRecord, ServiceRow

MOST_NODES = 200
_MOST_JOBS = 50  # that use one dataset
_MOST_FOLDERS = 50  # of jobs, in the file of one service
_VERSION = re.compile(r"([A-Za-z0-9][\w.-]*)@([1-9][0-9]{0,8})")
_DATASET_PATH = re.compile(r"(?<![\w.-])/datasets/([a-z][a-z0-9_-]*)/([0-9]+)")
_MODEL_URI = re.compile(r"models:/([^/\s\"'@]+)/([0-9]{1,9})(?![0-9])")
_PATH = re.compile(r"/[\w./-]+")
_NO_MODELS = "models are left out: {}"


@dataclass(frozen=True)
class _Owned:
    user: str
    account: str


@dataclass
class _Walk:
    """One walk. `queue`: keys that were found and not yet visited, with the direction."""

    state: AppState
    cluster: Cluster
    who: Principal
    nodes: dict[str, LineageNodeOut] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    queue: list[tuple[str, bool]] = field(default_factory=list)
    models: dict[str, ModelVersion] = field(default_factory=dict)  # by TEAM/NAME@NUMBER
    services: list[tuple[ServiceRow, str]] = field(default_factory=list)  # those that run, with their files as text
    jobs: dict[int, JobState] = field(default_factory=dict)  # those that Slurm knows

    def __post_init__(self) -> None:
        self.registry = ModelRegistry(self.state, self.cluster.name)

    def add(
        self, kind: LineageKind, name: str, *, detail: str = "", state: str = "", job_id: int = 0, title: str = ""
    ) -> str:
        """Adds a thing if it is new, and returns its key; "" if the graph is full."""
        key = f"{kind}:{name}"
        if key not in self.nodes:
            if len(self.nodes) >= MOST_NODES:
                self.notes[f"the graph is cut after {MOST_NODES} things"] = None
                return ""
            self.nodes[key] = LineageNodeOut(
                key=key, kind=kind, title=title or name, detail=detail, state=state, job_id=job_id
            )
        return key

    def link(self, source: str, goal: str, *, up: bool) -> None:
        """Adds an edge, and continues at its end in the direction of the walk."""
        if source and goal and source != goal and (source, goal) not in self.edges:
            self.edges[source, goal] = None
            self.queue.append((source if up else goal, up))

    async def add_job(self, number: int) -> str:
        """Adds a job, and returns its key."""
        if f"job:{number}" in self.nodes:
            return f"job:{number}"
        record = await self.state.store.jobs.get(self.cluster.name, number)
        job = self.jobs.get(number)
        name = job.name if job else str((record.request if record else {}).get("script_name", ""))
        user = record.user if record else job.user if job else ""
        detail = " · ".join(part for part in (name, user) if part)
        state = job.state if job else ""
        return self.add("job", str(number), title=f"job {number}", detail=detail, state=state, job_id=number)

    async def team_of(self, number: int) -> str:
        """Returns the team of a job; "" if it is not known."""
        if job := self.jobs.get(number):
            return job.account
        row = await self.state.store.trainings.get(self.cluster.name, number)
        return row.team if row else ""

    def teams(self) -> list[str]:
        """Returns the teams whose models the person may see."""
        everything = self.who.may(Right.ADMIN)
        return [team.name for team in self.cluster.teams if everything or self.who.user in team.users]


async def lineage_graph(state: AppState, who: Principal, name: str, what: str) -> LineageGraphOut:
    """Returns the graph around a job (12), a version of a dataset or model (books@3), or a service (chat); `dataset:`, `model:`,
    `service:` in front chooses the kind, TEAM/ the team of a model or service. Raises NotFound, Conflict if several teams have
    it, and Unreachable for `model:` if MLflow does not answer."""
    cluster = await cluster_to_work_on(state, name, who)
    walk = _Walk(state, cluster, who)
    with contextlib.suppress(HeadwayError):  # jobs of the last days, in one shared request
        walk.jobs = {job.id: job for job in await state.readings.history(cluster)}
    walk.jobs |= state.live.snapshot(name).by_id
    walk.services = [(service, json.dumps(service.document)) for service in await state.store.services.running(name)]
    start = await _start(walk, what.strip())
    walk.queue = [(start, True), (start, False)]
    seen: set[tuple[str, bool]] = set()
    while walk.queue:
        place = walk.queue.pop(0)
        if place in seen:
            continue
        seen.add(place)
        key, up = place
        kind, _, rest = key.partition(":")
        step = _STEPS.get((kind, up))
        if step is not None:
            await step(walk, key, rest)
    return LineageGraphOut(
        cluster=name, start=start, nodes=list(walk.nodes.values()), edges=list(walk.edges), notes=list(walk.notes)
    )


async def _start(walk: _Walk, what: str) -> str:
    kind, colon, rest = what.partition(":")
    name = rest if colon else what
    if re.fullmatch("[0-9]{1,9}", name) and kind in (what, "job"):
        key = await walk.add_job(int(name))
        if not walk.nodes[key].detail:
            raise NotFound(f"{walk.cluster.name} has no job {name}", hint="headway queue")
        return key
    if colon and kind not in ("job", "dataset", "model", "service"):
        raise Refused(f"lineage has no {kind[:40]!r}", hint="use job:12, dataset:books@3, model:iris@1 or service:chat")
    team, _, versioned = name.rpartition("/")
    match = _VERSION.fullmatch(versioned)
    label, number = (match[1], int(match[2])) if match else (versioned, 0)
    if not label:
        raise NotFound("nothing is named", hint="headway lineage show 12, or books@3")
    hint = "headway dataset ls, headway serve ls, headway mlflow ui TEAM"
    for wanted, find in (("dataset", _find_dataset), ("service", _find_service), ("model", _find_model)):
        if colon and kind != wanted:
            continue
        try:
            if key := await find(walk, team, label, number):
                return key
        except Unreachable as error:
            if colon:
                raise
            hint += f"; {_NO_MODELS.format(error.message)}"
    raise NotFound(
        f"{walk.cluster.name} has no {kind if colon else 'dataset, model or service'} {name[:60]!r}", hint=hint
    )


async def _find_dataset(walk: _Walk, team: str, name: str, number: int) -> str:
    if team:  # datasets are those of the cluster
        return ""
    versions = await walk.state.store.datasets.versions(walk.cluster.name, name, removed=True)
    found = [version for version in versions if not number or version.number == number]
    return _add_dataset(walk, found[-1].label, found[-1].source) if found else ""


def _add_dataset(walk: _Walk, label: str, source: str = "") -> str:
    return walk.add("dataset", label, detail=f"from {source}" if source else "")


async def _find_service(walk: _Walk, team: str, name: str, number: int) -> str:
    found = [one for one, _ in walk.services if one.name == name and team in ("", one.team) and not number]
    if len(found) > 1:
        raise _several("services", name, [f"{one.team}/{name}" for one in found])
    return _add_service(walk, found[0]) if found else ""


def _add_service(walk: _Walk, service: ServiceRow) -> str:
    return walk.add("service", f"{service.team}/{service.name}", title=service.name, detail=f"of team {service.team}")


async def _find_model(walk: _Walk, team: str, name: str, number: int) -> str:
    found: list[ModelVersion] = []
    for one in walk.teams():
        try:
            if team in ("", one) and (model := await walk.registry.version(one, name, number)):
                found.append(model)
        except Unreachable as error:
            if not found:
                raise
            walk.notes[_NO_MODELS.format(error.message)] = None
            break
    if len(found) > 1:
        raise _several("models", name, [f"{one.team}/{one.label}" for one in found])
    return _add_model(walk, found[0]) if found else ""


def _several(kinds: str, name: str, named: list[str]) -> Conflict:
    return Conflict(f"several {kinds} have the name {name}", hint=f"give one of {', '.join(named)}")


def _add_model(walk: _Walk, model: ModelVersion) -> str:
    key = f"{model.team}/{model.label}"
    walk.models[key] = model
    detail = " · ".join(part for part in (", ".join(model.aliases), f"of team {model.team}") if part)
    return walk.add("model", key, title=model.label, detail=detail)


async def _job_up(walk: _Walk, key: str, number: str) -> None:
    """What a job was made of: datasets, code, software, the jobs before it."""
    record = await walk.state.store.jobs.get(walk.cluster.name, int(number))
    if record is None:
        walk.notes[f"job {number} was not submitted through Headway: what it read is not known"] = None
        return
    for row in record.facts.get("datasets", []):
        label = f"{row['name']}@{row['version']}" if "sha256" in row else str(row["name"])
        walk.link(_add_dataset(walk, label), key, up=True)
    if may_act_on(walk.cluster, walk.who, _Owned(record.user, await walk.team_of(record.job_id))):
        _code_up(walk, key, record)
    if record.parent:
        walk.link(await walk.add_job(record.parent), key, up=True)
    if record.pipeline.startswith(SWEEP_ID):
        walk.link(walk.add("sweep", record.pipeline, detail=f"trial {record.step}"), key, up=True)
    elif record.pipeline:
        for other in await _neighbours(walk, record, before=True):
            walk.link(await walk.add_job(other), key, up=True)
        for label in await _passed_datasets(walk, record):
            walk.link(_add_dataset(walk, label), key, up=True)


def _code_up(walk: _Walk, key: str, record: JobRecord) -> None:
    """The code and software of a job that the person may look into."""
    git = record.request.get("git") or {}
    if git.get("commit"):
        branch = f"{git.get('branch') or ''}{', changed' if git.get('dirty') else ''}".strip(", ")
        walk.link(
            walk.add("code", str(git["commit"])[:12], title=f"commit {str(git['commit'])[:12]}", detail=branch),
            key,
            up=True,
        )
    elif bundle := str(record.request.get("bundle") or ""):
        walk.link(walk.add("code", bundle[:12], title=f"files {bundle[:12]}"), key, up=True)
    for one in record.facts.get("environments", []):
        walk.link(
            walk.add("environment", f"{one['name']}@{one['version']}", detail=f"Python {one['python']}"), key, up=True
        )
    if image := str(record.facts.get("container_image") or ""):
        walk.link(walk.add("container", image), key, up=True)


async def _job_down(walk: _Walk, key: str, number: str) -> None:
    """What was made of a job: jobs that continue or need it, models, results of a batch, services that read its folder."""
    store, cluster, job = walk.state.store, walk.cluster.name, int(number)
    for child in await store.jobs.children(cluster, job):
        walk.link(key, await walk.add_job(child), up=False)
    record = await store.jobs.get(cluster, job)
    if record is not None and record.pipeline and not record.pipeline.startswith(SWEEP_ID):
        for other in await _neighbours(walk, record, before=False):
            walk.link(key, await walk.add_job(other), up=False)
    for batch in await store.batches.of_job(cluster, job):
        if batch.dataset:
            walk.link(key, _add_dataset(walk, batch.dataset, f"batch {batch.name}"), up=False)
    team = await walk.team_of(job)
    if team in walk.teams():
        try:
            async for model in walk.registry.of_job(team, job):
                walk.link(key, _add_model(walk, model), up=False)
        except HeadwayError as error:
            walk.notes[_NO_MODELS.format(error.message)] = None
    folder = str(record.request.get("chdir") or "") if record else ""
    if "/runs/" in folder:  # its own folder, not the user's home
        _services_that_name(walk, key, re.compile(rf"{re.escape(folder)}(?![\w.-])"))


async def _neighbours(walk: _Walk, record: JobRecord, *, before: bool) -> list[int]:
    """Returns the jobs of the steps that this job's step needs, or that need it."""
    try:
        row = await walk.state.store.pipelines.get(walk.cluster.name, record.pipeline)
    except NotFound:
        return []
    steps = stored_pipeline(row.document["document"]).steps
    made = {one.step: one.job_id for one in await walk.state.store.jobs.of_pipeline(row.id)}
    if before:
        names = steps[record.step].needs if record.step in steps else []
    else:
        names = [name for name, step in steps.items() if record.step in step.needs]
    return [made[name] for name in names if name in made]


async def _passed_datasets(walk: _Walk, record: JobRecord) -> list[str]:
    """Returns the dataset versions that the steps which this job's step needs have passed on."""
    try:
        row = await walk.state.store.pipelines.get(walk.cluster.name, record.pipeline)
    except NotFound:
        return []
    steps, results = stored_pipeline(row.document["document"]).steps, stored_results(row.document.get("results", {}))
    needed = [results[need] for need in steps[record.step].needs if need in results] if record.step in steps else []
    return [one.version for result in needed for one in result.outputs.values() if one.kind == "dataset"]


async def _dataset_up(walk: _Walk, key: str, label: str) -> None:
    for batch in await walk.state.store.batches.of_dataset(walk.cluster.name, label):
        if batch.job_id:
            walk.link(await walk.add_job(batch.job_id), key, up=True)


async def _dataset_down(walk: _Walk, key: str, label: str) -> None:
    match = _VERSION.fullmatch(label)
    if match is None:
        return
    store, name, number = walk.state.store.datasets, match[1], int(match[2])
    count, jobs = await store.jobs_using(walk.cluster.name, name, number, limit=_MOST_JOBS)
    if count > len(jobs):
        walk.notes[f"of {count} jobs that use {label} the newest {len(jobs)} are shown"] = None
    for job in jobs:
        walk.link(key, await walk.add_job(job), up=False)


async def _model_up(walk: _Walk, key: str, name: str) -> None:
    if model := walk.models.get(name):
        if model.job:
            walk.link(await walk.add_job(model.job), key, up=True)
        else:
            walk.notes[f"no job of {walk.cluster.name} logged {model.label}"] = None


async def _model_down(walk: _Walk, key: str, name: str) -> None:
    if model := walk.models.get(name):
        uri = re.compile(rf"models:/{re.escape(model.name)}/{model.number}(?![0-9])")
        _services_that_name(walk, key, uri, model.team)


def _services_that_name(walk: _Walk, key: str, expression: re.Pattern[str], team: str = "") -> None:
    """Links the services, of one team or of all, whose file has text that the expression matches."""
    for service, text in walk.services:
        if team in ("", service.team) and expression.search(text):
            walk.link(key, _add_service(walk, service), up=False)


async def _service_up(walk: _Walk, key: str, name: str) -> None:
    """What a service reads: models of the registry, datasets, the folders of jobs."""
    service, text = next(one for one in walk.services if f"{one[0].team}/{one[0].name}" == name)
    for match in dict.fromkeys(_DATASET_PATH.findall(text)):
        walk.link(_add_dataset(walk, f"{match[0]}@{match[1]}"), key, up=True)
    for model, number in dict.fromkeys(_MODEL_URI.findall(text)):
        try:
            if service.team in walk.teams() and (
                found := await walk.registry.version(service.team, model, int(number))
            ):
                walk.link(_add_model(walk, found), key, up=True)
        except HeadwayError as error:
            walk.notes[_NO_MODELS.format(error.message)] = None
    folders = _folders_of_jobs(text)
    if len(folders) > _MOST_FOLDERS:
        walk.notes[f"of {len(folders)} folders of jobs that {service.name} names {_MOST_FOLDERS} are read"] = None
    for folder in folders[:_MOST_FOLDERS]:
        for job in await walk.state.store.jobs.in_folder(walk.cluster.name, folder):
            walk.link(await walk.add_job(job), key, up=True)


def _folders_of_jobs(text: str) -> list[str]:
    """Returns the paths /.../runs/NAME in a text. One expression for all of such a path would take time that grows with the
    square of its length."""
    found: dict[str, None] = {}
    for path in _PATH.findall(text):
        above, _, below = path.rstrip("/").rpartition("/runs/")
        if above:
            found[f"{above}/runs/{below.partition('/')[0]}"] = None
    return list(found)


_STEPS: dict[tuple[str, bool], Callable[[_Walk, str, str], Awaitable[None]]] = {
    ("job", True): _job_up,
    ("job", False): _job_down,
    ("dataset", True): _dataset_up,
    ("dataset", False): _dataset_down,
    ("model", True): _model_up,
    ("model", False): _model_down,
    ("service", True): _service_up,
}

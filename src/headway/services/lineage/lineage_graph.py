"""Walks from a job, dataset, model or service to all that it was made of, and to all that was made of it."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import HeadwayError, NotFound, Refused
from headway.jobs.pipelines.pipeline_file import stored_pipeline
from headway.jobs.pipelines.step_plan import stored_results
from headway.schemas.submission.lineage_graph import LineageGraphOut, LineageKind, LineageNodeOut
from headway.services.access.ownership_rights import cluster_to_work_on, may_act_on
from headway.services.access.role_rights import Principal, Right
from headway.services.app_state import AppState
from headway.services.lineage.registered_models import ModelVersion, model_version, models_of_job
from headway.store import SWEEP_ID, JobRecord

MOST_NODES = 200
_MOST_JOBS = 50  # that use one dataset
_VERSION = re.compile(r"([A-Za-z0-9][\w.-]*)@([1-9][0-9]{0,8})")
_DATASET_PATH = re.compile(r"(?<![\w.-])/datasets/([a-z][a-z0-9_-]*)/([0-9]+)")
_MODEL_URI = re.compile(r"models:/([^/\s\"'@]+)/([0-9]+)")
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
    models: dict[str, ModelVersion] = field(default_factory=dict)
    jobs: dict[int, JobState] = field(default_factory=dict)  # those that Slurm knows

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
    `service:` in front chooses the kind. Raises NotFound."""
    cluster = await cluster_to_work_on(state, name, who)
    walk = _Walk(state, cluster, who)
    with contextlib.suppress(HeadwayError):  # jobs of the last days, in one shared request
        walk.jobs = {job.id: job for job in await state.readings.history(cluster)}
    walk.jobs |= state.live.snapshot(name).by_id
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
    if name.isdigit() and kind in (what, "job"):
        key = await walk.add_job(int(name))
        if not walk.nodes[key].detail:
            raise NotFound(f"{walk.cluster.name} has no job {name}", hint="headway queue")
        return key
    if colon and kind not in ("dataset", "model", "service"):
        raise Refused(f"lineage has no {kind[:40]!r}", hint="use job:12, dataset:books@3, model:iris@1 or service:chat")
    match = _VERSION.fullmatch(name)
    label, number = (match[1], int(match[2])) if match else (name, 0)
    if not name:
        raise NotFound("nothing is named", hint="headway lineage show 12, or books@3")
    for wanted, find in (("dataset", _find_dataset), ("service", _find_service), ("model", _find_model)):
        if colon and kind != wanted:
            continue
        if key := await find(walk, label, number):
            return key
    raise NotFound(
        f"{walk.cluster.name} has no {kind if colon else 'dataset, model or service'} {name[:60]!r}",
        hint="headway dataset ls, headway service ls, headway mlflow ui TEAM",
    )


async def _find_dataset(walk: _Walk, name: str, number: int) -> str:
    versions = await walk.state.store.datasets.versions(walk.cluster.name, name, removed=True)
    found = [version for version in versions if not number or version.number == number]
    return _add_dataset(walk, found[-1].label, found[-1].source) if found else ""


def _add_dataset(walk: _Walk, label: str, source: str = "") -> str:
    return walk.add("dataset", label, detail=f"from {source}" if source else "")


async def _find_service(walk: _Walk, name: str, number: int) -> str:
    running = await walk.state.store.services.running(walk.cluster.name)
    found = [service for service in running if service.name == name and not number]
    return walk.add("service", name, detail=f"of team {found[-1].team}") if found else ""


async def _find_model(walk: _Walk, name: str, number: int) -> str:
    try:
        return _add_model(walk, await model_version(walk.state, walk.cluster.name, walk.teams(), name, number))
    except NotFound:
        return ""


def _add_model(walk: _Walk, model: ModelVersion) -> str:
    walk.models[model.label] = model
    aliases = ", ".join(model.aliases)
    return walk.add(
        "model", model.label, detail=" · ".join(part for part in (aliases, f"of team {model.team}") if part)
    )


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
            for model in await models_of_job(walk.state, cluster, team, job):
                walk.link(key, _add_model(walk, model), up=False)
        except HeadwayError as error:
            walk.notes[_NO_MODELS.format(error.message)] = None
    folder = str(record.request.get("chdir") or "") if record else ""
    if "/runs/" in folder:  # its own folder, not the user's home
        await _services_that_name(walk, key, re.compile(rf"{re.escape(folder)}(?![\w.-])"))


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


async def _model_up(walk: _Walk, key: str, label: str) -> None:
    if model := walk.models.get(label):
        if model.job:
            walk.link(await walk.add_job(model.job), key, up=True)
        else:
            walk.notes[f"no job of {walk.cluster.name} logged {label}"] = None


async def _model_down(walk: _Walk, key: str, label: str) -> None:
    name, _, number = label.partition("@")
    await _services_that_name(walk, key, re.compile(rf"models:/{re.escape(name)}/{number}(?![0-9])"))


async def _services_that_name(walk: _Walk, key: str, text: re.Pattern[str]) -> None:
    for service in await walk.state.store.services.running(walk.cluster.name):
        if text.search(json.dumps(service.document)):
            walk.link(key, walk.add("service", service.name, detail=f"of team {service.team}"), up=False)


async def _service_up(walk: _Walk, key: str, name: str) -> None:
    """What a service reads: models of the registry, datasets, the folders of jobs."""
    running = await walk.state.store.services.running(walk.cluster.name)
    service = next((one for one in running if one.name == name), None)
    if service is None:
        return
    text = json.dumps(service.document)
    for match in dict.fromkeys(_DATASET_PATH.findall(text)):
        walk.link(_add_dataset(walk, f"{match[0]}@{match[1]}"), key, up=True)
    for model, number in dict.fromkeys(_MODEL_URI.findall(text)):
        try:
            if service.team in walk.teams():
                found = await model_version(walk.state, walk.cluster.name, [service.team], model, int(number))
                walk.link(_add_model(walk, found), key, up=True)
        except HeadwayError as error:
            walk.notes[_NO_MODELS.format(error.message)] = None
    for folder in dict.fromkeys(re.findall(r"/[\w./-]+/runs/[\w.-]+", text)):
        for job in await walk.state.store.jobs.in_folder(walk.cluster.name, folder):
            walk.link(await walk.add_job(job), key, up=True)


_STEPS: dict[tuple[str, bool], Callable[[_Walk, str, str], Awaitable[None]]] = {
    ("job", True): _job_up,
    ("job", False): _job_down,
    ("dataset", True): _dataset_up,
    ("dataset", False): _dataset_down,
    ("model", True): _model_up,
    ("model", False): _model_down,
    ("service", True): _service_up,
}

"""Jobs made from a command and files, and what is kept of every job: run, bundles, lineage, retry, rerun."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import secrets as random
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from headway.api.auth.dependencies import Member, PathNumber, State
from headway.api.routers.cluster.datasets import pinned
from headway.domain.cluster import Cluster
from headway.domain.dataset import Version
from headway.domain.slurm.hostlist import compress
from headway.domain.slurm.state import JobState
from headway.errors import NotAllowed, NotFound, Refused, TooManyAtOnce, Unanswered
from headway.jobs.submission import lineage, secret_masking
from headway.jobs.submission.batch_script import BY_TASK
from headway.jobs.submission.job_folders import place
from headway.jobs.submission.node_capacity import Offer, offer_of
from headway.jobs.submission.requested_resources import without_dependency
from headway.jobs.submission.run_request import Prepared, again, prepare_run, run_out
from headway.jobs.view.array_tasks import array_out, failed_tasks, with_array
from headway.schemas.jobs import ArrayOut
from headway.schemas.submissions import (
    BundleOut,
    ExecIn,
    GitIn,
    LineageOut,
    RetryIn,
    RunIn,
    RunOut,
    SubmitIn,
    SubmitOut,
)
from headway.services.authorization import (
    authorize_action,
    authorize_as_owner,
    cluster_to_work_on,
    command_slot,
    write_audit_line,
)
from headway.services.context import AppState
from headway.services.identity import Principal
from headway.store import JobRecord, StoreAway

router = APIRouter(prefix="/clusters/{name}", tags=["jobs"])
MAX_ARCHIVE = 64 * 1024 * 1024  # bytes of a bundle as it is sent
BUNDLES_AT_ONCE = 4  # so many are in memory at once on their way to a cluster,
BUNDLES_OF_ONE = 2  # of them one person's,
KEEP_AGAIN_S = 1.0
BUNDLE_WAIT_S = 60.0  # and another waits so long
Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]


def new_mark(who: Principal) -> str:
    """Tells a job's folder from others of the same name, and sorts by time. The same again for the same request."""
    at, tail = (
        (who.first_sent_at, who.idempotency_key[:4]) if who.idempotency_key else (time.time(), random.token_hex(2))
    )
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(at))}-{tail}"


def offered(state: AppState, cluster: Cluster) -> Offer:
    """What nodes have, as last read; made once a reading."""
    snapshot = state.live.snapshot(cluster.name)
    known: tuple[Cluster, Offer] | None = snapshot.kept.get("offer")
    if known is None or known[0] is not cluster:
        known = snapshot.kept["offer"] = cluster, offer_of(cluster, snapshot.nodes)
    return known[1]


async def send(
    state: AppState, who: Principal, cluster: Cluster, prepared: Prepared, user: str, kind: str, **links: Any
) -> SubmitOut:
    """Submits and keeps where it comes from. `links`: parent."""
    with command_slot(state, who):
        answer = await state.work.submit(cluster, prepared.request, user, prepared.stage, tag=who.idempotency_key)
    await keep(state, who, cluster, prepared, user, answer, kind, **links)
    return answer


async def keep(
    state: AppState,
    who: Principal,
    cluster: Cluster,
    prepared: Prepared,
    user: str,
    answer: SubmitOut,
    kind: str,
    **links: Any,
) -> None:
    """Where a job comes from that was submitted just now. `links`: parent, pipeline, step. Raises Unanswered where that can't be
    written: the job is there, and nobody should send it once more."""
    since = who.first_sent_at if who.idempotency_key else state.clock()

    async def note() -> None:
        versions = await _versions(state, cluster, prepared)
        told = {"job": answer.job_id, "user": user, "script": prepared.request.script_name}
        if not answer.job_id:
            return await write_audit_line(state, who, kind, cluster.name, **told)
        return await state.store.note_job(
            cluster.name,
            answer.job_id,
            person=who.person,
            user=user,
            kind=kind,
            request=lineage.kept_request(prepared),
            facts=lineage.facts(prepared, cluster, versions),
            datasets=[(one.name, one.number) for one in versions],
            audit=told,
            address=who.address,
            **links,
        )

    for last in (False, True):
        try:
            # The server before may have kept it, and so may the first try, whose answer alone was late then.
            if not (
                (who.idempotency_key or last) and await _kept_already(state, cluster, answer.job_id, who, user, since)
            ):
                await note()
            break
        except StoreAway as away:
            if last:
                job = f"job {answer.job_id}" if answer.job_id else "what was asked"
                raise Unanswered(
                    f"{job} went to {cluster.name}, but what it was could not be kept: {away.message}",
                    hint=f"do not send it again: headway queue {cluster.name}",
                ) from away
            await asyncio.sleep(KEEP_AGAIN_S)
    state.live.poke(cluster.name, (answer.job_id,) if answer.job_id else ())


async def _kept_already(
    state: AppState, cluster: Cluster, job_id: int, who: Principal, user: str, since: float
) -> bool:
    """Whether this person's job of that number is known since then: numbers begin anew where a cluster does."""
    record = await state.store.job_record(cluster.name, job_id, user)
    return record is not None and record.person == who.person and record.at >= since


async def _versions(state: AppState, cluster: Cluster, prepared: Prepared) -> list[Version]:
    """Versions of datasets that the job names."""
    if not any(one.versioned for one in cluster.storage.datasets):
        return []
    return lineage.used(prepared, await state.store.versions(cluster.name))


async def _datasets(state: AppState, record: JobRecord) -> list[dict[str, str]]:
    """Those of a job's lineage; of a version that was removed since it says who did."""
    rows: list[dict[str, str]] = [dict(row) for row in record.facts.get("datasets", [])]
    if not any("sha256" in row for row in rows):
        return rows
    known = {(one.name, str(one.number)): one for one in await state.store.versions(record.cluster, removed=True)}
    for row in rows:
        one = known.get((row["name"], row["version"]))
        if "sha256" in row and one is not None and one.removed_at is not None:
            row["removed"] = f"by {one.removed_by}{', by force' if one.forced else ''}"
            row["removed_at"] = f"{one.removed_at:.0f}"
    return rows


@router.post("/run", status_code=201)
async def run(name: str, request: RunIn, state: State, who: Member) -> RunOut:
    """Makes the script of a command and submits it; `dry_run` only makes it."""
    user = who.user_to_act_as(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    request = request.model_copy(update={"stage_in": await pinned(state, cluster, request.stage_in)})
    prepared = prepare_run(request, cluster, user, new_mark(who), offer=offered(state, cluster))
    if request.dry_run:
        return run_out(prepared, name, user)
    done = await send(state, who, cluster, prepared, user, "run")
    return run_out(prepared, name, user, done.job_id, done.message)


@router.get("/bundles/{digest}")
async def bundle(name: str, digest: Digest, state: State, who: Member, user: str = "") -> BundleOut:
    """Whether these files are on the cluster already."""
    acting, cluster = who.user_to_act_as(user), await cluster_to_work_on(state, name, who)
    with command_slot(state, who):
        present = await state.work.keep_bundle(cluster, acting, place(cluster, acting).root, digest, b"")
    return BundleOut(digest=digest, present=present)


@router.put("/bundles/{digest}")
async def put_bundle(
    name: str, digest: Digest, state: State, who: Member, request: Request, user: str = ""
) -> BundleOut:
    """A tar.gz of files, kept under their digest as the person's own, read-only."""
    acting, cluster = who.user_to_act_as(user), await cluster_to_work_on(state, name, who)
    size = 0
    with tempfile.TemporaryFile(dir=state.settings.state_dir) as file:  # it may come slowly, and many at once
        async for chunk in request.stream():
            size += file.write(chunk)
            if size > MAX_ARCHIVE:
                raise Refused(
                    f"the files are larger than {MAX_ARCHIVE // 2**20} MiB",
                    hint="leave some out by .gitignore; data goes to scratch by headway cp",
                )
        file.seek(0)
        with command_slot(state, who):
            async with _in_memory(state, name, who.person):
                archive = await asyncio.to_thread(file.read)
                present = await state.work.keep_bundle(cluster, acting, place(cluster, acting).root, digest, archive)
    await write_audit_line(state, who, "files", name, digest=digest, bytes=size, user=acting)
    return BundleOut(digest=digest, present=present)


@contextlib.asynccontextmanager
async def _in_memory(state: AppState, cluster: str, person: str) -> AsyncIterator[None]:
    """Around an archive on its way. Where a home or a cluster hangs, other people and clusters go on. Raises TooManyAtOnce."""
    own = state.bundles.setdefault((cluster, person), asyncio.Semaphore(BUNDLES_OF_ONE))
    every = state.bundles.setdefault((cluster, ""), asyncio.Semaphore(BUNDLES_AT_ONCE))
    async with contextlib.AsyncExitStack() as held:
        try:
            async with asyncio.timeout(BUNDLE_WAIT_S):
                await held.enter_async_context(own)
                await held.enter_async_context(every)
        except TimeoutError:
            raise TooManyAtOnce(
                f"other files are on their way to {cluster}, and there was no turn for these within {BUNDLE_WAIT_S:g} s",
                hint=f"try again in a moment; headway status {cluster} says how it is",
            ) from None
        yield


@router.get("/jobs/{job_id}/tasks")
async def tasks(name: str, job_id: PathNumber, state: State, who: Member) -> ArrayOut:
    """How the tasks of an array stand; total 0 for a job that is none."""
    _, cluster = await state.cluster(name)
    return array_out(await _array(state, who, cluster, job_id))


async def _array(state: AppState, who: Principal, cluster: Cluster, job_id: int) -> dict[str, str]:
    with command_slot(state, who):
        return await state.work.array(cluster, job_id)


@router.get("/jobs/{job_id}/lineage")
async def show_lineage(name: str, job_id: PathNumber, state: State, who: Member) -> LineageOut:
    """Where a job comes from: what was sent, by whom, from which commit, and what Slurm gave it."""
    cluster = await cluster_to_work_on(state, name, who)
    record = await _record(state, cluster, who, job_id)
    await authorize_action(state, cluster, who, record, f"look into job {job_id}")
    request = SubmitIn.model_validate(record.request)
    with command_slot(state, who):
        job = await _job(state, cluster, job_id)
        folder, named = _checkpoints(record, job), str(record.facts.get("container_image", ""))
        seen = await _found(state, cluster, record.user, job_id, folder)
    ran = dict.fromkeys(str(one["image"]) for one in seen["used"] if one.get("image"))
    images = [named] if named else [*ran]
    return LineageOut(
        job_id=job_id,
        cluster=name,
        submitted_at=record.at,
        person=record.person,
        user=record.user,
        kind=record.kind,
        parent=record.parent,
        pipeline=record.pipeline,
        step=record.step,
        script_name=request.script_name,
        script=secret_masking.masked_text(request.script or ""),
        script_args=secret_masking.masked_words(request.script_args),
        sbatch_args=secret_masking.masked_words(request.args),
        workdir=request.chdir,
        env=request.env,
        bundle=request.bundle,
        git=GitIn.model_validate(request.git) if request.git else None,
        launcher=str(record.facts.get("launcher", "")),
        container_image=", ".join(images),
        container_digest=_digest(images[0] if images else "", seen["used"]),
        datasets=await _datasets(state, record),
        checkpoint_dir=folder,
        checkpoints=seen["checkpoints"],
        nodes=compress(job.nodes) if job else "",
        gpus=job.gpus if job else 0,
        partition=job.partition if job else "",
        account=job.account if job else "",
        state=job.state if job else "",
    )


@router.post("/jobs/{job_id}/retry", status_code=201)
async def retry(name: str, job_id: PathNumber, request: RetryIn, state: State, who: Member) -> SubmitOut:
    """The failed tasks of an array once more, with the same script in the same folder."""
    cluster = await cluster_to_work_on(state, name, who)
    record = await _record(state, cluster, who, job_id)
    await authorize_as_owner(state, cluster, who, record, f"retry job {job_id}")
    states = await _array(state, who, cluster, job_id)
    if not states:
        raise Refused(f"job {job_id} is no array", hint=f"headway job rerun {name} {job_id} repeats the whole job")
    if request.task:
        states = _only(states, cluster, job_id, request.task)
    failed = failed_tasks(states)
    if not failed and request.task:
        word, (now,) = f"{job_id}_{request.task}", states.values()
        raise Refused(f"{word} has not failed: it is {now}", hint=f"headway job rerun {name} {word} repeats it")
    if not failed:
        raise Refused(f"job {job_id} has no failed tasks", hint=f"headway job show {name} {job_id}")
    sent = without_dependency(_with_secrets(record, request))
    launcher, checkpoints = (str(record.facts.get(name, "")) for name in ("launcher", "checkpoints"))
    prepared = Prepared(with_array(sent, failed), None, launcher=launcher, checkpoints=checkpoints)
    return await send(state, who, cluster, prepared, record.user, "retry", parent=job_id)


@router.post("/jobs/{job_id}/rerun", status_code=201)
async def rerun(name: str, job_id: PathNumber, request: RetryIn, state: State, who: Member) -> SubmitOut:
    """The same script, words, environment and files once more, in a folder of its own; of an array one task, if asked."""
    cluster = await cluster_to_work_on(state, name, who)
    record = await _record(state, cluster, who, job_id)
    await authorize_as_owner(state, cluster, who, record, f"run job {job_id} again")
    sent = without_dependency(_with_secrets(record, request))
    if request.task:
        sent = with_array(sent, *_only(await _array(state, who, cluster, job_id), cluster, job_id, request.task))
    prepared = again(sent, record.facts, cluster, record.user, new_mark(who))
    return await send(state, who, cluster, prepared, record.user, "rerun", parent=job_id)


async def rerun_changed(name: str, job_id: int, change: SubmitIn, state: AppState, who: Principal) -> SubmitOut:
    """One's own job once more with another script, other words and flags, in a folder of its own, with the same environment
    and files. `change.env`: secrets that were not kept."""
    cluster = await cluster_to_work_on(state, name, who)
    record = await _record(state, cluster, who, job_id)
    if record.user != who.user:
        raise NotAllowed(f"{who.person} may not clone job {job_id}: it belongs to {record.user}", hint="its owner may")
    await authorize_as_owner(state, cluster, who, record, f"clone job {job_id}")
    sent = without_dependency(_with_secrets(record, RetryIn(env=change.env)))
    prepared = again(sent, record.facts, cluster, record.user, new_mark(who), change)
    return await send(state, who, cluster, prepared, record.user, "rerun", parent=record.job_id)


def _only(states: Mapping[str, str], cluster: Cluster, job_id: int, task: str) -> dict[str, str]:
    """How that one task of an array stands. Raises NotFound."""
    number = str(int(task))
    if number not in states:
        raise NotFound(
            f"job {job_id} on {cluster.name} has no task {task}", hint=f"headway job {cluster.name} {job_id}"
        )
    return {number: states[number]}


def _with_secrets(record: JobRecord, request: RetryIn) -> SubmitIn:
    """The request with the values that were not kept. Raises Refused when one is missing."""
    sent = SubmitIn.model_validate(record.request)
    env = {**sent.env, **request.env}
    lost = secret_masking.lost_secrets(env)
    if lost:
        raise Refused(
            f"the value of {', '.join(lost)} was not kept, as it is a secret",
            hint=" ".join(f"--env {name}" for name in lost) + " takes it from your environment again",
        )
    return sent.model_copy(update={"env": env})


def _checkpoints(record: JobRecord, job: JobState | None) -> str:
    """The folder of the job's checkpoints, or of those of the task that it is; "" for none that is known."""
    folder = str(record.facts.get("checkpoints", ""))
    task = job.array_task if job and job.id != record.job_id else ""
    apart = folder and task.isdigit() and BY_TASK in str(record.request.get("script") or "")
    return f"{folder}/{task}" if apart else folder


async def _record(state: AppState, cluster: Cluster, who: Principal, job_id: int) -> JobRecord:
    """What was kept of the job, or of the array that it is a task of. Of a job that Slurm knows no more one's own is found
    first."""
    try:
        record = await record_of(state, cluster, await state.job(cluster, job_id))
    except NotFound:
        known = state.store.job_record
        record = await known(cluster.name, job_id, who.user) or await known(cluster.name, job_id)
    if record is None:
        raise NotFound(
            f"job {job_id} of {cluster.name} was not submitted by way of Headway, so nothing is kept of it",
            hint="headway submit and headway run keep script, files and settings",
        )
    return record


async def record_of(state: AppState, cluster: Cluster, found: JobState) -> JobRecord | None:
    """What Headway kept of the job, or of the array that it is a task of."""
    return await state.store.job_record(cluster.name, found.array_job_id or found.id, found.user)


async def _job(state: AppState, cluster: Cluster, job_id: int) -> JobState | None:
    try:
        return await state.work.job(cluster, job_id)
    except NotFound:
        return None


_LOOK = """
import json, os, sys
checkpoints, used = [], []
try: checkpoints = sorted(os.listdir(sys.argv[1]))
except OSError: pass
try: used = [one for one in map(json.loads, open(sys.argv[2])) if isinstance(one, dict)]
except (OSError, ValueError): pass
print(json.dumps({"checkpoints": checkpoints, "used": used}))
"""


async def _found(state: AppState, cluster: Cluster, user: str, job_id: int, folder: str) -> dict[str, Any]:
    """What lies on the cluster of the job, as its owner sees it: names of checkpoints, images its steps have used."""
    used = f"{place(cluster, user).shared}/.containers/.used-{job_id}"
    request = ExecIn(argv=["python3", "-I", "-S", "-c", _LOOK, folder or "/nonexistent", used], user=user)
    done = await state.work.run_command(cluster, request, user)
    return dict(json.loads(base64.b64decode(done.stdout_b64))) if done.code == 0 else {"checkpoints": [], "used": []}


def _digest(image: str, used: Sequence[Mapping[str, str]]) -> str:
    """The digest of the image that ran, else the one its reference pins."""
    for one in used:
        match = re.search(r"sha256-([0-9a-f]{64})", str(one.get("file", "")))
        if match and one.get("image") in (image, None, ""):
            return f"sha256:{match[1]}"
    return image.partition("@")[2] if "@sha256:" in image else ""

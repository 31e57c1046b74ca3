"""The handler of environment operations."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from dataclasses import replace

from headway.domain.cluster import Cluster
from headway.domain.dataset import format_bytes
from headway.domain.environment import FILE_SOURCE, FOLDER, EnvironmentVersion, request_digest
from headway.domain.operation_kinds import EnvironmentParams
from headway.domain.slurm.job_states import ENDED, WAITING
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.environments.build_job import BuildFolders, build_folders, job_name, prepare_build
from headway.errors import HeadwayError, NotFound, Refused, Unanswered, Unreachable
from headway.jobs.explain.reason_lines import explain_reason
from headway.jobs.submission.prepare_job import PreparedJob
from headway.schemas.submission.exec_commands import ExecIn
from headway.server.operations.operation_run import OperationRun
from headway.services.access.ownership_rights import require_still_listed
from headway.services.access.role_rights import Principal, principal_for
from headway.services.jobs.submission import submit_and_record
from headway.services.storage.environments import require_owner
from headway.services.storage.version_removal import record_removal
from headway.store import StoreUnavailable

FIRST_LOOK_S = 0.5  # seconds between looks at the job, growing up to LAST_LOOK_S
LAST_LOOK_S = 5.0
LOST_S = 1800.0  # seconds that the job may be unknown to Slurm, as after a restart of the head without its state
_NO_INDEX = ("dns error", "error sending request", "client error (Connect)")  # in uv's errors
_LOG_LINES = 12  # of a failed build, in the error


async def change_environment(run: OperationRun) -> tuple[str, ...]:
    """Builds or removes a version of an environment. Returns the path of a version that was built."""
    work = EnvironmentOperation(run)
    if EnvironmentParams.from_json(run.operation.params).action == "remove":
        await work.remove()
        return ()
    return (await work.add(),)


class EnvironmentOperation:
    """Carries out one operation of the kind environment."""

    def __init__(self, run: OperationRun) -> None:
        self._state, self._report, self._operation = run.state, run.report, run.operation
        self._params = EnvironmentParams.from_json(run.operation.params)
        self._name = self._params.name
        self._lost_since: float | None = None  # monotonic seconds since which Slurm does not know the job

    async def add(self) -> str:
        """Builds a version in a job and publishes it. Returns its path. After a restart of the server this finds the
        same job again, and what it has published. Raises Refused when the job fails."""
        state = self._state
        _, cluster = await state.clusters.get(self._operation.cluster)
        user = self._params.user or ""
        place, continues = build_folders(cluster, user, self._operation.id), False
        try:
            who = await self._person(cluster)
            await self._require_right(who, cluster)
            files = await state.backend.storage.environment_file_store(cluster)
            prepared = prepare_build(self._params, cluster, user, self._operation.id, await files.provide_uv())
            job_id = await self._submit(who, cluster, prepared, user)
            await self._report("job", f"job {job_id} of {user} builds it")
            cluster = await self._wait_for_job(job_id, place)
            await self._require_right(who, cluster)  # the build may have taken hours
            return await self._publish(cluster, user, place, job_id)
        except StoreUnavailable:  # the worker runs the operation again, which needs the folder
            continues = True
            raise
        finally:
            if not continues:
                await self._clean_up(cluster, user, place)

    async def _submit(self, who: Principal, cluster: Cluster, prepared: PreparedJob, user: str) -> int:
        """Returns the id of the job, which is submitted once. Raises StoreUnavailable if it could not be recorded."""
        try:
            return (await submit_and_record(self._state, who, cluster, prepared, user, "build")).job_id
        except Unanswered as error:
            if isinstance(error.__cause__, StoreUnavailable):  # the next try finds the job by its key
                raise error.__cause__ from None
            raise

    async def _publish(self, cluster: Cluster, user: str, place: BuildFolders, job_id: int) -> str:
        """Publishes what the job built, records the version and returns its path."""
        store, began = self._state.store.environments, time.monotonic()
        await self._report("version", f"the packages are copied to {FOLDER}")
        files = await self._state.backend.storage.environment_file_store(cluster)
        number = await store.next_number(cluster.name, self._name)
        latest = await store.latest(cluster.name, self._name)
        made = await files.publish(self._name, number, self._operation.id, user, place.stage, latest)
        version = EnvironmentVersion(
            cluster.name, self._name, made.number, made.sha256, made.python, made.packages, made.bytes,
            self._params.source or "", request_digest(self._params.text or "", self._params.pyproject or ""),
            self._operation.person, self._state.clock(), job_id,
        )  # fmt: skip
        if latest is None or made.number != latest.number:
            await store.add(version, made.lock)
            text = f"{version.label}: {made.packages} packages, {format_bytes(made.bytes)}"
        else:
            await store.record_request(latest, version.request)
            text = f"{latest.label} has exactly these packages"
        await self._report("version", text, done=True, seconds=time.monotonic() - began)
        return version.path

    async def remove(self) -> None:
        """Removes a version, and first records that. Raises Conflict while the lineage of jobs names it, unless it was
        asked for by force."""
        state, store = self._state, self._state.store.environments
        _, cluster = await state.clusters.get(self._operation.cluster)
        one = await store.get(cluster.name, self._name, self._params.version or 0)
        await record_removal(store, one, self._operation.person, force=bool(self._params.force))
        await (await state.backend.storage.environment_file_store(cluster)).remove(one.name, one.number)
        await self._report("version", f"{one.label} is removed, {format_bytes(one.bytes)} are free", done=True)

    async def _person(self, cluster: Cluster) -> Principal:
        """Returns the person who asked, with a key that makes a repeated submission find the first one's job."""
        person = await self._state.store.people.get(self._operation.person)
        if person is None or person.disabled:
            raise Refused(
                f"{self._operation.person}, who asked for environment {self._name}, is no longer known or disabled",
                hint=self._build_again(cluster),
            )
        key = hashlib.sha256(f"environment {self._operation.id}".encode()).hexdigest()
        return replace(principal_for(person), idempotency_key=key, first_sent_at=self._operation.created_at)

    async def _require_right(self, who: Principal, cluster: Cluster) -> None:
        """Raises NotAllowed if the person may not build the environment any more. What the cluster file lists is built
        by the server itself, on behalf of the person who applied the file."""
        if self._params.source == FILE_SOURCE:
            return
        who.user_to_act_as(self._params.user or "")
        await require_still_listed(self._state, cluster, who)
        await require_owner(self._state, who, cluster, self._name)

    async def _wait_for_job(self, job_id: int, place: BuildFolders) -> Cluster:
        """Waits until the job has completed and reports what it does. Returns the cluster as it is then. Raises Refused
        when the job did not complete, and NotFound when the cluster was removed."""
        state, operation = self._state, self._operation
        state.waiting.add(operation.id)  # it may take hours
        state.wake.set()
        try:
            began, pause, said = time.monotonic(), FIRST_LOOK_S, ""
            while True:
                _, cluster = await state.clusters.get(operation.cluster)
                job = await self._job(cluster, job_id)
                if job is not None and job.state in ENDED:
                    break
                text = await self._doing(cluster, job) if job is not None else said
                if text != said:
                    said = text
                    await self._report("job", text)
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, LAST_LOOK_S)
        finally:
            state.waiting.discard(operation.id)
        if job.state != "COMPLETED":
            raise await self._failure(cluster, job, place)
        await self._report("job", f"job {job_id} is complete", done=True, seconds=time.monotonic() - began)
        return cluster

    async def _job(self, cluster: Cluster, job_id: int) -> JobState | None:
        """Returns the job; None while Slurm does not answer, or does not know it. Raises Refused when it did not know
        it for LOST_S."""
        lost_since, self._lost_since = self._lost_since, None
        try:
            job = await self._state.backend.slurm.job(cluster, job_id)
        except Unreachable:
            return None
        except NotFound:
            job = None
        # Numbers of jobs start again when Slurm's records were lost or restored.
        if job is not None and job.name == job_name(self._name):
            return job
        now = time.monotonic()
        self._lost_since = now if lost_since is None else lost_since
        if now - self._lost_since >= LOST_S:
            raise Refused(
                f"Slurm of {cluster.name} no longer knows job {job_id}, which built {self._name}",
                hint=self._build_again(cluster),
            )
        return None

    async def _failure(self, cluster: Cluster, job: JobState, place: BuildFolders) -> Refused:
        """Returns the error of a job that did not complete, with the last lines of its log."""
        lines = await self._last_lines(cluster, job)
        what = "was cancelled" if job.state == "CANCELLED" else f"ended with {job.state}"
        return Refused(
            "\n".join([f"the build of {self._name}, job {job.id}, {what}", *(f"  {line}" for line in lines)]),
            hint=_hint(cluster, job.id, place, lines),
        )

    def _build_again(self, cluster: Cluster) -> str:
        return f"headway env add {cluster.name} {self._name} --requirements FILE builds it again"

    async def _doing(self, cluster: Cluster, job: JobState) -> str:
        if job.state in WAITING:
            return f"job {job.id} waits: {explain_reason(job.reason) or 'its turn'}"
        lines = await self._last_lines(cluster, job)
        where = f"job {job.id} runs on {job.nodes[0]}" if job.nodes else f"job {job.id} runs"
        return f"{where}: {lines[-1].strip('- ')}" if lines else where

    async def _last_lines(self, cluster: Cluster, job: JobState) -> list[str]:
        try:
            part = await self._state.backend.jobs.log_part(cluster, job, before=None, lines=_LOG_LINES, err=False)
        except HeadwayError:  # there is none yet
            return []
        return [line for line in part.text.splitlines() if line.strip()]

    async def _clean_up(self, cluster: Cluster, user: str, place: BuildFolders) -> None:
        """Deletes the build's folder as its user, unless the server stops: then the operation continues with it."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            return
        with contextlib.suppress(HeadwayError):
            request = ExecIn(argv=["rm", "-rf", "--", place.stage], user=user)
            await self._state.backend.commands.run_command(cluster, request, user)


def _hint(cluster: Cluster, job_id: int, place: BuildFolders, lines: list[str]) -> str:
    if any(word in line for line in lines for word in _NO_INDEX):
        return (
            "nodes don't reach the package index: give packages: {index: URL} or packages: {proxy: head} in the cluster file; "
            f"headway logs {cluster.name} {job_id} prints the whole log"
        )
    return f"headway logs {cluster.name} {job_id} prints its log, in {place.log}"

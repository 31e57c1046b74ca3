"""Implements services.cluster_backend over the connections that are kept open for each cluster."""

from __future__ import annotations

import base64
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.domain.billing import CheckpointStats, JobRun, NodeSpan, Notification
from headway.domain.changeset import ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.machine import Machine
from headway.domain.slots import Deadline
from headway.domain.slurm.accounts import Share
from headway.domain.slurm.state import Check, JobState, Room
from headway.errors import InvalidSpec, NotFound, Refused, Unreachable
from headway.render.monitoring.metric_queries import Query, Row
from headway.schemas.backups import VolumeSpeedOut
from headway.schemas.clusters import Document
from headway.schemas.jobs import LogFoundOut, LogPartOut, ProgressOut
from headway.schemas.submissions import ExecIn, ExecOut, SubmitIn, SubmitOut
from headway.server.backend.node_actions import NodeActions
from headway.server.operations.wait_watch import WatchWhileWaiting
from headway.services.cluster_backend import ResolvedCluster, WaitForJobs
from headway.services.mappers import course_out

if TYPE_CHECKING:
    from headway.backup.archive import Header
    from headway.cluster.context import ReportProgress
    from headway.datasets.library_location import LibraryLocation
    from headway.jobs.remote.tunnel import Tunnel
    from headway.jobs.submission.submit import JobFiles
    from headway.jobs.view.progress import Progress
    from headway.rollout.image_rollout import OperationWaits


class Backend(NodeActions):
    """Implements headway.services.cluster_backend.ClusterBackend, where the methods are documented. Heavy libraries
    are imported at first use."""

    # --- the spec

    def resolve(self, document: Document) -> ResolvedCluster:
        from headway.catalog.plans import load_catalogue
        from headway.clusterfile.load import check_cluster_file

        cluster, faults = check_cluster_file(document.spec, load_catalogue(document.catalogue), owner=document.owner)
        errors = [fault for fault in faults if fault.level == "error"]
        if cluster is None or errors:
            raise InvalidSpec(errors or faults)
        return ResolvedCluster(cluster, tuple(faults))

    # --- the cluster

    async def plan(self, cluster: Cluster) -> ChangeSet:
        from headway.cluster.apply import plan_changes

        async with self._to_look(cluster) as env:
            return await plan_changes(cluster, env)

    async def apply(
        self,
        cluster: Cluster,
        say: ReportProgress,
        deadline: Deadline | None = None,
        waiting: WaitForJobs | None = None,
    ) -> bool:
        from headway.cluster.apply import apply_cluster
        from headway.cluster.scaling.scale_in import SteppedAside

        async with self._alone(cluster) as held:
            try:
                await apply_cluster(cluster, held.env, say, deadline, WatchWhileWaiting(held, say, cluster, waiting))
            except SteppedAside:
                return True
            held.cluster = cluster
        return False

    async def down(self, cluster: Cluster, say: ReportProgress, delete_data: bool) -> tuple[str, ...]:
        from headway.cluster.teardown import take_down

        async with self._alone(cluster) as held:
            return await take_down(cluster, held.env, say, delete_data)

    async def back_up(
        self, cluster: Cluster, about: Mapping[str, Any], say: ReportProgress, path: Path, header: Header, key: bytes
    ) -> None:
        from headway.backup.backup import back_up

        await back_up(cluster, about, await self._env(cluster), say, path, header, key)

    async def restore(self, cluster: Cluster, say: ReportProgress, path: Path, key: bytes, ref: str) -> None:
        from headway.backup.restore import restore

        async with self._alone(cluster) as held:
            await restore(cluster, held.env, say, path, key, ref)
            held.cluster = cluster

    async def rotate(
        self, cluster: Cluster, say: ReportProgress, what: str, ref: str, begins: Callable[[], Awaitable[None]]
    ) -> None:
        from headway.backup.key_rotation import rotate

        async with self._alone(cluster) as held:
            await rotate(cluster, held.env, say, what, ref, begins)

    async def replace(self, cluster: Cluster, say: ReportProgress, node: str, since: float | None) -> None:
        from headway.cluster.scaling.provision_slot import provision_machine
        from headway.health.incidents.orphaned import machine_is_surplus

        tools = await self._tools(cluster)
        async with self._alone(cluster) as held:
            machine = (await tools.machines()).get(node)
            made = machine is not None and since is not None and machine.started_at > since
            if made or (machine is not None and await tools.jobs_on(node)):
                await say(node, "another process has created a machine there meanwhile", done=True)
                return
            if node not in cluster.group_of or await machine_is_surplus(tools, node):
                await say(node, "its machine is gone, and none is wanted in its place any more", done=True)
                return
            await provision_machine(cluster, held.env, node, say, why="the one before is broken")

    async def plan_roll(self, cluster: Cluster, *, back: bool, head: bool, by: bool) -> ChangeSet:
        from headway.rollout import image_rollout

        return await image_rollout.plan_rollout(await self._tools(cluster), back=back, head=head, by=by)

    async def roll(
        self, cluster: Cluster, say: ReportProgress, waits: OperationWaits, *, back: bool, until: float | None
    ) -> bool:
        from headway.rollout.image_rollout import roll_nodes

        tools = await self._tools(cluster)
        return await roll_nodes(tools, say, lambda: self._alone(cluster), waits, back=back, until=until)

    async def roll_head(self, cluster: Cluster, say: ReportProgress, *, back: bool) -> None:
        from headway.rollout.image_rollout import roll_heads

        async with self._alone(cluster):
            await roll_heads(await self._tools(cluster), say, back=back)

    async def image_there(self, cluster: Cluster, say: ReportProgress) -> None:
        from headway.images import build

        await build.ensure_image(cluster.image, say, state_dir=(await self._env(cluster)).state_dir)

    async def wants_roll(self, cluster: Cluster) -> bool:
        from headway.rollout.slurm_upgrade import nodes_await_rollout

        tools = await self._tools(cluster)
        return await nodes_await_rollout(cluster, tools.env)

    async def halt_roll(self, cluster: Cluster, say: ReportProgress) -> None:
        from headway.rollout.image_rollout import halt_rollout

        await halt_rollout(await self._tools(cluster), say)

    async def storage_bench(self, cluster: Cluster, node: str, mib: int) -> tuple[VolumeSpeedOut, ...]:
        from headway.cluster.volumes.speed import measure_volumes

        return await measure_volumes(cluster, await self._env(cluster), node, mib)

    async def shelf(self, cluster: Cluster) -> LibraryLocation:
        from headway.datasets.remote_library_client import RemoteLibrary

        return RemoteLibrary(cluster, await self._env(cluster))

    async def rooms(self, cluster: Cluster) -> tuple[Room, ...]:
        from headway.cluster.volumes.usage import read_volume_usage

        return await read_volume_usage(cluster, await self._env(cluster))

    async def checks(self, cluster: Cluster) -> tuple[Check, ...]:
        from headway.cluster.readiness import readiness_checks

        return await readiness_checks(cluster, await self._env(cluster))

    async def machines(self, cluster: Cluster) -> tuple[Machine, ...]:
        return await (await self._held(cluster)).machines(cluster.name)

    # --- Slurm

    async def shares(self, cluster: Cluster) -> tuple[Share, ...]:
        from headway.slurm import sshare

        slurm = await self._slurm(cluster)
        return await sshare.read_shares(slurm.links, slurm.head)

    async def job(self, cluster: Cluster, job_id: int) -> JobState:
        return await (await self._slurm(cluster)).reader.job(job_id)

    async def jobs_now(self, cluster: Cluster, numbers: tuple[int, ...]) -> tuple[JobState, ...]:
        return await (await self._slurm(cluster)).reader.jobs_by_id(numbers)

    async def history(self, cluster: Cluster) -> tuple[JobState, ...]:
        from headway.slurm import sacct_jobs

        slurm = await self._slurm(cluster)
        return await sacct_jobs.read_recent_jobs(slurm.links, slurm.head, cluster.slurm_version)

    # --- jobs

    async def progress(self, cluster: Cluster, jobs: tuple[JobState, ...]) -> dict[int, ProgressOut]:
        progress = (await self._slurm(cluster)).progress
        await progress.read_jobs(jobs)
        return {job.id: _progress_out(known) for job in jobs if (known := progress.progress_of(job.id))}

    async def said(self, cluster: Cluster, job: JobState) -> ProgressOut | None:
        from headway.jobs.view.progress import ProgressReader

        slurm = await self._slurm(cluster)
        reader = ProgressReader(slurm.links, slurm.head)
        await reader.read_jobs((job,))
        known = reader.progress_of(job.id)
        return _progress_out(known) if known else None

    async def submit(
        self, cluster: Cluster, request: SubmitIn, user: str, stage: JobFiles | None = None, *, tag: str = ""
    ) -> SubmitOut:
        from headway.jobs.explain.slurm_messages import with_sbatch_hints
        from headway.jobs.submission.submit import run_sbatch

        held = await self._held(cluster)
        known = held.slurm  # a live helper process proves that the head has not moved: the provider need not be queried
        warm = known is not None and cluster.controllers == 1 and known.links.has_idle_helper(user)
        slurm = known if known is not None and warm else await self._slurm(cluster)
        with with_sbatch_hints(cluster, user):
            return await run_sbatch(slurm.links, slurm.head, request, user, stage, tag)

    async def keep_bundle(self, cluster: Cluster, user: str, root: str, digest: str, archive: bytes) -> bool:
        from headway.jobs.submission.submit import store_bundle

        slurm = await self._slurm(cluster)
        return await store_bundle(slurm.links, slurm.head, user, root, digest, archive)

    async def array(self, cluster: Cluster, job_id: int) -> dict[str, str]:
        from headway.slurm import sacct_jobs

        slurm = await self._slurm(cluster)
        return await sacct_jobs.read_array_states(slurm.links, slurm.head, job_id)

    async def cancel(self, cluster: Cluster, job: str, user: str, *, as_operator: bool) -> None:
        from headway.jobs.submission.submit import cancel_jobs

        slurm = await self._slurm(cluster)
        await cancel_jobs(slurm.links, slurm.head, user, [job], as_operator=as_operator)

    async def control(self, cluster: Cluster, job: str, verb: str, user: str, *, as_operator: bool) -> None:
        from headway.jobs.submission.submit import control_job

        slurm = await self._slurm(cluster)
        await control_job(slurm.links, slurm.head, user, verb, job, as_operator=as_operator)

    async def runs(self, cluster: Cluster, job_id: int) -> tuple[JobState, ...]:
        from headway.slurm import sacct_jobs

        slurm = await self._slurm(cluster)
        return await sacct_jobs.read_job_runs(slurm.links, slurm.head, job_id, cluster.slurm_version)

    async def log_part(
        self, cluster: Cluster, job: JobState, *, before: int | None, lines: int, err: bool
    ) -> LogPartOut:
        from headway.jobs.logs.log_window import read_log_window

        slurm = await self._slurm(cluster)
        return await read_log_window(slurm.links, slurm.head, job, before=before, lines=lines, err=err)

    async def log_search(self, cluster: Cluster, job: JobState, text: str, *, err: bool) -> LogFoundOut:
        from headway.jobs.logs.log_window import search_log

        slurm = await self._slurm(cluster)
        return await search_log(slurm.links, slurm.head, job, text, err=err)

    async def tail_log(
        self, cluster: Cluster, job: JobState, *, follow: bool, err: bool, start: int = 0
    ) -> AsyncIterator[bytes]:
        from headway.jobs.logs.follow import follow_log

        async def now() -> JobState:
            return await self.job(cluster, job.id)

        slurm = await self._slurm(cluster)
        async with contextlib.aclosing(
            follow_log(slurm.links, slurm.head, now, follow=follow, err=err, start=start)
        ) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                yield piece

    async def task(self, cluster: Cluster, job_id: int, task: str) -> JobState:
        from headway.jobs.view.array_tasks import tasks_of
        from headway.slurm import sacct_jobs

        found = tasks_of(await self._tasks(cluster, job_id), job_id, task)
        if not found:
            slurm = await self._slurm(cluster)
            ended = await sacct_jobs.read_array_tasks(slurm.links, slurm.head, job_id, cluster.slurm_version)
            found = tasks_of(ended, job_id, task)
        if found:
            return found[0]
        raise NotFound(
            f"job {job_id} on {cluster.name} has no task {task}", hint=f"headway job {cluster.name} {job_id}"
        )

    async def tail_array(self, cluster: Cluster, job_id: int, *, follow: bool, err: bool) -> AsyncIterator[bytes]:
        from headway.jobs.logs.follow_array import follow_array_logs
        from headway.jobs.view.array_tasks import tasks_of

        before = {job.id: job for job in tasks_of(await self.history(cluster), job_id)}

        async def now() -> list[JobState]:
            return list((before | {job.id: job for job in await self._tasks(cluster, job_id)}).values())

        slurm = await self._slurm(cluster)
        async with contextlib.aclosing(
            follow_array_logs(slurm.links, slurm.head, now, follow=follow, err=err)
        ) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                yield piece

    async def _tasks(self, cluster: Cluster, job_id: int) -> tuple[JobState, ...]:
        """Returns the tasks of an array job that the controller still knows."""
        return await (await self._slurm(cluster)).reader.array_tasks(job_id)

    async def run_command(self, cluster: Cluster, request: ExecIn, user: str) -> ExecOut:
        from headway.jobs.submission.submit import run_command

        try:
            stdin = base64.b64decode(request.stdin_b64, validate=True)
        except ValueError:
            raise Refused("stdin_b64 is not base64") from None
        slurm = await self._slurm(cluster)
        code, out, err = await run_command(slurm.links, slurm.head, user, request.argv, stdin)
        return ExecOut(code=code, stdout_b64=base64.b64encode(out).decode(), stderr_b64=base64.b64encode(err).decode())

    async def converse(
        self, cluster: Cluster, argv: Sequence[str], user: str, feed: AsyncIterator[bytes]
    ) -> AsyncIterator[tuple[str, bytes]]:
        from headway.jobs.remote.interactive_command import run_interactive

        slurm = await self._slurm(cluster)
        async with contextlib.aclosing(run_interactive(slurm.links, slurm.head, user, argv, feed)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                yield piece

    async def tunnel(self, cluster: Cluster, node: str, user: str, path: str) -> Tunnel:
        from headway.jobs.remote.tunnel import open_tunnel

        held = await self._held(cluster)
        machine = next((one for one in await held.machines(cluster.name) if one.name == node), None)
        if machine is None:
            raise Unreachable(f"{node} does not exist", hint=f"headway status {cluster.name}")
        return await open_tunnel(held.env.connections, machine, user, path)

    async def metrics(
        self, cluster: Cluster, queries: Sequence[Query], start: float, end: float, step_s: int
    ) -> tuple[Row, ...]:
        from headway.cluster.monitoring.prometheus import query_range

        slurm = await self._slurm(cluster)
        held = await self._held(cluster)
        return await query_range(held.env.connections, slurm.head, queries, start, end, step_s)

    # --- the ledger

    async def accounting(self, cluster: Cluster, since: int, until: int) -> tuple[JobRun, ...]:
        from headway.slurm import sacct_usage

        slurm = await self._slurm(cluster)
        return await sacct_usage.read_runs(slurm.links, slurm.head, since, until)

    async def node_events(self, cluster: Cluster, since: int) -> tuple[NodeSpan, ...]:
        from headway.slurm import sacct_usage

        slurm = await self._slurm(cluster)
        return await sacct_usage.read_node_events(slurm.links, slurm.head, since)

    async def losses(self, cluster: Cluster) -> dict[int, tuple[tuple[float, float], ...]]:
        return (await self._slurm(cluster)).progress.losses_by_job()

    async def saves(self, cluster: Cluster) -> dict[int, CheckpointStats]:
        return (await self._slurm(cluster)).progress.stalls_by_job()

    async def hold_back(self, cluster: Cluster, team: str, *, on: bool) -> None:
        from headway.slurm import account_commands

        slurm = await self._slurm(cluster)
        await account_commands.hold_team_jobs(slurm.links, slurm.head, team, on=on)

    async def tell(self, cluster: Cluster, news: Sequence[Notification]) -> None:
        from headway.cluster.monitoring.alertmanager import send_alerts

        slurm = await self._slurm(cluster)
        held = await self._held(cluster)
        await send_alerts(held.env.connections, slurm.head, news, time.time())


def _progress_out(known: Progress) -> ProgressOut:
    return ProgressOut(
        step=known.step,
        loss=None if math.isnan(known.loss) else known.loss,
        tokens_per_s=known.tokens_per_s,
        course=course_out(known.course),
        series=known.series,
    )

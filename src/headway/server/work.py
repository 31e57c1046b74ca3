"""The real Work: an Env, a Slurm reader and a watch per cluster, kept open between requests."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headway.api.work import Reading, Resolved
from headway.domain.change import ChangeSet
from headway.domain.cluster import Cluster
from headway.domain.live import Check, JobState, NodeState
from headway.domain.machine import Machine
from headway.errors import InvalidSpec, NotFound, Refused, Unreachable
from headway.store import Store
from headway.wire.schemas import Document, ExecIn, ExecOut, ProgressOut, SubmitIn, SubmitOut

if TYPE_CHECKING:
    from headway.cluster.env import Env, Say
    from headway.health.watch import Watch
    from headway.jobs.progress import ProgressReader
    from headway.jobs.submit import Stage
    from headway.jobs.warm import Warm
    from headway.slurm.reader import SlurmReader

LOOK_S = 2.0  # asking the provider takes longer than most of what is asked of the head: not before each question


@dataclass(frozen=True)
class _Slurm:
    """What speaks to one head."""

    links: Warm
    head: Machine
    version: str
    reader: SlurmReader
    progress: ProgressReader

    async def close(self) -> None:
        await self.links.close()
        await self.reader.close()


@dataclass
class _Open:
    """What is held open for one cluster."""

    env: Env
    key: object
    slurm: _Slurm | None = None
    looked_at: float = 0.0  # when the provider last said where the head is
    watch: Watch | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    listing: asyncio.Task[tuple[Machine, ...]] | None = None

    async def machines(self, cluster: str) -> tuple[Machine, ...]:
        """The provider's machines; who asks while it is being asked gets the same answer. On a host that is short of
        processor time podman needs seconds, and a reading that asked twice would never be done in time."""
        if self.listing is None or self.listing.done():
            self.listing = asyncio.create_task(self.env.provider.list(cluster))
        return await asyncio.shield(self.listing)


class RealWork:
    """headway.api.work.Work on the work rooms. Their heavy libraries are imported at first use."""

    def __init__(self, store: Store, state_dir: Path) -> None:
        self._store = store
        self._state_dir = state_dir
        self._open: dict[str, _Open] = {}
        self._opening = asyncio.Lock()

    # --- the spec

    def resolve(self, document: Document) -> Resolved:
        from headway.spec.catalogue import load_catalogue
        from headway.spec.load import check

        cluster, faults = check(document.spec, load_catalogue(document.catalogue), owner=document.owner)
        errors = [fault for fault in faults if fault.level == "error"]
        if cluster is None or errors:
            raise InvalidSpec(errors or faults)
        return Resolved(cluster, tuple(faults))

    # --- the cluster

    async def plan(self, cluster: Cluster) -> ChangeSet:
        from headway.cluster import plan

        return await plan(cluster, await self._env(cluster))

    async def apply(self, cluster: Cluster, say: Say) -> None:
        from headway.cluster import apply

        await apply(cluster, await self._env(cluster), say)

    async def down(self, cluster: Cluster, say: Say, delete_data: bool) -> tuple[str, ...]:
        from headway.cluster import down

        return await down(cluster, await self._env(cluster), say, delete_data)

    async def checks(self, cluster: Cluster) -> tuple[Check, ...]:
        from headway.cluster import checks

        return await checks(cluster, await self._env(cluster))

    async def machines(self, cluster: Cluster) -> tuple[Machine, ...]:
        return await (await self._held(cluster)).machines(cluster.name)

    # --- Slurm

    async def read(self, cluster: Cluster) -> Reading:
        reader = (await self._slurm(cluster)).reader
        nodes, jobs = await asyncio.gather(reader.nodes(), reader.jobs())
        return Reading(nodes, jobs)

    async def job(self, cluster: Cluster, job_id: int) -> JobState:
        return await (await self._slurm(cluster)).reader.job(job_id)

    async def history(self, cluster: Cluster) -> tuple[JobState, ...]:
        from headway.slurm import history

        slurm = await self._slurm(cluster)
        return await history.recent(slurm.links, slurm.head, cluster.slurm_version)

    # --- jobs

    async def progress(self, cluster: Cluster, running: tuple[JobState, ...]) -> dict[int, ProgressOut]:
        progress = (await self._slurm(cluster)).progress
        await progress.look(running)
        found = {}
        for job in running:
            known = progress.known(job.id)
            series = known.series if known else []
            if known and series:  # a loss that is no number is not drawn
                rate = known.tokens_per_s
                found[job.id] = ProgressOut(step=known.step, loss=series[-1][1], tokens_per_s=rate, series=series)
        return found

    async def submit(self, cluster: Cluster, request: SubmitIn, user: str, stage: Stage | None = None) -> SubmitOut:
        from headway.jobs.submit import submit
        from headway.jobs.words import explained

        held = await self._held(cluster)
        known = held.slurm  # a helper that lives is on the head as it is: the provider need not be asked where that is
        slurm = known if known is not None and known.links.ready(user) else await self._slurm(cluster)
        with explained(cluster, user):
            return await submit(slurm.links, slurm.head, request, user, stage)

    async def keep_bundle(self, cluster: Cluster, user: str, root: str, digest: str, archive: bytes) -> bool:
        from headway.jobs.submit import keep_bundle

        slurm = await self._slurm(cluster)
        return await keep_bundle(slurm.links, slurm.head, user, root, digest, archive)

    async def array(self, cluster: Cluster, job_id: int) -> dict[str, str]:
        from headway.slurm import history

        slurm = await self._slurm(cluster)
        return await history.array(slurm.links, slurm.head, job_id)

    async def cancel(self, cluster: Cluster, job_id: int, user: str, *, as_operator: bool) -> None:
        from headway.jobs.submit import cancel

        slurm = await self._slurm(cluster)
        await cancel(slurm.links, slurm.head, user, [str(job_id)], as_operator=as_operator)

    async def tail_log(self, cluster: Cluster, job: JobState, *, follow: bool, err: bool) -> AsyncIterator[bytes]:
        from headway.jobs.tail import tail_log

        async def now() -> JobState:
            return await self.job(cluster, job.id)

        slurm = await self._slurm(cluster)
        async with contextlib.aclosing(tail_log(slurm.links, slurm.head, now, follow=follow, err=err)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                yield piece

    async def task(self, cluster: Cluster, job_id: int, task: str) -> JobState:
        from headway.jobs.tail_array import tasks_of

        for jobs in (await self._tasks(cluster, job_id), await self.history(cluster)):
            found = tasks_of(jobs, job_id, task)
            if found:
                return found[0]
        raise NotFound(
            f"job {job_id} on {cluster.name} has no task {task}", hint=f"headway job {cluster.name} {job_id}"
        )

    async def tail_array(self, cluster: Cluster, job_id: int, *, follow: bool, err: bool) -> AsyncIterator[bytes]:
        from headway.jobs.tail_array import tail_array, tasks_of

        before = {job.id: job for job in tasks_of(await self.history(cluster), job_id)}

        async def now() -> list[JobState]:
            return list((before | {job.id: job for job in await self._tasks(cluster, job_id)}).values())

        slurm = await self._slurm(cluster)
        async with contextlib.aclosing(tail_array(slurm.links, slurm.head, now, follow=follow, err=err)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                yield piece

    async def _tasks(self, cluster: Cluster, job_id: int) -> tuple[JobState, ...]:
        """An array's tasks that the controller knows."""
        return await (await self._slurm(cluster)).reader.tasks(job_id)

    async def run_command(self, cluster: Cluster, request: ExecIn, user: str) -> ExecOut:
        from headway.jobs.submit import run_command

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
        from headway.jobs.command import converse

        slurm = await self._slurm(cluster)
        async with contextlib.aclosing(converse(slurm.links, slurm.head, user, argv, feed)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                yield piece

    # --- the watch

    async def step(
        self, cluster: Cluster, nodes: Iterable[NodeState], jobs: Iterable[JobState]
    ) -> list[tuple[str, str]]:
        """One look of the cluster's watch, which acts on faults."""
        from headway.health.watch import Watch

        held = await self._held(cluster)
        if held.watch is None:
            held.watch = Watch(cluster, held.env)
        held.watch.cluster = cluster
        return await held.watch.step(nodes, jobs)

    # --- what is held open

    async def forget(self, cluster: str) -> None:
        held = self._open.pop(cluster, None)
        if held is not None:
            if held.slurm is not None:
                await held.slurm.close()
            await held.env.close()

    async def close(self) -> None:
        await asyncio.gather(*(self.forget(name) for name in list(self._open)), return_exceptions=True)

    async def _env(self, cluster: Cluster) -> Env:
        return (await self._held(cluster)).env

    async def _held(self, cluster: Cluster) -> _Open:
        key = (cluster.provider, cluster.hosts)
        async with self._opening:
            held = self._open.get(cluster.name)
            if held is not None and held.key != key:
                await self.forget(cluster.name)
                held = None
            if held is None:
                from headway.cluster.env import open_env

                env = await open_env(cluster, self._store, self._state_dir)
                held = self._open[cluster.name] = _Open(env, key)
        return held

    async def _slurm(self, cluster: Cluster) -> _Slurm:
        """What speaks to the head as it is now: one that was made again has another address or host key."""
        from headway.cluster.secrets import content
        from headway.jobs.progress import ProgressReader
        from headway.jobs.warm import Warm
        from headway.slurm.reader import SlurmReader

        held = await self._held(cluster)
        async with held.lock:
            if held.slurm is not None and time.monotonic() - held.looked_at < LOOK_S:
                return held.slurm
            machines = await held.machines(cluster.name)
            head = next((machine for machine in machines if machine.name == cluster.head), None)
            if head is None:
                raise Unreachable(f"{cluster.head} does not exist", hint=f"headway apply brings {cluster.name} back")
            held.looked_at = time.monotonic()
            known = held.slurm
            if known is not None and (known.head, known.version) == (head, cluster.slurm_version):
                return known
            secrets = await self._store.secrets(cluster.name)
            if "jwt_key" not in secrets:
                raise Unreachable(f"{cluster.name} is not set up yet", hint=f"headway status {cluster.name}")
            if known is not None:
                await known.close()
            connections = held.env.connections
            links = Warm(connections)
            reader = SlurmReader(connections, head, content(secrets, "jwt_key"), cluster.slurm_version)
            held.slurm = _Slurm(links, head, cluster.slurm_version, reader, ProgressReader(links, head))
            return held.slurm

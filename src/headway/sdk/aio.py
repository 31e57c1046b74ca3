"""The same client for asyncio: every call runs in a thread, so that the loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.sdk.client import Client
from headway.sdk.work import POLL_S, Job
from headway.wire.schemas import ArrayOut, ClusterOut, JobOut, LineageOut

if TYPE_CHECKING:
    from headway.wire.schemas import ContainerIn, Launcher


class AsyncClient:
    """`async with AsyncClient() as client: job = await client.run(...)`. Arguments and errors are those of Client."""

    def __init__(self, url: str = "", token: str = "") -> None:
        self.sync = Client(url, token)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.sync.close()

    async def clusters(self) -> list[ClusterOut]:
        return await asyncio.to_thread(self.sync.clusters)

    async def jobs(self, cluster: str = "", *, all: bool = False, user: str = "", state: str = "") -> list[JobOut]:  # noqa: A002
        def ask() -> list[JobOut]:
            return self.sync.jobs(cluster or self.sync.only_cluster(), all=all, user=user, state=state)

        return await asyncio.to_thread(ask)

    async def run(
        self,
        command: Sequence[str],
        *,
        cluster: str = "",
        files: Path | str | None = None,
        nodes: int = 1,
        gpus: int = 0,
        tasks: int = 0,
        launcher: Launcher | None = None,
        name: str = "",
        time: str = "",
        partition: str = "",
        team: str = "",
        after: Sequence[str] = (),
        container: ContainerIn | None = None,
        env: Mapping[str, str] | None = None,
        sbatch: Sequence[str] = (),
    ) -> AsyncJob:
        """See Client.run."""
        options: dict[str, Any] = {
            "cluster": cluster, "files": files, "nodes": nodes, "gpus": gpus, "tasks": tasks, "launcher": launcher,
            "name": name, "time": time, "partition": partition, "team": team, "after": after, "container": container,
            "env": env, "sbatch": sbatch,
        }  # fmt: skip
        return AsyncJob(await asyncio.to_thread(lambda: self.sync.run(command, **options)))

    async def submit(
        self,
        path: Path | str,
        args: Sequence[str] = (),
        *,
        cluster: str = "",
        files: Path | str | None = None,
        sbatch: Sequence[str] = (),
        chdir: str = "",
        env: Mapping[str, str] | None = None,
    ) -> AsyncJob:
        """See Client.submit."""

        def ask() -> Job:
            return self.sync.submit(path, args, cluster=cluster, files=files, sbatch=sbatch, chdir=chdir, env=env)

        return AsyncJob(await asyncio.to_thread(ask))

    async def attach(self, job_id: int, *, cluster: str = "") -> AsyncJob:
        return AsyncJob(await asyncio.to_thread(lambda: self.sync.attach(job_id, cluster=cluster)))


@dataclass(frozen=True)
class AsyncJob:
    """A submitted job; see Job."""

    sync: Job

    @property
    def id(self) -> int:
        return self.sync.id

    @property
    def cluster(self) -> str:
        return self.sync.cluster

    async def status(self) -> JobOut:
        return await asyncio.to_thread(self.sync.status)

    async def wait(self, *, timeout_s: float | None = None, poll_s: float = POLL_S) -> JobOut:
        """How it ended. Raises TimeoutError when that takes longer."""
        async with asyncio.timeout(timeout_s):
            while True:
                now, over = await asyncio.to_thread(self.sync.ended)
                if over:
                    return now
                await asyncio.sleep(poll_s)

    async def logs(self, *, follow: bool = False, err: bool = False, task: int | None = None) -> AsyncIterator[str]:
        """Lines of its output."""
        lines = self.sync.logs(follow=follow, err=err, task=task)
        while (line := await asyncio.to_thread(next, lines, None)) is not None:
            yield line

    async def tasks(self) -> ArrayOut:
        return await asyncio.to_thread(self.sync.tasks)

    async def lineage(self) -> LineageOut:
        return await asyncio.to_thread(self.sync.lineage)

    async def retry(self, *, env: Mapping[str, str] | None = None) -> AsyncJob:
        return AsyncJob(await asyncio.to_thread(lambda: self.sync.retry(env=env)))

    async def rerun(self, *, env: Mapping[str, str] | None = None) -> AsyncJob:
        return AsyncJob(await asyncio.to_thread(lambda: self.sync.rerun(env=env)))

    async def cancel(self) -> None:
        await asyncio.to_thread(self.sync.cancel)

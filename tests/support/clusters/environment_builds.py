"""A server whose clusters build software environments, and the builds' jobs and folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headway.domain.cluster import Cluster
from headway.domain.environment import EnvironmentVersion
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.environments.environment_file_store import Published
from headway.errors import Refused
from headway.schemas.jobs import LogPartOut
from headway.schemas.submission.exec_commands import ExecOut
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.server.operations import environments
from headway.store import Operation
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

API = "/api/v1/clusters/lab/environments"


@dataclass
class Builds:
    """Stands in for the cluster: jobs that end as `state` says, and the folder of environments."""

    state: str = "COMPLETED"
    lock: str = "models==2.1\n"
    full: bool = False
    made: dict[str, Published] = field(default_factory=dict)
    there: set[str] = field(default_factory=set)
    jobs: dict[str, int] = field(default_factory=dict)  # by script name and folder, as for repeated tags
    read: list[Cluster] = field(default_factory=list)  # the cluster of each look at a job
    meanwhile: list[Callable[[], Awaitable[None]]] = field(
        default_factory=list
    )  # what happens while the job runs, one a look

    def submit(self, cluster: Cluster, request: SubmitIn, user: str, stage: Any = None) -> SubmitOut:
        number = self.jobs.setdefault(f"{request.script_name} {request.chdir}", len(self.jobs) + 1)
        return SubmitOut(job_id=number, cluster=cluster.name, user=user, workdir=request.chdir)

    async def job(self, cluster: Cluster, job_id: int) -> JobState:
        self.read.append(cluster)
        if self.meanwhile:
            await self.meanwhile.pop(0)()
            return builders.job(job_id, name=self.job_name(job_id))
        return builders.job(job_id, state=self.state, name=self.job_name(job_id), user="ann")

    def job_name(self, job_id: int) -> str:
        return next(key for key, number in self.jobs.items() if number == job_id).split()[0]

    async def provide_uv(self) -> str:
        return "/environments/.tools/uv-1"

    async def publish(
        self, name: str, number: int, operation: str, user: str, stage: str, latest: EnvironmentVersion | None
    ) -> Published:
        if self.full:
            raise Refused("lab-head: /environments: No space left on device; nothing was kept")
        while f"{name}@{number}" in self.there and self.made.get(operation, None) is None:
            number += 1
        digest = f"{hash(self.lock) & (2**64 - 1):064x}"
        if latest is not None and latest.digest == digest:
            number = latest.number
        got = self.made.setdefault(operation, Published(number, digest, self.lock, "3.13.5", 1, 100))
        self.there.add(f"{name}@{got.number}")
        return got

    async def missing(self, versions: Sequence[EnvironmentVersion]) -> tuple[EnvironmentVersion, ...]:
        return tuple(version for version in versions if version.label not in self.there)

    async def remove(self, name: str, number: int) -> None:
        self.there.discard(f"{name}@{number}")


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    (tmp_path / "state").mkdir()
    monkeypatch.setattr(environments, "FIRST_LOOK_S", 0.0)
    made = await server_fakes.start(tmp_path / "state", builders.Clock())
    await made.apply()
    yield made
    await made.close()


@pytest.fixture
def builds(server: Server) -> Builds:
    made = Builds()
    server.backend.answers |= {
        "environment_file_store": lambda _: made,
        "submit": made.submit,
        "job": made.job,
        "log_part": LogPartOut(text="one\nerror: no such package\n", start=0, end=1, size=1),
        "run_command": ExecOut(code=0),
        "read": server_fakes.reading(),
        "machines": (),
    }
    return made


async def done(server: Server, answer: Any, state: str = "done") -> Operation:
    assert answer.status_code == 202, answer.text
    await server.work_off()
    operation = await server.store.operations.get(answer.json()["id"])
    assert operation.state == state, operation.error
    return operation


async def add(server: Server, state: str = "done", name: str = "demo", **who: str) -> Operation:
    client = await server.client(**who)
    return await done(server, await client.post(API, json={"name": name, "text": "models"}), state)


def declare(server: Server, *names: str) -> None:
    """Lists environments in the cluster file."""
    server.backend.clusters["lab"] = {"environments": dict.fromkeys(names, ("torch",))}
    server.state.clusters.forget("lab")

"""A server with services whose jobs, nodes, health and requests a test changes, round by round."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from headway.domain.serving.service_figures import MetricsReading, ReplicaCounters, ServiceFigures, bucket_of
from headway.domain.serving.service_proxy import ProxyReading, ProxySettings, ServerReading, ServerState, ServiceReading
from headway.schemas.submission.submit_request import SubmitOut
from headway.server.workers.serving.service_metrics import ServiceMetrics
from headway.server.workers.serving.services import ServiceWorker
from headway.services.cluster_backend import SlurmReading
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

SERVICES = "/api/v1/clusters/lab/services"
FILE: dict[str, Any] = {"name": "chat", "run": "serve {port}", "replicas": 2, "gpus": 1, "start_s": 60, "drain_s": 30}


class Lab:
    """A server with a cluster whose jobs, nodes and health the test changes."""

    def __init__(self, server: Server, clock: builders.Clock) -> None:
        self.server, self.clock = server, clock
        self.jobs: dict[int, Any] = {}
        self.nodes = [builders.node("lab-1-1", "IDLE"), builders.node("lab-1-2", "IDLE")]
        self.known: dict[str, int] = {}
        self.healthy: set[str] = set()
        self.sessions: dict[str, int] = {}
        self.active = 0
        self.requests: dict[str, ServiceFigures] = {}  # that the next reading of metrics has, by replica
        self.counters: dict[str, ReplicaCounters] = {}
        self.marks: list[str] = []  # of the readings
        self.settings = ProxySettings({}, ())
        server.backend.answers |= {
            "submit": self.submit,
            "read": lambda *_: SlurmReading(tuple(self.nodes), tuple(self.jobs.values())),
            "machines": (),
            "steer_proxy": self.steer,
            "cancel": self.cancel,
            "read_service_metrics": self.read_metrics,
        }

    def submit(self, _: Any, request: Any, user: str, *__: Any) -> SubmitOut:
        number = self.known.setdefault(self.server.backend.tags[-1], 41 + len(self.known))
        self.jobs.setdefault(number, builders.job(number, "PENDING", user=user, start_time=0))
        return SubmitOut(job_id=number, cluster="lab", user=user, workdir=request.chdir)

    def cancel(self, _: Any, job: str, *__: Any, **___: Any) -> None:
        self.jobs[int(job)] = builders.job(int(job), "CANCELLED", user="eve", end_time=int(self.clock()))

    def steer(self, _: Any, settings: ProxySettings) -> ProxyReading:
        self.settings = settings
        found = {}
        for service in settings.services:
            servers = {
                one.name: ServerReading(one.name in self.healthy, self.sessions.get(one.name, 0), 0, "L7OK 200")
                for one in service.servers
            }
            found[service.name] = ServiceReading(active=self.active, servers=servers)
        return ProxyReading("10.0.0.1", found)

    def read_metrics(self, _: Any, after: str, replicas: Any) -> MetricsReading:
        self.marks.append(after)
        asked = {one.name: (one.service, one.name) for one in replicas}
        requests = {("eve:chat", name): figures for name, figures in self.requests.items()}
        self.requests = {}
        counters = {asked[name]: one for name, one in self.counters.items() if name in asked}
        return MetricsReading(f"7 {len(self.marks)}", requests, counters)

    async def count(self, requests: Mapping[str, ServiceFigures] | None = None, **counters: ReplicaCounters) -> None:
        """Has the server read that replicas have finished requests, and what they publish."""
        self.requests, self.counters = dict(requests or {}), counters
        await ServiceMetrics(self.server.state).collect_all()

    def run(self, job: int, node: str = "lab-1-1", state: str = "RUNNING", **fields: Any) -> None:
        self.jobs[job] = builders.job(job, state, user="eve", nodes=(node,), start_time=int(self.clock()), **fields)

    async def round(self, seconds: float = 2.0) -> None:
        """Does a round with a new reading of Slurm."""
        self.clock.now += seconds
        await ServiceWorker(self.server.state).advance_all()

    @property
    def servers(self) -> dict[str, ServerState]:
        return {one.name: one.state for service in self.settings.services for one in service.servers}


async def open_lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """Yields a lab, for a fixture."""
    clock = builders.Clock()
    clock.now = 1e6
    made = await server_fakes.start(tmp_path, clock)
    await made.apply()
    yield Lab(made, clock)
    await made.close()


async def start(lab: Lab, **change: Any) -> httpx.AsyncClient:
    eve = await lab.server.client("eve", "member")
    answer = await eve.post(SERVICES, json={"document": {**FILE, **change}})
    assert answer.status_code == 201, answer.text
    return eve


async def states(eve: httpx.AsyncClient) -> dict[int, str]:
    found = (await eve.get(f"{SERVICES}/chat")).json()
    return {one["number"]: one["state"] for one in found["replicas"]}


async def serving(lab: Lab, **change: Any) -> httpx.AsyncClient:
    """Returns the client of a service whose two replicas serve, as jobs 41 and 42."""
    eve = await start(lab, **change)
    await lab.round()
    lab.run(41)
    lab.run(42)
    await lab.round()
    lab.healthy |= {"r1", "r2"}
    await lab.round()
    await lab.round()
    return eve


def answered(count: int, seconds: float = 0.1, errors: int = 0) -> ServiceFigures:
    """Returns the figures of requests that were all answered within a time, after some that failed."""
    place = {bucket_of(seconds): count}
    return ServiceFigures(count + errors, errors, total=place, first=place)

"""A server with a cluster and an MLflow server, in which models are promoted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from headway.domain.teams import Team, User
from headway.jobs.metrics.reader import MetricsPart
from headway.schemas.submission.submit_request import SubmitOut
from headway.server.workers.row_rounds import PromotionWorker
from headway.signed_statement import open_envelope
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.fake_mlflow import FakeMlflow
from tests.support.servers.server_fakes import Server, reading

LAB = "/api/v1/clusters/lab"
MODEL = "workspaces/w/1/models/m-1/artifacts"
EVALUATE: dict[str, Any] = {
    "jobs": {"evaluate": {"run": "python3 evaluate.py", "time": "10"}},
    "gates": {"held-out": {"metric": "accuracy", "job": "evaluate", "min": 0.9}},
}


class Lab:
    """A server with a cluster and an MLflow server, whose jobs and metrics the test changes. Eve's job 7 has logged iris@1 and
    iris@2 in team red, which ann leads."""

    def __init__(self, server: Server, clock: builders.Clock) -> None:
        self.server, self.clock = server, clock
        self.mlflow = FakeMlflow()
        self.jobs: dict[int, Any] = {}
        self.files: dict[int, bytes] = {}
        self.known: dict[str, int] = {}
        self.requests: list[Any] = []
        tags = {"headway.job": "7", "headway.user": "eve"}
        self.mlflow.runs["r1"] = (tags, {"accuracy": 0.95, "loss": 2.0})
        self.mlflow.files = {f"{MODEL}/MLmodel": b"flavors: {}\n", f"{MODEL}/data/model.pkl": b"\0weights"}
        self.mlflow.logged["m-1"] = "r1"
        for number in (1, 2):
            self.mlflow.versions["iris", number] = ("r1", f"mlflow-artifacts:/{MODEL}")
        server.state.mlflow.http = self.mlflow.client()
        server.backend.answers |= {
            "submit": self.submit,
            "read": lambda *_: reading(*self.jobs.values()),
            "machines": (),
            "metric_parts": self.metric_parts,
        }

    def submit(self, _: Any, request: Any, user: str, *__: Any) -> SubmitOut:
        self.requests.append(request)
        number = self.known.setdefault(self.server.backend.tags[-1], 41 + len(self.known))
        self.jobs.setdefault(number, builders.job(number, "PENDING", user=user, start_time=0))
        return SubmitOut(job_id=number, cluster="lab", user=user, workdir=request.chdir)

    def metric_parts(self, _: Any, asked: Any) -> dict[int, MetricsPart]:
        found = {}
        for ask in asked:
            if (data := self.files.get(ask.job.id)) is not None:
                found[ask.job.id] = MetricsPart("/m", data[ask.offset :], len(data))
        return found

    def end(self, job: int, state: str = "COMPLETED", **metrics: float) -> None:
        """Lets the job end, and report metrics."""
        now = int(self.clock())
        self.jobs[job] = builders.job(job, state, user="eve", start_time=now - 60, end_time=now)
        if metrics:
            rows: list[Any] = [{"run": 5.0}, {"names": [*metrics]}, [1, 6.0, *metrics.values()]]
            self.files[job] = b"".join(json.dumps(row).encode() + b"\n" for row in rows)

    async def round(self) -> None:
        """Does a round with a new reading of Slurm."""
        self.clock.now += 3
        await PromotionWorker(self.server.state).advance_all()

    async def rounds(self, client: httpx.AsyncClient, promotion: str) -> dict[str, Any]:
        """Does rounds until the state stays, and returns the promotion."""
        before = None
        while (found := await show(client, promotion)) != before:
            before = found
            await self.round()
        return found


async def start_lab(tmp_path: Path) -> Lab:
    """Returns a new server, which the test closes. Its cluster has teams red and blue."""
    clock = builders.Clock()
    clock.now = 1e6
    made = await server_fakes.start(tmp_path, clock)
    users = tuple(User(name, (), ("red",)) for name in ("eve", "ann", "carol"))
    red = Team("red", ("eve", "ann"), 1, leads=("ann",))
    made.backend.clusters["lab"] = {"teams": (red, Team("blue", ("carol",), 1)), "users": users, "mlflow": True}
    await made.apply()
    return Lab(made, clock)


async def show(client: httpx.AsyncClient, promotion: str) -> dict[str, Any]:
    """Returns a promotion."""
    return dict((await client.get(f"{LAB}/promotions/{promotion}")).json())


async def ask(lab: Lab, gates: dict[str, Any], status: int = 201, **change: Any) -> tuple[httpx.AsyncClient, Any]:
    """Has eve ask for a promotion; `status`: that of the answer."""
    eve = await lab.server.client("eve", "member")
    request = {"model": "iris", "version": 1, "to": "production", "gates": gates, **change}
    answer = await eve.post(f"{LAB}/promotions", json=request)
    assert answer.status_code == status, answer.text
    return eve, answer.json()


async def statement(lab: Lab, client: httpx.AsyncClient, promotion: str) -> dict[str, Any]:
    """Returns the statement in the manifest of a promotion."""
    manifest = (await client.get(f"{LAB}/promotions/{promotion}/manifest")).json()["manifest"]
    key = (await client.get(f"{LAB}/signing-key")).json()["public_key"]
    return open_envelope(manifest.encode(), key.encode())

"""A job's search waits in its receiver until Headway's server takes it, and gets the MLflow server's answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.jobs.metrics.reader import MetricsPart
from headway.server.mlflow.worker import MlflowJournals
from headway.services.mlflow.mlflow_api import WORKSPACE_HEADER, workspace_name
from headway.services.read_model.snapshot import Snapshot
from tests.support.clusters import builders
from tests.support.clusters.builders import Clock
from tests.support.paths import NODE
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server
from user_helper.tunnel import connect

# Targets that a job must not reach, some of them encoded twice
REFUSED = [
    ("GET", "/api/3.0/mlflow/workspaces"),
    ("DELETE", "/api/3.0/mlflow/%2577orkspaces/other"),
    ("PATCH", "/api/3.0/mlflow/%77orkspaces/other"),
    ("GET", "/api/3.0/mlflow/runs/%252e%252e/workspaces"),
    ("GET", "/api/2.0/mlflow-artifacts/artifacts/a/%252e%252e/b"),
    ("DELETE", "/api/2.0/mlflow-artifacts/artifacts/a"),
    ("PUT", "/api/2.0/mlflow/runs/search"),
    ("POST", "/api/3.0/mlflow/gateway/endpoints/list"),
    ("POST", "/ajax-api/3.0/mlflow/assistant/message"),
]
PROLOG = NODE / "train" / "headway_train" / "mlflow_receiver" / "task_prolog.py"


class Wire:
    """A connection to the receiver's socket, as TunnelConnection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        return await self._reader.read(65536)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()


class Tunnel:
    """Connects to the socket on this machine, as jobs.remote.tunnel.Tunnel."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connect = connect

    async def connect(self) -> Wire:
        return Wire(*await self._connect(self._path))

    async def close(self) -> None:
        """Ends nothing."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path / "state", Clock(), history=())
    made.backend.clusters["lab"] = {"mlflow": True}
    await made.apply()
    yield made
    await made.close()


@pytest.fixture
async def job(tmp_path: Path) -> AsyncIterator[tuple[int, dict[str, str]]]:
    """The number of a job with a receiver, and the variables that it gets."""
    number = 1_900_000_000 + os.getpid()
    env = {"PATH": os.environ["PATH"], "HEADWAY_METRICS_DIR": str(tmp_path / "metrics"), "SLURM_JOB_ID": str(number)}
    ran = subprocess.run([sys.executable, "-I", "-S", str(PROLOG)], env=env, capture_output=True, text=True, check=True)
    known = Path(f"/tmp/.headway-mlflow-{number}")
    lines = (line.removeprefix("export ").partition("=") for line in ran.stdout.splitlines())
    yield number, {name: value for name, _, value in lines}
    os.kill(int(json.loads(known.read_text())["pid"]), signal.SIGKILL)
    for path in (known, known.with_name(f"{known.name}.lock")):
        path.unlink(missing_ok=True)


async def test_a_search_of_a_job_is_answered(server: Server, job: tuple[int, dict[str, str]], tmp_path: Path) -> None:
    number, variables = job
    journal, node, asked = tmp_path / "mlflow" / f"{number}.jsonl", os.uname().nodename, list[tuple[str, str, Any]]()
    running = builders.job(number, nodes=(node,))
    server.state.live.store_snapshot(Snapshot("lab", jobs=(running,), progress={}, as_of=1000.0))

    def read(_: Any, wanted: Any) -> dict[int, MetricsPart]:
        data = journal.read_bytes() if journal.exists() else b""
        return {number: MetricsPart(str(journal), data[wanted[0].offset :], len(data))} if data else {}

    server.backend.answers |= {"metric_parts": read, "open_tunnel": lambda _cluster, _node, _user, path: Tunnel(path)}

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else {}
        asked.append((request.url.path, request.headers.get(WORKSPACE_HEADER, ""), body))
        if request.url.path.endswith("get-by-name"):
            return httpx.Response(200, json={"experiment": {"experiment_id": "42"}})
        return httpx.Response(200, json={"runs": ["x" * 100_000]})

    server.state.mlflow.http = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://localhost")
    kept: dict[str, Any] = {"person": "eve", "user": "eve", "document": {}}
    row = await server.store.promotions.save("lab", running.account, "iris", 1, "production", **kept)
    await server.store.promotions.change(row.id, of_state="pending", state="promoted", ended_at=1.0)
    worker = MlflowJournals(server.state)
    headers = {"Authorization": f"Bearer {variables['MLFLOW_TRACKING_TOKEN']}"}
    async with httpx.AsyncClient(
        base_url=variables["MLFLOW_TRACKING_URI"], headers=headers, timeout=60, trust_env=False
    ) as mlflow:
        named = await mlflow.get("/api/2.0/mlflow/experiments/get-by-name", params={"experiment_name": "llm"})
        experiment = named.json()["experiment"]["experiment_id"]
        search = asyncio.create_task(
            mlflow.post("/api/2.0/mlflow/runs/search", json={"experiment_ids": [experiment], "max_results": 5})
        )
        async with asyncio.timeout(60):
            while not search.done():
                await worker.collect_all()
                await asyncio.wait({search}, timeout=0.2)
        found = await search
        assert (found.status_code, found.json()) == (200, {"runs": ["x" * 100_000]})
        for method, target in REFUSED:
            assert (await mlflow.request(method, target, json={})).status_code == 403, target
        tag = {"key": "headway.user", "value": "another"}
        for content in (json.dumps(tag), json.dumps({"run_id": "1", "tags": [tag]}), "key=headway.user"):
            changed = await mlflow.post(
                "/api/3.0/mlflow/runs/set-tag", content=content, headers={"Content-Type": "text/plain"}
            )
            assert changed.status_code == 403
        for sent in ({"experiment_id": "0", "name": "0"}, {"experiment_ids": ["0", "5"]}):
            await mlflow.post("/api/2.0/mlflow/logged-models", json=sent)
        logged = [body for path, _, body in asked if path.endswith("logged-models")]
        assert logged == [{"experiment_id": "42", "name": "0"}, {"experiment_ids": ["42", "5"]}]
        target = "/api/2.0/mlflow/registered-models/alias"
        for method in ("POST", "DELETE"):
            changed = await mlflow.request(method, target, json={"name": "iris", "alias": "production", "version": "2"})
            assert (changed.status_code, "a promotion has set it" in changed.text) == (403, True)
    searched = (workspace_name("lab", running.account), {"experiment_ids": ["42"], "max_results": 5})
    assert ("/api/2.0/mlflow/runs/search", *searched) in asked
    await worker.close()

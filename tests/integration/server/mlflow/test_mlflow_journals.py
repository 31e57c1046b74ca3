"""What jobs log is repeated on the MLflow server in their team's workspace, once, however often servers and jobs die."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from headway.jobs.metrics.reader import MetricsPart
from headway.server.mlflow.worker import MlflowJournals
from headway.services.mlflow.journals import journal_states
from headway.services.mlflow.mlflow_api import RUN_HEADER, WORKSPACE_HEADER, MlflowApi, MlflowRefused, workspace_name
from headway.services.read_model.snapshot import Snapshot
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server

RUN = "0123456789abcdef0123456789abcdef"
OTHER = "f" * 32  # a run of job 6


class Mlflow:
    """An MLflow server: workspaces with experiments, runs and files. Refuses what it does not know."""

    def __init__(self) -> None:
        self.experiments: dict[tuple[str, str], str] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.workspaces: set[str] = set()
        self.files: dict[str, bytes] = {}
        self.busy = ""  # a run that it does not create
        self.down_after = -1  # requests until it does not answer; -1: it answers
        self.http = httpx.AsyncClient(transport=httpx.MockTransport(self.handle), base_url="http://localhost")

    def handle(self, request: httpx.Request) -> httpx.Response:
        if self.down_after == 0:
            raise httpx.ConnectError("down")
        self.down_after -= 1
        body = json.loads(request.content) if request.content and request.method == "POST" else {}
        if request.url.path == "/api/3.0/mlflow/workspaces":
            self.workspaces.add(body["name"])
            return httpx.Response(201, json={})
        workspace = request.headers[WORKSPACE_HEADER]
        assert workspace in self.workspaces
        if request.method == "PUT":
            self.files[request.url.path.removeprefix("/api/2.0/mlflow-artifacts/artifacts/")] = request.content
            return httpx.Response(200, json={})
        name = request.url.path.removeprefix("/api/2.0/mlflow/")
        return getattr(self, name.replace("/", "_").replace("-", "_"))(workspace, request, body)

    def experiments_get_by_name(self, workspace: str, request: httpx.Request, _: Any) -> httpx.Response:
        found = self.experiments.get((workspace, request.url.params["experiment_name"]))
        if found is None:
            return httpx.Response(404, json={"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "none"})
        return httpx.Response(200, json={"experiment": {"experiment_id": found}})

    def experiments_create(self, workspace: str, _: Any, body: Any) -> httpx.Response:
        number = self.experiments[workspace, body["name"]] = str(len(self.experiments) + 1)
        return httpx.Response(200, json={"experiment_id": number})

    def runs_create(self, workspace: str, request: httpx.Request, body: Any) -> httpx.Response:
        run = request.headers[RUN_HEADER]
        if run == self.busy:
            return httpx.Response(503, json={})
        if run in self.runs:
            return httpx.Response(400, json={"error_code": "BAD_REQUEST", "message": "UNIQUE constraint failed"})
        tags = {tag["key"]: tag["value"] for tag in body["tags"]}
        self.runs[run] = {
            "workspace": workspace,
            "experiment": body["experiment_id"],
            "tags": tags,
            "metrics": {},
            "params": {},
        }
        return httpx.Response(200, json={})

    def _known(self, workspace: str, run: str) -> dict[str, Any] | None:
        found = self.runs.get(run)
        return found if found and found["workspace"] == workspace else None

    def runs_get(self, workspace: str, request: httpx.Request, _: Any) -> httpx.Response:
        run = request.url.params["run_id"]
        if not self._known(workspace, run):
            return httpx.Response(404, json={"error_code": "RESOURCE_DOES_NOT_EXIST", "message": f"no run {run}"})
        uri = f"mlflow-artifacts:/workspaces/{workspace}/1/{run}/artifacts"
        tags = [{"key": key, "value": value} for key, value in self.runs[run]["tags"].items()]
        return httpx.Response(200, json={"run": {"info": {"run_id": run, "artifact_uri": uri}, "data": {"tags": tags}}})

    def logged_models_m_1(self, *_: Any) -> httpx.Response:
        return httpx.Response(200, json={"model": {"info": {"source_run_id": OTHER}}})

    def runs_log_batch(self, workspace: str, _: Any, body: Any) -> httpx.Response:
        run = self._known(workspace, body["run_id"])
        if run is None:
            return httpx.Response(404, json={"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no run"})
        for one in body.get("params", []):
            if run["params"].get(one["key"], one["value"]) != one["value"]:
                return httpx.Response(400, json={"error_code": "INVALID_PARAMETER_VALUE", "message": "changed param"})
        run["tags"] |= {one["key"]: one["value"] for one in body.get("tags", [])}
        run["params"] |= {one["key"]: one["value"] for one in body.get("params", [])}
        for one in body.get("metrics", []):
            run["metrics"][one["key"], one["step"], one["timestamp"]] = one["value"]
        return httpx.Response(200, json={})

    def runs_update(self, workspace: str, _: Any, body: Any) -> httpx.Response:
        run = self._known(workspace, body["run_id"])
        assert run is not None
        run["status"] = body["status"]
        return httpx.Response(200, json={})


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def metric(step: int, value: Any = 1.0) -> list[Any]:
    return ["runs/log-metric", {"run_id": RUN, "key": "loss", "value": value, "timestamp": 5, "step": step}]


BEGIN = [
    ["experiments/create", {"name": "llm", "experiment_id": "900000000"}],
    ["runs/create", {"run_id": RUN, "experiment_id": "900000000", "tags": [{"key": "headway.team", "value": "mine"}]}],
]


@pytest.fixture
async def server(server: Server) -> Server:
    """With a cluster whose jobs log to MLflow, and a running job."""
    server.backend.clusters["lab"] = {"mlflow": True}
    await server.apply()
    server.backend.answers["history"] = ()
    show(server, builders.job(7))
    return server


@pytest.fixture
def mlflow(server: Server) -> Mlflow:
    found = Mlflow()
    server.state.mlflow.http = found.http
    return found


@pytest.fixture
def files(server: Server) -> dict[str, bytes]:
    """Files on the cluster; parts have at most 400 bytes."""
    found: dict[str, bytes] = {}

    def read(_: Any, asked: Any) -> dict[int, MetricsPart]:
        parts = {}
        for ask in asked:
            path = ask.path or f"/scratch/{ask.job.user}/{ask.folder}/{ask.job.id}.jsonl"
            if path in found:
                data = found[path][ask.offset : ask.offset + 400]
                whole = data[: data.rfind(b"\n") + 1] if ask.whole_lines else data
                parts[ask.job.id] = MetricsPart(path, whole, len(found[path]))
        return parts

    server.backend.answers["metric_parts"] = read
    return found


def show(server: Server, *jobs: Any) -> None:
    server.state.live.store_snapshot(Snapshot("lab", jobs=jobs, progress={}, as_of=1000.0))


def journal(server: Server) -> str:
    return next(f"/scratch/{job.user}/.headway/mlflow/7.jsonl" for job in server.state.live.snapshot("lab").jobs)


async def test_runs_of_a_job_are_in_its_teams_workspace(
    server: Server, mlflow: Mlflow, files: dict[str, bytes]
) -> None:
    files[journal(server)] = lines(
        *BEGIN,
        ["runs/log-batch", {"run_id": RUN, "params": [{"key": "lr", "value": "1"}]}],
        *(metric(step) for step in range(20)),
        metric(20, "NaN"),
        ["artifact", {"path": f"runs/{RUN}/artifacts/a b.txt", "file": "1-1", "bytes": 700}],
        ["runs/update", {"run_id": RUN, "status": "FINISHED"}],
    )
    files[journal(server).replace(".jsonl", ".files/1-1")] = b"x" * 700
    worker = MlflowJournals(server.state)
    await worker.collect_all()
    team = server.state.live.snapshot("lab").jobs[0].account
    run = mlflow.runs[RUN]
    assert run["workspace"] == workspace_name("lab", team)
    assert (len(run["metrics"]), run["params"], run["status"]) == (21, {"lr": "1"}, "FINISHED")
    assert (run["tags"]["headway.job"], run["tags"]["headway.team"]) == ("7", team)
    assert mlflow.files == {f"workspaces/{run['workspace']}/1/{RUN}/artifacts/a b.txt": b"x" * 700}

    mlflow.down_after = 0  # nothing is left to send
    await worker.collect_all()
    assert journal_states(server.state).read("lab", 7).waiting == 0


async def test_nothing_is_lost_or_doubled_while_mlflow_fails(
    server: Server, mlflow: Mlflow, files: dict[str, bytes]
) -> None:
    rows = [*BEGIN]
    for step in range(30):
        rows += [metric(step), ["runs/log-batch", {"run_id": RUN, "params": [{"key": f"p{step}", "value": "1"}]}]]
    files[journal(server)] = lines(*rows)
    for requests in range(12):
        mlflow.down_after = requests
        server.state.mlflow.workspaces.clear()
        await MlflowJournals(server.state).collect_all()
    mlflow.down_after = -1
    await MlflowJournals(server.state).collect_all()
    assert sorted(step for _, step, _ in mlflow.runs[RUN]["metrics"]) == list(range(30))
    assert len(mlflow.runs[RUN]["params"]) == 30
    assert journal_states(server.state).read("lab", 7).refused == 0


async def test_the_journal_of_a_job_that_ended_meanwhile_is_repeated(
    server: Server, mlflow: Mlflow, files: dict[str, bytes]
) -> None:
    files[journal(server)] = lines(*BEGIN, metric(1))
    ended = builders.job(7, state="COMPLETED", end_time=int(server.state.clock()) - 86400)
    show(server)
    server.backend.answers["history"] = (ended,)
    server.state.mlflow.http = None
    worker = MlflowJournals(server.state)
    await worker.collect_all()
    assert mlflow.runs == {}
    server.state.mlflow.http = mlflow.http
    await worker.collect_all()
    assert set(mlflow.runs) == {RUN}
    assert mlflow.runs[RUN]["status"] == "KILLED"  # the job did not end it


async def test_refused_requests_are_counted_and_the_rest_is_kept(
    server: Server, mlflow: Mlflow, files: dict[str, bytes]
) -> None:
    changed = {"run_id": RUN, "params": [{"key": "lr", "value": "2"}], "metrics": [metric(5)[1]]}
    files[journal(server)] = lines(
        *BEGIN,
        ["runs/log-batch", {"run_id": RUN, "params": [{"key": "lr", "value": "1"}]}],
        ["runs/log-batch", changed],
        5,
    )
    await MlflowJournals(server.state).collect_all()
    known = journal_states(server.state).read("lab", 7)
    assert known.refused == 2
    assert "changed param" in known.why
    assert len(mlflow.runs[RUN]["metrics"]) == 1


@pytest.mark.parametrize(
    "line",
    [
        ["artifact", {"path": f"runs/{RUN}/artifacts/a", "file": "1-2", "bytes": 3}],  # there is no such file
        ["artifact", {"path": f"runs/{RUN}/artifacts/a", "file": "1-1", "bytes": 3}],  # it has 5 bytes
        ["artifact", {"path": f"runs/{RUN}/artifacts/a", "file": "1-1", "bytes": 7}],
        ["artifact", {"path": f"runs/{RUN}/artifacts/a", "file": "1-1", "bytes": -1}],
        ["artifact", {"path": "runs/\ud800/artifacts/a", "file": "1-1", "bytes": 5}],
        ["experiments/create", {"name": "\ud800"}],
        ["runs/create", {"run_id": "f" * 32, "tags": 5}],
        ["runs/log-batch", {"run_id": RUN, "tags": 5}],
        ["runs/log-batch", {"run_id": RUN, "metrics": 5}],
        ["runs/log-batch", {"run_id": RUN, "params": [5]}],
        ["runs/set-tag", {"run_id": RUN, "key": "headway.user", "value": "another"}],
        ["runs/delete-tag", {"run_id": RUN, "key": "headway.user"}],
    ],
)
async def test_a_wrong_line_is_refused_and_stops_nothing(
    server: Server, mlflow: Mlflow, files: dict[str, bytes], line: Any
) -> None:
    files[journal(server)] = lines(*BEGIN, metric(1), line, metric(2))
    files[journal(server).replace(".jsonl", ".files/1-1")] = b"x" * 5
    await MlflowJournals(server.state).collect_all()
    known = journal_states(server.state).read("lab", 7)
    assert (known.refused, known.waiting, known.offset) == (1, 0, len(files[journal(server)]))
    assert len(mlflow.runs[RUN]["metrics"]) == 2
    assert (set(mlflow.runs), mlflow.files) == ({RUN}, {})


async def test_a_file_with_a_line_break_in_its_name_is_kept(
    server: Server, mlflow: Mlflow, files: dict[str, bytes]
) -> None:
    files[journal(server)] = lines(
        *BEGIN, ["artifact", {"path": f"runs/{RUN}/artifacts/50%\nb", "file": "1-1", "bytes": 5}]
    )
    files[journal(server).replace(".jsonl", ".files/1-1")] = b"x" * 5
    await MlflowJournals(server.state).collect_all()
    assert [path.rpartition("/")[2] for path in mlflow.files] == ["50%\nb"]


async def test_a_job_whose_requests_fail_does_not_stop_another(
    server: Server, mlflow: Mlflow, files: dict[str, bytes]
) -> None:
    first = builders.job(7)
    show(server, first, builders.job(8))
    mlflow.busy = "f" * 32
    files[journal(server)] = lines(["runs/create", {"run_id": mlflow.busy}])
    files[journal(server).replace("7.jsonl", "8.jsonl")] = lines(*BEGIN, metric(1))
    await MlflowJournals(server.state).collect_all()
    assert set(mlflow.runs) == {RUN}
    known = journal_states(server.state).read("lab", 7)
    assert (known.offset, known.refused, known.waiting) == (0, 0, len(files[journal(server)]))


async def test_a_closed_connection_loses_nothing(server: Server, mlflow: Mlflow, files: dict[str, bytes]) -> None:
    files[journal(server)] = lines(*BEGIN, metric(1))
    await mlflow.http.aclose()
    await MlflowJournals(server.state).collect_all()
    known = journal_states(server.state).read("lab", 7)
    assert (known.offset, known.refused) == (0, 0)


async def test_a_job_cannot_set_tags_of_headway(server: Server, mlflow: Mlflow, files: dict[str, bytes]) -> None:
    tags = [{"key": "headway.user", "value": "another"}, {"key": "headway.pipeline", "value": "x"}]
    created = ["runs/create", {"run_id": RUN, "tags": [*tags, {"key": "mine", "value": "1"}]}]
    batch = ["runs/log-batch", {"run_id": RUN, "tags": [*tags, {"key": "mine", "value": "2"}]}]
    files[journal(server)] = lines(created, batch)
    await MlflowJournals(server.state).collect_all()
    found = mlflow.runs[RUN]["tags"]
    user = server.state.live.snapshot("lab").jobs[0].user
    assert (found["headway.user"], found.get("headway.pipeline"), found["mine"]) == (user, None, "2")


async def test_a_job_cannot_write_into_a_run_of_another_team(
    server: Server, mlflow: Mlflow, files: dict[str, bytes]
) -> None:
    mlflow.runs[RUN] = {"workspace": "another", "metrics": {}, "params": {}, "tags": {}}
    files[journal(server)] = lines(*BEGIN, metric(1))
    await MlflowJournals(server.state).collect_all()
    assert mlflow.runs[RUN]["metrics"] == {}
    assert journal_states(server.state).read("lab", 7).refused == 2


@pytest.mark.parametrize(
    "path",
    [
        f"runs/{OTHER}/artifacts/a",
        f"workspaces/w/1/{OTHER}/artifacts/a",
        "workspaces/w/1/models/m-1/artifacts/a",
        f"runs/{RUN}/artifacts/model/a",
    ],
)
async def test_files_of_runs_of_other_jobs_and_of_promoted_versions_stay(
    server: Server, mlflow: Mlflow, files: dict[str, bytes], path: str
) -> None:
    """Job 7 also says that it has created the run of job 6."""
    team = server.state.live.snapshot("lab").jobs[0].account
    workspace = workspace_name("lab", team)
    mlflow.runs[OTHER] = {"workspace": workspace, "metrics": {}, "params": {}, "tags": {"headway.job": "6"}}
    row = await server.store.promotions.save(
        "lab", team, "iris", 1, "production", person="eve", user="eve", document={}
    )
    folder = {"folder": f"workspaces/{workspace}/1/{RUN}/artifacts/model"}
    await server.store.promotions.change(row.id, of_state="pending", state="promoted", ended_at=1.0, document=folder)
    files[journal(server)] = lines(
        *BEGIN,
        ["runs/create", {"run_id": OTHER, "experiment_id": "900000000"}],
        ["artifact", {"path": path, "file": "1-1", "bytes": 5}],
        ["artifact", {"path": f"runs/{RUN}/artifacts/model-2/a", "file": "1-1", "bytes": 5}],
    )
    files[journal(server).replace(".jsonl", ".files/1-1")] = b"x" * 5
    await MlflowJournals(server.state).collect_all()
    assert [*mlflow.files] == [f"workspaces/{workspace}/1/{RUN}/artifacts/model-2/a"]
    known = journal_states(server.state).read("lab", 7)
    assert (known.refused, OTHER in known.runs) == (2, False)


def test_workspaces_of_teams_differ() -> None:
    assert len({workspace_name("a-b", "c"), workspace_name("a", "b-c"), workspace_name("a", "b_c")}) == 3
    assert len(workspace_name("a" * 21, "b" * 31)) <= 63


@pytest.mark.parametrize("size", [4, 6])
async def test_a_file_that_changes_while_it_is_uploaded_is_refused(size: int) -> None:
    async def read_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def parts() -> AsyncIterator[bytes]:
        yield b"x" * 5

    listening = await asyncio.start_server(read_all, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
        with pytest.raises(MlflowRefused, match="the file changed"):
            await MlflowApi(http, "lab-red").upload("a", parts(), size)

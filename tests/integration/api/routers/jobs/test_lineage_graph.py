"""The graph of lineage goes from data and code to jobs, models and services, both ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from headway.domain.dataset import DatasetVersion
from headway.domain.teams import Team, User
from headway.services.mlflow.journal_state import JournalState
from headway.services.mlflow.journals import journal_states
from headway.services.models import registered_models
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, reading

RUN = "0123456789abcdef0123456789abcdef"
FOLDER = "/scratch/eve/runs/train-20261129-101500-3fa2"
JOB_TAG = "41"
CHAIN = {"name": "chain", "steps": {"prepare": {"run": "x"}, "train": {"run": "y", "needs": ["prepare"]}}}


def mlflow(request: httpx.Request) -> httpx.Response:
    """An MLflow server whose only model is iris, version 1."""
    version = {"name": "iris", "version": "1", "run_id": RUN, "aliases": ["production"]}
    path, query = request.url.path.rpartition("/mlflow/")[2], request.url.params
    if path == "workspaces":
        return httpx.Response(201, json={})
    if path == "model-versions/get" and (query["name"], query["version"]) == ("iris", "1"):
        return httpx.Response(200, json={"model_version": version})
    if path == "registered-models/get" and query["name"] == "iris":
        return httpx.Response(200, json={"registered_model": {"latest_versions": [version]}})
    if path == "model-versions/search":
        return httpx.Response(200, json={"model_versions": [version]} if RUN in query["filter"] else {})
    if path == "runs/get":
        return httpx.Response(200, json={"run": {"data": {"tags": [{"key": "headway.job", "value": JOB_TAG}]}}})
    return httpx.Response(404, json={"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "none"})


@pytest.fixture
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """Eve is in team red, or in the teams of the parameter. Job 41 trained on books@1 after job 40 had prepared the data; job 42
    continues it; a service serves its model."""
    made = await server_fakes.start(tmp_path, builders.Clock())
    users = tuple(User(name, (), ("red",)) for name in ("eve", "carol"))
    teams = tuple(Team(name, ("eve",), 1) for name in getattr(request, "param", ("red",)))
    made.backend.clusters["lab"] = {"teams": teams, "users": users}
    await made.apply()
    store = made.store
    jobs = [builders.job(number, user="eve", account="red", state="COMPLETED") for number in (40, 41, 42)]
    made.backend.answers |= {"read": reading(), "machines": (), "history": tuple(jobs)}
    await store.datasets.add(DatasetVersion("lab", "books", 1, "0" * 64, 1, 1, "/data/books", "ann", 1.0))
    kept = {"document": CHAIN, "bundle": "b" * 64, "git": None}
    row = await store.pipelines.save("lab", "chain", person="eve", user="eve", workdir=FOLDER, document=kept)

    async def record(job: int, request: dict[str, Any], facts: dict[str, Any], **links: Any) -> None:
        data = [(one["name"], int(one["version"])) for one in facts.get("datasets", [])]
        await store.jobs.record(
            "lab",
            job,
            person="eve",
            user="eve",
            kind="run",
            request=request,
            facts=facts,
            audit={},
            datasets=data,
            **links,
        )

    books = {"datasets": [{"name": "books", "version": "1", "mount": "/datasets/books/1", "sha256": "0" * 64}]}
    llm = {"environments": [{"name": "llm", "version": "2", "python": "3.13", "sha256": "1" * 64}]}
    await record(40, {"chdir": FOLDER, "bundle": "b" * 64}, books, pipeline=row.id, step="prepare")
    git = {"git": {"commit": "c" * 40, "branch": "main", "dirty": True}}
    await record(41, {"chdir": FOLDER, **git}, books | llm, pipeline=row.id, step="train")
    passed = {"kind": "dataset", "value": "/datasets/words/2", "version": "words@2"}
    await store.pipelines.save_results(row.id, {"prepare": {"job": 40, "state": "done", "outputs": {"w": passed}}}, {})
    await record(42, {"chdir": "/scratch/eve/runs/other-20261129-101501-3fa3"}, {}, parent=41)
    served = {"run": ["serve", "--model", "models:/iris/1"]}
    await store.services.put("lab", "red", "chat", person="eve", user="eve", document=served, least=1, most=1)
    files = {"run": ["serve", f"{FOLDER}/model.pt"]}
    await store.services.put("lab", "red", "files", person="eve", user="eve", document=files, least=1, most=1)
    made.state.mlflow.http = httpx.AsyncClient(transport=httpx.MockTransport(mlflow), base_url="http://localhost")
    await asyncio.to_thread(journal_states(made.state).write, "lab", 41, JournalState(runs={RUN: "FINISHED"}))
    yield made
    await made.close()


async def graph(server: Server, of: str, person: str = "eve", role: str = "member") -> dict[str, Any]:
    client = await server.client(person, role)
    answer = await client.get(f"/api/v1/clusters/lab/lineage?of={quote(of)}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def edges(found: dict[str, Any]) -> set[str]:
    return {" > ".join(edge) for edge in found["edges"]}


UP = {
    "dataset:books@1 > job:40", "code:bbbbbbbbbbbb > job:40", "job:40 > job:41", "dataset:books@1 > job:41",
    "dataset:words@2 > job:41", "code:cccccccccccc > job:41", "environment:llm@2 > job:41", "job:41 > model:red/iris@1",
}  # fmt: skip


async def test_model_leads_back_to_data_and_code_and_forth_to_services(server: Server) -> None:
    found = await graph(server, "iris@1")
    assert (found["start"], found["notes"]) == ("model:red/iris@1", [])
    assert edges(found) == UP | {"model:red/iris@1 > service:red/chat"}
    titles = {node["key"]: node for node in found["nodes"]}
    assert titles["code:cccccccccccc"]["detail"] == "main, changed"
    assert titles["model:red/iris@1"]["detail"] == "production · of team red"
    assert (titles["job:41"]["state"], titles["job:41"]["job_id"]) == ("COMPLETED", 41)
    assert (await graph(server, "iris"))["start"] == "model:red/iris@1"


async def test_job_leads_to_jobs_models_and_services_that_read_its_folder(server: Server) -> None:
    down = {"job:41 > job:42", "model:red/iris@1 > service:red/chat", "job:41 > service:red/files"}
    found = await graph(server, "41")
    assert edges(found) == UP | down, json.dumps(found, indent=1)


async def test_dataset_leads_to_the_service_that_its_model_serves(server: Server) -> None:
    found = await graph(server, "dataset:books@1")
    assert {"dataset:books@1 > job:41", "job:41 > model:red/iris@1", "model:red/iris@1 > service:red/chat"} <= edges(
        found
    )
    assert not any(edge.startswith("code:") for edge in edges(found))


async def test_service_leads_back_to_the_model(server: Server) -> None:
    assert edges(await graph(server, "chat")) == UP | {"model:red/iris@1 > service:red/chat"}
    assert "job:41 > service:red/files" in edges(await graph(server, "service:files"))


async def test_code_is_shown_only_to_people_who_may_act_on_the_job(server: Server) -> None:
    found = await graph(server, "41", "carol")
    assert not [node for node in found["nodes"] if node["kind"] in ("code", "environment", "model")]
    assert "dataset:books@1 > job:41" in edges(found)


async def test_graph_without_mlflow_says_that_models_are_left_out(server: Server) -> None:
    server.state.mlflow.http = None
    found = await graph(server, "41")
    assert any(note.startswith("models are left out: the MLflow server is") for note in found["notes"])
    assert "dataset:books@1 > job:41" in edges(found)


async def put_service(server: Server, team: str, name: str, *run: str) -> None:
    document = {"run": ["serve", *run]}
    await server.store.services.put("lab", team, name, person="eve", user="eve", document=document, least=1, most=1)


async def test_long_path_in_a_service_file_is_read_at_once(server: Server) -> None:
    """A search that tries each beginning of the path would take hours."""
    await put_service(server, "red", "long", "/a" * 500_000 + f":{FOLDER}/out/:/runs/:/x/runs/")
    assert "job:41 > service:red/long" in edges(await graph(server, "service:long"))


async def test_services_and_models_of_two_teams_may_have_one_name(server: Server) -> None:
    await put_service(server, "blue", "chat", "/datasets/words/2", "models:/iris/1")
    client = await server.client("eve", "member")
    for of in ("chat", "service:chat"):
        answer = await client.get(f"/api/v1/clusters/lab/lineage?of={of}")
        assert (answer.status_code, answer.json()["hint"]) == (409, "give one of blue/chat, red/chat")
    found = await graph(server, "blue/chat")
    assert edges(found) == {"dataset:words@2 > service:blue/chat"}, "eve does not see the models of team blue"
    assert found["nodes"][0]["detail"] == "of team blue"
    assert edges(await graph(server, "iris@1")) == UP | {"model:red/iris@1 > service:red/chat"}
    assert edges(await graph(server, "service:red/chat")) == UP | {"model:red/iris@1 > service:red/chat"}


@pytest.mark.parametrize("server", [("red", "blue")], indirect=True)
async def test_model_that_several_teams_have_is_named_with_its_team(server: Server) -> None:
    client = await server.client("eve", "member")
    answer = await client.get("/api/v1/clusters/lab/lineage?of=iris@1")
    assert (answer.status_code, answer.json()["hint"]) == (409, "give one of red/iris@1, blue/iris@1")
    found = await graph(server, "model:blue/iris@1")
    assert found["start"] == "model:blue/iris@1"
    assert "model:blue/iris@1 > service:red/chat" not in edges(found)


async def test_tag_of_a_run_that_is_no_job_number_is_left_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for tag in ("²", "9" * 30):
        monkeypatch.setattr(f"{__name__}.JOB_TAG", tag)
        found = await graph(server, "iris@1")
        assert edges(found) == {"model:red/iris@1 > service:red/chat"}
        assert found["notes"] == ["no job of lab logged iris@1"]


async def test_graph_asks_mlflow_a_bounded_number_of_questions(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered_models, "MOST_QUESTIONS", 2)
    asked: list[str] = []

    def counted(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return mlflow(request)

    await put_service(server, "red", "many", *(f"models:/none/{number}" for number in range(1, 6)))
    transport = httpx.MockTransport(counted)
    server.state.mlflow.http = httpx.AsyncClient(transport=transport, base_url="http://localhost")
    found = await graph(server, "service:many")
    assert "models are left out: the graph is cut after 2 questions to MLflow" in found["notes"]
    assert len([path for path in asked if not path.endswith("/workspaces")]) == 2


async def test_graph_does_not_ask_mlflow_again_that_did_not_answer(server: Server) -> None:
    asked: list[str] = []

    def silent(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        raise httpx.ReadTimeout("no answer")

    server.state.mlflow.http = httpx.AsyncClient(transport=httpx.MockTransport(silent), base_url="http://localhost")
    found = await graph(server, "41")  # asks for the models of jobs 41 and 42
    assert len(asked) == 1
    assert any(note.startswith("models are left out: the MLflow server does not answer") for note in found["notes"])


@pytest.mark.parametrize("of", ["chatt", "model:chatt", "nothing@3"])
async def test_unknown_name_without_mlflow(server: Server, of: str) -> None:
    server.state.mlflow.http = None
    answer = await (await server.client("eve", "member")).get(f"/api/v1/clusters/lab/lineage?of={of}")
    assert answer.status_code == (503 if of.startswith("model:") else 404)
    if answer.status_code == 404:
        lists = "headway dataset ls, headway serve ls, headway mlflow ui TEAM"
        assert answer.json()["hint"].startswith(f"{lists}; models are left out: the MLflow server is")


@pytest.mark.parametrize(
    "of", ["99", "nothing@3", "dataset:iris@1", "", "²", "9" * 30, "job:²", "blue/iris@1", "red/chatt", "red/"]
)
async def test_unknown_things_are_not_found(server: Server, of: str) -> None:
    client = await server.client("eve", "member")
    assert (await client.get(f"/api/v1/clusters/lab/lineage?of={quote(of)}")).status_code == 404

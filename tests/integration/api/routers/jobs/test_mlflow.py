"""People read MLflow in the workspaces of their own teams, and change nothing there."""

from __future__ import annotations

import httpx
import pytest

from headway.domain.teams import Team, User
from headway.services.mlflow.mlflow_api import WORKSPACE_HEADER, workspace_name
from tests.support.servers.server_fakes import Server

AT = "/api/v1/clusters/lab/mlflow"


@pytest.fixture
async def seen(server: Server) -> list[httpx.Request]:
    """The requests that the MLflow server gets; alice is in team red, bob in blue."""
    found: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        found.append(request)
        return httpx.Response(200, json={"runs": []}, headers={"Set-Cookie": "a=b", "ETag": "x"})

    teams = (Team("red", ("alice",), 1), Team("blue", ("bob",), 1))
    users = (User("alice", (), ("red",)), User("bob", (), ("blue",)))
    server.backend.clusters["lab"] = {"teams": teams, "users": users}
    await server.apply()
    server.state.mlflow.http = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://localhost")
    server.state.mlflow.workspaces |= {workspace_name("lab", "red"), workspace_name("lab", "blue")}
    return found


async def test_a_member_reads_the_workspace_of_their_team(server: Server, seen: list[httpx.Request]) -> None:
    alice = await server.client("alice", role="member")
    got = await alice.get(f"{AT}/red/api/2.0/mlflow/runs/get?run_id=a%20b", headers={WORKSPACE_HEADER: "lab-blue"})
    assert (got.status_code, got.json()) == (200, {"runs": []})
    assert "set-cookie" not in got.headers
    found = await alice.post(f"{AT}/red/ajax-api/2.0/mlflow/runs/search", json={"experiment_ids": ["1"]})
    assert found.status_code == 200
    assert [request.url.raw_path for request in seen] == [
        b"/api/2.0/mlflow/runs/get?run_id=a%20b", b"/ajax-api/2.0/mlflow/runs/search",
    ]  # fmt: skip
    assert {request.headers[WORKSPACE_HEADER] for request in seen} == {workspace_name("lab", "red")}
    assert "authorization" not in seen[0].headers


@pytest.mark.parametrize(
    "path",
    [
        "blue/api/2.0/mlflow/runs/get",
        "red/api/3.0/mlflow/workspaces",
        "red/api/3.0/mlflow/%2577orkspaces",
        "red/api/3.0/mlflow/%252577orkspaces",
        "red/api/3.0/mlflow/runs/%252e%252e/workspaces",
        "red/api/3.0/mlflow/%2e/workspaces",
        "red/api/3.0/mlflow//workspaces",
    ],
)
async def test_other_teams_stay_hidden(server: Server, seen: list[httpx.Request], path: str) -> None:
    alice = await server.client("alice", role="member")
    assert (await alice.get(f"{AT}/{path}")).status_code == 403
    assert (await alice.get(f"{AT}/green/health")).status_code == 404
    assert seen == []


@pytest.mark.parametrize("name", ["runs/delete", "runs/log-metric", "experiments/create", "runs/search/../delete"])
async def test_nothing_is_changed(server: Server, seen: list[httpx.Request], name: str) -> None:
    admin = await server.client("root2", role="admin")
    assert (await admin.post(f"{AT}/red/api/2.0/mlflow/{name}", json={})).status_code in (403, 404)
    assert seen == []


async def test_an_mlflow_server_that_does_not_run_is_said(server: Server, seen: list[httpx.Request]) -> None:
    server.state.mlflow.http = None
    alice = await server.client("alice", role="member")
    got = await alice.get(f"{AT}/red/api/2.0/mlflow/runs/get")
    assert got.status_code == 503
    assert "MLflow" in got.json()["detail"]
    assert seen == []

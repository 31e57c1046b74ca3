"""Environments of the cluster file are built by an apply, and a command without one gets the default of its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.domain.teams import User
from headway.errors import Unreachable
from tests.support.clusters import builders
from tests.support.clusters.environment_builds import API, Builds, add, builds, declare, server
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

__all__ = ["builds", "server"]


async def test_apply_builds_what_the_file_lists_once_and_again_when_it_changes(server: Server, builds: Builds) -> None:
    server.backend.clusters["lab"] = {"environments": {"vision": ("torch", "numpy")}}
    server.backend.answers |= {"plan": server_fakes.changes(), "apply": None}
    client = await server.client()
    body = {"document": server_fakes.document().model_dump(), "confirmed": True}
    for lines, kept in (
        (("torch", "numpy"), ["vision@1"]),
        (("torch", "numpy"), ["vision@1"]),
        (("x",), ["vision@1", "vision@2"]),
    ):
        server.backend.clusters["lab"] = {"environments": {"vision": lines}}
        builds.lock = "".join(f"{line}==1\n" for line in lines)
        server.state.clusters.forget("lab")
        assert (await client.post("/api/v1/clusters/lab/apply", json=body)).status_code == 202
        await server.work_off()
        assert [one.label for one in await server.store.environments.versions("lab")] == kept
    operations = await server.store.operations.recent("lab")
    assert [one.state for one in operations if one.kind == "environment"] == ["done", "done"]


async def test_files_of_the_cluster_files_environments_that_are_missing_are_built_again(
    server: Server, builds: Builds
) -> None:
    declare(server, "vision")
    server.backend.answers |= {"plan": server_fakes.changes(), "apply": None}
    client = await server.client()
    body = {"document": server_fakes.document().model_dump(), "confirmed": True}

    async def apply() -> list[str]:
        assert (await client.post("/api/v1/clusters/lab/apply", json=body)).status_code == 202
        await server.work_off()
        operations = await server.store.operations.recent("lab")
        return [one.state for one in operations if one.kind == "environment"]

    assert await apply() == ["done"]
    builds.there.clear()
    builds.made.clear()
    assert await apply() == ["done", "done"]
    assert builds.there == {"vision@1"}
    server.backend.answers["environment_file_store"] = Unreachable("lab-head does not answer")
    assert await apply() == ["done", "done"], "an apply does not fail for it"


@pytest.mark.parametrize(
    ("job", "used"),
    [
        ({}, "of-partition"),
        ({"partition": "plain"}, "of-team"),
        ({"partition": "plain", "team": "other"}, "of-cluster"),
        ({"environment": "none"}, ""),
        ({"container": {"image": "docker://x"}}, ""),
        ({"environment": "of-team@1"}, "of-team"),
    ],
)
async def test_command_without_environment_gets_the_default_one(
    server: Server, builds: Builds, job: dict[str, Any], used: str
) -> None:
    for number, name in enumerate(("of-partition", "of-team", "of-cluster")):
        builds.lock = f"x=={number}\n"
        await add(server, name=name)
    plain = builders.cluster()
    server.backend.clusters["lab"] = {
        "partitions": (
            replace(plain.partitions[0], environment="of-partition"),
            replace(plain.partitions[0], name="plain", default=False),
        ),
        "teams": (
            replace(plain.teams[0], name="default", environment="of-team"),
            replace(plain.teams[0], name="other"),
        ),
        "users": (User("ann", (), ("default", "other")),),
        "environment": "of-cluster",
    }
    server.state.clusters.forget("lab")
    client = await server.client()
    run = await client.post("/api/v1/clusters/lab/run", json={"argv": ["true"], "dry_run": True, **job})
    assert run.status_code == 201, run.text
    lines = [line["text"] for line in run.json()["script"] if "HEADWAY_ENVIRONMENT" in line["text"]]
    assert [f"HEADWAY_ENVIRONMENT={used}@1" in line for line in lines] == ([True] if used else [])


@pytest.mark.parametrize(
    ("job", "image"),
    [
        ({}, "of-partition:1"),
        ({"partition": "plain"}, "of-team:1"),
        ({"partition": "plain", "team": "other"}, "of-cluster:1"),
        ({"environment": "none"}, ""),
        ({"container": {"image": "mine:1"}}, "mine:1"),
    ],
)
async def test_command_without_container_gets_the_default_one(
    server: Server, builds: Builds, job: dict[str, Any], image: str
) -> None:
    plain = builders.cluster()
    server.backend.clusters["lab"] = {
        "partitions": (
            replace(plain.partitions[0], container_image="of-partition:1"),
            replace(plain.partitions[0], name="plain", default=False),
        ),
        "teams": (
            replace(plain.teams[0], name="default", container_image="of-team:1"),
            replace(plain.teams[0], name="other"),
        ),
        "users": (User("ann", (), ("default", "other")),),
        "container_image": "of-cluster:1",
        "environment": "unused",
    }
    server.state.clusters.forget("lab")
    client = await server.client()
    run = await client.post("/api/v1/clusters/lab/run", json={"argv": ["true"], **job})
    assert run.status_code == 201, run.text
    ((_, request, *_),) = server.backend.named("submit")
    sent = request.model_dump_json()
    assert (f"--container-image={image}" in sent) if image else ("--container-image" not in sent)
    assert "HEADWAY_ENVIRONMENT" not in sent


@pytest.mark.parametrize(("gpus", "own", "used"), [(8, "", True), (0, "", False), (8, "none", False)])
async def test_command_for_real_gpus_gets_pytorch_once_it_is_built(
    server: Server, builds: Builds, gpus: int, own: str, used: bool
) -> None:
    server.backend.clusters["lab"] = {"provider": SSH, "environments": {"pytorch": ("torch",)}}
    server.state.clusters.forget("lab")
    client = await server.client()
    body = {"argv": ["true"], "gpus": gpus, "environment": own, "dry_run": True}
    for built in (False, True):
        if built:
            await add(server, name="pytorch")
        run = await client.post("/api/v1/clusters/lab/run", json=body)
        assert run.status_code == 201, run.text
        assert ("HEADWAY_ENVIRONMENT=pytorch@1" in run.text) is (built and used)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (
            "queued",
            "environment pytorch of lab is still being built (headway queue lab shows the job environment-pytorch)",
        ),
        ("failed", "environment pytorch of lab is not there (headway status lab shows a build that failed;"),
        ("done", ""),
    ],
)
async def test_command_for_real_gpus_is_told_that_it_gets_a_pytorch_without_cuda(
    server: Server, builds: Builds, state: str, says: str
) -> None:
    teams = (replace(builders.cluster().teams[0], name="default"),)
    server.backend.clusters["lab"] = {
        "provider": SSH,
        "environments": {"pytorch": ("torch",)},
        "teams": teams,
        "users": (User("ann", (), ("default",)),),
    }
    server.state.clusters.forget("lab")
    client = await server.client()
    if state == "queued":
        await client.post(API, json={"name": "pytorch", "text": "torch"})
    else:
        builds.state = "COMPLETED" if state == "done" else "FAILED"
        await add(server, state, name="pytorch")
    body = {"argv": ["true"], "gpus": 8}
    for fields in ({"dry_run": True}, {}):
        run = (await client.post("/api/v1/clusters/lab/run", json={**body, **fields})).json()
        assert run["warning"].startswith(says) if says else run["warning"] == ""
    checked = (await client.post("/api/v1/clusters/lab/jobs/check", json={"run": body})).json()
    assert checked["warning"].startswith(says) if says else checked["warning"] == ""
    document = {"name": "two", "steps": {"a": {"run": "true"}, "b": {"run": "true", "gpus": 8}}}
    begun = (await client.post("/api/v1/clusters/lab/pipelines", json={"document": document})).json()
    assert begun["warning"].startswith(f"step b: {says}") if says else begun["warning"] == ""
    for without in ({"gpus": 0}, {"environment": "none"}, {"container": {"image": "docker://x"}}):
        assert (await client.post("/api/v1/clusters/lab/run", json={**body, **without})).json()["warning"] == ""

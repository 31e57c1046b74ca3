"""Environments are built by a job of the person, published by the head, used by jobs and removed, with rights checked."""

from __future__ import annotations

from typing import Any

import pytest

from headway.errors import NotFound
from headway.server.operations import environments
from headway.server.workers import operation_worker
from headway.services.cluster.operations import queued_operations
from headway.store import StoreUnavailable
from tests.support.clusters.environment_builds import API, Builds, add, builds, declare, done, server
from tests.support.servers.server_fakes import Server

__all__ = ["builds", "server"]


async def test_build_runs_as_the_person_and_its_version_is_listed(server: Server, builds: Builds) -> None:
    operation = await add(server, person="bob", role="member")
    assert operation.kept == ("/environments/demo/1",)
    ((_, request, user, stage),) = server.backend.named("submit")
    assert (user, request.script_name) == ("bob", "environment-demo")
    assert stage.files[f"{stage.work}/requirements.txt"] == "models"
    client = await server.client()
    (row,) = (await client.get(API)).json()
    expected = {
        "name": "demo",
        "version": 1,
        "python": "3.13.5",
        "packages": 1,
        "person": "bob",
        "job_id": 1,
        "jobs": 0,
    }
    assert expected.items() <= row.items()
    assert not row["removable"], "it is the latest version"
    assert (await client.get(f"{API}/demo/1")).json()["lock"] == "models==2.1\n"
    ((_, cleaned, as_user),) = server.backend.named("run_command")
    assert (cleaned.argv, as_user) == (["rm", "-rf", "--", stage.work], "bob")


async def test_same_packages_make_no_new_version_and_others_do(server: Server, builds: Builds) -> None:
    await add(server)
    assert (await add(server)).kept == ("/environments/demo/1",)
    assert builds.there == {"demo@1"}
    builds.lock = "models==2.2\n"
    assert (await add(server)).kept == ("/environments/demo/2",)
    assert builds.there == {"demo@1", "demo@2"}


async def test_failed_job_and_full_disk_leave_no_version_and_no_folder(server: Server, builds: Builds) -> None:
    builds.state = "FAILED"
    failed = await add(server, "failed")
    assert failed.error is not None
    assert "the build of demo, job 1, ended with FAILED\n  one\n  error: no such package" in failed.error["message"]
    builds.state, builds.full = "COMPLETED", True
    full = await add(server, "failed")
    assert full.error is not None
    assert "No space left on device; nothing was kept" in full.error["message"]
    assert builds.there == set()
    assert len(server.backend.named("run_command")) == 2


async def test_build_continues_with_its_files_after_the_database_was_away(
    server: Server, builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_worker, "AWAY_S", 0.0)
    add_version, calls = server.store.environments.add, list[int]()

    async def add_later(*args: Any) -> None:
        calls.append(len(server.backend.named("run_command")))
        if len(calls) == 1:
            raise StoreUnavailable("away")
        await add_version(*args)

    monkeypatch.setattr(server.store.environments, "add", add_later)
    assert (await add(server)).kept == ("/environments/demo/1",)
    assert calls == [0, 0], "its folder is deleted at the end only"
    assert len(builds.jobs) == len(server.backend.named("run_command")) == 1


async def test_long_builds_take_no_place_of_other_operations(
    server: Server, builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_worker, "AT_ONCE", 1)
    client = await server.client()
    answers = [await client.post(API, json={"name": name, "text": "models"}) for name in ("one", "two")]

    async def until_both_run() -> None:
        if len(builds.jobs) < 2:
            builds.meanwhile.append(until_both_run)

    builds.meanwhile = [until_both_run]
    for answer in answers:
        await done(server, answer)
    assert server.state.waiting == set()


async def test_build_follows_a_cluster_that_is_changed_and_ends_with_one_that_is_removed(
    server: Server, builds: Builds
) -> None:
    async def changed() -> None:
        declare(server, "other")

    async def removed() -> None:
        await server.store.clusters.delete("lab")

    builds.meanwhile = [changed]
    await add(server)
    assert [list(cluster.environments) for cluster in builds.read] == [[], ["other"]]
    builds.meanwhile = [removed]
    gone = await add(server, "failed")
    assert gone.error is not None
    assert gone.error["message"] == "no cluster 'lab'"


@pytest.mark.parametrize("known", [False, True])
async def test_job_that_slurm_does_not_know_or_that_is_another_one_ends_the_build(
    server: Server, builds: Builds, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr(environments, "LOST_S", 0.0)
    builds.job_name = lambda _: "train"  # type: ignore[method-assign]
    if not known:
        server.backend.answers["job"] = NotFound("lab has no job 1")
    lost = await add(server, "failed")
    assert lost.error is not None
    assert lost.error["message"] == "Slurm of lab no longer knows job 1, which built demo"
    assert lost.error["hint"] == "headway env add lab demo --requirements FILE builds it again"


async def test_operation_that_waits_for_the_cluster_does_not_give_way_to_a_build(
    server: Server, builds: Builds
) -> None:
    await (await server.client()).post(API, json={"name": "demo", "text": "models"})
    apply = await server.store.operations.enqueue("lab", "apply", "ann")
    assert await queued_operations(server.state, "lab") == (apply,)


async def test_second_build_of_the_name_is_refused_and_one_of_another_name_is_not(
    server: Server, builds: Builds
) -> None:
    client = await server.client()
    first = await client.post(API, json={"name": "demo", "text": "models"})
    second = await client.post(API, json={"name": "demo", "text": "models"})
    assert second.status_code == 409
    assert second.json()["detail"] == "a version of environment demo is being built, by ann"
    other = await client.post(API, json={"name": "other", "text": "models"})
    for one in (first, other):
        await done(server, one)


async def test_a_build_does_not_wait_for_an_apply_nor_delay_it(server: Server, builds: Builds) -> None:
    client = await server.client()
    await client.post(API, json={"name": "demo", "text": "models"})
    subject = "environment demo"
    first = await server.store.operations.claim("a", 0.0, 30.0)
    assert first is not None
    assert first.subject == subject
    await server.store.operations.enqueue("lab", "apply", "ann")
    second = await server.store.operations.claim("a", 0.0, 30.0, [first.id])
    assert second is not None
    assert (second.kind, second.subject) == ("apply", "")
    assert await server.store.operations.active("lab") == second
    assert await server.store.operations.active("lab", subject) == first
    await server.store.operations.release_leases("a")


async def test_only_its_owner_and_admins_change_an_environment(server: Server, builds: Builds) -> None:
    await add(server, person="bob", role="member")
    carol = await server.client("carol", "member")
    for refused in (
        await carol.post(API, json={"name": "demo", "text": "models"}),
        await carol.post(f"{API}/demo/1/remove", json={}),
    ):
        assert refused.status_code == 403
        assert refused.json()["detail"] == "environment demo belongs to bob"
    ann = await server.client()
    await done(server, await ann.post(f"{API}/demo/1/remove", json={}))
    assert builds.there == set()
    taken = await carol.post(API, json={"name": "demo", "text": "models"})
    assert taken.status_code == 403, "the name stays bob's: jobs still name it"
    await add(server, person="bob", role="member")


@pytest.mark.parametrize("name", ["vision", "pytorch"])
async def test_only_admins_build_what_the_cluster_file_lists(server: Server, builds: Builds, name: str) -> None:
    declare(server, "vision")
    refused = await (await server.client("carol", "member")).post(API, json={"name": name, "text": "models"})
    assert refused.status_code == 403
    assert refused.json()["detail"].startswith(f"environment {name} belongs to the admins of lab")
    await add(server, name=name)


async def test_right_to_the_name_is_checked_again_before_files_are_published(server: Server, builds: Builds) -> None:
    async def declared() -> None:
        declare(server, "demo")

    builds.meanwhile = [declared]
    refused = await add(server, "failed", person="carol", role="member")
    assert refused.error is not None
    assert refused.error["message"].startswith("environment demo belongs to the admins of lab")
    assert builds.there == set()


async def test_user_who_was_taken_away_from_the_person_builds_nothing(server: Server, builds: Builds) -> None:
    carol = await server.client("carol", "member")
    answer = await carol.post(API, json={"name": "demo", "text": "models"})
    await server.store.people.change("carol", role="member", user="carol2")
    refused = await done(server, answer, "failed")
    assert refused.error is not None
    assert refused.error["message"] == "carol may not act as carol"
    assert server.backend.named("submit") == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"text": "--index-url https://ann:pw@pypi.lab/simple\nx"}, "has an address with a password"),
        ({"text": "a @ git+https://ghp_12@github.com/lab/a"}, "has an address with a password"),
        (
            {"source": "uv.lock", "text": "x", "pyproject": "url = 'https://ann:pw@pypi.lab'"},
            "pyproject.toml has an address",
        ),
        (
            {
                "source": "uv.lock",
                "text": '[[package]]\nname = "a"\nsource = {virtual = "."}',
                "pyproject": '[project]\nname = "a"\ndependencies = ["numpy"]',
            },
            "uv.lock does not fit pyproject.toml: only pyproject.toml has numpy",
        ),
        ({"text": "  \n"}, "requirements.txt is empty"),
        ({"text": "x", "name": "none"}, "'none' is not a name"),
        ({"text": "x", "name": "../x"}, "pattern"),
        ({"text": "x", "source": "uv.lock"}, "which needs it"),
        ({"text": "x", "partition": "gone"}, "lab has no partition gone"),
    ],
)
async def test_unusable_requests_are_refused(server: Server, builds: Builds, body: dict[str, str], why: str) -> None:
    answer = await (await server.client()).post(API, json={"name": "demo", **body})
    assert answer.status_code in (400, 409, 422)
    assert why in answer.text


async def test_version_in_a_lineage_is_kept_unless_told_and_then_named_there(server: Server, builds: Builds) -> None:
    await add(server)
    client = await server.client()
    run = await client.post("/api/v1/clusters/lab/run", json={"argv": ["python", "x.py"], "environment": "demo"})
    assert run.status_code == 201, run.text
    job = run.json()["job_id"]
    texts = [line["text"] for line in run.json()["script"]]
    assert any(line.startswith("export PATH=/environments/demo/1/bin:$PATH") for line in texts)
    refused = await client.post(f"{API}/demo/1/remove", json={})
    assert refused.status_code == 409
    assert f"demo@1 is in the lineage of job {job}" in refused.json()["detail"]
    await done(server, await client.post(f"{API}/demo/1/remove", json={"force": True}))
    for path in ("run", "jobs"):
        body = {"argv": ["true"]} if path == "run" else {"script": "#!/bin/bash\n"}
        gone = await client.post(f"/api/v1/clusters/lab/{path}", json={**body, "environment": "demo@1"})
        assert gone.status_code == 404
        assert "lab has no environment demo@1" in gone.json()["detail"]
    again = await client.post(f"/api/v1/clusters/lab/jobs/{job}/rerun", json={})
    assert again.status_code in (400, 409, 422), again.text
    assert "environment demo@1, which the job used, was removed by ann" in again.json()["detail"]


async def test_environment_that_is_still_being_built_is_named(server: Server, builds: Builds) -> None:
    client = await server.client()
    await client.post(API, json={"name": "demo", "text": "models"})
    answer = await client.post("/api/v1/clusters/lab/run", json={"argv": ["true"], "environment": "demo"})
    assert "environment demo of lab is still being built" in answer.json()["detail"]
    await server.work_off()


async def test_pages_show_versions_and_submit_with_one(server: Server, builds: Builds) -> None:
    await add(server)
    server.backend.answers |= {"volume_space": (), "history": ()}
    client = await server.client()
    text = (await client.get("/clusters/lab/storage")).text
    assert "demo@1" in text
    assert "/environments/demo/1" in text
    for how in ("script", "command"):
        page = (await client.get(f"/clusters/lab/submit?how={how}")).text
        assert [f"<option>{one}</option>" in page for one in ("none", "demo", "demo@1")] == [True] * 3
    form = {"how": "script", "script": "#!/bin/bash\npython x.py\n", "environment": "demo", "form_key": "a" * 32}
    sent = await (await server.client("alice", "member")).post("/clusters/lab/submit", data=form)
    assert sent.status_code == 303
    _, request, *_ = server.backend.named("submit")[-1]
    assert "HEADWAY_ENVIRONMENT=demo@1" in request.script


async def test_version_that_neither_a_job_nor_a_default_needs_is_listed_as_removable(
    server: Server, builds: Builds
) -> None:
    for number in range(4):
        builds.lock = f"models=={number}\n"
        await add(server)
    server.backend.clusters["lab"] = {"environment": "demo@2"}
    server.state.clusters.forget("lab")
    client = await server.client()
    run = await client.post("/api/v1/clusters/lab/run", json={"argv": ["true"], "environment": "demo@3"})
    assert run.status_code == 201, run.text
    rows = (await client.get(API)).json()
    assert [(row["version"], row["removable"]) for row in rows] == [(1, True), (2, False), (3, False), (4, False)]

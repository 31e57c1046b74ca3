"""Environments are built by a job of the person, published by the head, used by jobs and removed, with rights checked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.providers import SSH
from headway.domain.cluster import Cluster, User
from headway.domain.environment import EnvironmentVersion
from headway.domain.slurm.state import JobState
from headway.environments.file_store import Published
from headway.errors import NotFound, Refused, Unreachable
from headway.schemas.jobs import LogPartOut
from headway.schemas.submission.commands import ExecOut
from headway.schemas.submission.submissions import SubmitIn, SubmitOut
from headway.server.operations import environments
from headway.server.workers import operation_worker
from headway.services.cluster.operations import queued_operations
from headway.store import Operation, StoreUnavailable
from tests.support import builders, server_fakes
from tests.support.server_fakes import Server

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
        "log_window": LogPartOut(text="one\nerror: no such package\n", start=0, end=1, size=1),
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


async def test_pages_show_versions_and_submit_with_one(server: Server, builds: Builds) -> None:
    await add(server)
    server.backend.answers |= {"volume_usage": ()}
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

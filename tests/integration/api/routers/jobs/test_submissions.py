"""run, bundles, lineage, retry, rerun and pipelines send the right request to the cluster, store the right records,
and check rights."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.domain.environment import EnvironmentVersion
from headway.errors import NotAllowed, NotFound, Refused
from headway.schemas.submission.exec_commands import ExecOut
from headway.schemas.submission.submit_request import SubmitOut
from headway.services.jobs import submission
from headway.services.token_buckets import TokenBuckets
from headway.store import StoreUnavailable
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, reading

DIGEST = "a" * 64
JOBS = "/api/v1/clusters/lab/jobs"
PIPELINES = "/api/v1/clusters/lab/pipelines"
CHAIN = {
    "name": "chain",
    "steps": {"a": {"run": "true"}, "b": {"run": "x", "needs": ["a"]}, "c": {"run": "y", "needs": ["b"]}},
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, lambda: 1000.0)
    await made.apply()
    numbers = iter(range(41, 100))

    def submit(_: Any, request: Any, user: str, *__: Any) -> SubmitOut:
        return SubmitOut(job_id=next(numbers), cluster="lab", user=user, workdir=request.chdir)

    made.backend.answers |= {"submit": submit, "read": reading(), "machines": ()}
    made.backend.answers["job"] = lambda _, number: builders.job(number, user="eve")
    made.backend.answers["run_command"] = ExecOut(code=1)
    yield made
    await made.close()


@pytest.mark.parametrize(("away", "status"), [(1, 201), (2, 503)])
async def test_submission_retries_its_record_and_warns_against_resubmitting(
    server: Server, monkeypatch: pytest.MonkeyPatch, away: int, status: int
) -> None:
    monkeypatch.setattr(submission, "RECORD_RETRY_S", 0.0)
    note, tries = server.store.jobs.record, 0

    async def note_job(*args: Any, **said: Any) -> None:
        nonlocal tries
        tries += 1
        if tries <= away:
            raise StoreUnavailable(
                "the server's database is locked by another program", hint="try again when it has ended"
            )
        await note(*args, **said)

    monkeypatch.setattr(server.store.jobs, "record", note_job)
    answer = await (await server.client()).post(JOBS, json={"script": "#!/bin/bash\ntrue\n", "script_name": "a.sh"})
    assert answer.status_code == status, answer.text
    assert len(server.backend.named("submit")) == 1
    if away == 2:
        assert "job 41 was submitted to lab" in answer.json()["detail"]
        assert "do not submit it again" in answer.json()["hint"]
    else:
        assert await server.store.jobs.get("lab", 41)


async def test_run_submits_its_script_and_records_masked_lineage(server: Server) -> None:
    eve = await server.client("eve", "member")
    ask = {
        "argv": ["torchrun", "train.py"],
        "nodes": 2,
        "gpus": 8,
        "bundle": DIGEST,
        "env": {"HF_TOKEN": "s3cret", "A": "1"},
    }
    done = (await eve.post("/api/v1/clusters/lab/run", json=ask)).json()
    assert (done["job_id"], done["user"], done["script_args"]) == (41, "eve", ["train.py"])
    ((_, request, user, stage),) = server.backend.named("submit")
    assert (user, request.env["HF_TOKEN"], stage.bundle) == ("eve", "s3cret", DIGEST)
    assert stage.work == request.chdir == done["workdir"]
    record = await server.store.jobs.get("lab", 41)
    assert record
    assert record.request["env"] == {"HF_TOKEN": "********", "A": "1"}
    (line,) = [line for line in await server.store.audit.search() if line.action == "run"]
    assert (line.person, line.target, line.detail["job"], line.detail["user"]) == ("eve", "lab", 41, "eve")
    seen = {"checkpoints": ["step-10"], "used": [{"image": "", "file": f"/x/sha256-{'b' * 64}.sqsh"}]}
    server.backend.answers["run_command"] = ExecOut(
        code=0, stdout_b64=base64.b64encode(json.dumps(seen).encode()).decode()
    )
    shown = (await eve.get(f"{JOBS}/41/lineage")).json()
    assert (shown["bundle"], shown["launcher"], shown["kind"]) == (DIGEST, "torchrun", "run")
    assert (shown["checkpoints"], shown["container_digest"]) == (["step-10"], f"sha256:{'b' * 64}")


async def test_lineage_shows_container_images_named_only_in_steps(server: Server) -> None:
    eve = await server.client("eve", "member")
    await eve.post(JOBS, json={"script": "#!/bin/sh\nsrun --container-image=a x\nsrun --container-image=b y\n"})
    used = [{"image": name, "file": f"/x/sha256-{name * 64}.sqsh"} for name in "aba"]
    told = base64.b64encode(json.dumps({"checkpoints": [], "used": used}).encode()).decode()
    server.backend.answers["run_command"] = ExecOut(code=0, stdout_b64=told)
    shown = (await eve.get(f"{JOBS}/41/lineage")).json()
    assert (shown["container_image"], shown["container_digest"]) == ("a, b", f"sha256:{'a' * 64}")


async def test_array_task_lineage_shows_its_own_checkpoint_directory(server: Server) -> None:
    eve = await server.client("eve", "member")
    ask = {"argv": ["python", "train.py"], "sbatch": ["--array=0-3"], "bundle": DIGEST}
    work = (await eve.post("/api/v1/clusters/lab/run", json=ask)).json()["workdir"]
    whole = (await eve.get(f"{JOBS}/41/lineage")).json()
    assert whole["checkpoint_dir"] == f"{work}/checkpoints"
    server.backend.answers["job"] = builders.job(43, user="eve", array_job_id=41, array_task="2")
    task = (await eve.get(f"{JOBS}/43/lineage")).json()
    assert task["checkpoint_dir"] == f"{work}/checkpoints/2"


async def test_run_checks_gpus_against_the_real_node_not_its_plan(server: Server) -> None:
    """Machines one owns: what was found there is what Slurm was told."""
    eve = await server.client("eve", "member")
    ask = {"argv": ["true"], "gpus": 10, "dry_run": True}
    assert (await eve.post("/api/v1/clusters/lab/run", json=ask)).status_code == 400
    nodes = tuple(replace(builders.node(name), gpus=10) for name in builders.cluster().slot_names)
    server.state.live.store_snapshot(replace(server.state.live.snapshot("lab"), nodes=nodes))
    assert (await eve.post("/api/v1/clusters/lab/run", json=ask)).status_code == 201
    checked = (
        await eve.post(f"{JOBS}/check", json={"submit": {"args": ["-N1", "-G11"], "script": "#!/bin/sh\n"}})
    ).json()
    assert "a node of lab has 10" in checked["faults"][0]["message"]


async def test_dry_run_submits_nothing(server: Server) -> None:
    eve = await server.client("eve", "member")
    done = (await eve.post("/api/v1/clusters/lab/run", json={"argv": ["true"], "dry_run": True})).json()
    assert done["job_id"] == 0
    assert done["script"][0]["text"] == "#!/bin/bash"
    assert server.backend.named("submit") == []


async def test_submission_without_a_job_is_still_audited(server: Server) -> None:
    eve = await server.client("eve", "member")
    server.backend.answers["submit"] = SubmitOut(job_id=0, cluster="lab", user="eve", workdir="~")
    assert (await eve.post(JOBS, json={"args": ["--test-only"], "script": "#!/bin/sh\n"})).status_code == 201
    assert [line.detail["job"] for line in await server.store.audit.search() if line.action == "submit"] == [0]
    assert await server.store.jobs.get("lab", 0) is None


async def test_faked_job_id_does_not_expose_or_replace_lineage_of_others(server: Server) -> None:
    """Their sbatch may say any number: it is looked for in the person's own PATH."""
    eve, mallory = await server.client("eve", "member"), await server.client("mallory", "member")
    admin = await server.client()
    sent = (("eve", eve, 41), ("mallory", mallory, 41), ("mallory", mallory, 42), ("eve", eve, 42), ("eve", eve, 43))
    for person, client, number in (*sent, ("mallory", mallory, 43)):
        server.backend.answers["submit"] = SubmitOut(job_id=number, cluster="lab", user=person, workdir="~")
        said = await client.post(JOBS, json={"script": f"#!/bin/sh\n# of {person}\n"})
        assert said.status_code == 201, said.text
    for number in (41, 42):
        for client in (eve, admin):
            shown = (await client.get(f"{JOBS}/{number}/lineage")).json()
            assert (shown["user"], "of eve" in shown["script"]) == ("eve", True)
            assert "of eve" in (await client.get(f"{JOBS}/{number}/script")).json()["text"]
        assert (await mallory.get(f"{JOBS}/{number}/lineage")).status_code == 403
        assert (await mallory.post(f"{JOBS}/{number}/rerun", json={})).status_code == 403
    server.backend.answers["job"] = NotFound("Slurm knows it no more")
    assert "of eve" in (await eve.get(f"{JOBS}/43/lineage")).json()["script"]


async def test_only_owner_and_admins_read_lineage_and_rerun_jobs(server: Server) -> None:
    eve, bob = await server.client("eve", "member"), await server.client("bob", "member")
    await eve.post("/api/v1/clusters/lab/run", json={"argv": ["true"]})
    assert (await bob.get(f"{JOBS}/41/lineage")).status_code == 403
    assert (await bob.post(f"{JOBS}/41/rerun", json={})).status_code == 403
    assert (await eve.post(f"{JOBS}/41/rerun", json={})).json()["job_id"] == 42
    admin = await server.client()
    assert (await admin.post(f"{JOBS}/41/rerun", json={})).status_code == 201
    assert server.backend.named("submit")[-1][2] == "eve"  # still as the one whose job it is
    assert (await eve.get(f"{JOBS}/99/lineage")).status_code == 404


async def test_removed_user_cannot_submit_read_lineage_or_retry(server: Server) -> None:
    eve = await server.client("eve", "member")
    server.backend.answers |= {"store_bundle": True, "cancel": None, "array_states": {"0": "FAILED"}}
    await eve.post(JOBS, json={"script": "#!/bin/sh\n", "args": ["--array=0-3"]})
    await eve.post(PIPELINES, json={"document": CHAIN})
    bundle = f"/api/v1/clusters/lab/bundles/{DIGEST}"
    asks: tuple[tuple[str, str, Any], ...] = (
        ("POST", JOBS, {"script": "#!/bin/sh\n"}),
        ("POST", "/api/v1/clusters/lab/run", {"argv": ["true"]}),
        ("GET", bundle, None),
        ("PUT", bundle, {}),
        ("GET", f"{JOBS}/41/lineage", None),
        ("POST", f"{JOBS}/41/retry", {}),
        ("POST", f"{JOBS}/41/rerun", {}),
        ("POST", PIPELINES, {"document": CHAIN}),
        ("POST", f"{PIPELINES}/chain/retry", {"steps": ["a"]}),
        ("POST", "/api/v1/clusters/lab/exec", {"argv": ["true"], "user": "eve"}),
    )
    for method, path, ask in asks:
        assert (await eve.request(method, path, json=ask)).status_code < 300, path
    await server.store.linux_uids.add_to_cluster("lab", ["eve"])  # was in a team once; the file names her no more
    before, kept = len(server.backend.calls), len(await server.store.pipelines.recent("lab"))
    for method, path, ask in asks:
        refused = await eve.request(method, path, json=ask)
        assert (refused.status_code, refused.json()["detail"]) == (403, "eve has no access to lab any more"), path
    assert (len(server.backend.calls), len(await server.store.pipelines.recent("lab"))) == (before, kept)
    admin = await server.client()
    assert (await admin.post(f"{JOBS}/41/rerun", json={})).status_code == 201  # what becomes of it is theirs to say


async def test_rerun_requires_secret_variables_again(server: Server) -> None:
    eve = await server.client("eve", "member")
    await eve.post(JOBS, json={"script": "#!/bin/sh\n", "env": {"API_KEY": "k"}})
    refused = await eve.post(f"{JOBS}/41/rerun", json={})
    assert "--env API_KEY" in refused.json()["hint"]
    assert (await eve.post(f"{JOBS}/41/rerun", json={"env": {"API_KEY": "k"}})).status_code == 201
    assert server.backend.named("submit")[-1][1].env == {"API_KEY": "k"}


async def test_rerun_keeps_variables_that_only_look_like_secrets(server: Server) -> None:
    eve = await server.client("eve", "member")
    env = {"TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "2048", "AUTHOR": "ann"}
    await eve.post(JOBS, json={"script": "#!/bin/sh\n", "env": env})
    assert (await eve.post(f"{JOBS}/41/rerun", json={})).status_code == 201
    assert server.backend.named("submit")[-1][1].env == env
    server.backend.answers["cancel"] = None
    steps = {"name": "one", "steps": {"a": {"run": "true", "env": env}}}
    await eve.post(PIPELINES, json={"document": steps})
    again = await eve.post(f"{PIPELINES}/one/retry", json={"steps": ["a"]})
    assert again.status_code == 201, again.text
    assert server.backend.named("submit")[-1][1].env == {**env, "HEADWAY_PIPELINE": "one"}


async def test_array_retry_resubmits_only_failed_tasks(server: Server) -> None:
    eve = await server.client("eve", "member")
    waited = {"script": "#!/bin/sh\n#SBATCH -d afterok:7\n", "args": ["--array=0-3%2", "--dependency=afterok:7"]}
    await eve.post(JOBS, json={**waited, "chdir": "here"})
    server.backend.answers["array_states"] = {"0": "COMPLETED", "1": "FAILED", "2": "TIMEOUT", "3": "RUNNING"}
    assert (await eve.get(f"{JOBS}/41/tasks")).json()["failed_tasks"] == "1-2"
    assert (await eve.post(f"{JOBS}/41/retry", json={})).json()["job_id"] == 42
    request = server.backend.named("submit")[-1][1]
    assert (request.args, request.chdir, request.script) == (["--array=1-2%2"], "here", "#!/bin/sh\n")
    server.backend.answers["array_states"] = {"0": "COMPLETED"}
    assert (await eve.post(f"{JOBS}/41/retry", json={})).status_code == 400
    server.backend.answers["array_states"] = {}
    refused = (await eve.post(f"{JOBS}/41/retry", json={})).json()
    assert (refused["detail"], "headway job rerun lab 41" in refused["hint"]) == ("job 41 is not an array", True)


async def test_single_array_task_can_be_retried_and_rerun(server: Server) -> None:
    eve = await server.client("eve", "member")
    await eve.post(JOBS, json={"script": "#!/bin/sh\n#SBATCH -a 0-3%2\n"})
    server.backend.answers["array_states"] = {"0": "COMPLETED", "1": "FAILED", "2": "TIMEOUT"}
    for how, task in (("retry", "2"), ("rerun", "0")):
        assert (await eve.post(f"{JOBS}/41/{how}", json={"task": task})).status_code == 201
        assert server.backend.named("submit")[-1][1].args == [f"--array={task}%2"]
        assert (await eve.post(f"{JOBS}/41/{how}", json={"task": "7"})).status_code == 404
    refused = (await eve.post(f"{JOBS}/41/retry", json={"task": "0"})).json()
    assert (refused["detail"], refused["hint"]) == (
        "41_0 has not failed: it is COMPLETED",
        "headway job rerun lab 41_0 repeats it",
    )


async def test_finds_pending_and_ended_array_tasks_by_task_number(server: Server) -> None:
    eve = await server.client("eve", "member")
    many = replace(builders.job(41, "PENDING", user="eve"), array_job_id=41, array_task="4-9%2")
    server.backend.answers["read"] = reading(many)
    server.backend.answers["task"] = replace(builders.job(43, "FAILED", user="eve"), array_job_id=41, array_task="1")
    found = [(await eve.get(f"{JOBS}/41", params={"task": task})).json() for task in ("5", "1")]
    assert [(one["id"], one["array_task"], one["state"]) for one in found] == [
        (41, "5", "PENDING"),
        (43, "1", "FAILED"),
    ]
    assert [call[1:] for call in server.backend.named("task")] == [(41, "1")]


async def test_bundles_are_looked_up_and_uploaded_within_the_size_limit(server: Server) -> None:
    eve = await server.client("eve", "member")
    server.backend.answers["store_bundle"] = lambda *args: bool(args[-1])
    path = f"/api/v1/clusters/lab/bundles/{DIGEST}"
    assert (await eve.get(path)).json() == {"digest": DIGEST, "present": False}
    large = b"x" * (17 * 1024 * 1024)  # more than other requests may have
    assert (await eve.put(path, content=large)).json()["present"] is True
    assert server.backend.named("store_bundle")[-1][1:4] == ("eve", "/scratch/eve/.headway", DIGEST)
    assert (await eve.put(path, content=b"x" * (65 * 1024 * 1024))).status_code == 413
    assert (await eve.get("/api/v1/clusters/lab/bundles/..%2f..")).status_code in (404, 422)
    assert (await eve.get(f"{path}?user=bob")).status_code == 403


async def test_pipeline_steps_are_submitted_with_dependencies(server: Server) -> None:
    eve = await server.client("eve", "member")
    made = (await eve.post(PIPELINES, json={"document": CHAIN, "bundle": DIGEST})).json()
    assert [step["job_id"] for step in made["steps"]] == [41, 42, 43]
    scripts = [call[1].script for call in server.backend.named("submit")]
    assert "--dependency" not in scripts[0]
    assert "#SBATCH --dependency=afterok:41 " in scripts[1]
    assert "#SBATCH --dependency=afterok:42 " in scripts[2]
    assert len({call[3].work for call in server.backend.named("submit")}) == 1
    assert (await eve.get(f"{PIPELINES}/chain")).json()["id"] == made["id"]


async def test_refused_pipeline_step_cancels_earlier_steps(server: Server) -> None:
    eve = await server.client("eve", "member")
    good = server.backend.answers["submit"]

    def submit(*args: Any) -> SubmitOut:
        if args[1].script_name == "b":
            raise Refused("no")
        return good(*args)  # type: ignore[no-any-return]

    server.backend.answers |= {"submit": submit, "cancel": None}
    answer = await eve.post(PIPELINES, json={"document": CHAIN})
    assert answer.json()["detail"] == "step b: no"
    assert [call[1] for call in server.backend.named("cancel")] == ["41"]


async def test_pipeline_retry_continues_from_the_failed_step(server: Server) -> None:
    eve, bob = await server.client("eve", "member"), await server.client("bob", "member")
    await eve.post(PIPELINES, json={"document": CHAIN})
    jobs = (builders.job(41, "COMPLETED"), builders.job(42, "FAILED"), builders.job(43, "PENDING"))
    server.backend.answers |= {"read": reading(*jobs), "cancel": None}
    server.state.live.forget_cluster("lab")
    assert (await bob.post(f"{PIPELINES}/chain/retry", json={})).status_code == 403
    assert (await eve.post(f"{PIPELINES}/chain/retry", json={"steps": ["nope"]})).status_code == 404
    server.backend.answers["job"] = builders.job(44, "PENDING")
    answer = await eve.post(f"{PIPELINES}/chain/retry", json={})
    assert answer.status_code == 201, answer.text
    assert [call[1] for call in server.backend.named("cancel")] == ["43"]
    scripts = [call[1].script for call in server.backend.named("submit")[3:]]
    assert len(scripts) == 2
    assert "--dependency" not in scripts[0]  # what it needs has ended well
    assert "afterok:44" in scripts[1]


async def test_pipeline_retry_with_a_removed_environment_is_refused_before_anything_is_cancelled(
    server: Server,
) -> None:
    eve, store = await server.client("eve", "member"), server.store.environments
    version = EnvironmentVersion("lab", "demo", 1, "0" * 64, "3.13.5", 1, 1, "x", "", "eve", 1.0, 7)
    await store.add(version, "models==1\n")
    steps = {"a": {"run": "true"}, "b": {"run": "x", "needs": ["a"], "environment": "demo"}}
    made = await eve.post(PIPELINES, json={"document": {"name": "chain", "steps": steps}})
    assert made.status_code == 201, made.text
    server.backend.answers["read"] = reading(builders.job(41, "COMPLETED"), builders.job(42, "FAILED"))
    server.state.live.forget_cluster("lab")
    await store.record_removal(version, "ann", force=True)
    answer = await eve.post(f"{PIPELINES}/chain/retry", json={})
    assert answer.status_code == 400
    assert "environment demo@1, which the job used, was removed by ann" in answer.json()["detail"]
    assert len(server.backend.named("submit")) == 2


async def test_pipeline_retry_by_an_admin_cancels_steps_as_the_owner(server: Server) -> None:
    """Slurm refuses it for a job of another, whatever number their sbatch said."""
    eve, admin = await server.client("eve", "member"), await server.client()
    await eve.post(PIPELINES, json={"document": CHAIN})
    server.backend.answers |= {"read": reading(*(builders.job(n, "PENDING", user="bob") for n in (41, 42, 43)))}
    server.backend.answers["cancel"] = NotAllowed("not theirs")
    server.state.live.forget_cluster("lab")
    await admin.post(f"{PIPELINES}/chain/retry", json={"steps": ["a"]})
    assert [call[1:] for call in server.backend.named("cancel")] == [(n, "eve", False) for n in ("41", "42", "43")]


async def test_pipeline_faults_are_reported_before_any_step_is_submitted(server: Server) -> None:
    eve = await server.client("eve", "member")
    wrong = {"name": "p", "steps": {"a": {"run": "x", "gpus": 99}, "b": {"run": "y", "nodes": 999}}}
    answer = await eve.post(PIPELINES, json={"document": wrong})
    assert "step a:" in answer.json()["detail"]
    assert "step b:" in answer.json()["detail"]
    assert server.backend.named("submit") == []


async def test_container_error_is_shown_only_to_users_allowed_to_read_the_log(server: Server) -> None:
    log = base64.b64encode(b"headway: there is no image a\n").decode()
    server.backend.answers["run_command"] = ExecOut(code=0, stdout_b64=log)
    server.backend.answers["job"] = builders.job(41, "FAILED", user="eve", exit_code=125)
    eve, mallory = await server.client("eve", "member"), await server.client("mallory", "member")
    viewer = await server.client("vic", "viewer")
    assert (await eve.get("/api/v1/clusters/lab/jobs/41")).json()["why"].endswith("there is no image a")
    for other in (mallory, viewer):
        assert "no image" not in (await other.get("/api/v1/clusters/lab/jobs/41")).json()["why"]
    assert [user for _, _, user in server.backend.named("run_command")] == ["eve"]


async def test_fast_submits_of_one_person_are_refused_until_the_server_allows_more(server: Server) -> None:
    server.state.submit_buckets = TokenBuckets(3)
    eve, bob = await server.client("eve", "member"), await server.client("bob", "member")
    script = {"script": "#!/bin/sh\n"}
    for command in ("a", "b", "c"):
        assert (await eve.post("/api/v1/clusters/lab/run", json={"argv": [command]})).status_code == 201
    assert (await eve.post("/api/v1/clusters/lab/run", json={"argv": ["a"], "dry_run": True})).status_code == 201
    refused = await eve.post(JOBS, json=script, headers={"idempotency-key": "once"})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "20")
    problem = refused.json()
    assert (problem["kind"], problem["detail"]) == (
        "too_many_submits",
        "eve submits more than 3 jobs a minute to this server",
    )
    assert "try again in 20 s" in problem["hint"]
    assert "HEADWAY_SUBMITS_PER_MINUTE" in problem["hint"]
    assert len(server.backend.named("submit")) == 3
    assert (await bob.post(JOBS, json=script)).status_code == 201
    assert (await (await server.client()).post(JOBS, json=script)).status_code == 201
    server.state.submit_buckets = TokenBuckets(3)
    assert (await eve.post(JOBS, json=script, headers={"idempotency-key": "once"})).status_code == 201


async def test_pipeline_counts_each_step_as_a_submit(server: Server) -> None:
    server.state.submit_buckets = TokenBuckets(2)
    eve = await server.client("eve", "member")
    assert (await eve.post(PIPELINES, json={"document": CHAIN})).status_code == 201
    refused = await eve.post(PIPELINES, json={"document": CHAIN})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")

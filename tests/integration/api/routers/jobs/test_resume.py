"""A job or a task of an array is resumed from a checkpoint that it has kept, in its own folder."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.jobs.submission.submit import CheckpointLink
from headway.schemas.submission.exec_commands import ExecOut
from headway.schemas.submission.submit_request import SubmitOut
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, reading

JOBS = "/api/v1/clusters/lab/jobs"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, lambda: 1000.0)
    await made.apply()
    numbers = iter(range(41, 100))

    def submit(_: Any, request: Any, user: str, *__: Any) -> SubmitOut:
        return SubmitOut(job_id=next(numbers), cluster="lab", user=user, workdir=request.chdir)

    made.backend.answers |= {"submit": submit, "read": reading(), "machines": ()}
    made.backend.answers["job"] = lambda _, number: builders.job(number, user="eve")
    yield made
    await made.close()


def kept(server: Server, *names: str) -> None:
    """Lets the cluster list these names in the folder of a job's checkpoints."""
    told = base64.b64encode(json.dumps({"checkpoints": names, "used": []}).encode()).decode()
    server.backend.answers["run_command"] = ExecOut(code=0, stdout_b64=told)
    server.backend.answers.setdefault("array_states", {})


async def test_resumed_job_begins_with_a_kept_checkpoint(server: Server) -> None:
    eve, bob = await server.client("eve", "member"), await server.client("bob", "member")
    await eve.post("/api/v1/clusters/lab/run", json={"argv": ["python3", "train.py"]})
    first = server.backend.named("submit")[-1][3]
    kept(server, "step-00003000", "step-00004000", ".step-00005000.1234.part", "notes")
    assert (await bob.post(f"{JOBS}/41/resume", json={"step": 4000})).status_code == 403
    assert (await eve.post(f"{JOBS}/41/resume", json={"step": 4000})).status_code == 201
    _, request, user, stage = server.backend.named("submit")[-1]
    assert stage.work != first.work
    assert stage.resume == CheckpointLink(f"{first.work}/checkpoints", "step-00004000", f"{stage.work}/checkpoints")
    assert (request.env, user) == ({"HEADWAY_RESUMED_FROM": "41-step-4000"}, "eve")
    shown = (await eve.get(f"{JOBS}/42/lineage")).json()
    assert (shown["kind"], shown["parent"], shown["checkpoint_dir"]) == ("resume", 41, f"{stage.work}/checkpoints")
    # The new job's own checkpoints can be resumed too; a rerun of it begins from the start.
    assert (await eve.post(f"{JOBS}/42/resume", json={"step": 3000})).status_code == 201
    assert server.backend.named("submit")[-1][3].resume.source == f"{stage.work}/checkpoints"
    assert (await eve.post(f"{JOBS}/42/rerun", json={})).status_code == 201
    _, request, _, stage = server.backend.named("submit")[-1]
    assert (request.env, stage.resume) == ({}, None)


async def test_resume_from_a_step_that_is_not_kept_names_those_that_are(server: Server) -> None:
    eve = await server.client("eve", "member")
    await eve.post("/api/v1/clusters/lab/run", json={"argv": ["python3", "train.py"]})
    kept(server, "step-00003000", "step-00004000")
    refused = await eve.post(f"{JOBS}/41/resume", json={"step": 4500})
    assert refused.status_code == 404
    assert refused.json()["detail"] == "job 41 has no checkpoint of step 4500; it keeps steps 3000, 4000"
    assert refused.json()["hint"] == "headway job resume 41 --from step:4000"
    kept(server)
    refused = await eve.post(f"{JOBS}/41/resume", json={"step": 4500})
    assert "job 41 has no checkpoints in /scratch/eve/runs/" in refused.json()["detail"]


async def test_resume_of_a_script_sets_the_folder_of_its_checkpoints(server: Server) -> None:
    eve = await server.client("eve", "member")
    await eve.post(JOBS, json={"script": "#!/bin/sh\npython3 train.py\n", "script_name": "train.sh"})
    kept(server, "checkpoint-500")
    server.backend.answers["job"] = builders.job(41, "RUNNING", user="eve", name="llm")
    assert (await eve.post(f"{JOBS}/41/resume", json={"step": 500})).status_code == 201
    _, request, _, stage = server.backend.named("submit")[-1]
    folder = request.env["HEADWAY_CHECKPOINT_DIR"]
    assert folder.startswith("/scratch/eve/train-resumed-")
    assert stage.resume == CheckpointLink("/scratch/eve/llm-41", "checkpoint-500", folder)
    await eve.post(JOBS, json={"script": "#!/bin/sh\nexport HEADWAY_CHECKPOINT_DIR=/scratch/eve/x\npython3 train.py\n"})
    server.backend.answers["job"] = builders.job(43, "RUNNING", user="eve", name="llm")
    refused = await eve.post(f"{JOBS}/43/resume", json={"step": 500})
    assert "sets HEADWAY_CHECKPOINT_DIR itself" in refused.json()["detail"]


async def test_one_task_of_an_array_is_resumed(server: Server) -> None:
    eve = await server.client("eve", "member")
    await eve.post("/api/v1/clusters/lab/run", json={"argv": ["python3", "train.py"], "sbatch": ["--array=0-3"]})
    first = server.backend.named("submit")[-1][3]
    server.backend.answers["array_states"] = {"0": "COMPLETED", "1": "FAILED"}
    kept(server, "step-00003000")
    refused = await eve.post(f"{JOBS}/41/resume", json={"step": 3000})
    assert "headway job resume 41_0 --from step:3000" in refused.json()["hint"]
    assert (await eve.post(f"{JOBS}/41/resume", json={"step": 3000, "task": "1"})).status_code == 201
    _, request, _, stage = server.backend.named("submit")[-1]
    assert "--array=1" in request.args
    assert (stage.resume.source, stage.resume.target) == (
        f"{first.work}/checkpoints/1",
        f"{stage.work}/checkpoints/1",
    )


async def test_a_task_of_a_script_is_resumed_from_the_folder_of_its_own_number(server: Server) -> None:
    """Slurm gives each task a job number, by which headway_train names the folder."""
    eve = await server.client("eve", "member")
    await eve.post(
        JOBS, json={"script": "#!/bin/sh\n#SBATCH --array=0-3\npython3 train.py\n", "script_name": "train.sh"}
    )
    server.backend.answers["array_states"] = {"0": "COMPLETED", "1": "FAILED"}
    kept(server, "step-00003000")
    job = builders.job(41, "FAILED", user="eve", name="llm", array_job_id=41, array_task="3")
    server.backend.answers["job"] = job
    server.backend.answers["task"] = replace(job, id=43, array_task="1")
    assert (await eve.post(f"{JOBS}/41/resume", json={"step": 3000, "task": "1"})).status_code == 201
    _, request, _, stage = server.backend.named("submit")[-1]
    assert "--array=1" in request.args
    assert (stage.resume.source, stage.resume.target) == (
        "/scratch/eve/llm-43",
        request.env["HEADWAY_CHECKPOINT_DIR"],
    )

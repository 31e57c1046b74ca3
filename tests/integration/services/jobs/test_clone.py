"""A job that is cloned on its page has its own script, files, variables and folder, and a clone by another person
lacks the owner's secrets."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.domain.access.credential_redaction import MASK
from headway.domain.teams import Team, User
from headway.schemas.submission.exec_commands import ExecOut
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, reading

DIGEST = "a" * 64
JOBS = "/api/v1/clusters/lab/jobs"
PAGE = "/clusters/lab/submit"
SECRETIVE = """#!/bin/bash
export TOKENIZERS_PARALLELISM=false MAX_TOKENS=2048 author=ann
export API_KEY="abc def"
srun python x.py
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = await server_fakes.start(tmp_path, lambda: 1000.0)
    team = Team("default", ("alice", "bob"), 1, leads=("bob",))
    users = (User("alice", (), (team.name,)), User("bob", (), (team.name,)))
    made.backend.clusters["lab"] = {"teams": (team,), "users": users}
    await made.apply()
    numbers = iter(range(41, 100))

    def submit(_: Any, request: SubmitIn, user: str, *__: Any) -> SubmitOut:
        number = 0 if "--test-only" in request.args else next(numbers)
        return SubmitOut(job_id=number, cluster="lab", user=user, workdir=request.chdir)

    made.backend.answers |= {
        "submit": submit,
        "machines": (),
        "job_runs": (),
        "history": (),
        "run_command": ExecOut(code=1),
    }
    jobs = [builders.job(number, user="alice") for number in range(41, 50)]
    made.backend.answers |= {"read": reading(*jobs), "job": lambda _, number: jobs[number - 41]}
    yield made
    await made.close()


def filled(page: httpx.Response) -> dict[str, str]:
    """The form's fields as a browser would send them."""
    assert page.status_code in (200, 422), page.text
    text = page.text
    found = {m[1]: html.unescape(m[2]) for m in re.finditer(r'<input [^>]*name="([^"]+)" value="([^"]*)"', text)}
    found |= {
        m[1]: html.unescape(m[2])
        for m in re.finditer(r'<textarea [^>]*name="([^"]+)"[^>]*>(.*?)</textarea>', text, re.S)
    }
    return found


def sent(server: Server) -> Any:
    """(cluster, request, user, stage) of the last job that was really submitted."""
    return next(call for call in reversed(server.backend.named("submit")) if "--test-only" not in call[1].args)


async def test_owner_clones_a_job_with_its_secrets(server: Server) -> None:
    ann = await server.client("alice", "member")
    words = ["--tokenizer", "gpt2", "--max-tokens=4096", "--api-key=k"]
    await ann.post(JOBS, json={"script": SECRETIVE, "script_args": words, "args": ["--export=ALL,WANDB_API_KEY=w"]})
    shown = (await ann.get(f"{JOBS}/41/script")).json()
    assert "API_KEY=********\n" in shown["text"]
    assert "MAX_TOKENS=2048 author=ann" in shown["text"]
    assert shown["script_args"] == ["--tokenizer", "gpt2", "--max-tokens=4096", f"--api-key={MASK}"]
    form = filled(await ann.get(f"{PAGE}?from=41"))
    assert MASK not in "".join(form.values())
    done = await ann.post(PAGE, data=form)
    assert (done.status_code, done.headers["location"]) == (303, "/clusters/lab/jobs/42"), done.text
    again = sent(server)[1]
    assert (again.script, again.script_args, again.args) == (SECRETIVE, words, ["--export=ALL,WANDB_API_KEY=w"])


async def test_clone_by_a_lead_requires_the_masked_values(server: Server) -> None:
    ann, lea = await server.client("alice", "member"), await server.client("bob", "lead")
    await ann.post(JOBS, json={"script": SECRETIVE, "script_args": ["--api-key", "k"]})
    form = filled(await lea.get(f"{PAGE}?from=41"))
    assert "abc def" not in "".join(form.values())
    assert "origin" not in form
    before = len(server.backend.named("submit"))
    refused = await lea.post(PAGE, data=form)
    assert refused.status_code == 422
    assert "line 3: the value of API_KEY was removed because it is a secret" in refused.text
    assert "the value of --api-key was removed" in refused.text
    assert "type the value again" in refused.text
    assert len(server.backend.named("submit")) == before


async def test_clone_drops_job_dependencies(server: Server) -> None:
    ann, lea = await server.client("alice", "member"), await server.client("bob", "lead")
    await ann.post(JOBS, json={"script": "#!/bin/sh\n#SBATCH -d afterok:7\nmake\n", "args": ["-N1", "-dafterok:7"]})
    for client in (ann, lea):
        form = filled(await client.get(f"{PAGE}?from=41"))
        assert form["script"] == "#!/bin/sh\nmake\n"
        assert "after" not in str(form)


async def test_owner_clones_script_and_folder_from_accounting(server: Server) -> None:
    ann = await server.client("alice", "member")
    server.backend.answers["run_command"] = ExecOut(code=0, stdout_b64=base64.b64encode(SECRETIVE.encode()).decode())
    server.backend.answers["read"] = reading(builders.job(41, user="alice", workdir="/scratch/alice/project"))
    form = filled(await ann.get(f"{PAGE}?from=41"))
    assert (form["script"], form["chdir"]) == (
        SECRETIVE,
        "/scratch/alice/project",
    )  # where it ran: a path in it may count on that
    assert "abc def" not in (await ann.get(f"{JOBS}/41/script")).text


async def test_clone_of_a_run_gets_its_own_folder_and_asks_for_secrets(server: Server) -> None:
    ann = await server.client("alice", "member")
    ask = {"argv": ["torchrun", "train.py", "--lr", "1"], "gpus": 8, "bundle": DIGEST, "after": ["ok:7"],
           "env": {"HF_TOKEN": "s3cret", "A": "1"}}  # fmt: skip
    await ann.post("/api/v1/clusters/lab/run", json=ask)
    first = sent(server)
    old = first[1].chdir
    form = filled(await ann.get(f"{PAGE}?from=41"))
    assert (form["origin"], form["folder"], "chdir" in form) == ("41", old, False)
    assert "--dependency" not in form["script"]  # what it waited for has ended
    form["args"] = f"train.py --lr 2 --init {old}/checkpoints/step-9"
    refused = await ann.post(PAGE, data=form)
    assert refused.status_code == 422
    assert "HF_TOKEN is a secret and was not stored" in refused.text
    done = await ann.post(PAGE, data={**filled(refused), "env.HF_TOKEN": "new", "gpus": "4"})
    assert done.status_code == 303, done.text
    _, request, user, stage = sent(server)
    assert (user, request.env, stage.bundle) == ("alice", {"HF_TOKEN": "new", "A": "1"}, DIGEST)
    assert stage.work == request.chdir != old
    assert request.script_args == ["train.py", "--lr", "2", "--init", f"{old}/checkpoints/step-9"]
    assert request.args == ["--gpus-per-node=4"]
    assert old not in request.script
    assert f"#SBATCH --chdir={request.chdir} " in request.script
    assert f"HEADWAY_CHECKPOINT_DIR:-{request.chdir}/checkpoints" in request.script
    record = await server.store.jobs.get("lab", 42)
    assert record
    assert (record.kind, record.parent, record.request["env"]["HF_TOKEN"]) == ("rerun", 41, MASK)
    assert record.facts["checkpoints"] == f"{request.chdir}/checkpoints"
    form = filled(await ann.get(f"{PAGE}?from=42"))  # a clone's clone, with a folder of its own again
    assert form["folder"] == request.chdir


async def test_clone_of_a_container_job_uses_its_own_workdir_inside(server: Server) -> None:
    ann = await server.client("alice", "member")
    await ann.post("/api/v1/clusters/lab/run", json={"argv": ["x"], "container": {"image": "a"}})
    old = sent(server)[1].chdir
    assert f"--container-workdir={old}" in sent(server)[1].script_args
    for again in (
        ann.post(f"{JOBS}/41/rerun", json={}),
        ann.post(PAGE, data=filled(await ann.get(f"{PAGE}?from=41"))),
    ):
        assert (await again).status_code in (201, 303)
        request = sent(server)[1]
        assert request.chdir != old
        assert f"--container-workdir={request.chdir}" in request.script_args


async def test_clone_copies_the_bundle_or_keeps_the_given_folder(server: Server) -> None:
    ann = await server.client("alice", "member")
    await ann.post(JOBS, json={"script": "#!/bin/sh\nmake\n", "bundle": DIGEST, "chdir": "sub"})
    old = sent(server)[1].chdir
    await ann.post(PAGE, data=filled(await ann.get(f"{PAGE}?from=41")))
    _, request, _, stage = sent(server)
    assert (stage.bundle, request.chdir) == (DIGEST, f"{stage.work}/sub")
    assert request.chdir != old
    await ann.post(JOBS, json={"script": "#!/bin/sh\nmake\n", "chdir": "/home/alice/x", "env": {"A": "1"}})
    form = filled(await ann.get(f"{PAGE}?from=43"))
    assert form["chdir"] == "/home/alice/x"
    await ann.post(PAGE, data={**form, "chdir": "/home/alice/y"})
    call = sent(server)
    assert (call[1].chdir, call[1].env, len(call)) == (
        "/home/alice/y",
        {"A": "1"},
        3,
    )  # and nothing is laid there first


async def test_run_can_be_cloned_only_by_its_owner(server: Server) -> None:
    ann, adm = await server.client("alice", "member"), await server.client("bob", "admin")
    await ann.post("/api/v1/clusters/lab/run", json={"argv": ["x"]})
    form = filled(await ann.get(f"{PAGE}?from=41"))
    assert 'id="clone"' in (await ann.get("/clusters/lab/jobs/41")).text
    assert 'id="clone"' not in (await adm.get("/clusters/lab/jobs/41")).text
    assert (await adm.get(f"{PAGE}?from=41")).status_code == 400
    before = len(server.backend.named("submit"))
    assert (await adm.post(PAGE, data=form)).status_code == 403  # nor by a form that was made up
    assert [call for call in server.backend.named("submit")[before:] if "--test-only" not in call[1].args] == []


async def test_notebook_cannot_be_cloned(server: Server) -> None:
    ann = await server.client("alice", "member")
    request = SubmitIn(script="#!/bin/sh\n").model_dump(mode="json")
    await server.store.jobs.record(
        "lab", 44, person="alice", user="alice", kind="notebook", request=request, facts={}, audit={}
    )
    assert 'id="clone"' not in (await ann.get("/clusters/lab/jobs/44")).text
    assert "is a notebook" in (await ann.get(f"{PAGE}?from=44")).text

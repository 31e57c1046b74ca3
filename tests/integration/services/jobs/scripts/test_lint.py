"""A checked submission has the findings of lint, with what the server knows of the cluster."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from headway.domain.teams import GpuHourCap, Team
from headway.schemas.submission.submit_request import SubmitOut
from tests.support.servers.server_fakes import Server

CHECK = "/api/v1/clusters/lab/jobs/check"


async def prepared(server: Server) -> None:
    team = replace(Team("vision", ("eve",), 1), gpu_hours=GpuHourCap(Decimal(100), "month"))
    server.backend.clusters["lab"] = {"teams": (team,)}
    await server.apply("lab")
    server.backend.answers["submit"] = SubmitOut(job_id=0, cluster="lab", user="eve", workdir="", message="")


async def test_check_returns_findings_that_know_the_cluster(server: Server) -> None:
    await prepared(server)
    eve = await server.client("eve", "member")
    script = "#!/bin/bash\n#SBATCH --gpus-per-node=1\ncd /lustre/eve/run\nmodule load cuda\nsrun hostname\n"
    answer = (await eve.post(CHECK, json={"submit": {"script": script}})).json()
    assert [(one["line"], one["rule"]) for one in answer["findings"]] == [
        (2, "no-time-under-cap"), (2, "no-time"), (3, "no-folder"), (4, "no-module"),
    ]  # fmt: skip
    assert "100 GPU-hours a month" in answer["findings"][0]["message"]


async def test_flags_of_the_command_line_count(server: Server) -> None:
    await prepared(server)
    eve = await server.client("eve", "member")
    body = {"submit": {"script": "#!/bin/bash\n#SBATCH -N1\nsrun hostname\n", "args": ["--time=5"]}}
    assert (await eve.post(CHECK, json=body)).json()["findings"] == []


async def test_command_of_run_has_no_findings(server: Server) -> None:
    await prepared(server)
    eve = await server.client("eve", "member")
    assert (await eve.post(CHECK, json={"run": {"argv": ["hostname"]}})).json()["findings"] == []
    assert (await eve.post(CHECK, json={"submit": {"args": ["--wrap", "hostname"]}})).json()["findings"] == []

"""A pending job's page asks Slurm when smaller requests would start; nothing is submitted."""

from __future__ import annotations

from typing import Any

from headway.errors import Refused
from headway.schemas.submission.submit_request import SubmitIn, SubmitOut
from headway.services.queue.start_alternatives import alternatives
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server, reading

AT = "/clusters/lab/jobs/7/alternatives"
JOB = builders.job(
    7, "PENDING", user="eve", account="vision", node_count=4, gpus=32, cpus=128, memory_mib=4096, time_limit_s=3600,
    partition="train",
)  # fmt: skip


def test_smaller_requests_keep_what_each_node_has() -> None:
    cluster = builders.cluster(4)
    found = {one.words: one for one in alternatives(JOB, cluster)}
    assert [one.nodes for one in found.values()][:2] == [4, 2]
    assert found["half the nodes: 2"].gpus == 8
    assert found["half the time: 30 min"].time_limit_s == 1800
    assert (found["half the nodes: 2"].cpus, found["half the nodes: 2"].memory_mib) == (32, 1024)
    single = {
        one.words: one for one in alternatives(builders.job(8, "PENDING", node_count=1, gpus=8, cpus=64), cluster)
    }
    assert (single["half the GPUs: 4 GPUs"].cpus, single["a quarter of the GPUs: 2 GPUs"].gpus) == (32, 2)


async def test_slurm_tests_each_request_and_refusals_are_told(server: Server) -> None:
    await server.apply()
    tested: list[list[str]] = []

    def submit(_: Any, request: SubmitIn, user: str, *__: Any, **___: Any) -> SubmitOut:
        tested.append([user, *request.args])
        if "--nodes=1" in request.args:
            raise Refused("Requested node configuration is not available")
        at = int(server.state.clock()) + 60 * len(tested)
        said = f"sbatch: Job 9 to start at {at} using 8 processors on nodes lab-1-1 in partition train"
        return SubmitOut(job_id=0, cluster="lab", user=user, workdir="~", message=said)

    server.backend.answers |= {"machines": (), "read": reading(JOB, builders.job(8, user="eve")), "submit": submit}
    eve = await server.client("eve", "member", origin=server_fakes.URL)
    told = (await eve.get(f"/api/v1{AT}")).json()
    assert all(args[:2] == ["eve", "--test-only"] for args in tested)
    assert tested[0][2:] == [
        "--nodes=4", "--ntasks-per-node=1", "--partition=train", "--gpus-per-node=8", "--cpus-per-task=32", "--mem=1024M",
        "--time=60", "--account=vision",
    ]  # fmt: skip
    by_words = {one["words"]: one for one in told["alternatives"]}
    assert by_words["as it is"]["starts_at"] == int(server.state.clock()) + 60
    assert by_words["a quarter of the nodes: 1"]["fault"] == "Requested node configuration is not available"
    assert len(tested) == len(told["alternatives"]) <= 8
    page = (await eve.get(AT, headers={"hx-request": "true"})).text
    assert "Half the time: 30 min" in page
    assert (await eve.get("/api/v1/clusters/lab/jobs/8/alternatives")).status_code == 409
    ended = await eve.get("/clusters/lab/jobs/8/alternatives", headers={"hx-request": "true"})
    assert "Job 8 is RUNNING: only a pending job has a start to wait for" in ended.text
    bob = await server.client("bob", "member")
    assert (await bob.get(f"/api/v1{AT}")).status_code == 403

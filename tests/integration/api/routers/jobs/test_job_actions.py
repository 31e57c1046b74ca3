"""One action on several jobs: each has its own result, and each is in the audit trail."""

from __future__ import annotations

from headway.store import AuditAsk
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading

JOBS = "/api/v1/clusters/lab/jobs"


async def test_several_jobs_are_acted_on_and_failures_are_told_job_by_job(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {
        "machines": (),
        "read": reading(
            builders.job(1, "PENDING", user="eve"),
            builders.job(2, "RUNNING", user="eve"),
            builders.job(3, "PENDING", user="bob"),
            builders.job(4, "PENDING", user="eve", array_job_id=4, array_task="0-9"),
        ),
        "control": None,
        "cancel": None,
    }
    eve = await server.client("eve", "member")
    told = (await eve.post(f"{JOBS}/actions", json={"action": "hold", "jobs": ["1", "2", "3", "4", "1"]})).json()
    errors = {one["job"]: one["error"] for one in told["results"]}
    assert told["done"] == 2
    assert list(errors) == ["1", "2", "3", "4"]
    assert errors["2"] == "job 2 is RUNNING: only a pending job can be held"
    assert "eve may not hold job 3: it belongs to bob" in errors["3"]
    assert sorted(call[1] for call in server.backend.named("control")) == ["1", "4"]
    lines = await server.store.audit.search(AuditAsk(action="hold"), limit=10)
    assert sorted(one.result for one in lines) == ["failed", "ok", "ok", "refused"]


async def test_many_or_odd_jobs_are_refused(server: Server) -> None:
    await server.apply()
    client = await server.client()
    for jobs in ([], ["x"], ["1;2"], [str(n) for n in range(201)]):
        assert (await client.post(f"{JOBS}/actions", json={"action": "cancel", "jobs": jobs})).status_code == 422
    assert (await client.post(f"{JOBS}/actions", json={"action": "suspend", "jobs": ["1"]})).status_code == 422


async def test_the_queue_is_read_once_for_a_request(server: Server) -> None:
    await server.apply()
    jobs = [builders.job(number, "RUNNING", user="eve") for number in range(1, 13)]

    def cancel(*_: object, **__: object) -> None:
        server.state.clock.now += 1  # type: ignore[attr-defined]

    server.backend.answers |= {"machines": (), "read": reading(*jobs), "cancel": cancel}
    eve = await server.client("eve", "member")
    told = (await eve.post(f"{JOBS}/actions", json={"action": "cancel", "jobs": [str(job.id) for job in jobs]})).json()
    assert told["done"] == 12
    assert len(server.backend.named("read")) == 1

"""The API reports the failure rate of nodes and the checkpoint interval that a job should use because of it."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

import pytest

from headway.domain.billing.ledger import CheckpointStats
from headway.domain.incident import FaultAction, Incident, IncidentState
from headway.services.billing.billing_round import run_billing_round
from headway.services.billing.ledger.collector import ledger_entries
from headway.services.billing.reports.loss_attribution import CHECKPOINTS
from tests.support.billing.billing_cluster import OCTOBER, Accounting, H, accounting, at, got, machines, run, server
from tests.support.servers.server_fakes import Server

__all__ = ["accounting", "server"]
NODES_4 = "goodput/checkpoints?every_s=600&write_s=20&nodes=4"


async def failure(server: Server, moment: int) -> Incident:
    """An incident that takes a node out."""
    at(server, moment)
    seen = await server.store.incidents.open("lab", "lab-1-2", "XID 79", FaultAction.RMA, OCTOBER.start + moment, {})
    return await server.store.incidents.add_step(seen, IncidentState.DRAINING, "drained", drained=True)


async def test_failure_counts_after_its_node_was_replaced(server: Server) -> None:
    """The drain ends with the machine, the failure was one all the same; one that took no node out is none."""
    await machines(server, 4)
    ann = await server.client()
    out = [await failure(server, 10 * H * (number + 1)) for number in range(4)]
    only_a_job = await server.store.incidents.open(
        "lab", "lab-1-1", "XID 31", FaultAction.RESTART_JOB, OCTOBER.start, {}
    )
    await server.store.incidents.add_step(only_a_job, IncidentState.RETURNED, "jobs requeued: 7")
    at(server, 100 * H)
    before = [(await got(ann, "goodput"))["failure_hours"], (await got(ann, NODES_4))["failure_s"]]
    for one in out:
        gone = replace(one, drained=False)
        await server.store.incidents.add_step(gone, IncidentState.RETURNED, "another machine serves", drained=False)
    after = [(await got(ann, "goodput"))["failure_hours"], (await got(ann, NODES_4))["failure_s"]]
    assert before == after == [100.0, pytest.approx(25 * H)]


async def test_failure_rate_ignores_earlier_clusters_of_the_same_name(server: Server) -> None:
    await machines(server, 4)
    server.backend.answers["take_down"] = ()
    ann = await server.client()
    at(server, 500 * H)
    assert (await ann.post("/api/v1/clusters/lab/down", json={"delete_data": True})).status_code == 202
    await server.work_off()
    await server.apply("lab", note="again")
    await machines(server, 2, began=500 * H)
    await failure(server, 550 * H)
    at(server, 600 * H)
    assert (await got(ann, "goodput"))["failure_hours"] == 200.0


async def test_checkpoint_stats_ignore_job_ids_of_an_earlier_cluster(server: Server, accounting: Accounting) -> None:
    """Each cluster counts its jobs from 1: the old one's job was another team's."""
    await machines(server, 2)
    server.backend.answers["take_down"] = ()
    ann = await server.client()
    accounting.runs = [run(5, 0, 100 * H, team="vision")]
    at(server, 100 * H)
    await run_billing_round(server.state, (await server.state.clusters.get("lab"))[1])
    at(server, 101 * H)
    assert (await ann.post("/api/v1/clusters/lab/down", json={"delete_data": True})).status_code == 202
    await server.work_off()
    accounting.runs = []
    await server.apply("lab", note="again")
    await machines(server, 2, began=101 * H)
    accounting.runs = [run(5, 110 * H, 111 * H, team="speech", user="sam")]
    server.backend.answers["checkpoint_stats"] = {5: CheckpointStats(10, 360.0, 3600.0)}
    at(server, 112 * H)
    await run_billing_round(server.state, (await server.state.clusters.get("lab"))[1])

    async def told(name: str, role: str) -> tuple[list[float], list[float], list[str]]:
        client = await server.client(name, role)
        found = await got(client, "goodput?period=2026-10")
        hours = [one["gpu_hours"] for one in found["causes"] if one["kind"] == "checkpoints"]
        runs = (await got(client, f"usage/runs?start=2026-10&end=2026-11&cause={quote(CHECKPOINTS)}"))["runs"]
        return hours, [one["saves_usd"] for one in found["checkpoints"]], [one["team"] for one in runs]

    assert await told("vera", "lead") == ([], [], [])
    assert await told("sam", "member") == ([0.8], [0.79], ["speech"])
    assert await told("ann", "admin") == ([0.8], [0.79], ["speech"])


async def test_checkpoint_interval_counts_nodes_of_all_groups_of_a_job(server: Server, accounting: Accounting) -> None:
    """Also the list on the page; its first run held others."""
    cluster = (await server.state.clusters.get("lab"))[1]
    main = cluster.groups[0]
    halves = [replace(main, name=name, slots=slots) for name, slots in (("a", main.slots[:3]), ("b", main.slots[3:]))]
    both = replace(cluster, groups=tuple(halves))
    await machines(server, 4)
    await failure(server, H)
    first = run(7, 0, H, nodes=main.slots[:1])
    last = run(7, 2 * H, 0, nodes=main.slots[:4], gpus=32)
    await server.store.runs.save("lab", ledger_entries(both, [first, last]))
    accounting.away = True
    at(server, 10 * H)
    await server.store.checkpoints.record("lab", {7: CheckpointStats(10, 100.0, 3600.0)}, OCTOBER.start + 10 * H)
    ann = await server.client()
    assert (await got(ann, "goodput/checkpoints?job=7"))["failure_s"] == 10 * H
    assert [one["failure_s"] for one in (await got(ann, "goodput"))["checkpoints"]] == [10 * H]

"""plan, apply, down, status and events work over real HTTP with a real store."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.catalog.providers import AWS, SSH
from headway.domain.changeset import Disturbs
from headway.domain.cluster import Cluster, Group
from headway.domain.machines.machine import Machine, MachineState
from headway.domain.readiness import ReadinessCheck
from headway.domain.slurm.hostlist import compress
from headway.domain.storage.folders import Dataset, StorageFolders
from headway.errors import NotFound, Refused, Unreachable
from headway.schemas.base import Problem
from headway.schemas.clusters import ChangeSetOut, StatusOut
from headway.schemas.operations import OperationOut
from headway.services.cluster.shown_plan import plan_digest
from headway.services.storage.path_policy import moved_dataset_faults
from headway.store import ClusterRow
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, changes, document, reading


def ask(name: str = "lab", **more: Any) -> dict[str, Any]:
    return {"document": document(name).model_dump(), **more}


def failed(answer: httpx.Response, status: int, kind: str) -> Problem:
    assert answer.status_code == status, answer.text
    out = Problem.model_validate(answer.json())
    assert out.kind == kind
    return out


async def test_plan_shows_changes_price_and_warnings_without_storing_anything(server: Server) -> None:
    server.backend.answers["plan"] = replace(changes(Disturbs.NOTHING, Disturbs.JOBS), notes=("an earlier image",))
    client = await server.client()
    answer = await client.post("/api/v1/plan", json=document(warn=True).model_dump())
    out = ChangeSetOut.model_validate(answer.json())
    assert (out.cluster, len(out.changes), out.disturbing) == ("lab", 2, 1)
    assert out.price_usd_per_hour == "156.00"  # 4 nodes and a spare at 31.20
    assert [(warning.path, warning.message) for warning in out.warnings] == [
        ("spares", "no spare"),
        ("", "an earlier image"),
    ]
    assert await server.store.clusters.all() == ()
    assert await server.store.operations.recent() == ()


async def test_empty_plan_explains_why(server: Server) -> None:
    server.backend.answers["plan"] = changes()
    out = (await (await server.client()).post("/api/v1/plan", json=document().model_dump())).json()
    assert out["changes"] == []
    assert out["why_empty"] == "everything is as the file says"


async def test_plan_includes_changes_of_server_side_settings(server: Server) -> None:
    server.backend.answers |= {"plan": changes(), "apply": None}
    client = await server.client()
    await client.post("/api/v1/clusters/lab/apply", json=ask())
    await server.work_off()
    await server.state.clusters.get("lab")
    server.backend.clusters["lab"] = {"health": builders.health(act=False, xid_classes={63: "drain"})}
    changed = {"document": document(health={"act": False}).model_dump()}
    out = ChangeSetOut.model_validate((await client.post("/api/v1/plan", json=changed["document"])).json())
    assert [(change.kind, change.what, change.why) for change in out.changes] == [
        ("setting.keep", "health.xid_classes", "none becomes 63: drain"),
        ("setting.keep", "health.act", "true becomes false"),
    ]
    await client.post("/api/v1/clusters/lab/apply", json={**changed, "digest": out.digest})
    await server.work_off()
    again = (await client.post("/api/v1/plan", json=changed["document"])).json()
    assert again["changes"] == []


async def test_plan_reports_every_fault_with_its_path(server: Server) -> None:
    client = await server.client()
    out = failed(await client.post("/api/v1/plan", json=document(fault=1).model_dump()), 422, "invalid_spec")
    assert [fault.path for fault in out.faults] == ["nodes", "fault"]


async def test_apply_runs_as_operation_with_resumable_event_stream(server: Server) -> None:
    async def work(cluster: Any, report: Any) -> None:
        await report("machines", "are made")
        await report("machines", "are up", done=True, seconds=2.5)

    server.backend.answers |= {"plan": changes(Disturbs.NOTHING), "apply": work}
    client = await server.client()
    answer = await client.post("/api/v1/clusters/lab/apply", json=ask())
    operation = OperationOut.model_validate(answer.json())
    assert (answer.status_code, operation.state, operation.person) == (202, "queued", "ann")
    assert (await client.get("/api/v1/clusters/lab")).json()["state"] == "creating"
    await server.work_off()
    assert (await client.get("/api/v1/clusters/lab")).json()["state"] == "ready"
    events = parse((await client.get(f"/api/v1/operations/{operation.id}/events")).text)
    assert [(e["id"], json.loads(e["data"])["text"]) for e in events[:-1]] == [("1", "are made"), ("2", "are up")]
    assert events[-1]["event"] == "end"
    assert json.loads(events[-1]["data"])["state"] == "done"
    for resumed in (
        await client.get(f"/api/v1/operations/{operation.id}/events?after=1"),
        await client.get(f"/api/v1/operations/{operation.id}/events", headers={"last-event-id": "1"}),
    ):
        assert [e.get("id") for e in parse(resumed.text)] == ["2", None]


async def test_disruptive_apply_requires_confirmation(server: Server) -> None:
    plan = changes(Disturbs.NODE_DRAIN)
    server.backend.answers |= {"plan": plan, "apply": None}
    client = await server.client()
    failed(await client.post("/api/v1/clusters/lab/apply", json=ask()), 409, "needs_confirmation")
    assert await server.store.operations.recent() == ()
    assert await server.store.clusters.get("lab") is None
    answer = await client.post("/api/v1/clusters/lab/apply", json=ask(confirmed=True, digest=plan_digest(plan)))
    assert answer.status_code == 202


async def test_apply_refuses_a_plan_that_changed_since_it_was_shown(server: Server) -> None:
    client = await server.client()
    server.backend.answers["plan"] = changes(Disturbs.NODE_DRAIN)
    shown = (await client.post("/api/v1/plan", json=document().model_dump())).json()["digest"]
    server.state.clock.now += 60  # type: ignore[attr-defined]
    server.backend.answers["plan"] = changes(Disturbs.JOBS)
    answer = await client.post("/api/v1/clusters/lab/apply", json=ask(confirmed=True, digest=shown))
    assert "headway plan" in failed(answer, 409, "conflict").hint


async def test_apply_reuses_the_plan_shown_before(server: Server) -> None:
    server.backend.answers["plan"] = changes(Disturbs.NODE_DRAIN)
    client = await server.client()
    shown = (await client.post("/api/v1/plan", json=document().model_dump())).json()["digest"]
    answer = await client.post("/api/v1/clusters/lab/apply", json=ask(confirmed=True, digest=shown))
    assert answer.status_code == 202
    assert len(server.backend.named("plan")) == 1


async def test_second_apply_waits_and_replans_before_it_disrupts(server: Server) -> None:
    order: list[str] = []
    go_on, begun = asyncio.Event(), asyncio.Event()

    async def work(cluster: Any, report: Any) -> None:
        order.append("begin")
        begun.set()
        await go_on.wait()
        order.append("end")

    server.backend.answers |= {"plan": changes(Disturbs.NOTHING), "apply": work}
    client = await server.client()
    first = (await client.post("/api/v1/clusters/lab/apply", json=ask())).json()["id"]
    working = asyncio.create_task(server.work_off())
    await begun.wait()
    second = (await client.post("/api/v1/clusters/lab/apply", json=ask())).json()["id"]
    third = (await client.post("/api/v1/clusters/lab/apply", json=ask(confirmed=True))).json()["id"]
    assert (await client.get(f"/api/v1/operations/{second}")).json()["state"] == "queued"
    server.backend.answers["plan"] = changes(Disturbs.JOBS)
    go_on.set()
    await working
    states = {o["id"]: o for o in (await client.get("/api/v1/operations?cluster=lab")).json()}
    assert states[first]["state"] == "done"
    assert (states[second]["state"], states[second]["error"]["kind"]) == ("failed", "needs_confirmation")
    assert states[third]["state"] == "done"
    assert order == ["begin", "end", "begin", "end"]


async def test_failed_apply_keeps_its_error_and_hint(server: Server) -> None:
    server.backend.answers |= {"plan": changes(Disturbs.NOTHING), "apply": Refused("no room", hint="free some")}
    client = await server.client()
    operation = (await client.post("/api/v1/clusters/lab/apply", json=ask())).json()["id"]
    await server.work_off()
    out = OperationOut.model_validate((await client.get(f"/api/v1/operations/{operation}")).json())
    assert out.state == "failed"
    assert out.error is not None
    assert (out.error.kind, out.error.message, out.error.hint) == ("refused", "no room", "free some")
    assert (await client.get("/api/v1/clusters/lab")).json()["state"] == "failed"


async def test_unexpected_error_hides_its_details(server: Server) -> None:
    server.backend.answers["plan"] = ValueError("secret munge_key 123")
    answer = await (await server.client()).post("/api/v1/plan", json=document().model_dump())
    assert "123" not in answer.text
    failed(answer, 500, "bug")


async def test_full_disk_is_reported_with_a_hint(server: Server) -> None:
    from sqlalchemy.exc import OperationalError

    client = await server.client()
    for error in (OSError(28, "No space left"), OperationalError("insert", {}, Exception("database or disk is full"))):
        server.backend.answers["plan"] = error
        out = failed(await client.post("/api/v1/plan", json=document().model_dump()), 500, "unreachable")
        assert "full" in out.detail
        assert "free space" in out.hint


async def test_down_keeps_data_and_secrets_and_lists_kept_paths(server: Server) -> None:
    await server.apply()
    await server.store.secrets.put_if_absent("lab", "munge_key", "x")
    server.backend.answers["take_down"] = ("/var/lib/headway/lab/home",)
    client = await server.client()
    operation = (await client.post("/api/v1/clusters/lab/down", json={})).json()["id"]
    await server.work_off()
    out = (await client.get(f"/api/v1/operations/{operation}")).json()
    assert (out["state"], out["kept"]) == ("done", ["/var/lib/headway/lab/home"])
    failed(await client.get("/api/v1/clusters/lab"), 404, "not_found")
    assert await server.store.secrets.of_cluster("lab") == {"munge_key": "x"}
    assert server.backend.named("forget") == [("lab",)]
    assert server.backend.named("take_down")[0][2] is False


async def test_failed_down_can_be_retried(server: Server) -> None:
    await server.apply()
    server.backend.answers["take_down"] = Unreachable("podman does not answer")
    client = await server.client()
    await client.post("/api/v1/clusters/lab/down", json={})
    await server.work_off()
    assert (await client.get("/api/v1/clusters/lab")).json()["state"] == "failed"
    server.backend.answers["take_down"] = ()
    await client.post("/api/v1/clusters/lab/down", json={"delete_data": True})
    await server.work_off()
    assert (await client.get("/api/v1/clusters")).json() == []


async def test_status_shows_checks_nodes_and_gpus(server: Server) -> None:
    await server.apply()
    job = builders.job(7, user="alice", nodes=("lab-1-2",), gpu_indexes={"lab-1-2": (0, 3)})
    nodes = (builders.node("lab-1-1", "DOWN", reason="Not responding"), builders.node("lab-1-2", "MIXED"))
    server.backend.answers |= {
        "read": reading(job, nodes=nodes),
        "machines": (Machine("lab-1-2", "lab", "10.0.0.3", MachineState.RUNNING, "ssh-ed25519 AAAA"),),
        "readiness_checks": (ReadinessCheck("slurmctld", True, "answers"),),
    }
    client = await server.client("eve", "viewer")
    out = StatusOut.model_validate((await client.get("/api/v1/clusters/lab/status")).json())
    assert [c.message for c in out.checks] == ["answers"]
    assert out.cluster.state == "degraded"
    assert (out.cluster.jobs_running, out.cluster.as_of, out.cluster.stale) == (1, 1000, "")
    by_name = {node.name: node for node in out.nodes}
    assert [n.name for n in out.nodes][:2] == ["lab-head", "lab-1-1"]
    assert {g.index: g.job_id for g in by_name["lab-1-2"].gpus if g.job_id} == {0: 7, 3: 7}
    assert (by_name["lab-1-1"].usable, by_name["lab-1-1"].reason) == (False, "Not responding")
    assert (by_name["lab-1-1"].machine, by_name["lab-1-2"].machine) == ("missing", "running")


async def test_unreachable_cluster_returns_stale_status_with_reason(server: Server) -> None:
    await server.apply()
    server.backend.answers |= {"read": reading(), "machines": (), "readiness_checks": ()}
    client = await server.client()
    await client.get("/api/v1/clusters/lab/status")
    server.backend.answers["read"] = Unreachable("lab-head does not answer SSH")
    server.backend.answers["readiness_checks"] = Unreachable("lab-head does not answer SSH")
    server.state.clock.now += 30  # type: ignore[attr-defined]
    out = StatusOut.model_validate((await client.get("/api/v1/clusters/lab/status")).json())
    assert out.cluster.as_of == 1000
    assert "does not answer SSH" in out.cluster.stale
    assert not out.checks[0].ok


async def test_apply_refuses_a_document_with_another_cluster_name(server: Server) -> None:
    answer = await (await server.client()).post("/api/v1/clusters/other/apply", json=ask("lab"))
    failed(answer, 400, "refused")


async def test_apply_by_another_admin_keeps_the_owner(server: Server) -> None:
    await server.apply()
    owner = (await server.store.clusters.get("lab")).owner  # type: ignore[union-attr]
    await (await server.client("bob")).post("/api/v1/clusters/lab/apply", json=ask())
    await server.work_off()
    assert owner == "setup"
    row = await server.store.clusters.get("lab")
    assert row is not None
    assert (row.owner, row.document["owner"]) == ("setup", "setup")


async def test_plan_refuses_dataset_paths_that_the_server_forbids(server: Server, tmp_path: Path) -> None:
    client = await server.client()
    server.backend.answers["plan"] = changes()
    outside = tmp_path.parent / f"{tmp_path.name}-data"
    outside.mkdir()
    (outside / "file").touch()
    (outside / "sneaky").symlink_to("/etc")
    (outside / "loop").symlink_to("loop")
    rows = (
        (outside, ""),
        ("/etc", "system folder of the server"),
        ("/", "system folder of the server"),
        ("/root", "contains system folders of the server"),  # /root/.ssh is in it
        ("/var/lib", "contains system folders of the server"),
        (tmp_path / "x", "system folder of the server"),
        (tmp_path.parent, "contains system folders of the server"),  # the state folder is in it
        (outside / "sneaky", "/etc is a system folder of the server"),
        (outside / "none", "is not there"),
        (outside / "file", "is not a folder"),
        (outside / "loop", "is not a folder"),
    )
    for source, why in rows:
        server.backend.clusters["lab"] = {
            "storage": StorageFolders(datasets=(Dataset("d", str(source), "/datasets/d"),))
        }
        answer = await client.post("/api/v1/plan", json=document().model_dump())
        if not why:
            assert answer.status_code == 200, answer.text
            continue
        (fault,) = failed(answer, 422, "invalid_spec").faults
        assert fault.path == "storage.datasets[0].path"
        assert why in fault.message


def test_refuses_to_move_a_mounted_dataset_to_another_source() -> None:
    """Their own mounts hold the first one: jobs would go on reading that, and the plan say that nothing changes."""

    def lab(**sources: str) -> Cluster:
        datasets = tuple(Dataset(name, source, f"/datasets/{name}") for name, source in sources.items())
        return replace(builders.cluster(), storage=StorageFolders(datasets=datasets))

    before = lab(a="/data/a", b="/data/b")
    (fault,) = moved_dataset_faults(before, lab(a="/data/a", b="/data/other", c="/data/c"))
    assert (fault.path, "from /data/b" in fault.message) == ("storage.datasets[1].path", True)
    assert list(moved_dataset_faults(before, before)) == []
    assert list(moved_dataset_faults(before, lab(b="/data/b"))) == [], "one that goes may come back from elsewhere"


async def test_access_lists_addresses_ports_and_host_keys(server: Server) -> None:
    await server.apply()
    key = "ssh-ed25519 AAAA comment"
    server.backend.answers["machines"] = (
        Machine("lab-head", "lab", "10.0.0.2", MachineState.RUNNING, key, port=2200),
        Machine("lab-1-1", "lab", "10.0.0.3", MachineState.RUNNING, key),
    )
    out = (await (await server.client("root")).get("/api/v1/clusters/lab/access")).json()
    assert (out["user"], out["head"], out["address"], out["port"]) == ("admin", "lab-head", "10.0.0.2", 2200)
    assert "[10.0.0.2]:2200 ssh-ed25519 AAAA" in out["host_keys"]
    assert (out["machines"], out["ports"]) == ({"lab-head": "10.0.0.2", "lab-1-1": "10.0.0.3"}, {"lab-head": 2200})


def parse(text: str) -> list[dict[str, str]]:
    """Server-sent events -> fields."""
    events = []
    for block in text.replace("\r\n", "\n").strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if fields:
            events.append(fields)
    return events


async def test_document_hides_alert_urls(server: Server) -> None:
    hook, chat = "https://example.org/alerts?key=s3cret", "https://chat.example.org/hooks/s3cret"
    sent = document(alerts={"webhook": hook, "chat": chat, "mail": "a@example.org"})
    sent = sent.model_copy(update={"text": f"name: lab\nalerts:\n  webhook: {hook}\n  chat: '{chat}'\n"})
    server.backend.answers |= {"plan": changes(Disturbs.NOTHING)}
    client = await server.client()
    await client.post("/api/v1/clusters/lab/apply", json={"document": sent.model_dump()})
    for path in ("/api/v1/clusters/lab/document", "/api/v1/clusters/lab"):
        answer = await client.get(path)
        assert answer.status_code == 200
        assert "s3cret" not in answer.text
    shown = (await client.get("/api/v1/clusters/lab/document")).json()
    assert shown["spec"]["alerts"] == {"webhook": "hidden", "chat": "hidden", "mail": "a@example.org"}
    assert "webhook: hidden" in shown["text"]


def growing(nodes: int, limit: str = "250") -> Cluster:
    """At 31.20 an hour: a group that people scale, and one of at most four that scales by itself."""
    whole = builders.cluster(10, 0)
    price, names = builders.H100.price_usd_per_node_hour, whole.slot_names
    own = Group("own", builders.H100, nodes, nodes, slots=names[:6], price_usd_per_node_hour=price)
    jobs = Group("jobs", builders.H100, 0, 4, slots=names[6:], idle_s=60, price_usd_per_node_hour=price)
    return replace(whole, groups=(own, jobs), max_usd_per_hour=Decimal(limit))


async def test_cost_limit_counts_nodes_running_for_jobs(server: Server) -> None:
    server.backend.whole["lab"] = growing(3)
    server.backend.answers |= {"plan": changes(), "apply": None}
    client = await server.client()
    await client.post("/api/v1/clusters/lab/apply", json=ask())
    await server.work_off()
    await server.state.clusters.get("lab")
    server.backend.whole["lab"] = growing(5)  # what the next file says: 156.00, and four run for jobs
    running = growing(3).slot_names[6:]
    server.backend.answers["machines"] = tuple(builders.machine(name) for name in ("lab-head", *running))
    more = {"document": document(nodes=5).model_dump()}
    told = ChangeSetOut.model_validate((await client.post("/api/v1/plan", json=more["document"])).json())
    (warning,) = told.warnings
    assert (warning.path, "apply would stop" in warning.message) == ("cost.usd_per_hour", True)
    refused = failed(await client.post("/api/v1/clusters/lab/apply", json=more), 409, "conflict")
    assert "would cost 280.80 USD" in refused.detail
    assert "4 nodes of jobs" in refused.detail
    server.backend.answers["machines"] = tuple(builders.machine(name) for name in running[:3])
    assert (await client.post("/api/v1/clusters/lab/apply", json=more)).status_code == 202
    server.backend.answers["machines"] = tuple(builders.machine(name) for name in running)  # one came before its turn
    await server.work_off()
    (last, *_) = await server.store.operations.recent()
    assert (last.state, "would cost" in last.error["message"]) == ("failed", True)  # type: ignore[index]


async def test_apply_without_growth_ignores_the_cost_limit(server: Server) -> None:
    server.backend.whole["lab"] = growing(3)
    server.backend.answers |= {"plan": changes(), "apply": None}
    client = await server.client()
    await client.post("/api/v1/clusters/lab/apply", json=ask())
    await server.work_off()
    await server.state.clusters.get("lab")
    server.backend.whole["lab"] = growing(3, limit="100")  # a lower limit: what runs for jobs may end first
    lower = {"document": document(cost=100).model_dump()}
    assert (await client.post("/api/v1/clusters/lab/apply", json=lower)).status_code == 202
    assert server.backend.named("machines") == []


@pytest.mark.parametrize("removed", [True, False])
async def test_group_keeps_its_cloud_while_machines_are_rented_for_it(server: Server, removed: bool) -> None:
    own, jobs = growing(3).groups
    rents = replace(growing(3), provider=SSH, groups=(own, replace(jobs, provider=AWS)))
    server.backend.whole["lab"] = rents
    server.backend.answers |= {
        "plan": changes(),
        "apply": None,
        "rented_prices": dict.fromkeys(jobs.slots[:2], Decimal(1)),
    }
    client = await server.client()
    await client.post("/api/v1/clusters/lab/apply", json=ask())
    await server.work_off()
    await server.state.clusters.get("lab")
    server.backend.whole["lab"] = replace(rents, groups=(own,) if removed else (own, jobs))
    less = {"document": document(nodes=5).model_dump()}
    refused = failed(await client.post("/api/v1/plan", json=less["document"]), 422, "invalid_spec")
    (fault,) = refused.faults
    assert fault.path == ("groups.jobs" if removed else "groups.jobs.provider")
    assert fault.message == f"is missing, but {compress(jobs.slots[:2])} is rented"
    assert "nodes: 0" in fault.hint
    server.backend.answers["rented_prices"] = {}
    assert (await client.post("/api/v1/clusters/lab/apply", json=less)).status_code == 202
    server.backend.answers["rented_prices"] = dict.fromkeys(
        jobs.slots[:1], Decimal(1)
    )  # one was rented before its turn
    await server.work_off()
    (last, *_) = await server.store.operations.recent()
    assert (last.state, last.error["kind"]) == ("failed", "invalid_spec")  # type: ignore[index]
    row = await server.store.clusters.get("lab")
    assert row is not None
    assert row.document["spec"]["nodes"] == 4, "the file with the group is still the applied one"


async def test_concurrent_readers_share_one_cluster_row_query(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    await server.apply()
    state, read, asked = server.state, server.state.store.clusters.get, []

    async def cluster(name: str) -> ClusterRow | None:
        asked.append(name)
        return await read(name)

    monkeypatch.setattr(state.store.clusters, "get", cluster)
    before = await asyncio.gather(*(state.clusters.shared_row("lab") for _ in range(50)))
    assert ({row.state for row in before}, asked) == ({"ready"}, ["lab"])
    await state.store.clusters.delete("lab")
    state.live.notify_row_changed("lab")
    after = await asyncio.gather(*(state.clusters.shared_row("lab") for _ in range(50)), return_exceptions=True)
    assert ({type(one) for one in after}, asked) == ({NotFound}, ["lab", "lab"])

"""A cluster's records can be exported and imported on another server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from headway.billing import machine_lifetimes
from headway.billing.run_resources import allocations_by_group
from headway.domain.billing.ledger import JobRun, NodeSpan, SpanKind
from headway.domain.incident import FaultAction, IncidentState
from headway.errors import Refused
from headway.store.billing.run_sums import ReportSpan
from headway.store.clusters.cluster_records import Row, tables
from headway.store.db import cluster_schema as t
from headway.store.store import Store
from tests.support.clusters import builders


@pytest.fixture
async def stores(tmp_path: Path) -> tuple[Store, Store]:
    return await builders.store(tmp_path / "one"), await builders.store(tmp_path / "two")


async def again(rows: Iterable[Row]) -> AsyncIterator[Row]:
    for row in rows:
        yield row


async def filled(store: Store) -> None:
    await store.linux_uids.assign_uids(["zoe", "ann", "ben"])
    await store.linux_uids.add_to_cluster("lab", ["ann", "ben"])
    await store.gpu_hour_cap_resets.record("lab", "vision", 5.0)
    for number in (3, 4):
        await store.jobs.record(
            "lab", number, person="ann", user="ann", kind="run", request={"a": 1}, facts={}, audit={}
        )
    await store.jobs.record("other", 3, person="ann", user="ann", kind="run", request={}, facts={}, audit={})
    async with store.database.write() as db:
        for name in ("other", "lab"):
            row = {
                "cluster": name, "node": "n1", "what": "w", "action": FaultAction.DRAIN.value, "state": "returned",
                "opened_at": 1.0, "last_signal_at": 1.0, "drained": False, "fault_at": 1.0, "score": 1,
            }  # fmt: skip
            number = (await db.execute(insert(t.incidents).values(**row))).inserted_primary_key[0]
            step = {
                "incident": number,
                "seq": 1,
                "at": 1.0,
                "state": "returned",
                "actor": "x",
                "text": name,
                "evidence": {},
            }
            await db.execute(insert(t.incident_steps).values(**step))


async def test_cluster_records_are_restored_on_another_server(stores: tuple[Store, Store]) -> None:
    one, two = stores
    await filled(one)
    rows = [row async for row in one.cluster_records.export("lab")]
    assert {values.get("cluster", "lab") for _, values in rows} == {"lab"}
    assert await two.cluster_records.restore("lab", again(rows)) == len(rows) - 2  # two uids
    assert await two.linux_uids.assign_uids(["ann", "ben"], give=False) == await one.linux_uids.assign_uids(
        ["ann", "ben"], give=False
    )
    assert await two.linux_uids.of_cluster("lab") == {"ann", "ben"}
    assert await two.gpu_hour_cap_resets.of_cluster("lab") == {"vision": 5.0}
    record = await two.jobs.get("lab", 4)
    assert record is not None
    assert record.request == {"a": 1}
    (incident,) = await two.incidents.search("lab")
    assert incident.number == 2  # as there
    assert [step.text for step in (await two.incidents.get(2)).steps] == ["lab"]  # type: ignore[union-attr]
    assert (await two.incidents.open("lab", "n1", "w", FaultAction.DRAIN, 2.0, {})).number == 3
    for store in stores:
        await store.close()


async def test_renumbered_incident_keeps_its_old_drain_reason(stores: tuple[Store, Store]) -> None:
    """Slurm's state has the old one in the reason of its node, and people are told the new one."""
    one, two = stores
    for store, cluster, count in ((one, "lab", 1), (one, "other", 1), (one, "lab", 1), (two, "mine", 2)):
        for _ in range(count):
            await store.incidents.open(cluster, "n1", "XID 79", FaultAction.RMA, 1.0, {})
    words = "a test failed, as in incident 1; when the node works, run headway incident return 3"
    await one.incidents.add_step(await one.incidents.get(3), IncidentState.OUT, words, drained=True)
    await two.cluster_records.restore("lab", one.cluster_records.export("lab"))
    moved, kept = await two.incidents.with_steps(await two.incidents.search("lab"))
    assert (kept.number, moved.number) == (3, 4), "3 is free here, 1 is not"
    assert kept.steps[-1].text == "a test failed, as in incident 4; when the node works, run headway incident return 3"
    assert kept.reasons == ("headway: incident 3: XID 79",)
    assert moved.reasons == ("headway: incident 4: XID 79", "headway: incident 1: XID 79")
    for store in stores:
        await store.close()


async def test_restored_runs_are_separate_from_other_clusters(stores: tuple[Store, Store]) -> None:
    one, two = stores
    whole = ReportSpan(0, 10_000, 10_000)
    for store, clusters in ((one, ("lab",)), (two, ("other",))):
        for cluster in clusters:
            user = "ann" if cluster == "lab" else "eve"
            run = JobRun(
                job=7, start=100, end=200, submit=90, eligible=90, team="vision", user=user, partition="train", qos="",
                state="COMPLETED", nodes=("lab-1-1",), gpus=4, cpus=32, memory_mib=1, time_limit_s=None, used_cpu_s=0,
                used_memory_mib=0,
            )  # fmt: skip
            await store.runs.save(cluster, [(run, allocations_by_group(run, builders.cluster(4).group_of), 0)])
    assert await two.cluster_records.restore("lab", one.cluster_records.export("lab")) > 0
    assert [total.by for total in await two.usage.totals("lab", whole, ["user"])] == [("ann",)]
    assert [total.by for total in await two.usage.totals("other", whole, ["user"])] == [("eve",)]
    for store in stores:
        await store.close()


async def test_restored_machines_end_when_last_seen(stores: tuple[Store, Store]) -> None:
    """Between a backup and the restore on other machines nothing ran, and nothing is billed."""
    one, two = stores
    await one.machine_lifetimes.record("lab", [("lab-1-1", "gpu"), ("lab-1-2", "gpu")], [], [], 100)
    await one.node_spans.save("lab", [NodeSpan("lab-1-2", SpanKind.SPARE, 100, 0)])
    await one.machine_lifetimes.record("lab", [], [], ["lab-1-1", "lab-1-2"], 900)
    await one.machine_lifetimes.record("lab", [("lab-1-3", "gpu")], [], [], 900)
    await two.cluster_records.restore("lab", one.cluster_records.export("lab"))
    turns = machine_lifetimes.diff_machines(await two.machine_lifetimes.running("lab"), {"lab-1-1": "gpu"}, 90_000)
    await two.machine_lifetimes.record("lab", turns.began, turns.ended, turns.there, 90_000)
    lives = {(life.machine, life.began): life.ended for life in await two.machine_lifetimes.between("lab", 0, 99_999)}
    assert lives == {("lab-1-1", 100): 900, ("lab-1-2", 100): 900, ("lab-1-3", 900): 901, ("lab-1-1", 90_000): 0}
    assert [span.ended for span in await two.node_spans.between("lab", 0, 99_999)] == [900]
    rows = [row async for row in one.cluster_records.export("lab")]
    await two.cluster_records.restore("lab", again(rows))
    assert [life.machine for life in await two.machine_lifetimes.running("lab")] == ["lab-1-1"], "its own go on"
    for store in stores:
        await store.close()


async def test_restore_keeps_existing_records_and_is_idempotent(stores: tuple[Store, Store]) -> None:
    one, two = stores
    await filled(one)
    rows = [row async for row in one.cluster_records.export("lab")]
    await two.jobs.record("lab", 9, person="eve", user="eve", kind="run", request={}, facts={}, audit={})
    await two.cluster_records.restore("lab", again(rows))
    assert await two.jobs.get("lab", 3) is None
    assert await two.jobs.get("lab", 9) is not None
    assert len(await two.incidents.search("lab")) == 1
    assert await two.cluster_records.restore("lab", again(rows)) == 0  # a second time nothing is doubled
    async with two.database.read() as db:
        assert len((await db.execute(select(t.incident_steps))).all()) == 1
    for store in stores:
        await store.close()


async def test_restore_does_not_block_other_writers(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million rows take longer than an operation's lease lasts that is not renewed."""
    monkeypatch.setattr("headway.store.clusters.cluster_records.AT_ONCE", 2)
    one, two = stores
    await filled(one)
    rows = [row async for row in one.cluster_records.export("lab")]

    async def with_others() -> AsyncIterator[Row]:
        for number, row in enumerate(rows):
            await two.gpu_hour_cap_resets.record("other", "vision", float(number))
            yield row

    await two.cluster_records.restore("lab", with_others())
    assert [name async for name, _ in two.cluster_records.export("lab")] == [name for name, _ in rows]
    assert await two.gpu_hour_cap_resets.of_cluster("other") == {"vision": float(len(rows) - 1)}
    for store in stores:
        await store.close()


@pytest.mark.parametrize("how", [Refused, asyncio.CancelledError])
async def test_records_of_an_interrupted_restore_are_replaced(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, how: type[BaseException]
) -> None:
    """Refused: the file can't be read any further. Cancelled: the server was ended, and only the next try can clear up."""
    monkeypatch.setattr("headway.store.clusters.cluster_records.AT_ONCE", 1)
    one, two = stores
    await filled(one)
    await two.gpu_hour_cap_resets.record("lab", "speech", 9.0)  # its own, which stays
    rows = [row async for row in one.cluster_records.export("lab")]

    async def broken() -> AsyncIterator[Row]:
        for row in rows[:-2]:
            yield row
        raise how("the end")

    with pytest.raises(how):
        await two.cluster_records.restore("lab", broken())
    left = [
        name for name, _ in [row async for row in two.cluster_records.export("lab")] if name not in ("refills", "uids")
    ]
    assert bool(left) == (how is asyncio.CancelledError)
    assert await two.cluster_records.restore("lab", again(rows)) > 0
    (incident,) = await two.incidents.search("lab")
    assert [step.text for step in (await two.incidents.get(incident.number)).steps] == ["lab"]  # type: ignore[union-attr]
    assert await two.gpu_hour_cap_resets.of_cluster("lab") == {"speech": 9.0}
    assert await two.secrets.of_cluster("lab") == {}
    for store in stores:
        await store.close()


async def test_discard_removes_a_partial_restore_and_nothing_else(stores: tuple[Store, Store]) -> None:
    """Else a restore of another day would take for its own what has come since."""
    one, two = stores
    await filled(one)
    rows = [row async for row in one.cluster_records.export("lab")]

    async def cut_off() -> AsyncIterator[Row]:
        for row in rows:
            yield row
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await two.cluster_records.restore("lab", cut_off())
    await two.cluster_records.discard_partial_restore("lab")
    await two.gpu_hour_cap_resets.record("lab", "speech", 9.0)
    await two.cluster_records.discard_partial_restore("lab")  # of nothing
    assert await two.gpu_hour_cap_resets.of_cluster("lab") == {"speech": 9.0}
    assert await two.secrets.of_cluster("lab") == {}
    for store in stores:
        await store.close()


async def test_uid_conflicts_names_uids_of_other_persons(stores: tuple[Store, Store]) -> None:
    one, two = stores
    await filled(one)
    mine = await one.linux_uids.assign_uids(["ann", "ben"], give=False)
    assert await two.cluster_records.uid_conflicts(mine) == ()
    await two.linux_uids.assign_uids(["eve"])  # takes the uid that ann has there
    conflicts = await two.cluster_records.uid_conflicts(mine)
    assert conflicts == (f"uid {mine['ann']} of ann is eve's here",)
    for store in stores:
        await store.close()


async def test_restore_ignores_unknown_tables_and_columns(stores: tuple[Store, Store]) -> None:
    one, two = stores
    rows = [("of_later", {"cluster": "lab"}), ("refills", {"cluster": "lab", "team": "a", "at": 1.0, "new": 3})]
    assert await two.cluster_records.restore("lab", again(rows)) == 1
    for store in (one, two):
        await store.close()


def test_exported_tables_exclude_secrets_and_temporary_state() -> None:
    names = {table.name for table in tables()}
    assert {"jobs", "pipelines", "incidents", "incident_steps", "incident_jobs", "signals", "prices"} <= names
    secret = {"secrets", "job_secrets", "former_job_secrets", "tokens", "sessions"}
    assert secret <= set(t.metadata.tables), "a table that was renamed is not one that is left out"
    assert not names & {*secret, "operations", "events", "people"}


async def test_secret_can_be_replaced_and_deleted(stores: tuple[Store, Store]) -> None:
    one, two = stores
    await one.secrets.put_if_absent("lab", "munge_key", "old")
    await one.secrets.set("lab", "munge_key", "new")
    assert await one.secrets.of_cluster("lab") == {"munge_key": "new"}
    await one.secrets.delete("lab", "munge_key")
    assert await one.secrets.of_cluster("lab") == {}
    for store in (one, two):
        await store.close()

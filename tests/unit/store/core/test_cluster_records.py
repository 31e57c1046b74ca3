"""A cluster's records, kept and brought back to another server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from headway.billing import machine_meter
from headway.billing.allocation import held
from headway.domain.billing import NodeSpan, Run, SpanKind
from headway.domain.incident import IncidentState, XidClass
from headway.errors import Refused
from headway.store.billing.sums import Span
from headway.store.core.cluster_records import Row, tables
from headway.store.db import schema as t
from headway.store.store import Store
from tests.support import builders


@pytest.fixture
async def stores(tmp_path: Path) -> tuple[Store, Store]:
    return await builders.store(tmp_path / "one"), await builders.store(tmp_path / "two")


async def again(rows: Iterable[Row]) -> AsyncIterator[Row]:
    for row in rows:
        yield row


async def filled(store: Store) -> None:
    await store.uids(["zoe", "ann", "ben"])
    await store.note_users("lab", ["ann", "ben"])
    await store.note_refill("lab", "vision", 5.0)
    for number in (3, 4):
        await store.note_job("lab", number, person="ann", user="ann", kind="run", request={"a": 1}, facts={}, audit={})
    await store.note_job("other", 3, person="ann", user="ann", kind="run", request={}, facts={}, audit={})
    async with store._write() as db:
        for name in ("other", "lab"):
            row = {
                "cluster": name, "node": "n1", "what": "w", "action": XidClass.DRAIN.value, "state": "returned",
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


async def test_a_clusters_rows_come_back_to_another_server(stores: tuple[Store, Store]) -> None:
    one, two = stores
    await filled(one)
    rows = [row async for row in one.records("lab")]
    assert {values.get("cluster", "lab") for _, values in rows} == {"lab"}
    assert await two.take_records("lab", again(rows)) == len(rows) - 2  # two uids
    assert await two.uids(["ann", "ben"], give=False) == await one.uids(["ann", "ben"], give=False)
    assert await two.users_of("lab") == {"ann", "ben"}
    assert await two.refills("lab") == {"vision": 5.0}
    record = await two.job_record("lab", 4)
    assert record is not None
    assert record.request == {"a": 1}
    (incident,) = await two.incidents("lab")
    assert incident.number == 2  # as there
    assert [step.text for step in (await two.incident(2)).steps] == ["lab"]  # type: ignore[union-attr]
    assert (await two.open_incident("lab", "n1", "w", XidClass.DRAIN, 2.0, {})).number == 3
    for store in stores:
        await store.close()


async def test_an_incident_whose_number_is_anothers_here_is_known_by_both(stores: tuple[Store, Store]) -> None:
    """Slurm's state has the old one in the reason of its node, and people are told the new one."""
    one, two = stores
    for store, cluster, count in ((one, "lab", 1), (one, "other", 1), (one, "lab", 1), (two, "mine", 2)):
        for _ in range(count):
            await store.open_incident(cluster, "n1", "XID 79", XidClass.RMA, 1.0, {})
    words = "a test failed, as in incident 1; once it works: headway incident return 3"
    await one.move_incident(await one.incident(3), IncidentState.OUT, words, drained=True)
    await two.take_records("lab", one.records("lab"))
    moved, kept = await two.with_steps(await two.incidents("lab"))
    assert (kept.number, moved.number) == (3, 4), "3 is free here, 1 is not"
    assert kept.steps[-1].text == "a test failed, as in incident 4; once it works: headway incident return 3"
    assert kept.reasons == ("headway: incident 3: XID 79",)
    assert moved.reasons == ("headway: incident 4: XID 79", "headway: incident 1: XID 79")
    for store in stores:
        await store.close()


async def test_runs_find_their_kind_under_its_new_number(stores: tuple[Store, Store]) -> None:
    one, two = stores
    whole = Span(0, 10_000, 10_000)
    for store, clusters in ((one, ("lab",)), (two, ("other",))):
        for cluster in clusters:
            user = "ann" if cluster == "lab" else "eve"
            run = Run(
                job=7, start=100, end=200, submit=90, eligible=90, team="vision", user=user, partition="train", qos="",
                state="COMPLETED", nodes=("lab-1-1",), gpus=4, cpus=32, memory_mib=1, time_limit_s=None, used_cpu_s=0,
                used_memory_mib=0,
            )  # fmt: skip
            await store.put_runs(cluster, [(run, held(run, builders.cluster(4).group_of), 0)])
    assert await two.take_records("lab", one.records("lab")) > 0
    assert [total.by for total in await two.usage("lab", whole, ["user"])] == [("ann",)]
    assert [total.by for total in await two.usage("other", whole, ["user"])] == [("eve",)]
    for store in stores:
        await store.close()


async def test_machines_of_another_server_ended_as_they_were_seen_last(stores: tuple[Store, Store]) -> None:
    """Between a backup and the restore on other machines nothing ran, and nothing is billed."""
    one, two = stores
    await one.meter("lab", [("lab-1-1", "gpu"), ("lab-1-2", "gpu")], [], [], 100)
    await one.put_node_spans("lab", [NodeSpan("lab-1-2", SpanKind.SPARE, 100, 0)])
    await one.meter("lab", [], [], ["lab-1-1", "lab-1-2"], 900)
    await one.meter("lab", [("lab-1-3", "gpu")], [], [], 900)
    await two.take_records("lab", one.records("lab"))
    turns = machine_meter.look(await two.open_lives("lab"), {"lab-1-1": "gpu"}, 90_000)
    await two.meter("lab", turns.began, turns.ended, turns.there, 90_000)
    lives = {(life.machine, life.began): life.ended for life in await two.lives("lab", 0, 99_999)}
    assert lives == {("lab-1-1", 100): 900, ("lab-1-2", 100): 900, ("lab-1-3", 900): 901, ("lab-1-1", 90_000): 0}
    assert [span.ended for span in await two.node_spans("lab", 0, 99_999)] == [900]
    rows = [row async for row in one.records("lab")]
    await two.take_records("lab", again(rows))
    assert [life.machine for life in await two.open_lives("lab")] == ["lab-1-1"], "its own go on"
    for store in stores:
        await store.close()


async def test_what_the_server_remembers_itself_stays(stores: tuple[Store, Store]) -> None:
    one, two = stores
    await filled(one)
    rows = [row async for row in one.records("lab")]
    await two.note_job("lab", 9, person="eve", user="eve", kind="run", request={}, facts={}, audit={})
    await two.take_records("lab", again(rows))
    assert await two.job_record("lab", 3) is None
    assert await two.job_record("lab", 9) is not None
    assert len(await two.incidents("lab")) == 1
    assert await two.take_records("lab", again(rows)) == 0  # a second time nothing is doubled
    async with two._read() as db:
        assert len((await db.execute(select(t.incident_steps))).all()) == 1
    for store in stores:
        await store.close()


async def test_others_may_write_while_rows_come_back(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million rows take longer than an operation's lease lasts that is not renewed."""
    monkeypatch.setattr("headway.store.core.cluster_records.AT_ONCE", 2)
    one, two = stores
    await filled(one)
    rows = [row async for row in one.records("lab")]

    async def with_others() -> AsyncIterator[Row]:
        for number, row in enumerate(rows):
            await two.note_refill("other", "vision", float(number))
            yield row

    await two.take_records("lab", with_others())
    assert [name async for name, _ in two.records("lab")] == [name for name, _ in rows]
    assert await two.refills("other") == {"vision": float(len(rows) - 1)}
    for store in stores:
        await store.close()


@pytest.mark.parametrize("how", [Refused, asyncio.CancelledError])
async def test_what_a_try_brought_that_did_not_end_goes_again(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, how: type[BaseException]
) -> None:
    """Refused: the file can't be read any further. Cancelled: the server was ended, and only the next try can clear up."""
    monkeypatch.setattr("headway.store.core.cluster_records.AT_ONCE", 1)
    one, two = stores
    await filled(one)
    await two.note_refill("lab", "speech", 9.0)  # its own, which stays
    rows = [row async for row in one.records("lab")]

    async def broken() -> AsyncIterator[Row]:
        for row in rows[:-2]:
            yield row
        raise how("the end")

    with pytest.raises(how):
        await two.take_records("lab", broken())
    left = [name for name, _ in [row async for row in two.records("lab")] if name not in ("refills", "uids")]
    assert bool(left) == (how is asyncio.CancelledError)
    assert await two.take_records("lab", again(rows)) > 0
    (incident,) = await two.incidents("lab")
    assert [step.text for step in (await two.incident(incident.number)).steps] == ["lab"]  # type: ignore[union-attr]
    assert await two.refills("lab") == {"speech": 9.0}
    assert await two.secrets("lab") == {}
    for store in stores:
        await store.close()


async def test_who_gives_up_takes_half_a_ledger_away(stores: tuple[Store, Store]) -> None:
    """Else a restore of another day would take for its own what has come since."""
    one, two = stores
    await filled(one)
    rows = [row async for row in one.records("lab")]

    async def cut_off() -> AsyncIterator[Row]:
        for row in rows:
            yield row
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await two.take_records("lab", cut_off())
    await two.take_half_away("lab")
    await two.note_refill("lab", "speech", 9.0)
    await two.take_half_away("lab")  # of nothing
    assert await two.refills("lab") == {"speech": 9.0}
    assert await two.secrets("lab") == {}
    for store in stores:
        await store.close()


async def test_a_uid_that_is_another_persons_is_said(stores: tuple[Store, Store]) -> None:
    one, two = stores
    await filled(one)
    mine = await one.uids(["ann", "ben"], give=False)
    assert await two.uid_conflicts(mine) == ()
    await two.uids(["eve"])  # takes the uid that ann has there
    conflicts = await two.uid_conflicts(mine)
    assert conflicts == (f"uid {mine['ann']} of ann is eve's here",)
    for store in stores:
        await store.close()


async def test_rows_of_a_newer_version_are_passed_over(stores: tuple[Store, Store]) -> None:
    one, two = stores
    rows = [("of_later", {"cluster": "lab"}), ("refills", {"cluster": "lab", "team": "a", "at": 1.0, "new": 3})]
    assert await two.take_records("lab", again(rows)) == 1
    for store in (one, two):
        await store.close()


def test_keys_and_what_is_of_a_moment_are_not_among_records() -> None:
    names = {table.name for table in tables()}
    assert {"jobs", "pipelines", "incidents", "incident_steps", "incident_jobs", "signals", "prices"} <= names
    assert not names & {"secrets", "tokens", "sessions", "operations", "events", "people"}


async def test_a_secret_is_replaced_and_dropped(stores: tuple[Store, Store]) -> None:
    one, two = stores
    await one.put_secret("lab", "munge_key", "old")
    await one.set_secret("lab", "munge_key", "new")
    assert await one.secrets("lab") == {"munge_key": "new"}
    await one.drop_secret("lab", "munge_key")
    assert await one.secrets("lab") == {}
    for store in (one, two):
        await store.close()

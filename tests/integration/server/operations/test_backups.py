"""Backups and restores run as operations, and scheduled backups start by themselves."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headway.backup.archive import ArchiveReader, Header, key_of
from headway.backup.restore import read_contents, restore_records
from headway.domain.billing.ledger import NodePrice
from headway.domain.changeset import Disturbs
from headway.domain.cluster import BackupRule
from headway.domain.dataset import DatasetVersion
from headway.domain.environment import EnvironmentVersion, request_digest
from headway.domain.operation_kinds import OperationKind
from headway.errors import Refused, Unreachable
from headway.server.workers.backup_schedule import BackupSchedule
from headway.server.workers.operation_worker import OperationWorker
from headway.store.clusters.operations import MAX_ATTEMPTS
from tests.support.clusters import builders
from tests.support.clusters.backup_archive import parts, write_archive
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

__all__ = ["parts"]  # a fixture
PHRASE = "correct horse"
PARAMS = {"ref": "r", "what": "munge", "action": "verify", "name": "tiny", "version": 1}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    (tmp_path / "state").mkdir()
    made = await server_fakes.start(tmp_path / "state", builders.Clock(), rotate_key=None)
    await made.apply()
    yield made
    await made.close()


async def keys(server: Server) -> list[str]:
    return [
        name
        for name in await server.store.secrets.of_cluster("lab")
        if name.startswith(OperationKind.BACKUP.secret_prefix)
    ]


async def test_backup_operation_stores_no_passphrase_and_deletes_its_key(server: Server, tmp_path: Path) -> None:
    server.backend.answers["back_up"] = None
    client = await server.client()
    answer = await client.post("/api/v1/clusters/lab/backup", json={"to": str(tmp_path / "b"), "passphrase": PHRASE})
    assert answer.status_code == 202
    assert len(await keys(server)) == 1
    assert PHRASE not in str(await server.store.operations.get(answer.json()["id"]))
    await server.work_off()
    ((cluster, about, _, path, header, key),) = server.backend.named("back_up")
    assert (cluster.name, path.parent) == ("lab", tmp_path / "b")
    assert about["document"]["spec"]["name"] == "lab"
    assert key == key_of(PHRASE, header.salt)
    assert (await server.store.operations.get(answer.json()["id"])).kept == (str(path),)
    assert await keys(server) == []


async def test_failed_backup_keeps_the_cluster_ready(server: Server, tmp_path: Path) -> None:
    server.backend.answers["back_up"] = Refused("the disk is full")
    client = await server.client()
    answer = await client.post("/api/v1/clusters/lab/backup", json={"to": str(tmp_path / "b"), "passphrase": PHRASE})
    await server.work_off()
    assert (await server.store.operations.get(answer.json()["id"])).state == "failed"
    assert (await client.get("/api/v1/clusters/lab")).json()["state"] == "ready"
    assert await keys(server) == []


async def test_backup_interrupted_by_server_stop_continues_on_the_next_start(server: Server, tmp_path: Path) -> None:
    """The next server goes on with it, whatever this one met while it put its things away."""
    begun = asyncio.Event()

    async def back_up(*_: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise Unreachable("the head does not answer")

    server.backend.answers["back_up"] = back_up
    client = await server.client()
    answer = await client.post("/api/v1/clusters/lab/backup", json={"to": str(tmp_path / "b"), "passphrase": PHRASE})
    run = asyncio.create_task(OperationWorker(server.state, "test:0").run())
    await asyncio.wait_for(begun.wait(), 60)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert (await server.store.operations.get(answer.json()["id"])).state == "running"
    server.backend.answers["back_up"] = None
    await server.work_off()
    assert (await server.store.operations.get(answer.json()["id"])).state == "done"


@asynccontextmanager
async def held(server: Server, call: str) -> AsyncIterator[None]:
    """While a reconciler is in a `call` that does not end; then it is stopped."""
    begun = asyncio.Event()

    async def never(*_: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    server.backend.answers[call] = never
    run = asyncio.create_task(OperationWorker(server.state, "test:0").run())
    try:
        await asyncio.wait_for(begun.wait(), 60)
        yield
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


async def test_server_with_an_expired_lease_does_not_run_its_operation_twice(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clock its lease has passed when it wakes; what it holds it goes on with."""
    looks, real = asyncio.Semaphore(0), server.store.operations.claim

    async def claim(*args: Any, **more: Any) -> Any:
        try:
            return await real(*args, **more)
        finally:
            looks.release()

    monkeypatch.setattr(server.store.operations, "claim", claim)
    client = await server.client()
    clock: Any = server.state.clock
    ask = {"to": str(tmp_path / "b"), "passphrase": PHRASE}
    asked = (await client.post("/api/v1/clusters/lab/backup", json=ask)).json()["id"]
    async with held(server, "back_up"):
        clock.now += 3600
        while not looks.locked():
            await looks.acquire()
        for _ in range(3):
            server.state.wake.set()
            await asyncio.wait_for(looks.acquire(), 60)
        assert (await server.store.operations.get(asked)).attempts == 1


async def test_server_stops_do_not_count_as_operation_attempts(server: Server, tmp_path: Path) -> None:
    """A roll may wait for days; only servers that died under it count against it."""
    client = await server.client()
    ask = {"to": str(tmp_path / "b"), "passphrase": PHRASE}
    asked = (await client.post("/api/v1/clusters/lab/backup", json=ask)).json()["id"]
    for _ in range(MAX_ATTEMPTS + 2):
        async with held(server, "back_up"):
            pass
    assert (await server.store.operations.get(asked)).attempts == 1
    server.backend.answers["back_up"] = None
    await server.work_off()
    done = await server.store.operations.get(asked)
    assert (done.state, done.attempts) == ("done", 2)  # it does not pass for a new one


async def test_abandoned_backup_deletes_its_key(server: Server, tmp_path: Path) -> None:
    client = await server.client()
    answer = await client.post("/api/v1/clusters/lab/backup", json={"to": str(tmp_path / "b"), "passphrase": PHRASE})
    for _ in range(MAX_ATTEMPTS):
        assert await server.store.operations.claim("test:0", server.state.clock(), -1.0) is not None
    await server.work_off()
    assert (await server.store.operations.get(answer.json()["id"])).state == "failed"
    assert await keys(server) == []


async def test_scheduled_backup_that_could_not_be_queued_is_queued_later(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headway.services.storage.backups import queue_backup

    async def away(*_: Any, **__: Any) -> Any:
        raise Unreachable("the database does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(server.store.operations, "enqueue", away)
        with pytest.raises(Unreachable):
            await queue_backup(server.state, "lab", "headway", tmp_path, PHRASE, ref="scheduled-5")
    assert await keys(server) == []
    assert await queue_backup(server.state, "lab", "headway", tmp_path, PHRASE, ref="scheduled-5") is not None


@pytest.mark.parametrize("place", ["/etc/headway", "/", "b", "/var/tmp/../../proc/x", "/var/tmp/b\0"])
async def test_refuses_backup_folders_of_the_host_system(server: Server, place: str) -> None:
    client = await server.client()
    answer = await client.post("/api/v1/clusters/lab/backup", json={"to": place, "passphrase": PHRASE})
    assert answer.status_code in (403, 422)
    answer = await client.get("/api/v1/backups", params={"folder": place})
    assert answer.status_code in (400, 403)


async def test_backup_list_searches_the_folder_of_the_cluster_document(
    server: Server, tmp_path: Path, parts: dict[str, bytes]
) -> None:
    client = await server.client()
    answer = await client.get("/api/v1/backups")
    assert (answer.status_code, answer.json()["hint"]) == (400, "name a folder: --in DIR")
    header = Header("lab", 1.0, "1.0", "24.11", base64.b64encode(b"s" * 16).decode())
    kept = write_archive(tmp_path, header, with_key=key_of(PHRASE, header.salt), **parts)
    row = await server.state.clusters.row("lab")
    for folder, there in ((tmp_path, [str(kept)]), (tmp_path / "not-yet", [])):
        spec = {**row.document["spec"], "backup": {"to": str(folder)}}
        await server.store.clusters.save("lab", {**row.document, "spec": spec})
        answer = await client.get("/api/v1/backups")
        assert [one["path"] for one in answer.json()] == there


async def test_restore_checks_the_archive_and_restores_records_and_machines(
    server: Server, tmp_path: Path, parts: dict[str, bytes]
) -> None:
    document = server_fakes.document().model_dump()
    parts["about"] = json.dumps({"document": document, "owner": "ann"}).encode()
    header = Header("lab", 1.0, "1.0", "24.11", base64.b64encode(b"s" * 16).decode())
    key = key_of(PHRASE, header.salt)
    monkey = write_archive(tmp_path, header, with_key=key, **parts)
    client = await server.client()
    ask = {"path": str(monkey), "passphrase": PHRASE}
    assert (await client.post("/api/v1/clusters/lab/restore", json=ask)).json()["kind"] == "needs_confirmation"
    wrong = await client.post("/api/v1/clusters/lab/restore", json={**ask, "passphrase": "another one"})
    assert "does not open" in wrong.json()["detail"]
    foreign = await client.post("/api/v1/clusters/other/restore", json=ask)
    assert "backup of the cluster lab" in foreign.json()["detail"]
    assert server.backend.named("restore") == []
    server.backend.answers["restore"] = None
    await server.store.gpu_hour_cap_resets.record("lab", "a", 900.0)
    await server.store.budgets.record("lab", "a", 0, "over", capped=True)
    then = server.state.clock() + 5
    await server.store.prices.record(
        "lab", [NodePrice("main", then, Decimal("99")), NodePrice("gone", then, Decimal("9"), reserved=3)]
    )
    server.state.clock.now += 10  # type: ignore[attr-defined]
    answer = await client.post("/api/v1/clusters/lab/restore", json={**ask, "confirmed": True})
    await server.work_off()
    assert await server.store.gpu_hour_cap_resets.of_cluster("lab") == {"a": 1.0}, (
        "usage is that of the backup's moment"
    )
    assert await server.store.budgets.capped_teams("lab") == frozenset(), "nor are limits those that were known"
    done = await server.store.operations.get(answer.json()["id"])
    assert done.state == "done", done.error
    ((cluster, _, path, given, ref),) = server.backend.named("restore")
    assert (cluster.name, path, given) == ("lab", monkey, key)
    assert ref == done.params["ref"]
    assert await server.store.linux_uids.assign_uids(["ann"], give=False) == {"ann": 20_003}
    assert (await server.store.secrets.of_cluster("lab"))["munge_key"] == "eA=="
    assert await keys(server) == []
    newest = {row.group: (row.usd_per_hour, row.reserved) for row in await server.store.prices.of_cluster("lab")}
    prices = {group.name: (group.price_usd_per_node_hour, 0) for group in cluster.groups}
    assert newest == {**prices, "gone": (Decimal(9), 0)}, "what its file says is paid from then on"


async def test_restore_lists_dataset_versions_with_missing_files(
    server: Server, tmp_path: Path, parts: dict[str, bytes]
) -> None:
    rows = [asdict(DatasetVersion("lab", "tiny", number, "0" * 64, 1, 1, "/d", "ann", 1.0)) for number in (1, 2)]
    lines = "".join(json.dumps(["datasets", row]) + "\n" for row in rows)
    parts["records"] = zlib.compress(zlib.decompress(parts["records"]) + lines.encode())
    parts["about"] = json.dumps({"document": server_fakes.document().model_dump(), "owner": "ann"}).encode()
    header = Header("lab", 1.0, "1.0", "24.11", base64.b64encode(b"s" * 16).decode())
    path = write_archive(tmp_path, header, with_key=key_of(PHRASE, header.salt), **parts)
    folder = server.state.clusters.dataset_file_store(builders.cluster()).folder("tiny")
    (folder / "2").mkdir(parents=True)
    folder.chmod(0o700)
    server.backend.answers["restore"] = None
    ask = {"path": str(path), "passphrase": PHRASE, "confirmed": True}
    asked = (await (await server.client()).post("/api/v1/clusters/lab/restore", json=ask)).json()["id"]
    await server.work_off()
    assert folder.stat().st_mode & 0o777 == 0o755
    (cluster, *_) = server.backend.named("restore")[0]
    assert [(dataset.mount, dataset.source) for dataset in cluster.storage.datasets] == [
        ("/datasets/tiny", str(folder))
    ]
    (said,) = [event for event in await server.store.operations.events_after(asked) if event.step == "datasets"]
    assert said.text == "the files of tiny@1 are missing: add the same ones again with headway dataset add"
    assert await server.store.datasets.next_number("lab", "tiny") == 3


async def test_restore_builds_missing_environments_of_the_file_and_names_the_others(
    server: Server, tmp_path: Path, parts: dict[str, bytes]
) -> None:
    class Files:
        async def missing(self, versions: tuple[EnvironmentVersion, ...]) -> tuple[EnvironmentVersion, ...]:
            return tuple(version for version in versions if version.number == 2)

    def row(name: str, number: int, request: str) -> dict[str, Any]:
        made = EnvironmentVersion("lab", name, number, "0" * 64, "3.13.5", 1, 1, "x", request, "ann", 1.0, 7)
        return {**asdict(made), "lock": "torch==2.6\n"}

    rows = [row("speech", 2, ""), row("vision", 2, request_digest("torch\n")), row("whole", 1, "")]
    lines = "".join(json.dumps(["environments", one]) + "\n" for one in rows)
    parts["records"] = zlib.compress(zlib.decompress(parts["records"]) + lines.encode())
    parts["about"] = json.dumps({"document": server_fakes.document().model_dump(), "owner": "ann"}).encode()
    header = Header("lab", 1.0, "1.0", "24.11", base64.b64encode(b"s" * 16).decode())
    path = write_archive(tmp_path, header, with_key=key_of(PHRASE, header.salt), **parts)
    server.backend.clusters["lab"] = {"environments": {"vision": ("torch",)}}
    server.backend.answers |= {"restore": None, "environment_file_store": Files()}
    ask = {"path": str(path), "passphrase": PHRASE, "confirmed": True}
    asked = (await (await server.client()).post("/api/v1/clusters/lab/restore", json=ask)).json()["id"]
    await server.work_off()
    said = [event.text for event in await server.store.operations.events_after(asked) if event.step == "environments"]
    assert said == [
        "vision: built by operations of their own",
        "the files of speech@2 are missing: rebuild them from their lock files (headway env show prints one)",
    ]
    builds = [one for one in await server.store.operations.recent("lab") if one.kind == "environment"]
    assert [(one.subject, one.params["text"]) for one in builds] == [("environment vision", "torch\n")]


async def test_archive_is_read_outside_the_event_loop(
    server: Server, tmp_path: Path, parts: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have gigabytes, and leases are renewed on the loop."""
    where: set[bool] = set()
    real = ArchiveReader._frame

    def frame(self: ArchiveReader) -> tuple[bytes, bytes]:
        where.add(threading.current_thread() is threading.main_thread())
        return real(self)

    monkeypatch.setattr(ArchiveReader, "_frame", frame)
    header = Header("lab", 1.0, "1.0", "24.11", base64.b64encode(b"s" * 16).decode())
    key = key_of(PHRASE, header.salt)
    path = write_archive(tmp_path, header, with_key=key, **parts)
    kept = await asyncio.to_thread(read_contents, path, key)
    assert await restore_records("lab", server.store, path, key, kept) > 0
    assert where == {False}


async def test_restore_with_conflicting_uids_changes_nothing(
    server: Server, tmp_path: Path, parts: dict[str, bytes]
) -> None:
    await server.store.linux_uids.assign_uids(["eve", "fay", "gil", "hal"])  # 20,003 is hal's
    header = Header("lab", 1.0, "1.0", "24.11", base64.b64encode(b"s" * 16).decode())
    path = write_archive(tmp_path, header, with_key=key_of(PHRASE, header.salt), **parts)
    client = await server.client()
    ask = {"path": str(path), "passphrase": PHRASE, "confirmed": True}
    answer = await client.post("/api/v1/clusters/lab/restore", json=ask)
    await server.work_off()
    done = await server.store.operations.get(answer.json()["id"])
    assert done.error is not None
    assert "uid 20003 of ann is hal's" in done.error["message"]
    assert (await client.get("/api/v1/clusters/lab")).json()["state"] == "ready"


@pytest.mark.parametrize(("kind", "before"), [("rotate", "ready"), ("apply", "ready"), ("apply", "failed")])
async def test_refused_operation_leaves_the_cluster_state_unchanged(server: Server, kind: str, before: str) -> None:
    server.backend.answers["rotate_key"] = Refused("lab has other disturbing changes")
    server.backend.answers["plan"] = server_fakes.changes(Disturbs.JOBS)
    await server.store.clusters.save("lab", state=before)
    row = await server.state.clusters.row("lab")
    params = {"what": "munge", "ref": "r", "look_again": True}
    asked = await server.store.operations.enqueue("lab", kind, "ann", document=row.document, params=params)
    server.backend.calls.clear()
    await server.work_off()
    assert (await server.store.operations.get(asked.id)).state == "failed"
    assert server.backend.named("apply") == []
    assert (await server.state.clusters.row("lab")).state == before


@pytest.mark.parametrize("kind", ["backup", "restore", "rotate", "dataset"])
async def test_operation_page_and_activity_name_each_kind(server: Server, kind: str) -> None:
    operation = await server.store.operations.enqueue("lab", kind, "ann", params=PARAMS)
    await server.work_off()
    client = await server.client()
    page = await client.get(f"/operations/{operation.id}")
    assert page.status_code == 200, page.text[-500:]
    words = {
        "backup": "backup: failed", "restore": "restore from a backup: failed", "rotate": "key rotation: done",
        "dataset": "dataset: failed",
    }  # fmt: skip
    assert words[kind] in (await client.get("/api/v1/clusters/lab/activity")).text


@pytest.mark.parametrize("away", ["clusters.all", "operations.active"])
async def test_unavailable_database_does_not_end_the_backup_loop(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    """Neither where clusters are listed nor in the middle of one: the next look finds it back."""
    server.backend.answers["back_up"] = None
    (tmp_path / "b").mkdir()
    (tmp_path / "key").write_text("correct horse battery\n")
    rule = BackupRule(str(tmp_path / "b"), 3600, 2, str(tmp_path / "key"))
    server.backend.whole["lab"] = replace(builders.cluster(4, name="lab"), backup=rule)
    row = await server.store.clusters.get("lab")
    assert row is not None
    await server.store.clusters.save("lab", {**row.document, "spec": {**row.document["spec"], "backup": {"to": "b"}}})
    part, method = away.split(".")
    owner = getattr(server.store, part)
    real, asked, looks = getattr(owner, method), 0, asyncio.Event()

    async def answers_later(*args: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise OSError("the database does not answer")
        return await real(*args)

    async def pause(_: float) -> None:
        if asked > 1:
            looks.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(owner, method, answers_later)
    loop = asyncio.create_task(BackupSchedule(server.state, pause).run())
    try:
        await asyncio.wait_for(looks.wait(), 60)
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
    await server.work_off()
    assert len(server.backend.named("back_up")) == 1

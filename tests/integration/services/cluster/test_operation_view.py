"""Only admins learn where the server keeps backups and their keys, by whichever way a failed operation is shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.catalog.node_images import IMAGES
from headway.domain.cluster import STATE_VERSION_FILE, BackupRule
from headway.errors import Refused
from headway.schemas.clusters import Document
from headway.server.operations import backups
from headway.server.workers.backup_schedule import BackupSchedule
from headway.server.workers.leader_election import Follower
from headway.services.cluster_backend import ResolvedCluster
from headway.services.storage.backups import queue_backup
from headway.store import Operation
from tests.support.clusters import builders
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

FOLDER = "secret folder"  # with a blank


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """A server with a cluster whose backups fail, and whose next apply upgrades Slurm."""
    folder = tmp_path / FOLDER / "x"
    folder.mkdir(parents=True)
    (folder / "key").write_text("correct horse battery\n")
    (tmp_path / "state").mkdir()
    made = await server_fakes.start(tmp_path / "state", builders.Clock(), ensure_image=None)
    volume = tmp_path / "state" / "volumes" / "lab" / "head"
    volume.mkdir(parents=True)

    async def resolve(document: Document) -> ResolvedCluster:
        image = str(document.spec.get("image", "debian13"))
        rule = BackupRule(str(folder), 3600, 2, str(folder / "key"))
        cluster = replace(builders.cluster(4, name="lab"), image=image, backup=rule)
        return ResolvedCluster(replace(cluster, slurm_version=IMAGES[image].slurm.name))

    async def apply(cluster: Any, *_: Any) -> None:
        (volume / STATE_VERSION_FILE).write_text(f"{cluster.slurm_version}\n")

    monkeypatch.setattr(made.backend.lifecycle, "resolve", resolve)
    made.backend.answers["apply"] = apply
    made.backend.answers["back_up"] = Refused(
        f"{folder / 'lab-1.hwb'}: no space left", hint=f"look at {folder / 'key'}"
    )
    await made.apply()
    yield made
    await made.close()


async def upgrade(server: Server) -> Operation:
    document = server_fakes.document("lab", image="debian14").model_dump()
    answer = await (await server.client("root")).post(
        "/api/v1/clusters/lab/apply", json={"document": document, "confirmed": True}
    )
    assert answer.status_code == 202, answer.text
    await server.work_off()
    return (await server.store.operations.recent("lab"))[0]


async def shown(server: Server, operation: Operation, role: str) -> dict[str, str]:
    """Returns what each way shows of the operation to a person of this role."""
    client = await server.client(f"p{role}", role)
    urls = (
        "/api/v1/operations",
        f"/api/v1/operations/{operation.id}",
        f"/api/v1/operations/{operation.id}/events",
        "/api/v1/clusters/lab/activity",
        "/clusters/lab",
        f"/operations/{operation.id}",
        f"/operations/{operation.id}/live",
    )
    return {url: (await client.get(url)).text for url in urls}


def for_everyone(server: Server) -> list[str]:
    """Returns the texts of recent events and of the stream, which all people get."""
    live = server.state.live
    return [*(event.text for event in live.recent_events("lab")), *(event.text for event in live.events_after(0) or [])]


async def require_hidden(server: Server, operation: Operation) -> None:
    """Checks all ways: lists, the operation, its events, activity and pages by role; recent events and the stream for all."""
    assert operation.state == "failed"
    for role, sees in (("viewer", False), ("member", False), ("operator", False), ("admin", True)):
        answers = await shown(server, operation, role)
        named = {url for url, text in answers.items() if FOLDER in text}
        assert named == ({url for url in answers if "operations" in url} if sees else set()), role
        assert "lab-1.hwb" in answers["/api/v1/clusters/lab/activity"]
    follower = Follower(server.state)  # a server that learns of the operation from the database
    follower._known = {operation.id: "running"}
    await follower.publish_changes()
    texts = for_everyone(server)
    assert sum("lab-1.hwb" in text for text in texts) == 4, "a recent event and an event of the stream of each server"
    assert not any(FOLDER in text for text in texts)


async def test_backup_before_an_upgrade_of_slurm(server: Server) -> None:
    document = server_fakes.document("lab", image="debian14").model_dump()
    client = await server.client()
    answer = await client.post("/api/v1/clusters/lab/apply", json={"document": document, "confirmed": True})
    assert answer.status_code == 202, answer.text
    await server.work_off()
    await require_hidden(server, (await server.store.operations.recent("lab"))[0])


async def test_backup(server: Server, tmp_path: Path) -> None:
    client = await server.client()
    ask = {"to": str(tmp_path / FOLDER / "x"), "passphrase": "correct horse"}
    assert (await client.post("/api/v1/clusters/lab/backup", json=ask)).status_code == 202
    await server.work_off()
    await require_hidden(server, (await server.store.operations.recent("lab"))[0])


async def test_backup_that_the_schedule_can_not_queue(server: Server, tmp_path: Path) -> None:
    (tmp_path / FOLDER / "x" / "key").write_text("short\n")
    row = await server.store.clusters.get("lab")
    assert row is not None
    rule = {"to": str(tmp_path / FOLDER / "x"), "key_file": str(tmp_path / FOLDER / "x" / "key")}
    document = {**row.document, "spec": {**row.document["spec"], "backup": rule}}
    await BackupSchedule(server.state)._check(replace(row, document=document))
    (text,) = [text for text in for_everyone(server) if "scheduled" in text]
    assert "key holds no passphrase" in text
    assert FOLDER not in text


async def test_old_backups_that_can_not_be_removed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / FOLDER / "x"
    monkeypatch.setattr(backups, "delete_old_backups", lambda *_: [f"{folder}/lab-0.hwb: Permission denied"])
    server.backend.answers["back_up"] = None
    await queue_backup(server.state, "lab", "headway", folder, "correct horse", keep=1, ref="r")
    await server.work_off()
    (text,) = [text for text in for_everyone(server) if "could not be removed" in text]
    assert "lab-0.hwb: Permission denied" in text
    assert FOLDER not in text

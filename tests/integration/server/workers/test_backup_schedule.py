"""Scheduled backups run by the clock, on one of several servers, and also after a clock was ahead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.backup.archive import Header
from headway.backup.overdue import OVERDUE_S, RETRY_S
from headway.backup.retention import delete_old_backups
from headway.domain.cluster import BackupRule
from headway.errors import Refused
from headway.server.workers.backup_schedule import BackupSchedule
from tests.support.clusters import builders
from tests.support.clusters.backup_archive import HEADER, parts, write_archive
from tests.support.servers import server_fakes
from tests.support.servers.server_fakes import Server

__all__ = ["parts"]  # a fixture
PHRASE = "correct horse"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    (tmp_path / "state").mkdir()
    made = await server_fakes.start(tmp_path / "state", builders.Clock(), rotate_key=None)
    await made.apply()
    yield made
    await made.close()


async def looked(server: Server, rule: BackupRule | None, backups: BackupSchedule | None = None) -> int:
    """One look of the loop; how many backups have been asked for since the beginning."""
    cluster = replace(builders.cluster(4, name="lab"), backup=rule)
    server.backend.whole["lab"] = cluster
    row = await server.store.clusters.get("lab")
    assert row is not None
    document = {**row.document, "spec": {**row.document["spec"], "backup": {"rule": str(rule)}}}
    await server.store.clusters.save("lab", document)
    row = await server.store.clusters.get("lab")
    assert row is not None
    await (backups or BackupSchedule(server.state))._check(row)
    if backups is None:
        await server.work_off()
    return len(server.backend.named("back_up"))


async def test_scheduled_backup_runs_when_due_and_retries_after_failure(server: Server, tmp_path: Path) -> None:
    server.backend.answers["back_up"] = None
    file = tmp_path / "key"
    file.write_text("correct horse battery\n")
    rule = BackupRule(str(tmp_path / "b"), 3600, 2, str(file))
    (tmp_path / "b").mkdir()
    clock: Any = server.state.clock
    assert await looked(server, None) == 0
    assert await looked(server, rule) == 1
    assert await looked(server, rule) == 1
    clock.now += 3601
    assert await looked(server, rule) == 2
    server.backend.answers["back_up"] = Refused("full")
    clock.now += 3601
    assert await looked(server, rule) == 3
    assert await looked(server, rule) == 3
    clock.now += RETRY_S + 1
    assert await looked(server, rule) == 4


@pytest.fixture
def rule(server: Server, tmp_path: Path) -> BackupRule:
    """Every hour; two are kept."""
    server.backend.answers["back_up"] = None
    (tmp_path / "key").write_text("correct horse battery\n")
    (tmp_path / "b").mkdir()
    return BackupRule(str(tmp_path / "b"), 3600, 2, str(tmp_path / "key"))


async def test_failed_removal_of_an_old_backup_triggers_no_further_backup(
    server: Server, rule: BackupRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of those would have removed a good one more."""
    old = [write_archive(Path(rule.to), Header("lab", at, "1", "24.11", HEADER.salt), a=b"") for at in (1.0, 2.0, 3.0)]
    real = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path == old[0]:
            raise PermissionError(1, "Operation not permitted", str(path))
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    clock: Any = server.state.clock
    assert await looked(server, rule) == 1
    clock.now += RETRY_S + 1
    assert await looked(server, rule) == 1
    assert [path.exists() for path in old] == [True, False, True]
    last = await server.store.operations.latest_scheduled_backup("lab")
    assert last is not None
    assert last.state == "done"
    (said,) = [event for event in await server.store.operations.events_after(last.id) if event.level == "warning"]
    assert said.text == f"older ones could not be removed: {old[0].name}: Operation not permitted"


def test_retention_keeps_the_last_backup_of_the_previous_slurm_version(tmp_path: Path) -> None:
    versions = {1.0: "24.11", 2.0: "24.11", 3.0: "26.05", 4.0: "26.05", 5.0: "26.05"}
    rows = [
        write_archive(tmp_path, Header("lab", at, "1", slurm, HEADER.salt), a=b"") for at, slurm in versions.items()
    ]
    assert delete_old_backups(tmp_path, "lab", 2, rows[-1]) == ()
    assert [path.exists() for path in rows] == [False, True, False, True, True]


async def test_backups_continue_after_a_failed_apply(server: Server, rule: BackupRule) -> None:
    await server.store.clusters.save("lab", state="failed")
    assert await looked(server, rule) == 1
    assert (await (await server.client()).get("/api/v1/clusters/lab")).json()["state"] == "failed"


async def test_many_other_operations_do_not_make_a_backup_due(server: Server, rule: BackupRule) -> None:
    assert await looked(server, rule) == 1
    for number in range(60):
        operation = await server.store.operations.enqueue("lab", "dataset", "ann", params={"n": number})
        assert await server.store.operations.claim("test:0", server.state.clock(), 30.0) is not None
        await server.store.operations.finish(operation.id, "test:0", "done")
    assert await looked(server, rule) == 1


async def test_manual_backup_does_not_replace_the_scheduled_one(
    server: Server, rule: BackupRule, tmp_path: Path
) -> None:
    client = await server.client()
    ask = {"to": str(tmp_path / "elsewhere"), "passphrase": PHRASE}
    assert (await client.post("/api/v1/clusters/lab/backup", json=ask)).status_code == 202
    await server.work_off()
    assert await looked(server, rule) == 2
    assert await looked(server, rule) == 2


async def test_overdue_backup_is_reported_once_per_interval(server: Server, rule: BackupRule) -> None:
    def told() -> list[str]:
        return [event.text for event in server.state.live.recent_events("lab") if "no backup" in event.text]

    clock: Any = server.state.clock
    backups = BackupSchedule(server.state)
    assert await looked(server, rule) == 1
    await server.store.operations.enqueue("lab", "apply", "ann", params={})  # jobs are waited for, perhaps for days
    assert await server.store.operations.claim("test:0", server.state.clock(), 1e9) is not None
    clock.now += 3600 + OVERDUE_S
    assert await looked(server, rule, backups) == 1
    assert told() == []
    clock.now += 2
    for _ in range(2):
        assert await looked(server, rule, backups) == 1
    (text,) = told()
    assert (
        "there is no backup of it since 1970-01-01 00:16 UTC, and the file requires one every 1h 00m: an apply is under way"
        in text
    )
    clock.now += 3601
    assert await looked(server, rule, backups) == 1
    assert len(told()) == 2


async def test_clock_jump_ahead_does_not_stop_scheduled_backups(server: Server, rule: BackupRule) -> None:
    clock: Any = server.state.clock
    backups, year_s = BackupSchedule(server.state), 365 * 86_400

    async def made() -> int:
        await looked(server, rule, backups)
        await server.work_off()
        return len(server.backend.named("back_up"))

    clock.now += year_s
    assert await made() == 1
    clock.now -= year_s
    assert [await made() for _ in range(3)] == [2, 2, 2]
    clock.now += 3601
    assert await made() == 3


async def test_clock_jump_ahead_does_not_silence_overdue_backups(server: Server, rule: BackupRule) -> None:
    def told() -> int:
        return len([event for event in server.state.live.recent_events("lab") if "no backup" in event.text])

    clock: Any = server.state.clock
    backups, year_s = BackupSchedule(server.state), 365 * 86_400
    clock.now += year_s
    assert await looked(server, rule) == 1
    clock.now -= year_s
    await server.store.operations.enqueue("lab", "apply", "ann", params={})
    assert await server.store.operations.claim("test:0", server.state.clock(), 1e9) is not None
    for wait_s in (0, 3600 + OVERDUE_S + 2):
        clock.now += wait_s
        await looked(server, rule, backups)
    assert told() == 1
    clock.now += year_s
    await looked(server, rule, backups)
    clock.now -= year_s - 4000
    await looked(server, rule, backups)
    assert told() == 3


async def test_waiting_rollout_does_not_delay_scheduled_backups(server: Server, tmp_path: Path) -> None:
    server.backend.answers |= {"back_up": None, "roll_nodes": True}
    file = tmp_path / "key"
    file.write_text("correct horse battery\n")
    await server.store.operations.enqueue("lab", "roll", "ann", params={})
    assert await server.store.operations.claim("test:0", server.state.clock(), -1.0) is not None
    assert await looked(server, BackupRule(str(tmp_path), 3600, 2, str(file))) == 1


async def test_two_servers_queue_one_scheduled_backup(server: Server, tmp_path: Path) -> None:
    from headway.services.storage.backups import queue_backup

    first = await queue_backup(server.state, "lab", "headway", tmp_path, "correct horse", ref="scheduled-5")
    assert first is not None
    assert await queue_backup(server.state, "lab", "headway", tmp_path, "correct horse", ref="scheduled-5") is None


async def test_missing_backup_key_file_is_reported(server: Server, tmp_path: Path) -> None:
    rule = BackupRule(str(tmp_path), 3600, 2, str(tmp_path / "none"))
    assert await looked(server, rule) == 0
    (event, *_) = server.state.live.recent_events("lab")
    assert "can't be made" in event.text

"""backup, backups and restore send the right requests and print the answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.schemas.storage.backups import BackupOut
from headway.schemas.storage.volumes import MeasuredOut, StorageOut, UnmountedNodeOut, VolumeOut, VolumeSpeedOut
from tests.support.cli_fakes import Cli, cli, cluster, operation

__all__ = ["cli"]  # a fixture
FILE = "/backup/lab-20260101-020000.headway-backup"
KEPT = BackupOut(path=FILE, cluster="lab", at=1.0, bytes=3 << 20, headway="1.0", slurm_version="24.11")


@pytest.fixture
def phrase(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HEADWAY_BACKUP_PASSPHRASE", "correct horse")
    return "correct horse"


def test_backup_prints_its_file_path_and_the_restore_command(cli: Cli, phrase: str) -> None:
    done = operation("done", kind="backup", kept=[FILE])
    cli.api.on("clusters.only_name", "lab").on("backups.create", done).on("operations.events", []).on(
        "operations.get", done
    )
    ended = cli("backup", "--to", "/backup")
    assert ended.out.splitlines()[-1] == FILE
    assert f"headway restore lab --from {FILE}" in ended.err
    assert cli.api.named("backups.create") == [(("lab", "/backup", phrase), {})]


def test_backup_reads_passphrase_from_key_file_and_refuses_short_one(cli: Cli, tmp_path: Path) -> None:
    done = operation("done", kind="backup", kept=[FILE])
    cli.api.on("backups.create", done).on("operations.events", []).on("operations.get", done)
    file = tmp_path / "key"
    file.write_text("from the file\nsecond line\n")
    cli("backup", "lab", "--to", "/backup", "--key-file", str(file))
    assert cli.api.named("backups.create")[0][0][2] == "from the file"
    file.write_text("short\n")
    ended = cli("backup", "lab", "--to", "/backup", "--key-file", str(file))
    assert ended.code == 1
    assert "fewer than 8" in ended.err
    assert cli("backup", "lab", "--to", "/backup", "--key-file", str(tmp_path / "none")).code == 1


def test_backup_without_passphrase_or_terminal_requires_key_file(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_BACKUP_PASSPHRASE", raising=False)
    ended = cli("backup", "lab", "--to", "/backup")
    assert ended.code == 3
    assert "--key-file" in ended.err


def test_backups_lists_a_folder_and_verifies_one_backup(cli: Cli, phrase: str) -> None:
    cli.api.on("backups.list", [KEPT]).on("backups.verify", KEPT.model_copy(update={"records": 12}))
    assert "3.0 MiB" in cli("backups", "--in", "/backup").out
    assert "yes, 12 records" in cli("backups", "--in", "/backup", "--verify", Path(FILE).name).out
    assert cli.api.named("backups.verify") == [((FILE, phrase), {})]
    cli.api.on("backups.list", [])
    assert cli("backups", "--in", "/backup").out == "no backup in /backup\n"


def test_backups_without_folder_uses_the_folders_of_the_cluster_files(cli: Cli, phrase: str) -> None:
    cli.api.on("backups.list", [KEPT]).on("backups.verify", KEPT.model_copy(update={"records": 12}))
    assert "yes, 12 records" in cli("backups", "--verify", Path(FILE).name).out
    assert cli.api.named("backups.list") == [(("",), {})]
    assert cli.api.named("backups.verify") == [((FILE, phrase), {})]
    cli.api.on("backups.list", [])
    assert cli("backups").out == "no backup in the folders of the cluster files\n"


def test_restore_over_an_existing_cluster_requires_confirmation(cli: Cli, phrase: str) -> None:
    done = operation("done", kind="restore")
    cli.api.on("clusters.list", [cluster()]).on("backups.restore", done).on("operations.events", []).on(
        "operations.get", done
    )
    ended = cli("restore", "lab", "--from", FILE)
    assert ended.code == 3
    assert "are replaced" in ended.err
    assert cli("restore", "lab", "--from", FILE, "--yes").code == 0
    cli.api.on("clusters.list", [])
    assert "lab is restored" in cli("restore", "lab", "--from", FILE).out
    assert cli.api.named("backups.restore")[0] == (("lab", FILE, phrase), {"confirmed": True})


def test_storage_bench_prints_speeds_and_errors_of_volumes(cli: Cli) -> None:
    found = [
        VolumeSpeedOut(path="/scratch", write_mib_s=812.4, read_mib_s=2100, checkpoint_mib_s=640),
        VolumeSpeedOut(path="/models", error="Read-only file system"),
    ]
    cli.api.on("storage.benchmark", found)
    lines = cli("storage", "bench", "lab", "--node", "lab-1-1").out.splitlines()
    assert "812 MiB/s" in lines[1]
    assert "Read-only" in lines[2]
    assert cli.api.named("storage.benchmark") == [(("lab",), {"node": "lab-1-1", "mib": 256})]


def test_storage_show_lists_nodes_that_lost_a_volume(cli: Cli) -> None:
    measured = MeasuredOut(path="/scratch", write_mib_s=812.4, read_mib_s=2100, node="lab-1-1", mib=256, at=1000.0)
    lost = UnmountedNodeOut(node="lab-1-2", why="volumes: /data is not mounted")
    volumes = [
        VolumeOut(
            path="/scratch", size_bytes=4 << 40, used_bytes=3 << 40, free_bytes=1 << 40, nodes=4, measured=measured
        ),
        VolumeOut(path="/data", type="nfs4", source="filer:/data", nodes=3, lost=[lost]),
    ]
    cli.api.on("storage.get", StorageOut(cluster="lab", volumes=volumes, stale="lab-head does not answer"))
    output = cli("storage", "show", "lab")
    head, scratch, data = output.out.splitlines()
    assert head.split() == ["VOLUME", "TYPE", "USED", "FREE", "NODES", "WRITE", "READ", "CHECKPOINT"]
    assert scratch.split() == ["/scratch", "-", "3.0", "TiB", "1.0", "TiB", "4", "812", "MiB/s", "2100", "MiB/s", "-"]
    assert "3 of 4" in data
    assert "lab-1-2: volumes: /data" in data
    assert "lab-head does not answer" in output.err
    assert json.loads(cli("storage", "show", "lab", "-o", "json").out)["volumes"][0]["measured"]["at"] == 1000.0

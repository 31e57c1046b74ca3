"""Which backups are kept."""

from __future__ import annotations

from pathlib import Path

from headway.backup.archive import Header
from headway.backup.retention import delete_old_backups
from tests.support.clusters.backup_archive import HEADER, write_archive


def test_retention_deletes_only_oldest_backups_of_same_cluster(tmp_path: Path) -> None:
    mine = [write_archive(tmp_path, Header("lab", at, "1", "24.11", HEADER.salt), a=b"") for at in (1e9, 2e9, 3e9)]
    other = write_archive(tmp_path, Header("other", 5e8, "1", "24.11", HEADER.salt), a=b"")
    delete_old_backups(tmp_path, "lab", 2, mine[2])
    assert {path for path in (*mine, other) if path.exists()} == {mine[1], mine[2], other}
    late = write_archive(tmp_path, Header("lab", 1.5e9, "1", "24.11", HEADER.salt), a=b"")  # the clock had been ahead
    delete_old_backups(tmp_path, "lab", 1, late)
    assert {path for path in (*mine, late, other) if path.exists()} == {late, other}

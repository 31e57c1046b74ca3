"""Verification of a backup."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from headway.backup.archive import Damaged
from headway.backup.restore import read_contents
from headway.backup.verify import verify_backup
from tests.support.clusters.backup_archive import DUMP, KEY, parts, write_archive

__all__ = ["parts"]  # a fixture


def test_complete_backup_passes_verification(tmp_path: Path, parts: dict[str, bytes]) -> None:
    path = write_archive(tmp_path, **parts)
    proof = verify_backup(path, KEY)
    assert proof.records == 2
    assert proof.bytes == path.stat().st_size
    kept = read_contents(path, KEY)
    assert kept.uids == {"ann": 20_003}
    assert kept.secrets == {"munge_key": "eA=="}
    assert kept.about["owner"] == "ann"


@pytest.mark.parametrize(
    ("part", "data"),
    [
        ("database", gzip.compress(DUMP[: len(DUMP) // 2])),  # mariadb-dump died, and gzip ended well
        ("database", gzip.compress(DUMP)[:-50]),
        ("state", b"not a tar"),
    ],
)
def test_verification_refuses_truncated_or_malformed_part(
    tmp_path: Path, parts: dict[str, bytes], part: str, data: bytes
) -> None:
    with pytest.raises(Damaged, match="incomplete"):
        verify_backup(write_archive(tmp_path, **{**parts, part: data}), KEY)


def test_verification_names_missing_part(tmp_path: Path, parts: dict[str, bytes]) -> None:
    del parts["secrets"]
    with pytest.raises(Damaged, match="lacks secrets"):
        verify_backup(write_archive(tmp_path, **parts), KEY)
